//! What happens while Prometheus looks on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use lmcache_crds::{LMCacheCoordinator, LMCacheEngine, Phase};
use lmcache_harness::{Harness, Judgement};
use serde_json::{Value, json};

use crate::common::{Bed, engine};
use crate::prometheus::{Prometheus, seconds};

/// The engine that serves, and that the Engine dashboard shows.
pub const ENGINE: &str = "serving";

/// A coordinator beside it.
pub const COORDINATOR: &str = "director";

/// A scenario that has been played.
pub struct Scenario {
    harness: Harness,
    /// When it began, in seconds since the epoch.
    pub from: f64,
    /// When it ended.
    pub to: f64,
    /// The trace of each rollout of the engine that serves, as its status told of it.
    pub traces: Vec<String>,
}

impl Scenario {
    /// A coordinator gets Ready; one engine gets Ready and is updated twice; one cannot pull its image; one never gets on; one
    /// finds somebody else's object in its place; and the API server restarts.
    pub async fn play(bed: &Bed, prometheus: &Prometheus) -> Result<Self> {
        let from = seconds();
        for node in ["gpu-1", "gpu-2"] {
            bed.cluster.add_gpu_node(node).await?;
        }
        let harness = Harness::in_new_namespace(bed.cluster.client(), "monitoring").await?;
        let harness = harness.with_timeout(Duration::from_mins(2));

        foreign_workload(harness.client(), harness.namespace(), "conflicting").await?;
        let (cache_server, growing) = cache_server().await?;
        let image_pull = json!({"testbed.lmcache.ai/fail": "ImagePullBackOff"});
        let held = json!({"testbed.lmcache.ai/hold": "true"});
        for (name, annotations, also) in [
            (ENGINE, json!({"testbed.lmcache.ai/ready-after": "1500ms"}), answered_by(cache_server)),
            ("broken", image_pull, json!({})),
            ("impatient", held, json!({"progressDeadlineSeconds": 1})),
            ("conflicting", json!({}), json!({})),
        ] {
            harness.apply_fixture(&engine(name, &spec(&annotations, &also))).await?;
        }
        let mut traces = vec![trace_of(&harness.wait_ready(ENGINE).await?)?];
        let coordinators = harness.for_kind::<LMCacheCoordinator>();
        coordinators.apply_fixture(&coordinator(COORDINATOR)).await?;
        coordinators.wait_ready(COORDINATOR).await?;
        prometheus.two_scrapes().await?;
        for rollout in 1..=2 {
            let change = json!({"spec": {"env": [{"name": "ROLLOUT", "value": rollout.to_string()}]}});
            harness.patch(ENGINE, change).await?;
            traces.push(trace_of(&harness.wait_ready(ENGINE).await?)?);
            prometheus.two_scrapes().await?;
        }
        vllm_pods(&harness).await?;
        prometheus.until("sum(lmcache_operator_webhook_requests_total) >= 2").await?;
        prometheus.until("sum(lmcache_operator_cache_hit_tokens_total) > 0").await?;
        for (name, phase) in
            [("broken", Phase::Degraded), ("impatient", Phase::Degraded), ("conflicting", Phase::Pending)]
        {
            let is = |it: &LMCacheEngine| it.status.as_ref().is_some_and(|it| it.record.phase == phase);
            let judge = |it: &LMCacheEngine| Judgement::from(is(it));
            harness.patiently().wait(name, &format!("phase {phase}"), judge).await?;
        }
        // Nothing should have to be written while the API server is away.
        growing.store(false, Ordering::Relaxed);
        prometheus.two_scrapes().await?;
        bed.cluster.restart_apiserver().await?;
        bed.cluster.wait_ready().await?;
        growing.store(true, Ordering::Relaxed);
        prometheus.until("sum(rate(lmcache_operator_cache_hit_tokens_total[15s])) > 0").await?;
        prometheus.until("lmcache_operator_watch_restarts_total > 0").await?;
        prometheus.until(r#"lmcache_operator_engine_phase{name="impatient", phase="Degraded"} == 1"#).await?;
        prometheus.until(r#"lmcache_operator_engine_phase{name="broken", phase="Degraded"} == 1"#).await?;
        prometheus.two_scrapes().await?;
        Ok(Scenario { harness, from, to: seconds(), traces })
    }

    /// The namespace of the engines.
    pub fn namespace(&self) -> &str {
        self.harness.namespace()
    }

    /// How long it was, as Prometheus writes it.
    pub fn lasted(&self) -> String {
        format!("{}s", (self.to - self.from).ceil())
    }

    /// Deletes everything.
    pub async fn end(self) -> Result<()> {
        self.harness.finish().await
    }
}

fn trace_of(engine: &LMCacheEngine) -> Result<String> {
    let trace = engine.status.as_ref().and_then(|it| it.record.trace.as_ref()).context("no status.trace")?;
    Ok(trace.trace_id.clone())
}

fn coordinator(name: &str) -> String {
    let coordinator = json!({
        "apiVersion": "lmcache.lmcache.ai/v1alpha1",
        "kind": "LMCacheCoordinator",
        "metadata": {"name": name},
        "spec": {},
    });
    format!("{coordinator:#}")
}

/// One pod that is connected, and one that cannot be.
async fn vllm_pods(harness: &Harness) -> Result<()> {
    let pods = Api::<Pod>::namespaced(harness.client(), harness.namespace());
    for (name, engine) in [("connected", ENGINE), ("alone", "no-such-engine")] {
        let pod = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {"lmcache.ai/lmcache-inject": "true"},
                "annotations": {"lmcache.ai/lmcache-engine": engine},
            },
            "spec": {"containers": [{"name": "vllm", "image": "registry.example/vllm:1", "args": ["model"]}]},
        }))?;
        pods.create(&PostParams::default(), &pod).await?;
    }
    Ok(())
}

/// A stand-in for the cache servers, whose counters grow with every look for as long as they should.
async fn cache_server() -> Result<(u16, Arc<AtomicBool>)> {
    let listener = tokio::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    let (looks, growing) = (Arc::new(AtomicU32::new(1)), Arc::new(AtomicBool::new(true)));
    let grows = growing.clone();
    let answer = move || {
        let look = looks.fetch_add(u32::from(grows.load(Ordering::Relaxed)), Ordering::Relaxed);
        let (hit, requested) = (look * 6, look * 10);
        async move {
            format!("lmcache_mp_lookup_hit_tokens_total {hit}\nlmcache_mp_lookup_requested_tokens_total {requested}\n")
        }
    };
    let router = axum::Router::new().route("/metrics", axum::routing::get(answer));
    tokio::spawn(async { axum::serve(listener, router).await });
    Ok((port, growing))
}

/// Simulated pods on the network of their node have its address, which is loopback.
fn answered_by(port: u16) -> Value {
    json!({"hostNetwork": true, "server": {"httpPort": port}})
}

fn spec(annotations: &Value, also: &Value) -> Value {
    let mut spec = json!({"l1": {"sizeGB": 1}, "podAnnotations": annotations});
    for (field, value) in also.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    spec
}

/// A DaemonSet of the engine's name that nobody has handed over.
async fn foreign_workload(client: Client, namespace: &str, name: &str) -> Result<()> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "DaemonSet"));
    let labels = json!({"team": "storage"});
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"no-node-has": "this"},
                    "containers": [{"name": "own", "image": "registry.example/own:1"}],
                },
            },
        },
    }))?;
    Api::<DynamicObject>::namespaced_with(client, namespace, &kind).create(&PostParams::default(), &object).await?;
    Ok(())
}
