//! What can be read of an engine when it has settled.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use lmcache_crds::{LMCacheEngine, PhaseRecord};
use lmcache_testbed::{Cluster, annotation};

use crate::scene::NAME;
use crate::screen::Screen;

const EVENTS_PATIENCE: Duration = Duration::from_secs(3);

/// `status.phaseTransitions` as a table.
pub fn history(screen: Screen, engine: &LMCacheEngine) -> Result<()> {
    screen.heading("History (status.phaseTransitions)")?;
    let mut rows = vec![["TIME", "GEN", "FROM", "TO", "REASON", "MESSAGE"].map(str::to_owned)];
    for step in record(engine).map(|record| record.phase_transitions.as_slice()).unwrap_or_default() {
        rows.push([
            clock(step.time.0),
            step.generation.to_string(),
            step.from.to_string(),
            step.to.to_string(),
            step.reason.clone(),
            step.message.clone(),
        ]);
    }
    Ok(screen.table(&rows)?)
}

/// `status.conditions` as a table.
pub fn conditions(screen: Screen, engine: &LMCacheEngine) -> Result<()> {
    screen.heading("Conditions (status.conditions)")?;
    let mut rows = vec![["TYPE", "STATUS", "REASON", "MESSAGE"].map(str::to_owned)];
    for condition in record(engine).map(|record| record.conditions.as_slice()).unwrap_or_default() {
        rows.push([&condition.type_, &condition.status, &condition.reason, &condition.message].map(Clone::clone));
    }
    Ok(screen.table(&rows)?)
}

/// The engine's Events, oldest first.
pub async fn events(screen: Screen, client: Client, engine: &LMCacheEngine) -> Result<()> {
    let name = engine.name_any();
    screen.heading(&format!("Events (kubectl events --for lmcacheengine/{name})"))?;
    let about = ListParams::default().fields(&format!("regarding.name={name},regarding.kind=LMCacheEngine"));
    let api = Api::<Event>::namespaced(client, &engine.namespace().unwrap_or_default());
    let steps = record(engine).map_or(0, |record| record.phase_transitions.len());
    let deadline = Instant::now() + EVENTS_PATIENCE;
    let mut events = api.list(&about).await?.items;
    // An Event follows the status that it tells of.
    while events.len() < steps && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
        events = api.list(&about).await?.items;
    }
    events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
    let mut rows = vec![["TIME", "TYPE", "REASON", "MESSAGE"].map(str::to_owned)];
    for event in events {
        rows.push([
            event.event_time.map(|time| clock(time.0)).unwrap_or_default(),
            event.type_.unwrap_or_default(),
            event.reason.unwrap_or_default(),
            event.note.unwrap_or_default(),
        ]);
    }
    Ok(screen.table(&rows)?)
}

/// How a person looks around in the cluster.
pub fn look_around(screen: Screen, cluster: &Cluster, log: &Path, metrics: &str) -> Result<()> {
    screen.heading("Look around")?;
    let lines = [
        format!("export KUBECONFIG={}", cluster.admin_kubeconfig_path().display()),
        format!("alias kubectl={}", cluster.kubectl_path().display()),
        "kubectl get lmcache".to_owned(),
        format!("kubectl describe lmc {NAME}"),
        format!("kubectl wait --for=condition=Ready lmc/{NAME}"),
        format!("kubectl annotate pod --all {}=true    # loses the instances", annotation::LOSE),
        format!("kubectl annotate pod --all {}-        # and brings them back", annotation::LOSE),
        format!("curl http://{metrics}/metrics"),
        format!("less {}", log.display()),
    ];
    lines.iter().try_for_each(|line| screen.line(&format!("  {line}")))?;
    Ok(())
}

/// The part of the status that tells of phases.
pub fn record(engine: &LMCacheEngine) -> Option<&PhaseRecord> {
    engine.status.as_ref().map(|status| &status.record)
}

/// Time of day in UTC, `15:04:05`.
fn clock(time: Timestamp) -> String {
    let text = time.to_string();
    text.split_once('T').and_then(|(_, clock)| clock.get(..8)).unwrap_or(&text).to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_to_the_second() {
        assert_eq!(clock("2026-01-02T15:04:05.678Z".parse().unwrap()), "15:04:05");
    }
}
