//! The run with the operator.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use lmcache_testbed::jaeger::Jaeger;
use lmcache_testbed::{Cluster, ComponentMemory};

use crate::audit::{AuditLog, Requests};
use crate::bed::{self, Operator};
use crate::edit::{EditTimes, Edits};
use crate::fleet::{Fleet, is_resource_ready};
use crate::kinds::Kind;
use crate::machine::Usage;
use crate::mix::Mix;
use crate::progress::{Progress, say};
use crate::scrape::Scrape;

/// After this time without a request the operator has settled. Counts alone are written up to two seconds late.
const QUIET: Duration = Duration::from_secs(3);
const QUIET_LIMIT: Duration = Duration::from_mins(2);
const CHECK: Duration = Duration::from_secs(1);

/// What was measured.
#[derive(Clone, Debug)]
pub struct OperatorRun {
    /// From the start of the operator to the last resource Ready.
    pub all_ready: Duration,
    /// Requests until all was quiet.
    pub requests: Requests,
    /// Used until all was quiet.
    pub usage: Usage,
    /// Its `/metrics` after that.
    pub scrape: Scrape,
    /// How long an edit of each kind took in the middle; `None` when every resource of the kind was Ready by then.
    pub edits: Vec<(Kind, Option<EditTimes>)>,
    /// Requests while nothing happened; `None` when that was not asked for, or when it never got quiet.
    pub settled: Option<Requests>,
    /// Memory of the cluster's components at the end.
    pub components: Vec<ComponentMemory>,
}

/// Creates the resources, starts the operator and measures until it has settled; `traced`, with a live Jaeger that takes every
/// span.
pub async fn measure(manager: &Path, mix: &Mix, settled: Duration, traced: bool) -> Result<OperatorRun> {
    say("starting a cluster");
    let cluster = bed::cluster("bench").await?;
    bed::install(&cluster).await?;
    say(&format!("creating {mix}"));
    bed::create_resources(&cluster, mix).await?;
    let kinds: Vec<_> = mix.kinds().iter().map(|kind| kind.resource()).collect();
    let mut fleet = Fleet::watch(&cluster, &kinds, is_resource_ready).await?;
    let collector = if traced { Some(Jaeger::start(&cluster.state_dir().join("jaeger")).await?) } else { None };
    say("starting the operator");
    let started = Instant::now();
    let mut operator = Operator::start(manager, &cluster, collector.as_ref())?;
    let result = observe(&cluster, &mut fleet, &mut operator, mix, started, settled).await;
    operator.stop().await;
    drop(collector);
    cluster.stop().await;
    result
}

async fn observe(
    cluster: &Cluster,
    fleet: &mut Fleet,
    operator: &mut Operator,
    mix: &Mix,
    started: Instant,
    settled: Duration,
) -> Result<OperatorRun> {
    let (all_ready, edits) = converge(cluster, fleet, operator, mix, started).await?;
    say(&format!("all Ready after {:.1} s, waiting until all is quiet", all_ready.as_secs_f64()));
    let mut log = AuditLog::new(cluster.audit_log_path());
    let mut requests = Requests::default();
    let quiet = log.until_quiet(&mut requests, QUIET, QUIET_LIMIT).await?;
    operator.check()?;
    let usage = Usage::of(operator.pid())?;
    let scrape = Scrape::of(&operator.metrics_address()?).await?;
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
    Ok(OperatorRun { all_ready, requests, usage, scrape, edits, settled, components: cluster.memory() })
}

/// Waits until all resources are Ready, with an edit of each kind in the middle.
async fn converge(
    cluster: &Cluster,
    fleet: &mut Fleet,
    operator: &mut Operator,
    mix: &Mix,
    started: Instant,
) -> Result<(Duration, Vec<(Kind, Option<EditTimes>)>)> {
    let count = usize::try_from(mix.count())?;
    let limit = bed::patience(mix.count());
    let (client, mut edits) = (cluster.client(), Edits::new(mix));
    let mut progress = Progress::new("Ready", count);
    let mut check = tokio::time::interval(CHECK);
    loop {
        tokio::select! {
            changed = fleet.changed() => changed?,
            Some(result) = edits.carried() => result?,
            _ = check.tick() => operator.check()?,
        }
        progress.at(fleet.ready());
        edits.look(&client, fleet);
        if fleet.ready() == count && edits.done() {
            return Ok((started.elapsed(), edits.times()));
        }
        if started.elapsed() > limit {
            let (ready, tail) = (fleet.ready(), operator.log_tail());
            bail!("only {ready} of {count} resources are Ready after {} s; {tail}", limit.as_secs());
        }
    }
}
