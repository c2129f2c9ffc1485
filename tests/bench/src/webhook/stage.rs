//! The cluster and the operator that are measured.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use lmcache_testbed::{Cluster, ClusterOptions, Program};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};

use crate::sample::{ENGINE, small};

/// Where everything is created.
pub const NAMESPACE: &str = "default";
const PATIENCE: Duration = Duration::from_mins(1);
const STOP_PATIENCE: Duration = Duration::from_secs(12);
const CONFIGURATION: &str = "lmcache-operator-mutating-webhook-configuration";

/// A cluster with definitions, rights, and an engine that pods can name.
pub async fn cluster() -> Result<Cluster> {
    let cluster =
        Cluster::start(ClusterOptions { name: "bench-webhook".to_owned(), ..ClusterOptions::default() }).await?;
    for definition in lmcache_crds::crds() {
        cluster.apply_yaml(&serde_json::to_string(&definition)?).await?;
    }
    cluster.grant_operator_with_webhooks().await?;
    let payload = json!({"payloadImage": {"repository": "registry.example/payload", "tag": "1"}});
    let engine = json!({
        "apiVersion": "lmcache.lmcache.ai/v1alpha1", "kind": "LMCacheEngine",
        "metadata": {"name": ENGINE, "namespace": NAMESPACE},
        "spec": {"l1": {"sizeGB": 1}, "injection": payload},
    });
    cluster.apply_yaml(&engine.to_string()).await?;
    Ok(cluster)
}

/// Where an operator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the first processor that this process may use, and on no other.
    OneProcessor,
    /// Wherever there is room.
    Anywhere,
}

/// The operator's process.
pub struct Operator {
    program: Program,
}

impl Operator {
    /// Starts it, and returns when it injects.
    pub async fn start(manager: &Path, cluster: &Cluster, name: &str, flags: &[&str], place: Place) -> Result<Self> {
        let mut args = vec![
            format!("--kubeconfig={}", cluster.operator_kubeconfig_path().display()),
            "--metrics-bind-address=127.0.0.1:0".to_owned(),
            "--metrics-secure=false".to_owned(),
            "--health-probe-bind-address=127.0.0.1:0".to_owned(),
            "--cache-metrics-interval=0".to_owned(),
            "--webhook-bind-address=127.0.0.1:0".to_owned(),
            "--webhook-url=https://127.0.0.1:0".to_owned(),
            "--log-format=json".to_owned(),
        ];
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let log: PathBuf = cluster.state_dir().join(format!("{name}.log"));
        let mut operator = Operator { program: Program::start("manager", manager, &args, log)? };
        operator.until_it_injects(cluster).await?;
        if place == Place::OneProcessor {
            keep_on_one_processor(operator.pid()?)?;
        }
        Ok(operator)
    }

    async fn until_it_injects(&mut self, cluster: &Cluster) -> Result<()> {
        let (begun, client) = (Instant::now(), cluster.client());
        let pods = pods(&client);
        let tried: DynamicObject = serde_json::from_value(small("tried", true))?;
        loop {
            self.check()?;
            let stored = pods.create(&PostParams { dry_run: true, field_manager: None }, &tried).await?;
            if is_injected(&stored) {
                return Ok(());
            }
            ensure!(begun.elapsed() < PATIENCE, "nothing is injected; {}", self.tail());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Its process id.
    pub fn pid(&self) -> Result<u32> {
        self.program.pid().context("the operator has no process id")
    }

    /// How often it says so in its log.
    pub fn says(&self, text: &str) -> usize {
        self.program.log().matches(text).count()
    }

    /// Fails with the end of its log when it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.program.exit_status() {
            Some(status) => bail!("the operator ended with {status}; {}", self.tail()),
            None => Ok(()),
        }
    }

    fn tail(&self) -> String {
        let log = self.program.log();
        let lines: Vec<_> = log.lines().collect();
        format!("the end of its log:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// Ends it in order.
    pub async fn stop(&mut self) {
        self.program.stop(STOP_PATIENCE).await;
    }
}

/// Keeps every thread of a process on the first processor that this one may use; new threads are where those are that
/// make them.
fn keep_on_one_processor(pid: u32) -> Result<()> {
    let all = sched_getaffinity(None)?;
    let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).context("no processor may be used")?;
    let mut one = CpuSet::new();
    one.set(first);
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let thread = task?.file_name().to_string_lossy().parse()?;
        sched_setaffinity(Pid::from_raw(thread), &one)?;
    }
    Ok(())
}

/// All pods, untyped.
pub fn pods(client: &kube::Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()))
}

/// Whether a stored pod was injected.
pub fn is_injected(pod: &DynamicObject) -> bool {
    let notes = pod.metadata.annotations.as_ref();
    notes.is_some_and(|notes| notes.get("lmcache.ai/lmcache-injected").is_some_and(|it| it == "true"))
}

/// Where the API server asks, and whom it trusts there: address, path and bundle.
pub async fn registered(cluster: &Cluster) -> Result<(String, String, Vec<u8>)> {
    let configuration = Api::<MutatingWebhookConfiguration>::all(cluster.client()).get(CONFIGURATION).await?;
    let webhooks = serde_json::to_value(configuration.webhooks)?;
    let ours = |webhook: &&Value| webhook["name"] == "mlmcachepod.lmcache.ai";
    let client = &webhooks.as_array().into_iter().flatten().find(ours).context("no webhook")?["clientConfig"];
    let url = client["url"].as_str().and_then(|url| url.strip_prefix("https://")).context("no URL")?;
    let (address, path) = url.split_once('/').context("no path")?;
    let bundle: k8s_openapi::ByteString = serde_json::from_value(client["caBundle"].clone())?;
    Ok((address.to_owned(), format!("/{path}"), bundle.0))
}
