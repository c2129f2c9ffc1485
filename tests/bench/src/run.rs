//! The run with the operator.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use lmcache_crds::LMCacheEngine;
use lmcache_testbed::{Cluster, ComponentMemory};
use tokio::task::JoinSet;

use crate::audit::{AuditLog, Requests};
use crate::bed::{self, Operator};
use crate::edit::{Edit, edit};
use crate::fleet::Fleet;
use crate::machine::Usage;
use crate::progress::{Progress, say};

/// After this time without a request the operator has settled. Counts alone are written up to two seconds late.
const QUIET: Duration = Duration::from_secs(3);
const QUIET_LIMIT: Duration = Duration::from_mins(2);
const CHECK: Duration = Duration::from_secs(1);

/// What was measured.
#[derive(Clone, Debug)]
pub struct OperatorRun {
    /// From the start of the operator to the last engine Ready.
    pub all_ready: Duration,
    /// Requests until all was quiet.
    pub requests: Requests,
    /// Used until all was quiet.
    pub usage: Usage,
    /// How long the edit in the middle took; `None` when every engine was Ready by then.
    pub edit: Option<EditTimes>,
    /// Requests while nothing happened; `None` when that was not asked for, or when it never got quiet.
    pub settled: Option<Requests>,
    /// Memory of the cluster's components at the end.
    pub components: Vec<ComponentMemory>,
}

/// How long an edit took.
#[derive(Clone, Copy, Debug)]
pub struct EditTimes {
    /// Until the `DaemonSet` carried the new argument.
    pub carried: Duration,
    /// Until the status spoke of the new generation.
    pub observed: Duration,
}

/// Creates the engines, starts the operator and measures until it has settled.
pub async fn measure(manager: &Path, engines: u32, settled: Duration) -> Result<OperatorRun> {
    say("starting a cluster");
    let cluster = bed::cluster("bench").await?;
    bed::install(&cluster).await?;
    say(&format!("creating {engines} engines"));
    bed::create_engines(&cluster, engines).await?;
    let mut fleet = Fleet::watch(&cluster).await?;
    say("starting the operator");
    let started = Instant::now();
    let mut operator = Operator::start(manager, &cluster)?;
    let result = observe(&cluster, &mut fleet, &mut operator, engines, started, settled).await;
    operator.stop().await;
    cluster.stop().await;
    result
}

async fn observe(
    cluster: &Cluster,
    fleet: &mut Fleet<LMCacheEngine>,
    operator: &mut Operator,
    engines: u32,
    started: Instant,
    settled: Duration,
) -> Result<OperatorRun> {
    let (all_ready, edit) = converge(cluster, fleet, operator, engines, started).await?;
    say(&format!("all Ready after {:.1} s, waiting until all is quiet", all_ready.as_secs_f64()));
    let mut log = AuditLog::new(cluster.audit_log_path());
    let mut requests = Requests::default();
    let quiet = log.until_quiet(&mut requests, QUIET, QUIET_LIMIT).await?;
    operator.check()?;
    let usage = Usage::of(operator.pid())?;
    let settled = if quiet && !settled.is_zero() {
        say(&format!("counting requests for {} s", settled.as_secs()));
        tokio::time::sleep(settled).await;
        let mut requests = Requests::default();
        log.read_into(&mut requests)?;
        operator.check()?;
        Some(requests)
    } else {
        None
    };
    Ok(OperatorRun { all_ready, requests, usage, edit, settled, components: cluster.memory() })
}

/// Waits until all engines are Ready; when half of them are, edits the last one that is not.
async fn converge(
    cluster: &Cluster,
    fleet: &mut Fleet<LMCacheEngine>,
    operator: &mut Operator,
    engines: u32,
    started: Instant,
) -> Result<(Duration, Option<EditTimes>)> {
    let count = usize::try_from(engines)?;
    let limit = Duration::from_mins(2) + Duration::from_secs(1) * engines;
    let mut progress = Progress::new("Ready", count);
    let (mut target, mut edited, mut editing) = (None, Edited::default(), JoinSet::new());
    let mut check = tokio::time::interval(CHECK);
    loop {
        tokio::select! {
            changed = fleet.changed() => changed?,
            Some(result) = editing.join_next() => edited.edit = Some(result.context("the edit ended")??),
            _ = check.tick() => operator.check()?,
        }
        progress.at(fleet.ready());
        if target.is_none() && fleet.ready() * 2 >= count {
            target = Some(last_not_ready(fleet, engines));
            if let Some(name) = target.iter().flatten().next() {
                editing.spawn(edit(cluster.client(), name.clone()));
            }
        }
        let name = target.iter().flatten().next();
        edited.look(name.and_then(|name| fleet.observed_generation(name)));
        if fleet.ready() == count && (name.is_none() || edited.times().is_some()) {
            return Ok((started.elapsed(), edited.times()));
        }
        if started.elapsed() > limit {
            let (ready, tail) = (fleet.ready(), operator.log_tail());
            bail!("only {ready} of {count} engines are Ready after {} s; {tail}", limit.as_secs());
        }
    }
}

fn last_not_ready(fleet: &Fleet<LMCacheEngine>, engines: u32) -> Option<String> {
    (0..engines).rev().map(bed::name).find(|name| fleet.is_ready(name) == Some(false))
}

/// What has come of the edit so far.
#[derive(Default)]
struct Edited {
    edit: Option<Edit>,
    /// Every generation that the status has spoken of, and since when.
    observed: Vec<(i64, Instant)>,
}

impl Edited {
    fn look(&mut self, generation: Option<i64>) {
        if let Some(generation) = generation
            && self.observed.last().is_none_or(|(last, _)| *last < generation)
        {
            self.observed.push((generation, Instant::now()));
        }
    }

    fn times(&self) -> Option<EditTimes> {
        let edit = self.edit?;
        let (_, at) = self.observed.iter().find(|(generation, _)| *generation >= edit.generation)?;
        Some(EditTimes { carried: edit.carried_after, observed: at.saturating_duration_since(edit.sent) })
    }
}
