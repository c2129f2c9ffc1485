//! vLLM joins: one pod that is connected to the engine, and one that cannot be, with its reason.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use lmcache_testbed::Cluster;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::scene::NAMESPACE;
use crate::screen::Screen;

const CONNECTED: (&str, &str) = ("vllm", include_str!("../vllm.yaml"));
const WRAPPED: (&str, &str) = ("wrapped", include_str!("../wrapped.yaml"));
const INJECTED: &str = "lmcache.ai/lmcache-injected";
const SKIPPED: &str = "lmcache.ai/lmcache-skip-reason";
const PATIENCE: Duration = Duration::from_secs(30);

/// Creates both and shows what became of them.
pub async fn tell(screen: Screen, cluster: &Cluster) -> Result<()> {
    let client = cluster.client();
    screen.heading("vLLM joins: a pod with the opt-in label names its engine")?;
    until_webhooks_work(&client).await?;
    apply(screen, cluster, CONNECTED).await?;
    connected(screen, &client).await?;

    screen.heading("A pod that cannot be connected starts all the same, and says why")?;
    apply(screen, cluster, WRAPPED).await?;
    refused(screen, &client).await
}

/// The API server learns of a new webhook by and by.
async fn until_webhooks_work(client: &Client) -> Result<()> {
    let (pods, begun) = (Api::<Pod>::namespaced(client.clone(), NAMESPACE), Instant::now());
    let mut tried: Pod = pod(CONNECTED.1)?;
    tried.metadata.name = Some("tried".to_owned());
    let dry_run = PostParams { dry_run: true, field_manager: None };
    while !pods.create(&dry_run, &tried).await?.annotations().contains_key(INJECTED) {
        ensure!(begun.elapsed() < PATIENCE, "no pod is injected after {} s", PATIENCE.as_secs());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// The first document of a manifest.
fn pod(manifest: &str) -> Result<Pod> {
    let first = manifest.split("\n---\n").next().unwrap_or_default();
    serde_norway::from_str(first).context("the manifest holds no pod")
}

/// Shows the manifest, and what kubectl prints when it is applied, warnings included.
async fn apply(screen: Screen, cluster: &Cluster, (name, manifest): (&str, &str)) -> Result<()> {
    screen.line(&format!("  $ kubectl apply -f tests/demo/{name}.yaml"))?;
    manifest.lines().try_for_each(|line| screen.line(&format!("    {line}")))?;
    let mut child = Command::new(cluster.kubectl_path())
        .arg("--kubeconfig")
        .arg(cluster.admin_kubeconfig_path())
        .args(["apply", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    child.stdin.take().context("stdin is piped")?.write_all(manifest.as_bytes()).await?;
    let output = child.wait_with_output().await?;
    let text = String::from_utf8([output.stderr, output.stdout].concat())?;
    text.lines().try_for_each(|line| screen.line(&format!("  {line}")))?;
    ensure!(output.status.success(), "kubectl apply failed: {text}");
    Ok(())
}

async fn connected(screen: Screen, client: &Client) -> Result<()> {
    let pod = Api::<Pod>::namespaced(client.clone(), NAMESPACE).get(CONNECTED.0).await?;
    ensure!(pod.annotations().get(INJECTED).is_some_and(|it| it == "true"), "{} was not injected", CONNECTED.0);
    screen.line("\n  Its vLLM now starts with")?;
    let spec = pod.spec.as_ref().context("a pod has a spec")?;
    let container = spec.containers.first().context("a pod has a container")?;
    let args: Vec<_> = container.args.iter().flatten().map(|arg| on_one_line(arg)).collect();
    lines_of(&args).iter().try_for_each(|line| screen.line(&format!("    {line}")))?;
    for variable in container.env.iter().flatten() {
        screen.line(&format!("    {}={}", variable.name, variable.value.as_deref().unwrap_or_default()))?;
    }
    screen.line("  and is marked")?;
    marks(screen, &pod)
}

/// A flag and its value stand on one line.
fn lines_of(args: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for arg in args {
        match lines.last_mut().filter(|last| last.starts_with("--") && !last.contains(' ') && !arg.starts_with("--")) {
            Some(last) => *last = format!("{last} {arg}"),
            None => lines.push(arg.clone()),
        }
    }
    lines
}

/// A JSON document without the line breaks that nobody wants to see.
fn on_one_line(arg: &str) -> String {
    let document = serde_json::from_str::<serde_json::Value>(arg).ok().filter(serde_json::Value::is_object);
    document.map_or_else(|| arg.to_owned(), |document| document.to_string())
}

/// The annotations that the operator has left.
fn marks(screen: Screen, pod: &Pod) -> Result<()> {
    for (key, value) in pod.annotations() {
        if key.contains("inject") || key == SKIPPED {
            screen.line(&format!("    {key}: {value}"))?;
        }
    }
    Ok(())
}

async fn refused(screen: Screen, client: &Client) -> Result<()> {
    let pod = Api::<Pod>::namespaced(client.clone(), NAMESPACE).get(WRAPPED.0).await?;
    ensure!(pod.annotations().contains_key(SKIPPED), "{} has no reason", WRAPPED.0);
    screen.line("\n  The pod is marked")?;
    marks(screen, &pod)?;
    let set = Api::<ReplicaSet>::namespaced(client.clone(), NAMESPACE).get(WRAPPED.0).await?;
    let event = event_about(client, &set.uid().unwrap_or_default()).await?;
    screen.line(&format!(
        "  and where a controller makes such pods, it has an Event (kubectl events --for rs/{}):",
        WRAPPED.0
    ))?;
    let (reason, note) = (event.reason.unwrap_or_default(), event.note.unwrap_or_default());
    Ok(screen.line(&format!("    {}  {reason}  {note}", event.type_.unwrap_or_default()))?)
}

async fn event_about(client: &Client, uid: &str) -> Result<Event> {
    let about = ListParams::default().fields(&format!("regarding.uid={uid},reason=InjectionSkipped"));
    let (events, begun) = (Api::<Event>::namespaced(client.clone(), NAMESPACE), Instant::now());
    while begun.elapsed() < PATIENCE {
        if let Some(event) = events.list(&about).await?.items.pop() {
            return Ok(event);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("the ReplicaSet {} has no Event after {} s", WRAPPED.0, PATIENCE.as_secs())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_hold_pods_that_ask_for_the_engine_of_the_story() {
        for (name, manifest) in [CONNECTED, WRAPPED] {
            let pod = pod(manifest).unwrap();
            assert_eq!(pod.name_any(), name);
            assert_eq!(pod.annotations()["lmcache.ai/lmcache-engine"], crate::scene::NAME);
            assert_eq!(pod.labels()["lmcache.ai/lmcache-inject"], "true");
        }
    }

    #[test]
    fn a_flag_stands_beside_its_value() {
        let args = ["m1", "--eager", "--port", "8000", "--config", "{\n \"a\": 1\n}"].map(on_one_line);
        assert_eq!(lines_of(&args), ["m1", "--eager", "--port 8000", r#"--config {"a":1}"#]);
    }
}
