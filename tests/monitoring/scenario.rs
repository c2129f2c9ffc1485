//! What happens while Prometheus looks on.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use lmcache_crds::{LMCacheEngine, Phase};
use lmcache_harness::{Harness, Judgement};
use serde_json::{Value, json};

use crate::common::{Bed, engine};
use crate::prometheus::Prometheus;
use crate::two_scrapes;

/// The engine that serves, and that the Engine dashboard shows.
pub const ENGINE: &str = "serving";

/// A scenario that has been played.
pub struct Scenario {
    harness: Harness,
    /// When it began, in seconds since the epoch.
    pub from: f64,
    /// When it ended.
    pub to: f64,
}

impl Scenario {
    /// One engine gets Ready and is updated twice; one cannot pull its image; one never gets on; one finds somebody else's
    /// object in its place; and the API server restarts.
    pub async fn play(bed: &Bed, prometheus: &Prometheus) -> Result<Self> {
        let from = seconds();
        for node in ["gpu-1", "gpu-2"] {
            bed.cluster.add_gpu_node(node).await?;
        }
        let harness = Harness::in_new_namespace(bed.cluster.client(), "monitoring").await?;
        let harness = harness.with_timeout(Duration::from_mins(2));

        foreign_workload(harness.client(), harness.namespace(), "conflicting").await?;
        let image_pull = json!({"testbed.lmcache.ai/fail": "ImagePullBackOff"});
        let held = json!({"testbed.lmcache.ai/hold": "true"});
        for (name, annotations, also) in [
            (ENGINE, json!({"testbed.lmcache.ai/ready-after": "1500ms"}), json!({})),
            ("broken", image_pull, json!({})),
            ("impatient", held, json!({"progressDeadlineSeconds": 1})),
            ("conflicting", json!({}), json!({})),
        ] {
            harness.apply_fixture(&engine(name, &spec(&annotations, &also))).await?;
        }
        harness.wait_ready(ENGINE).await?;
        two_scrapes().await;
        for rollout in 1..=2 {
            let change = json!({"spec": {"env": [{"name": "ROLLOUT", "value": rollout.to_string()}]}});
            harness.patch(ENGINE, change).await?;
            harness.wait_ready(ENGINE).await?;
            two_scrapes().await;
        }
        for (name, phase) in
            [("broken", Phase::Degraded), ("impatient", Phase::Degraded), ("conflicting", Phase::Pending)]
        {
            let is = |it: &LMCacheEngine| it.status.as_ref().is_some_and(|it| it.record.phase == phase);
            let judge = |it: &LMCacheEngine| Judgement::from(is(it));
            harness.patiently().wait(name, &format!("phase {phase}"), judge).await?;
        }
        bed.cluster.restart_apiserver().await?;
        bed.cluster.wait_ready().await?;
        prometheus.until("lmcache_operator_watch_restarts_total > 0").await?;
        prometheus.until(r#"lmcache_operator_engine_phase{name="impatient", phase="Degraded"} == 1"#).await?;
        prometheus.until(r#"lmcache_operator_engine_phase{name="broken", phase="Degraded"} == 1"#).await?;
        two_scrapes().await;
        Ok(Scenario { harness, from, to: seconds() })
    }

    /// The namespace of the engines.
    pub fn namespace(&self) -> &str {
        self.harness.namespace()
    }

    /// Deletes everything.
    pub async fn end(self) -> Result<()> {
        self.harness.finish().await
    }
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

fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |it| it.as_secs_f64())
}
