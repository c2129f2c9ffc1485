//! Everything that runs: the cluster, the operator, and who lets instances get ready.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use lmcache_testbed::jaeger::Jaeger;
use lmcache_testbed::{Cluster, ClusterOptions, Program};
use tokio::task::JoinSet;

use crate::folder::Folder;
use crate::{kubelet, traces};

const STARTUP: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
/// The operator itself gives up after ten seconds.
const STOP_PATIENCE: Duration = Duration::from_secs(12);

/// What has been started so far, to be stopped in order.
#[derive(Default)]
pub struct Stage {
    cluster: Option<Cluster>,
    operator: Option<Program>,
    jaeger: Option<Jaeger>,
    kubelet: JoinSet<Result<()>>,
}

impl Stage {
    /// Starts the control plane with three GPU nodes.
    pub async fn start_cluster(&mut self, folder: &mut Folder) -> Result<()> {
        let options = ClusterOptions {
            name: "demo".to_owned(),
            state_dir: Some(folder.path("cluster")),
            ..ClusterOptions::default()
        };
        let cluster = self.cluster.insert(Cluster::start(options).await?);
        folder.remember(cluster.pids().into_iter().map(|(_, pid)| pid))?;
        cluster.create_runtime_class("nvidia").await?;
        for node in ["gpu-1", "gpu-2", "gpu-3"] {
            cluster.add_gpu_node(node).await?;
        }
        self.kubelet.spawn(kubelet::run(cluster.client()));
        Ok(())
    }

    /// Starts a Jaeger that the operator will export to.
    pub async fn start_jaeger(&mut self, folder: &mut Folder) -> Result<()> {
        let jaeger = self.jaeger.insert(Jaeger::start(&folder.path("jaeger")).await?);
        folder.remember(jaeger.pid())
    }

    /// The Jaeger, if there is one.
    pub fn jaeger(&self) -> Option<&Jaeger> {
        self.jaeger.as_ref()
    }

    /// Installs definitions and rights and starts the operator. Returns the address of its metrics.
    pub async fn start_operator(&mut self, manager: &Path, folder: &mut Folder) -> Result<String> {
        let cluster = self.cluster()?;
        for definition in lmcache_crds::crds() {
            cluster.apply_yaml(&serde_json::to_string(&definition)?).await?;
        }
        cluster.grant_operator_with_webhooks().await?;
        let mut args = vec![
            format!("--kubeconfig={}", cluster.operator_kubeconfig_path().display()),
            "--metrics-bind-address=127.0.0.1:0".to_owned(),
            "--metrics-secure=false".to_owned(),
            "--health-probe-bind-address=127.0.0.1:0".to_owned(),
            "--cache-metrics-interval=0".to_owned(),
            "--webhook-bind-address=127.0.0.1:0".to_owned(),
            // Nothing routes Services here, so the API server asks at a URL.
            "--webhook-url=https://127.0.0.1:0".to_owned(),
            "--log-format=json".to_owned(),
        ];
        args.extend(traces::flags(self.jaeger()));
        let operator = self.operator.insert(Program::start("manager", manager, &args, folder.path("operator.log"))?);
        folder.remember(operator.pid())?;
        self.logged("Started the controllers").await?;
        let line: serde_json::Value = serde_json::from_str(&self.logged("Serving metrics server").await?)?;
        Ok(line["address"].as_str().context("the operator does not log where its metrics are")?.to_owned())
    }

    /// The cluster, once it has been started.
    pub fn cluster(&self) -> Result<&Cluster> {
        self.cluster.as_ref().context("the cluster does not run")
    }

    /// Returns with an error when the operator ends.
    pub async fn watch_over(&mut self) -> Result<()> {
        loop {
            self.check()?;
            tokio::time::sleep(POLL * 10).await;
        }
    }

    /// Stops everything, the last started first.
    pub async fn stop(mut self) {
        self.kubelet.shutdown().await;
        if let Some(mut operator) = self.operator.take() {
            operator.stop(STOP_PATIENCE).await;
        }
        if let Some(cluster) = self.cluster.take() {
            cluster.stop().await;
        }
        if let Some(mut jaeger) = self.jaeger.take() {
            jaeger.stop(STOP_PATIENCE).await;
        }
    }

    fn check(&mut self) -> Result<()> {
        let Some(operator) = &mut self.operator else { return Ok(()) };
        if let Some(status) = operator.exit_status() {
            bail!("the operator ended with {status}; the end of its log:\n{}", tail(&operator.log()));
        }
        Ok(())
    }

    /// Waits for a line of the operator's log.
    async fn logged(&mut self, text: &str) -> Result<String> {
        let deadline = Instant::now() + STARTUP;
        loop {
            self.check()?;
            let log = self.operator.as_ref().map(Program::log).unwrap_or_default();
            if let Some(line) = log.lines().find(|line| line.contains(text)) {
                return Ok(line.to_owned());
            }
            if Instant::now() > deadline {
                bail!("the operator is not ready after {} s; the end of its log:\n{}", STARTUP.as_secs(), tail(&log));
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
