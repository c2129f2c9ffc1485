//! What would make a person run `kubectl describe` stands in the resource's own status, and heals.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Pod, ResourceQuota};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, PostParams};
use lmcache_crds::Phase;
use lmcache_states::Reason;
use lmcache_states::conditions::{READY, STALLED};
use lmcache_testbed::annotation::{FAIL, HOLD};
use serde_json::{Value, json};

use crate::kind::Kind;
use crate::scene::{Scene, condition, ensure_condition, ensure_message, play};

/// One trouble: what brings it about, what is said, and what heals it.
pub struct Trouble {
    /// The resource that has it.
    fixture: &'static str,
    /// What happens beside the fixture.
    cause: Cause,
    /// The reason that is given.
    reason: Reason,
    /// Texts of the message; `__AT__` is the instance, `__CONTAINER__` its container, `__NAMESPACE__` the namespace.
    says: &'static [&'static str],
    /// What a person would do.
    heal: Heal,
}

enum Cause {
    /// The fixture says it all.
    Fixture,
    /// The kubelet kills the container and reports that in an Event.
    KilledByStartupProbe,
    /// The node of a Ready instance no longer reports.
    NodeLost,
}

enum Heal {
    /// It passes: the pod's annotation goes.
    Pod(&'static str),
    /// The spec is corrected.
    Spec(fn() -> Value),
    /// The `RuntimeClass` is created.
    RuntimeClass,
    /// The quota is lifted.
    Quota,
    /// The node is back.
    NodeBack,
}

pub const IMAGE_PULL: Trouble = Trouble {
    fixture: "image-pull",
    cause: Cause::Fixture,
    reason: Reason::ImagePullFailed,
    says: &["__AT__", "container __CONTAINER__", "ImagePullBackOff", "registry.example/lmcache:absent", "spec.image"],
    heal: Heal::Spec(|| json!({"image": {"tag": "v1"}, "podAnnotations": {FAIL: null}})),
};
pub const CRASH_LOOP: Trouble = Trouble {
    fixture: "crash-loop",
    cause: Cause::Fixture,
    reason: Reason::CrashLooping,
    says: &[
        "__AT__",
        "container __CONTAINER__",
        "CrashLoopBackOff with exit code 3",
        "kubectl logs -n __NAMESPACE__ cache-",
    ],
    heal: Heal::Pod(FAIL),
};
pub const OUT_OF_MEMORY: Trouble = Trouble {
    fixture: "out-of-memory",
    cause: Cause::Fixture,
    reason: Reason::OomKilled,
    says: &["__AT__", "container __CONTAINER__", "OOMKilled", "exit code 137", "spec.resourceOverrides.limits.memory"],
    heal: Heal::Spec(|| json!({"resourceOverrides": {"limits": {"memory": "20Gi"}}, "podAnnotations": {FAIL: null}})),
};
pub const MISSING_KEY: Trouble = Trouble {
    fixture: "missing-key",
    cause: Cause::Fixture,
    reason: Reason::ContainerCreateFailed,
    says: &["__AT__", "container __CONTAINER__", "couldn't find key token in Secret __NAMESPACE__/tokens"],
    heal: Heal::Pod(FAIL),
};
pub const RUNTIME_CLASS: Trouble = Trouble {
    fixture: "runtime-class",
    cause: Cause::Fixture,
    reason: Reason::AdmissionRefused,
    says: &["FailedCreate", "RuntimeClass \"__NAMESPACE__\" not found"],
    heal: Heal::RuntimeClass,
};
pub const QUOTA: Trouble = Trouble {
    fixture: "quota",
    cause: Cause::Fixture,
    reason: Reason::AdmissionRefused,
    says: &["FailedCreate", "exceeded quota: full", "pods=1", "limited: pods=0"],
    heal: Heal::Quota,
};
pub const UNSCHEDULABLE: Trouble = Trouble {
    fixture: "unschedulable",
    cause: Cause::Fixture,
    reason: Reason::Unschedulable,
    says: &["__AT__", "nodes are available", "Insufficient memory"],
    heal: Heal::Spec(|| json!({"resourceOverrides": {"requests": {"memory": "2Gi"}}})),
};
pub const STARTUP_PROBE: Trouble = Trouble {
    fixture: "startup-probe",
    cause: Cause::KilledByStartupProbe,
    reason: Reason::StartupProbeFailed,
    says: &["__AT__", "container __CONTAINER__: Startup probe failed"],
    heal: Heal::Pod(FAIL),
};
pub const NODE_LOST: Trouble = Trouble {
    fixture: "minimal",
    cause: Cause::NodeLost,
    reason: Reason::NodeNotReady,
    says: &["__AT__", "the node is not ready"],
    heal: Heal::NodeBack,
};
pub const IMPATIENT: Trouble = Trouble {
    fixture: "impatient",
    cause: Cause::Fixture,
    reason: Reason::ProgressDeadlineExceeded,
    says: &["no progress for more than 2 s", "0/1 ready", "waiting for __AT__"],
    heal: Heal::Pod(HOLD),
};

pub async fn degraded_and_heals<K: Kind>(trouble: &Trouble) -> Result<()> {
    let prefix = trouble.fixture;
    let recording = play::<K>(prefix, 1, async |scene| {
        happen(scene, trouble).await?;
        let resource = scene.degraded(trouble.reason).await?;
        // A pod that was refused is nowhere.
        let at = scene.pods().await?.pop_first().map(|it| it.0).unwrap_or_default();
        let fill = |text: &&str| {
            let text = text.replace("__AT__", &at).replace("__CONTAINER__", K::CONTAINER);
            text.replace("__NAMESPACE__", scene.namespace())
        };
        let says: Vec<_> = trouble.says.iter().map(fill).collect();
        let says: Vec<_> = says.iter().map(String::as_str).collect();
        ensure_message(&resource, &says)?;
        ensure_condition(&resource, READY, "False", trouble.reason.as_str(), &says)?;
        let record = resource.record().context("status")?;
        let stalled = condition(record, STALLED).is_some();
        ensure!(stalled == trouble.reason.stalls(), "Stalled: {:?}", record.conditions);
        scene.warned(trouble.reason, says[0]).await?;
        heal(scene, trouble).await?;
        scene.healed().await?;
        Ok(())
    });
    let recording = recording.await?;
    let last = recording.phases().pop();
    assert_eq!(last, Some(Phase::Ready), "{}", recording.timeline());
    Ok(())
}

async fn happen<K: Kind>(scene: &Scene<K>, trouble: &Trouble) -> Result<()> {
    match trouble.cause {
        Cause::Fixture => {
            scene.apply(trouble.fixture).await?;
        }
        Cause::KilledByStartupProbe => {
            scene.apply(trouble.fixture).await?;
            let pod = scene.pod("a pod", |_| true).await?;
            scene.api::<Event>().create(&PostParams::default(), &unhealthy(&pod, K::CONTAINER)).await?;
        }
        Cause::NodeLost => {
            scene.ready_with(trouble.fixture).await?;
            scene.cluster().await.set_node_ready(&scene.nodes()[0], false).await?;
        }
    }
    Ok(())
}

/// The Event of a kubelet, which names the container by the field path.
fn unhealthy(pod: &Pod, container: &str) -> Event {
    let value = json!({
        "metadata": {"generateName": "startup-probe-", "namespace": pod.namespace()},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod.name_any(), "namespace": pod.namespace(),
            "uid": pod.uid(), "fieldPath": format!("spec.containers{{{container}}}")},
        "reason": "Unhealthy",
        "message": "Startup probe failed: dial tcp: connect: connection refused",
        "type": "Warning",
        "source": {"component": "kubelet"},
        "firstTimestamp": pod.creation_timestamp(),
        "lastTimestamp": pod.creation_timestamp(),
    });
    serde_json::from_value(value).unwrap()
}

async fn heal<K: Kind>(scene: &Scene<K>, trouble: &Trouble) -> Result<()> {
    match &trouble.heal {
        Heal::Pod(annotation) => scene.release(annotation).await,
        Heal::Spec(spec) => scene.change(spec()).await.map(drop),
        Heal::RuntimeClass => scene.cluster().await.create_runtime_class(scene.namespace()).await,
        Heal::Quota => {
            scene.api::<ResourceQuota>().delete("full", &DeleteParams::default()).await?;
            Ok(())
        }
        Heal::NodeBack => scene.cluster().await.set_node_ready(&scene.nodes()[0], true).await,
    }
}
