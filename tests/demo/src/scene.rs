//! The story: an engine is created and gets ready, its spec changes and it is rolled over, the other kinds join
//! it, and vLLM is connected to it.

use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use lmcache_crds::{LMCacheEngine, Phase, PhaseRecord};
use serde_json::{Value, json};

use crate::folder::Folder;
use crate::kinds::{self, Kinds};
use crate::pods;
use crate::rows::Rows;
use crate::screen::{Columns, Screen};
use crate::stage::Stage;
use crate::{tell, traces};

/// Name of the engine in [`SAMPLE`].
pub const NAME: &str = "demo";
/// Its namespace.
pub const NAMESPACE: &str = "default";

const SAMPLE: &str = include_str!("../sample.yaml");
/// Three instances take about six seconds; a busy machine takes its time.
const PATIENCE: Duration = Duration::from_mins(2);
/// Wide enough for what a rollout shows: name, phase, ready, desired, age, reason.
const WIDTHS: [usize; 6] = [4, 10, 5, 7, 3, 18];
const EXPECTED: [Phase; 4] = [Phase::Pending, Phase::Reconciled, Phase::Rolling, Phase::Ready];

/// The table on the screen.
struct Table {
    screen: Screen,
    columns: Columns,
    begun: bool,
}

impl Table {
    fn new(screen: Screen) -> Self {
        Self { screen, columns: Columns::new(&WIDTHS), begun: false }
    }

    /// Waits for the next change, prints it if it is to be seen, and returns the engine; `None` when it was deleted.
    async fn next(&mut self, rows: &mut Rows) -> Result<Option<LMCacheEngine>> {
        let Some(row) = rows.next().await? else { return Ok(None) };
        if !row.changed {
            return Ok(Some(row.engine));
        }
        let header: Vec<_> = row.header.iter().map(|name| name.to_uppercase()).collect();
        self.columns.widen(&header);
        if !self.begun {
            self.screen.row(&self.columns, &header)?;
            self.begun = true;
        }
        // The message comes last and has what is left of the line.
        self.columns.widen(&row.cells[..row.cells.len().saturating_sub(1)]);
        self.screen.row(&self.columns, &row.cells)?;
        Ok(Some(row.engine))
    }
}

/// Plays it from the start of the cluster to the end; `told` says when the end is reached. Without `once` it then goes on
/// until it is dropped.
pub async fn play(stage: &mut Stage, folder: &mut Folder, manager: &Path, once: bool, told: &mut bool) -> Result<()> {
    let screen = Screen::new();
    let started = Instant::now();
    screen.line("Starting a Kubernetes control plane with three GPU nodes")?;
    stage.start_cluster(folder).await?;
    screen.line(&format!("It runs after {:.1} s; starting the operator", started.elapsed().as_secs_f64()))?;
    let metrics = stage.start_operator(manager, folder).await?;

    let client = stage.cluster()?.client();
    let mut rows = Rows::open(client.clone(), NAMESPACE, NAME).await?;
    let mut table = Table::new(screen);
    screen.heading("$ kubectl apply -f tests/demo/sample.yaml")?;
    SAMPLE.lines().try_for_each(|line| screen.line(&format!("  {line}")))?;
    stage.cluster()?.apply_yaml(SAMPLE).await?;

    screen.heading("$ kubectl get lmc -o wide -w")?;
    let first = watched(stage, until_ready(&mut table, &mut rows, 1)).await?;

    let generation = patch(screen, &client, &json!({"spec": {"server": {"maxWorkers": 4}}})).await?;
    let last = watched(stage, until_ready(&mut table, &mut rows, generation)).await?;
    drop(rows);

    tell::history(screen, &last)?;
    tell::conditions(screen, &last)?;
    tell::events(screen, client.clone(), &last).await?;
    traces::tell(screen, stage.jaeger(), &first).await?;
    traces::tell(screen, stage.jaeger(), &last).await?;
    three_kinds(screen, stage, &client).await?;
    pods::tell(screen, stage.cluster()?).await?;
    tell::look_around(screen, stage.cluster()?, &folder.path("operator.log"), &metrics)?;
    walked(NAME, tell::record(&first))?;
    *told = true;
    if once {
        return Ok(());
    }
    screen.line("\nCtrl-C ends it. Until then, what happens to the engine is shown here.")?;
    let mut rows = Rows::open(client, NAMESPACE, NAME).await?;
    watched(stage, onwards(screen, &mut Table::new(screen), &mut rows)).await
}

/// Adds a `CacheBlendEngine` and a coordinator, lets the engine join it, and shows all three when they are Ready.
async fn three_kinds(screen: Screen, stage: &mut Stage, client: &Client) -> Result<()> {
    screen.heading("Three kinds side by side")?;
    screen.line("A coordinator, and a CacheBlendEngine that reports to it:")?;
    let mut all = Kinds::open(screen, client).await?;
    screen.heading("$ kubectl apply -f tests/demo/kinds.yaml")?;
    kinds::MANIFEST.lines().try_for_each(|line| screen.line(&format!("  {line}")))?;
    stage.cluster()?.apply_yaml(kinds::MANIFEST).await?;

    screen.line("\nThe engine from before joins them. Its servers get one more argument, so it is rolled over:")?;
    let change = json!({"spec": {"coordinator": {"ref": {"name": kinds::COORDINATOR}}}});
    let generation = patch(screen, client, &change).await?;
    watched(stage, all.until_ready(generation)).await?;
    kinds::tell(screen, stage.cluster()?).await
}

/// Changes the engine's spec, and shows how. Returns the generation that has the change.
async fn patch(screen: Screen, client: &Client, change: &Value) -> Result<i64> {
    screen.heading(&format!("$ kubectl patch lmc {NAME} --type merge -p '{change}'"))?;
    let engines = Api::<LMCacheEngine>::namespaced(client.clone(), NAMESPACE);
    let changed = engines.patch(NAME, &PatchParams::default(), &Patch::Merge(change)).await?;
    changed.metadata.generation.context("the engine has no generation")
}

/// Does something as long as the operator runs.
async fn watched<T>(stage: &mut Stage, scene: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        result = scene => result,
        Err(error) = stage.watch_over() => Err(error),
    }
}

/// Shows every change until the engine is Ready with this generation.
async fn until_ready(table: &mut Table, rows: &mut Rows, generation: i64) -> Result<LMCacheEngine> {
    let mut last = None;
    let search = async {
        loop {
            let engine = table.next(rows).await?.context("the engine was deleted")?;
            if tell::record(&engine)
                .is_some_and(|it| it.phase == Phase::Ready && it.observed_generation >= Some(generation))
            {
                return Ok(engine);
            }
            last = Some(engine);
        }
    };
    if let Ok(result) = tokio::time::timeout(PATIENCE, search).await {
        return result;
    }
    let record = last.and_then(|engine| engine.status).map(|status| status.record).unwrap_or_default();
    bail!("the engine is not Ready after {} s: {}", PATIENCE.as_secs(), record.message.unwrap_or_default())
}

/// Shows every change of an engine that a person plays with.
async fn onwards(screen: Screen, table: &mut Table, rows: &mut Rows) -> Result<()> {
    loop {
        if table.next(rows).await?.is_none() {
            screen.line("  The engine was deleted.")?;
        }
    }
}

/// Fails when the history of a new resource lacks a phase.
pub fn walked(name: &str, record: Option<&PhaseRecord>) -> Result<()> {
    let steps = record.into_iter().flat_map(|record| &record.phase_transitions);
    let mut path = vec![Phase::Pending];
    path.extend(steps.map(|step| step.to));
    let missing: Vec<_> = EXPECTED.iter().filter(|phase| !path.contains(phase)).map(ToString::to_string).collect();
    ensure!(missing.is_empty(), "{name} never was {}", missing.join(", "));
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_sample_is_the_engine_of_the_story() {
        for expected in
            [&format!("name: {NAME}"), &format!("namespace: {NAMESPACE}"), lmcache_testbed::annotation::HOLD]
        {
            assert!(SAMPLE.contains(expected), "no {expected} in:\n{SAMPLE}");
        }
    }

    #[rstest]
    #[case(&[Phase::Reconciled, Phase::Rolling, Phase::Ready], None)]
    #[case(&[Phase::Reconciled, Phase::Ready], Some("Rolling"))]
    #[case(&[], Some("Reconciled, Rolling, Ready"))]
    fn a_phase_that_was_left_out_is_named(#[case] path: &[Phase], #[case] missing: Option<&str>) {
        let steps: Vec<_> = path.iter().map(|to| json!({
            "from": "Pending", "to": to, "reason": "R", "message": "", "generation": 1, "time": "2026-01-01T00:00:00Z",
        })).collect();
        let record: PhaseRecord = serde_json::from_value(json!({"phaseTransitions": steps})).unwrap();
        let found = walked("demo", Some(&record)).err().map(|error| error.to_string());
        assert_eq!(found, missing.map(|phases| format!("demo never was {phases}")));
    }
}
