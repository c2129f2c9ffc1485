//! Webhooks on a real API server: what is refused, warned of and let through, how certificates heal, and what a client
//! that misbehaves can do.
//!
//! The operator registers its webhooks by URL, since nothing routes Services here. Tests that neither stop it nor touch
//! its certificates share one control plane; the others have one of their own, for the configurations are in no namespace.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

#[path = "../faults/http.rs"]
#[allow(dead_code, reason = "metrics are served without TLS here")]
mod http;
#[path = "../parity/meant.rs"]
mod meant;
#[path = "../parity/pods.rs"]
mod pods;

mod certificates;
mod client;
mod files;
mod injected;
mod limits;
mod outage;
mod replicas;
mod rotation;
mod server;
mod shipped;
mod skipped;
mod storm;
mod unknown;
mod validating;
mod vllm;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use common::{Bed, Operator, engine, stored};
use kube::api::PostParams;
use lmcache_crds::LMCacheEngine;
use lmcache_testbed::{Cluster, ClusterOptions};
use serde_json::json;
use tokio::sync::OnceCell;

/// A control plane with definitions that check nothing, so that whatever is refused is refused by the webhook, and with an
/// engine `old` that no rule of today would let in. No operator runs on it yet.
async fn lenient_bed(name: &str) -> Result<Bed> {
    let crds = lmcache_crds::crds();
    let crds = crds.iter().map(|crd| serde_json::to_string(&stored::without_rules(crd)));
    let manifests = crds.collect::<Result<Vec<_>, _>>()?.join("\n---\n");
    let options = ClusterOptions { name: name.to_owned(), manifests, ..ClusterOptions::default() };
    let bed = Bed { cluster: Cluster::start(options).await? };
    bed.cluster.grant_operator_with_webhooks().await?;
    bed.cluster.apply_yaml(&invalid("old")).await?;
    Ok(bed)
}

/// An engine that the webhook refuses and the definitions of [`lenient_bed`] do not.
fn invalid(name: &str) -> String {
    engine(name, &json!({"l1": {"sizeGB": 1}, "server": {"port": 80}}))
}

/// What is wrong with it.
const WRONG: &str = "spec.server.port: Invalid value: 80: must be in [1024, 65535]";

/// Starts an operator with webhooks at a free port.
fn start_with_webhooks(bed: &Bed, name: &str, flags: &[&str]) -> Result<Operator> {
    let own = ["--webhook-bind-address=127.0.0.1:0"];
    let kubeconfig = bed.cluster.operator_kubeconfig_path();
    Operator::start(bed.cluster.state_dir(), name, &kubeconfig, &[&own, flags].concat())
}

/// The same, registered by URL; returns when the API server refuses what the webhook refuses.
async fn operator_by_url(bed: &Bed, name: &str, flags: &[&str]) -> Result<Operator> {
    let operator = start_with_webhooks(bed, name, &[&["--webhook-url=https://127.0.0.1:0"], flags].concat())?;
    until_refused(bed, &operator).await?;
    Ok(operator)
}

/// Waits until an invalid engine is refused, and says how long that took.
async fn until_refused(bed: &Bed, operator: &Operator) -> Result<Duration> {
    let begun = Instant::now();
    while is_let_in(bed).await? {
        ensure!(begun.elapsed() < Duration::from_secs(30), "nothing is refused:\n{}", operator.program.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(begun.elapsed())
}

/// Whether an invalid engine would be stored: then no webhook was asked, or none answered.
async fn is_let_in(bed: &Bed) -> Result<bool> {
    let engines = kube::Api::<LMCacheEngine>::default_namespaced(bed.cluster.client());
    would_be_let_in(&engines).await
}

async fn would_be_let_in(engines: &kube::Api<LMCacheEngine>) -> Result<bool> {
    let engine = serde_json::from_str(&invalid("tried"))?;
    match engines.create(&PostParams { dry_run: true, field_manager: None }, &engine).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.message.contains(WRONG) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The shared control plane, with an operator whose webhooks work.
async fn shared() -> &'static (Bed, Operator) {
    static SHARED: OnceCell<(Bed, Operator)> = OnceCell::const_new();
    let start = || async {
        let bed = lenient_bed("admission").await?;
        let operator = operator_by_url(&bed, "manager", &[]).await?;
        // Engines are told apart from their coordinators only when those are known.
        operator.wait_for_log("Started the controllers").await?;
        anyhow::Ok((bed, operator))
    };
    SHARED.get_or_try_init(start).await.unwrap()
}
