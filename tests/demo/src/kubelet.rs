//! Plays the part of the simulated nodes' kubelets: instances get ready one after another.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, ResourceExt as _};
use lmcache_testbed::annotation::HOLD;
use serde_json::json;

/// How long an instance takes to start.
const START: Duration = Duration::from_secs(2);

/// Lets go every pod that its annotations hold back when it starts, one after another, until it is dropped.
pub async fn run(client: Client) -> Result<()> {
    let mut pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default())
        .default_backoff()
        .applied_objects()
        .boxed();
    // A pod that a person holds back later is left to that person.
    let mut started = HashSet::new();
    while let Some(pod) = pods.next().await {
        // A watch that broke is opened again by the watcher itself.
        let Ok(pod) = pod else { continue };
        if !is_starting(&pod) || !started.insert(pod.uid()) {
            continue;
        }
        tokio::time::sleep(START).await;
        let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        // By now it may be gone, and another may have its name.
        let patch = Patch::Merge(json!({"metadata": {"uid": pod.uid(), "annotations": {HOLD: null}}}));
        match pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            result => drop(result?),
        }
    }
    Ok(())
}

fn is_starting(pod: &Pod) -> bool {
    let held = pod.annotations().get(HOLD).is_some_and(|value| value == "true");
    let running = pod.status.as_ref().is_some_and(|status| status.container_statuses.is_some());
    held && running && pod.metadata.deletion_timestamp.is_none()
}
