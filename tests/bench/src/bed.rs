//! The clusters that are measured on, and the engines.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ApiResource, PostParams};
use lmcache_crds::{EngineSpec, L1Spec, LMCacheEngine, LMCacheEngineSpec};
use lmcache_testbed::{Cluster, ClusterOptions, Program};

use crate::load::{Object, create_all};

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

/// Engine number `number`, counted from 0: nothing but what is required.
pub fn engine(number: u32) -> LMCacheEngine {
    let common = EngineSpec { l1: L1Spec { size_gb: 10.0 }, ..EngineSpec::default() };
    let spec = LMCacheEngineSpec { common, ..LMCacheEngineSpec::default() };
    let mut engine = LMCacheEngine::new(&name(number), spec);
    engine.metadata.namespace = Some(NAMESPACE.to_owned());
    engine
}

/// Name of engine number `number`.
pub fn name(number: u32) -> String {
    format!("engine-{number:05}")
}

/// Creates `count` engines in the order of their numbers.
pub async fn create_engines(cluster: &Cluster, count: u32) -> Result<()> {
    let resource = ApiResource::erase::<LMCacheEngine>(&());
    let object = |number| Ok(Object { resource: resource.clone(), body: serde_json::to_value(engine(number))? });
    create_all(cluster, (0..count).map(object).collect::<Result<_>>()?).await
}

/// The operator's process.
pub struct Operator {
    program: Program,
    pid: u32,
}

impl Operator {
    /// Starts it as user `operator`.
    pub fn start(manager: &Path, cluster: &Cluster) -> Result<Self> {
        let args = [
            format!("--kubeconfig={}", cluster.operator_kubeconfig_path().display()),
            "--metrics-bind-address=127.0.0.1:0".to_owned(),
            "--metrics-secure=false".to_owned(),
            "--health-probe-bind-address=127.0.0.1:0".to_owned(),
        ];
        let log: PathBuf = cluster.state_dir().join("operator.log");
        let program = Program::start("manager", manager, &args, log)?;
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
