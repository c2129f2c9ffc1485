//! What would make a person run `kubectl describe` stands in the engine's own status, and heals.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt as _;
use kube::api::PostParams;
use lmcache_crds::Phase;
use lmcache_states::Reason;
use lmcache_states::conditions::{READY, STALLED};
use lmcache_testbed::annotation::{FAIL, HOLD};
use serde_json::{Value, json};

use crate::kind::EngineKind;
use crate::scene::{Scene, condition, ensure_condition, ensure_message, play};

/// One trouble: what brings it about, what is said, and what heals it.
struct Trouble {
    /// The engine that has it.
    fixture: &'static str,
    /// What happens beside the fixture.
    cause: Cause,
    /// The reason that is given.
    reason: Reason,
    /// Texts of the message; `__NODE__` is the node, `__NAMESPACE__` the namespace.
    says: &'static [&'static str],
    /// What a person would do.
    heal: Heal,
}

enum Cause {
    /// The fixture says it all.
    Fixture,
    /// The kubelet kills the container and reports that in an Event.
    KilledByStartupProbe,
    /// The node of a Ready engine no longer reports.
    NodeLost,
}

enum Heal {
    /// It passes: the pod's annotation goes.
    Pod(&'static str),
    /// The spec is corrected.
    Spec(fn() -> Value),
    /// The `RuntimeClass` is created.
    RuntimeClass,
    /// The node is back.
    NodeBack,
}

every_kind! {
    an_image_that_cannot_be_pulled_is_degraded_and_heals => degraded_and_heals(&IMAGE_PULL),
    a_crash_loop_is_degraded_and_heals => degraded_and_heals(&CRASH_LOOP),
    a_container_out_of_memory_is_degraded_and_heals => degraded_and_heals(&OUT_OF_MEMORY),
    a_missing_secret_key_is_degraded_and_heals => degraded_and_heals(&MISSING_KEY),
    a_missing_runtime_class_is_degraded_and_heals => degraded_and_heals(&RUNTIME_CLASS),
    an_unschedulable_pod_is_degraded_and_heals => degraded_and_heals(&UNSCHEDULABLE),
    a_startup_probe_that_gives_up_is_degraded_and_heals => degraded_and_heals(&STARTUP_PROBE),
    a_node_that_does_not_report_is_degraded_and_heals => degraded_and_heals(&NODE_LOST),
    a_rollout_past_its_deadline_is_degraded_and_heals => degraded_and_heals(&IMPATIENT),
}

const IMAGE_PULL: Trouble = Trouble {
    fixture: "image-pull",
    cause: Cause::Fixture,
    reason: Reason::ImagePullFailed,
    says: &["__NODE__", "container lmcache", "ImagePullBackOff", "registry.example/lmcache:absent", "spec.image"],
    heal: Heal::Spec(|| json!({"image": {"tag": "v1"}, "podAnnotations": {FAIL: null}})),
};
const CRASH_LOOP: Trouble = Trouble {
    fixture: "crash-loop",
    cause: Cause::Fixture,
    reason: Reason::CrashLooping,
    says: &[
        "__NODE__",
        "container lmcache",
        "CrashLoopBackOff with exit code 3",
        "kubectl logs -n __NAMESPACE__ cache-",
    ],
    heal: Heal::Pod(FAIL),
};
const OUT_OF_MEMORY: Trouble = Trouble {
    fixture: "out-of-memory",
    cause: Cause::Fixture,
    reason: Reason::OomKilled,
    says: &["__NODE__", "container lmcache", "OOMKilled", "exit code 137", "spec.resourceOverrides.limits.memory"],
    heal: Heal::Spec(|| json!({"resourceOverrides": {"limits": {"memory": "20Gi"}}, "podAnnotations": {FAIL: null}})),
};
const MISSING_KEY: Trouble = Trouble {
    fixture: "missing-key",
    cause: Cause::Fixture,
    reason: Reason::ContainerCreateFailed,
    says: &["__NODE__", "container lmcache", "couldn't find key token in Secret __NAMESPACE__/tokens"],
    heal: Heal::Pod(FAIL),
};
const RUNTIME_CLASS: Trouble = Trouble {
    fixture: "runtime-class",
    cause: Cause::Fixture,
    reason: Reason::AdmissionRefused,
    says: &["FailedCreate", "RuntimeClass \"__NAMESPACE__\" not found"],
    heal: Heal::RuntimeClass,
};
const UNSCHEDULABLE: Trouble = Trouble {
    fixture: "unschedulable",
    cause: Cause::Fixture,
    reason: Reason::Unschedulable,
    says: &["__NODE__", "nodes are available", "Insufficient memory"],
    heal: Heal::Spec(|| json!({"resourceOverrides": {"requests": {"memory": "2Gi"}}})),
};
const STARTUP_PROBE: Trouble = Trouble {
    fixture: "startup-probe",
    cause: Cause::KilledByStartupProbe,
    reason: Reason::StartupProbeFailed,
    says: &["__NODE__", "container lmcache: Startup probe failed"],
    heal: Heal::Pod(FAIL),
};
const NODE_LOST: Trouble = Trouble {
    fixture: "minimal",
    cause: Cause::NodeLost,
    reason: Reason::NodeNotReady,
    says: &["__NODE__", "the node is not ready"],
    heal: Heal::NodeBack,
};
const IMPATIENT: Trouble = Trouble {
    fixture: "impatient",
    cause: Cause::Fixture,
    reason: Reason::ProgressDeadlineExceeded,
    says: &["no progress for more than 2 s", "0/1 ready", "waiting for __NODE__"],
    heal: Heal::Pod(HOLD),
};

async fn degraded_and_heals<K: EngineKind>(trouble: &Trouble) -> Result<()> {
    let prefix = trouble.fixture;
    let recording = play::<K>(prefix, 1, async |scene| {
        let node = &scene.nodes()[0];
        happen(scene, trouble, node).await?;
        let engine = scene.degraded(trouble.reason).await?;
        let fill = |text: &&str| text.replace("__NODE__", node).replace("__NAMESPACE__", scene.namespace());
        let says: Vec<_> = trouble.says.iter().map(fill).collect();
        let says: Vec<_> = says.iter().map(String::as_str).collect();
        ensure_message(&engine, &says)?;
        ensure_condition(&engine, READY, "False", trouble.reason.as_str(), &says)?;
        let record = engine.record().context("status")?;
        let stalled = condition(record, STALLED).is_some();
        ensure!(stalled == trouble.reason.stalls(), "Stalled: {:?}", record.conditions);
        scene.warned(trouble.reason, says[0]).await?;
        heal(scene, trouble, node).await?;
        scene.healed().await?;
        Ok(())
    });
    let recording = recording.await?;
    let last = recording.phases().pop();
    assert_eq!(last, Some(Phase::Ready), "{}", recording.timeline());
    Ok(())
}

async fn happen<K: EngineKind>(scene: &Scene<K>, trouble: &Trouble, node: &str) -> Result<()> {
    match trouble.cause {
        Cause::Fixture => {
            scene.apply(trouble.fixture).await?;
        }
        Cause::KilledByStartupProbe => {
            scene.apply(trouble.fixture).await?;
            let pod = scene.pod_on(node, "a pod", |_| true).await?;
            scene.api::<Event>().create(&PostParams::default(), &unhealthy(&pod)).await?;
        }
        Cause::NodeLost => {
            scene.ready_with(trouble.fixture).await?;
            scene.cluster().await.set_node_ready(node, false).await?;
        }
    }
    Ok(())
}

/// The Event of a kubelet, which names the container by the field path.
fn unhealthy(pod: &Pod) -> Event {
    let value = json!({
        "metadata": {"generateName": "startup-probe-", "namespace": pod.namespace()},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "namespace": pod.namespace(),
            "uid": pod.uid(), "fieldPath": "spec.containers{lmcache}"},
        "reason": "Unhealthy",
        "message": "Startup probe failed: dial tcp: connect: connection refused",
        "type": "Warning",
        "source": {"component": "kubelet"},
        "firstTimestamp": pod.creation_timestamp(),
        "lastTimestamp": pod.creation_timestamp(),
    });
    serde_json::from_value(value).unwrap()
}

async fn heal<K: EngineKind>(scene: &Scene<K>, trouble: &Trouble, node: &str) -> Result<()> {
    match &trouble.heal {
        Heal::Pod(annotation) => scene.annotate_pod_on(node, annotation, None).await,
        Heal::Spec(spec) => scene.change(spec()).await.map(drop),
        Heal::RuntimeClass => scene.cluster().await.create_runtime_class(scene.namespace()).await,
        Heal::NodeBack => scene.cluster().await.set_node_ready(node, true).await,
    }
}
