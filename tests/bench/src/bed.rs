//! The clusters that are measured on, and the operator.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use lmcache_testbed::jaeger::Jaeger;
use lmcache_testbed::{Cluster, ClusterOptions, Program};

use crate::kinds::Kind;
use crate::load::{Object, create_all};
use crate::mix::Mix;

/// Where everything is created.
pub const NAMESPACE: &str = "bench";

/// How long an orderly stop of the operator may take.
const STOP_PATIENCE: Duration = Duration::from_secs(12);

/// A new cluster with one node; pods get ready as soon as they are scheduled.
pub async fn cluster(name: &str) -> Result<Cluster> {
    let cluster = Cluster::start(ClusterOptions { name: name.to_owned(), ..ClusterOptions::default() }).await?;
    cluster.create_runtime_class("nvidia").await?;
    cluster.add_gpu_node("gpu-1").await?;
    let namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": NAMESPACE}}))?;
    Api::<Namespace>::all(cluster.client()).create(&PostParams::default(), &namespace).await?;
    Ok(cluster)
}

/// Gives the operator what it is shipped with: its definitions and its rights.
pub async fn install(cluster: &Cluster) -> Result<()> {
    for definition in lmcache_crds::crds() {
        cluster.apply_yaml(&serde_json::to_string(&definition)?).await?;
    }
    let role = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/base/manager_role.yaml");
    let text = std::fs::read_to_string(&role).with_context(|| format!("cannot read {}", role.display()))?;
    cluster.grant_operator(&text).await
}

/// Creates every resource in the order of the numbers.
pub async fn create_resources(cluster: &Cluster, mix: &Mix) -> Result<()> {
    let object = |(kind, number): (Kind, u32)| Object { resource: kind.resource(), body: kind.object(number) };
    create_all(cluster, mix.members().map(object).collect()).await
}

/// How long it may take until so many resources are ready.
pub fn patience(resources: u32) -> Duration {
    Duration::from_mins(2) + Duration::from_secs(1) * resources
}

/// The operator's process.
pub struct Operator {
    program: Program,
    pid: u32,
}

impl Operator {
    /// Starts it as user `operator`; it sends traces to the collector, or nowhere.
    pub fn start(manager: &Path, cluster: &Cluster, collector: Option<&Jaeger>) -> Result<Self> {
        let args = [
            format!("--kubeconfig={}", cluster.operator_kubeconfig_path().display()),
            "--metrics-bind-address=127.0.0.1:0".to_owned(),
            "--metrics-secure=false".to_owned(),
            "--health-probe-bind-address=127.0.0.1:0".to_owned(),
            "--cache-metrics-interval=0".to_owned(),
            "--webhook-bind-address=0".to_owned(),
        ];
        let log: PathBuf = cluster.state_dir().join("operator.log");
        let endpoint = collector.map_or_else(String::new, Jaeger::otlp_http);
        let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())];
        let program = Program::start_with("manager", manager, &args, &environment, log)?;
        let pid = program.pid().context("the operator has no process id")?;
        Ok(Self { program, pid })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Fails with the end of its log when it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.program.exit_status() {
            Some(status) => anyhow::bail!("the operator ended with {status}; {}", self.log_tail()),
            None => Ok(()),
        }
    }

    /// Where it serves its metrics.
    pub fn metrics_address(&self) -> Result<String> {
        let log = self.program.log();
        let line = log.lines().find(|line| line.contains("Serving metrics server")).context("it serves no metrics")?;
        let line: serde_json::Value = serde_json::from_str(line)?;
        Ok(line["address"].as_str().context("the line has no address")?.to_owned())
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let log = self.program.log();
        let lines: Vec<_> = log.lines().collect();
        format!("the end of its log:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// Ends it in order.
    pub async fn stop(mut self) {
        self.program.stop(STOP_PATIENCE).await;
    }
}
