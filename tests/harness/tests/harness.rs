//! The helpers on a real API server, with a small operator that tells the truth or lies as it is told.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt as _};
use lmcache_crds::{LMCacheEngine, Phase};
use lmcache_harness::{
    Harness, INSTANCE_LABEL, MANAGED_BY_LABEL, MANAGER, NAME_LABEL, PhaseObject as _, PhaseRecorder,
};
use lmcache_states::{Children, Counts, Instance, Observation, Wording, Workload, advance};
use lmcache_testbed::annotation::{self, fail};
use lmcache_testbed::{Cluster, ClusterOptions};
use serde_json::json;

const ENGINE: &str = "
apiVersion: lmcache.lmcache.ai/v1alpha1
kind: LMCacheEngine
metadata: {name: cache}
spec: {l1: {sizeGB: 10}}
";

/// How the operator of these tests treats the truth.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Honesty {
    Honest,
    /// Believes the counters of a `DaemonSet` whose newest generation its controller has not observed.
    Premature,
}

struct Bed {
    cluster: Cluster,
    suite: Harness,
}

impl Bed {
    async fn start() -> Self {
        let crds: Vec<_> = lmcache_crds::crds().iter().map(|it| serde_norway::to_string(it).unwrap()).collect();
        let options = ClusterOptions { manifests: crds.join("---\n"), ..ClusterOptions::default() };
        let cluster = Cluster::start(options).await.unwrap();
        for node in ["gpu-1", "gpu-2"] {
            cluster.add_gpu_node(node).await.unwrap();
        }
        let suite = Harness::in_new_namespace(cluster.client(), "suite").await.unwrap();
        Self { cluster, suite: suite.with_timeout(Duration::from_secs(30)) }
    }

    fn sets(&self) -> Api<DaemonSet> {
        Api::namespaced(self.suite.client(), self.suite.namespace())
    }

    async fn apply_children(&self, engine: &LMCacheEngine, annotations: serde_json::Value) -> DaemonSet {
        let labels =
            json!({NAME_LABEL: LMCacheEngine::APPLICATION, INSTANCE_LABEL: "cache", MANAGED_BY_LABEL: MANAGER});
        let set = json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "cache", "labels": labels, "ownerReferences": [engine.controller_owner_ref(&())]},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {"containers": [{"name": "lmcache", "image": format!("example.com/lmcache:{}", engine.meta().generation.unwrap())}]},
            }},
        });
        self.sets().patch("cache", &PatchParams::apply("operator").force(), &Patch::Apply(set)).await.unwrap()
    }

    /// One pass of the operator over what the `DaemonSet` says.
    async fn publish(&self, set: Option<&DaemonSet>, honesty: Honesty) {
        let engine = self.suite.get("cache").await.unwrap();
        let engines: Api<LMCacheEngine> = Api::namespaced(self.suite.client(), self.suite.namespace());
        let record = engine.status.as_ref().map(|status| status.record.clone()).unwrap_or_default();
        let record = advance(&record, &observation(&engine, set, honesty)).record;
        let patch = Patch::Merge(json!({"status": record}));
        engines.patch_status("cache", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Passes until the engine is Ready.
    async fn publish_until_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            let set = self.sets().get("cache").await.unwrap();
            self.publish(Some(&set), Honesty::Honest).await;
            let engine = self.suite.get("cache").await.unwrap();
            if engine.status.is_some_and(|status| status.record.phase == Phase::Ready) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not ready: {}", self.suite.report("cache").await);
    }
}

fn observation(engine: &LMCacheEngine, set: Option<&DaemonSet>, honesty: Honesty) -> Observation {
    let workload = set.map(|set| {
        let status = set.status.clone().unwrap_or_default();
        Workload {
            observed: honesty == Honesty::Premature || status.observed_generation == set.metadata.generation,
            desired: status.desired_number_scheduled,
            updated: status.updated_number_scheduled.unwrap_or_default(),
            ready: status.number_ready,
            available: status.number_available.unwrap_or_default(),
            misscheduled: 0,
        }
    });
    let nodes = workload.map_or(0, |it| it.desired);
    let instance = |node| Instance {
        location: format!("node-{node}"),
        pod: Some(format!("pod-{node}")),
        current: true,
        ready: workload.is_some_and(|it| it.ready == it.desired),
        was_ready: false,
        problem: None,
    };
    Observation {
        generation: engine.metadata.generation.unwrap(),
        spec_errors: vec![],
        dependencies: vec![],
        children: if set.is_some() { Children::Applied } else { Children::Withheld },
        workload,
        instances: (0..nodes).map(instance).collect(),
        previous: Counts::default(),
        now: Timestamp::now(),
        progress_deadline: Duration::from_mins(10),
        wording: Wording::Instances,
        advisories: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_honest_operator_passes_and_a_premature_one_is_caught() {
    let bed = Bed::start().await;
    let start = || PhaseRecorder::start(bed.suite.client(), bed.suite.namespace(), "cache");
    let (honest, all) = (start().await.unwrap(), start().await.unwrap());

    let engine = bed.suite.apply_fixture(ENGINE).await.unwrap();
    bed.publish(None, Honesty::Honest).await;
    let set = bed.apply_children(&engine, json!({annotation::READY_AFTER: "300ms"})).await;
    bed.publish(Some(&set), Honesty::Honest).await;
    bed.suite.wait_reconciled("cache").await.unwrap();
    bed.publish_until_ready().await;
    bed.suite.wait_ready("cache").await.unwrap();
    bed.suite.wait_condition("cache", "Stalled", "False").await.unwrap();
    let recording = honest.finish().await.unwrap();
    recording.assert_obeys_the_rules();
    let phases = recording.phases();
    assert!(phases.starts_with(&[Phase::Pending, Phase::Reconciled]), "{phases:?}\n{}", recording.timeline());
    assert!(phases.ends_with(&[Phase::Rolling, Phase::Ready]), "{phases:?}\n{}", recording.timeline());
    assert_eq!(recording.unverified(), 0);

    let engine = bed.suite.patch("cache", json!({"spec": {"l1": {"sizeGB": 20}}})).await.unwrap();
    assert_eq!(engine.metadata.generation, Some(2));
    // No pod of this revision gets ready: the claim is false however fast the workload controller reports.
    let set = bed.apply_children(&engine, json!({annotation::READY_AFTER: "1h"})).await;
    bed.publish(Some(&set), Honesty::Premature).await;
    bed.suite.wait_ready("cache").await.unwrap();
    let recording = all.finish().await.unwrap();
    let violations = recording.violations();
    assert!(
        matches!(&violations[..], [only] if only.contains("Ready was claimed, but")),
        "{violations:?}\n{}",
        recording.timeline()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hopeless_wait_ends_at_once_and_tells_everything() {
    let bed = Bed::start().await;
    let engine = bed.suite.apply_fixture(ENGINE).await.unwrap();
    let set = bed.apply_children(&engine, json!({annotation::FAIL: fail::IMAGE_PULL_BACK_OFF})).await;
    bed.publish(Some(&set), Honesty::Honest).await;
    bed.suite.wait_for_phase("cache", Phase::Reconciled).await.unwrap();
    let failing = async {
        while bed.suite.report("cache").await.matches("waiting, ImagePullBackOff").count() < 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), failing).await.unwrap();

    // The next generation is invalid while the children of the last one serve.
    let engine = bed.suite.patch("cache", json!({"spec": {"l1": {"sizeGB": 30}}})).await.unwrap();
    let mut record = engine.status.clone().unwrap().record;
    let mut verdict = observation(&engine, Some(&bed.sets().get("cache").await.unwrap()), Honesty::Honest);
    verdict.spec_errors = vec!["spec.l1.sizeGB: too large".to_owned()];
    verdict.children = Children::Withheld;
    record = advance(&record, &verdict).record;
    let engines: Api<LMCacheEngine> = Api::namespaced(bed.suite.client(), bed.suite.namespace());
    engines.patch_status("cache", &PatchParams::default(), &Patch::Merge(json!({"status": record}))).await.unwrap();

    bed.suite.wait_condition("cache", "Stalled", "True").await.unwrap();
    let began = Instant::now();
    let error = format!("{:#}", bed.suite.wait_ready("cache").await.unwrap_err());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    for expected in [
        "condition Ready=True",
        "it is stalled",
        "sizeGB: too large",
        "Reconciled -> Degraded",
        "ConfigValid=False",
        "Pods: 2",
        "ImagePullBackOff",
    ] {
        assert!(error.contains(expected), "no {expected:?} in:\n{error}");
    }
    let short = bed.suite.patiently().with_timeout(Duration::from_millis(300));
    let error = format!("{:#}", short.wait_ready("cache").await.unwrap_err());
    assert!(error.contains("not within 300ms"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_connections_and_collection_are_found() {
    let bed = Bed::start().await;
    let engine = bed.suite.apply_fixture(ENGINE).await.unwrap();
    bed.apply_children(&engine, json!({})).await;
    let owner = json!([engine.controller_owner_ref(&()).unwrap()]);
    let map = format!(
        "{ENGINE}---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cache-connection\n  ownerReferences: {owner}\n  \
         labels: {{app.kubernetes.io/name: lmcache, app.kubernetes.io/instance: cache, app.kubernetes.io/managed-by: lmcache-operator}}\n\
         data: {{kv-transfer-config.json: '{{\"kv_role\": \"kv_both\", \"namespace\": \"__NAMESPACE__\"}}'}}\n"
    );
    bed.suite.apply_fixture(&map).await.unwrap();
    let config = bed.suite.connection_config("cache").await.unwrap();
    assert_eq!(config, json!({"kv_role": "kv_both", "namespace": bed.suite.namespace()}));
    let pod = bed.suite.first_ready_pod("cache").await.unwrap();
    assert!(pod.starts_with("cache-"), "{pod}");

    bed.suite.delete_and_wait_collected("cache").await.unwrap();
    assert!(bed.sets().get_opt("cache").await.unwrap().is_none());
    bed.suite.delete_and_wait_collected("cache").await.unwrap();

    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(bed.cluster.client());
    let name = bed.suite.namespace().to_owned();
    bed.suite.clone().finish().await.unwrap();
    let left = namespaces.get_opt(&name).await.unwrap();
    assert!(left.is_none_or(|it| it.meta().deletion_timestamp.is_some() && it.name_any() == name));
}
