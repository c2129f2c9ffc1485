//! Pods that run vLLM, engines for them, and what can be seen of both.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::PostParams;
use kube::{Api, Client};
use lmcache_operator::admission::injection::Injector;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::certificates::PREFIX;
use crate::client::{bundle, connect, post};
use crate::common::{Bed, Operator};

/// Whatever is waited for comes within this time, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// A pod that opts in for an engine and says nothing that it need not say.
pub fn pod(injector: Injector, name: &str, engine: &str) -> Value {
    let names = injector.names();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {names.label: "true"}, "annotations": {names.engine: engine}},
        "spec": {
            // Nobody is to place it: then it stays as it was stored.
            "schedulerName": "none",
            "containers": [{"name": "vllm", "image": "vllm/vllm-openai", "args": ["m1"]}],
        },
    })
}

/// The same with a merge patch.
pub fn pod_with(injector: Injector, name: &str, engine: &str, change: &Value) -> Value {
    let mut pod = pod(injector, name, engine);
    json_patch::merge(&mut pod, change);
    pod
}

/// Creates a pod and returns it as it is stored, or would be.
pub async fn create(client: &Client, namespace: &str, pod: &Value, dry_run: bool) -> Result<Value> {
    // Untyped, so that whatever the API server stores is seen.
    let pods = Api::<kube::api::DynamicObject>::namespaced_with(client.clone(), namespace, &pod_resource());
    let pod = serde_json::from_value(pod.clone())?;
    let stored = pods.create(&PostParams { dry_run, field_manager: None }, &pod).await?;
    Ok(serde_json::to_value(stored)?)
}

/// Pods, untyped.
pub fn pod_resource() -> kube::api::ApiResource {
    kube::api::ApiResource::erase::<Pod>(&())
}

/// The text of an annotation.
pub fn note<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"][name].as_str()
}

/// Whether the injector says that it has injected the pod.
pub fn is_injected(pod: &Value, injector: Injector) -> bool {
    note(pod, injector.names().injected) == Some("true")
}

/// Why the injector did not inject the pod, as it is stamped.
pub fn skip_reason(pod: &Value, injector: Injector) -> Option<&str> {
    note(pod, injector.names().skip_reason)
}

/// Arguments of the first container.
pub fn args(pod: &Value) -> Vec<&str> {
    pod["spec"]["containers"][0]["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Looks again and again until there is something.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        ensure!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until an engine has its connection, and returns its documents.
pub async fn connection(client: &Client, namespace: &str, engine: &str) -> Result<BTreeMap<String, String>> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let name = format!("{engine}-connection");
    until(&name, async || {
        let map = maps.get_opt(&name).await?;
        let owned = map.filter(|map| map.metadata.owner_references.is_some());
        Ok(owned.map(|map| map.data.unwrap_or_default()))
    })
    .await
}

/// Waits until a pod that opts in would be injected, and says how long that took.
pub async fn until_injected(bed: &Bed, operator: &Operator, engine: &str) -> Result<Duration> {
    let (begun, client) = (Instant::now(), bed.cluster.client());
    let tried = pod(Injector::LmCache, "tried", engine);
    let injected = until("no pod is injected", async || {
        let stored = create(&client, "default", &tried, true).await?;
        Ok(is_injected(&stored, Injector::LmCache).then_some(()))
    });
    injected.await.with_context(|| operator.program.log())?;
    Ok(begun.elapsed())
}

/// The question of an API server about a pod that is to be created; nothing will be stored.
pub fn review(namespace: &str, pod: &Value) -> String {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let request = json!({"uid": "u", "kind": kind, "operation": "CREATE", "namespace": namespace, "object": pod,
        "dryRun": true});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

/// Asks the operator directly: status code and body of its answer.
pub async fn ask(bed: &Bed, operator: &Operator, path: &str, body: &[u8]) -> Result<(u16, String)> {
    let address = operator.address("Serving webhooks").await?;
    let stream = connect(&address, "127.0.0.1", &bundle(&bed.cluster.client(), PREFIX).await?).await?;
    let (code, answer) = post(stream, path, "application/json", body).await?;
    Ok((code, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()))
}

/// The value of a counter of the operator's; 0 where it has not counted yet.
pub async fn counter(operator: &Operator, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
    let address = operator.address("Serving metrics server").await?;
    let mut stream = TcpStream::connect(&address).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: metrics\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let series = |line: &&str| {
        line.starts_with(&format!("lmcache_operator_{name}{{"))
            && labels.iter().all(|(key, value)| line.contains(&format!("{key}=\"{value}\"")))
    };
    let mut found = answer.lines().filter(series);
    let (first, second) = (found.next(), found.next());
    if second.is_some() {
        bail!("more than one series of {name} {labels:?}");
    }
    first.map_or(Ok(0), |line| Ok(line.rsplit(' ').next().context("no value")?.parse()?))
}
