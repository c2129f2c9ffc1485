//! An edit in the middle of the convergence.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use lmcache_crds::LMCacheEngine;
use serde_json::json;

use crate::bed::NAMESPACE;

const WORKERS: i32 = 7;

/// An edit whose argument has reached the workload.
#[derive(Clone, Copy, Debug)]
pub struct Edit {
    /// When it was sent.
    pub sent: Instant,
    /// Generation of the engine with the edit.
    pub generation: i64,
    /// How long it took until the `DaemonSet` carried the new argument.
    pub carried_after: Duration,
}

/// Edits an engine and waits until its `DaemonSet` carries what was edited.
pub async fn edit(client: Client, engine: String) -> Result<Edit> {
    let config = watcher::Config::default().fields(&format!("metadata.name={engine}"));
    let sets = Api::<DaemonSet>::namespaced(client.clone(), NAMESPACE);
    let mut events = watcher(sets, config).default_backoff().boxed();
    // The watch is open before the edit is made, so that its start does not count.
    while !matches!(events.try_next().await?.context("the watch ended")?, Event::InitDone) {}

    let engines = Api::<LMCacheEngine>::namespaced(client, NAMESPACE);
    let patch = Patch::Merge(json!({"spec": {"server": {"maxWorkers": WORKERS}}}));
    let sent = Instant::now();
    let edited = engines.patch(&engine, &PatchParams::default(), &patch).await.context("cannot edit an engine")?;
    let generation = edited.metadata.generation.context("an engine has no generation")?;
    while let Some(event) = events.try_next().await? {
        if let Event::Apply(set) | Event::InitApply(set) = event
            && carries_edit(&set)
        {
            return Ok(Edit { sent, generation, carried_after: sent.elapsed() });
        }
    }
    anyhow::bail!("the watch ended")
}

fn carries_edit(set: &DaemonSet) -> bool {
    let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let args = pod.and_then(|pod| pod.containers.first()?.args.as_ref());
    args.is_some_and(|args| args.windows(2).any(|pair| pair[0] == "--max-workers" && pair[1] == WORKERS.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use lmcache_operator::render::{ChildKind, Options, Resolved, children};

    use super::*;
    use crate::bed::engine;

    #[test]
    fn an_edit_is_recognised_in_what_is_rendered_of_it() {
        let set = |engine: &LMCacheEngine| {
            let children = children(engine, &Resolved::default(), &Options::default());
            let child = children.get(ChildKind::DaemonSet, "engine-00003").unwrap();
            serde_json::from_value::<DaemonSet>(child.object.clone()).unwrap()
        };
        let mut engine = engine(3);
        assert!(!carries_edit(&set(&engine)), "{:?}", set(&engine));
        engine.spec.common.server.get_or_insert_default().max_workers = Some(WORKERS);
        assert!(carries_edit(&set(&engine)), "{:?}", set(&engine));
    }
}
