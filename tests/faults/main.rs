//! What goes wrong around the operator: kills, restarts, lost permissions, malformed objects, bad input.
//!
//! Tests that need no control plane of their own share one on which no operator stands; each starts its operators for its
//! own namespace.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod definitions;
mod honesty;
mod http;
mod kills;
mod leader;
mod malformed;
mod namespaces;
mod restarts;
mod rights;
mod serving;
mod stop;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use common::{Bed, Operator, project};
use kube::Client;
use lmcache_harness::Harness;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// How long a rollout may take while other tests share the machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// The shared control plane: three GPU nodes, all rights of the operator granted, no operator.
async fn bed() -> &'static Bed {
    static BED: OnceCell<Bed> = OnceCell::const_new();
    let start = || async {
        let bed = Bed::start("faults").await?;
        let reviews = std::fs::read_to_string(project().join("deploy/base/metrics_auth_role.yaml"))?;
        bed.cluster.grant_operator(&reviews).await?;
        add_nodes(&bed).await?;
        anyhow::Ok(bed)
    };
    BED.get_or_try_init(start).await.unwrap()
}

async fn add_nodes(bed: &Bed) -> Result<()> {
    let names = ["gpu-1", "gpu-2", "gpu-3"];
    futures::future::try_join_all(names.iter().map(|name| bed.cluster.add_gpu_node(name))).await?;
    Ok(())
}

/// A namespace of the test's own.
async fn suite(client: Client, prefix: &str) -> Harness {
    Harness::in_new_namespace(client, prefix).await.unwrap().with_timeout(PATIENCE)
}

/// Starts an operator for one namespace and waits until it works.
async fn operator_for(bed: &Bed, namespace: &str, flags: &[&str]) -> Result<Operator> {
    let own = format!("--watch-namespaces={namespace}");
    bed.operator(namespace, &[&[own.as_str()], flags].concat()).await
}

/// A spec whose instances differ from those of every other rollout.
fn spec(rollout: usize) -> Value {
    json!({"l1": {"sizeGB": 1}, "env": [{"name": "ROLLOUT", "value": rollout.to_string()}]})
}

/// Waits until the process has ended by itself and says with which code and how long it took.
async fn ended(operator: &mut Operator, patience: Duration) -> Result<(Option<i32>, Duration)> {
    let started = Instant::now();
    loop {
        if let Some(status) = operator.program.exit_status() {
            return Ok((status.code(), started.elapsed()));
        }
        ensure!(started.elapsed() < patience, "it has not ended:\n{}", operator.program.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many lines the operator writes while nothing changes for it.
async fn lines_within(operator: &Operator, period: Duration) -> usize {
    let before = operator.program.log().lines().count();
    tokio::time::sleep(period).await;
    operator.program.log().lines().count() - before
}

/// Fails with the whole log when something in it must not be there.
fn assert_calm(operator: &mut Operator) {
    let log = operator.program.log();
    assert!(!log.contains("panicked"), "{log}");
    assert!(operator.program.exit_status().is_none(), "the operator has ended:\n{log}");
}

/// A kubeconfig for the user of a token.
fn token_kubeconfig(bed: &Bed, name: &str, token: &str) -> Result<PathBuf> {
    let admin = std::fs::read_to_string(bed.cluster.admin_kubeconfig_path())?;
    let mut config: Value = serde_norway::from_str(&admin)?;
    config["users"][0]["user"] = json!({"token": token});
    let path = bed.cluster.state_dir().join(format!("{name}.kubeconfig"));
    write(&path, &format!("{config:#}"))?;
    Ok(path)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
