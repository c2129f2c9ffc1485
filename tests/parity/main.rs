//! What the operator makes of a resource equals what the reference operator made of it, on a real API server.
//!
//! `tests/fixtures/parity/golden` holds the recorded children of every case in `cases`; `meant.yaml` holds the edits to
//! them that stand for the differences we mean. Everything else must be equal.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod case;
mod meant;

use std::time::Duration;

use anyhow::{Context as _, Result};
use common::{Bed, project};
use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use lmcache_harness::Harness;

use case::Case;
use meant::Meant;

/// How many cases are on their way at once.
const AT_ONCE: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_equal_the_recorded_ones() {
    let bed = bed().await.unwrap();
    let operator = bed.operator("manager", &[]).await.unwrap();
    notices_service_monitors(bed.cluster.client()).await.unwrap();

    let (cases, meant) = (Case::all().unwrap(), Meant::load().unwrap());
    let count = cases.len();
    let running = cases.into_iter().map(|case| {
        let (client, meant) = (bed.cluster.client(), &meant);
        async move { (case.compare(client, meant).await, case.name) }
    });
    let results: Vec<_> = futures::stream::iter(running).buffer_unordered(AT_ONCE).collect().await;

    let mut failed = Vec::new();
    for (result, name) in results {
        match result {
            Ok(differences) if differences.is_empty() => println!("equal {name}"),
            Ok(differences) => failed.push(format!("{name} differs:\n    {}", differences.join("\n    "))),
            Err(error) => failed.push(format!("{name} failed: {error:?}")),
        }
    }
    println!("{} of {count} cases equal", count - failed.len());
    let log = operator.program.log();
    assert!(failed.is_empty(), "{}\n\nthe operator's log:\n{log}", failed.join("\n"));
    assert!(count >= 33, "only {count} cases were found");
}

async fn bed() -> Result<Bed> {
    let bed = Bed::start("parity").await?;
    let monitors = std::fs::read_to_string(project().join("tests/fixtures/parity/servicemonitor-crd.yaml"))?;
    bed.cluster.apply_yaml(&monitors).await?;
    bed.cluster.add_gpu_node("gpu-1").await?;
    Ok(bed)
}

/// Waits until the operator knows that ServiceMonitors are served; it learns it after its start.
async fn notices_service_monitors(client: Client) -> Result<()> {
    let suite = Harness::in_new_namespace(client.clone(), "monitors").await?;
    let spec = serde_json::json!({"l1": {"sizeGB": 1}, "prometheus": {"serviceMonitor": {"enabled": true}}});
    suite.apply_fixture(&common::engine("first", &spec)).await?;
    let monitors: Api<DynamicObject> =
        Api::namespaced_with(client, suite.namespace(), &common::children::service_monitor());
    let made = await_condition(monitors, "first", |it: Option<&DynamicObject>| it.is_some());
    tokio::time::timeout(Duration::from_secs(30), made).await.context("no ServiceMonitor was made")??;
    suite.finish().await
}
