//! Pods, nodes and Events, trimmed to what an observation needs; unknown fields are skipped while decoding.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde::Deserialize;
use serde_json::Value;

use super::live::REVISION_ANNOTATION;

/// Makes a view answer as the kind it was cut from.
macro_rules! view_of {
    ($view:ty, $kind:ty, $scope:ty) => {
        impl Resource for $view {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$kind>::kind(&())
            }
            fn group((): &()) -> Cow<'_, str> {
                <$kind>::group(&())
            }
            fn version((): &()) -> Cow<'_, str> {
                <$kind>::version(&())
            }
            fn plural((): &()) -> Cow<'_, str> {
                <$kind>::plural(&())
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// A pod of an engine.
#[derive(Clone, Debug, Deserialize)]
pub struct PodView {
    /// Trimmed by [`trim_metadata`].
    pub metadata: ObjectMeta,
    /// Where it runs, or should.
    #[serde(default)]
    pub spec: PodSpecView,
    /// What the kubelet and the scheduler say of it.
    #[serde(default)]
    pub status: PodStatusView,
}

/// The scheduling part of a pod's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpecView {
    /// Node that the pod is bound to.
    pub node_name: Option<String>,
    /// Read for the node that a DaemonSet's pod is meant for, then dropped.
    affinity: Option<Value>,
    /// Node that a pod without one waits for.
    #[serde(skip)]
    pub waits_for: Option<String>,
}

/// The status of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatusView {
    /// Pending, Running, Succeeded, Failed or Unknown.
    pub phase: Option<String>,
    /// Why the pod failed as a whole, such as `Evicted`.
    pub reason: Option<String>,
    /// The same in words.
    pub message: Option<String>,
    /// Address of the node.
    #[serde(rename = "hostIP")]
    pub host_ip: Option<String>,
    /// Address of the pod.
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// Only `Ready` and `PodScheduled` are kept.
    pub conditions: Vec<PodCondition>,
    /// Init containers.
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Containers.
    pub container_statuses: Vec<ContainerStatus>,
}

view_of!(PodView, Pod, NamespaceResourceScope);

impl PodView {
    /// Drops what no observation reads.
    pub fn trim(&mut self) {
        trim_metadata(&mut self.metadata);
        if let Some(labels) = &mut self.metadata.labels {
            labels.retain(|key, _| KEPT_POD_LABELS.contains(&key.as_str()));
        }
        if let Some(affinity) = self.spec.affinity.take() {
            self.spec.waits_for = target_node(&affinity);
        }
        self.status.conditions.retain(|c| c.type_ == "Ready" || c.type_ == "PodScheduled");
        if self.ready() {
            // Containers tell why a pod is not ready.
            self.status.container_statuses = Vec::new();
            self.status.init_container_statuses = Vec::new();
        }
    }

    /// The condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|c| c.type_ == type_)
    }

    /// Whether the pod answers its readiness probe.
    pub fn ready(&self) -> bool {
        self.condition("Ready").is_some_and(|c| c.status == "True")
    }

    /// Whether its containers have ended for good; the kubelet or an eviction ended it.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Failed" | "Succeeded"))
    }

    /// Node that the pod is bound to, or else the one it waits for.
    pub fn node_name(&self) -> Option<&str> {
        self.spec.node_name.as_deref().or(self.spec.waits_for.as_deref())
    }

    /// A label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// The object that controls the pod.
    pub fn controller(&self) -> Option<&OwnerReference> {
        controller_of(&self.metadata)
    }
}

/// Label by which the DaemonSet controller names the revision a pod was made from.
pub const REVISION_LABEL: &str = "controller-revision-hash";
/// Label with the template generation that a DaemonSet's pod was made from.
pub const TEMPLATE_GENERATION_LABEL: &str = "pod-template-generation";
/// Label by which the Deployment controller names the template that a ReplicaSet and its pods were made from.
pub const TEMPLATE_HASH_LABEL: &str = "pod-template-hash";
const KEPT_POD_LABELS: [&str; 5] = [
    REVISION_LABEL,
    TEMPLATE_GENERATION_LABEL,
    TEMPLATE_HASH_LABEL,
    "app.kubernetes.io/instance",
    "app.kubernetes.io/name",
];

/// The DaemonSet controller pins its pods by a node affinity on `metadata.name`.
fn target_node(affinity: &Value) -> Option<String> {
    affinity
        .pointer("/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0")
        .filter(|field| field["key"] == "metadata.name")
        .and_then(|field| field.pointer("/values/0")?.as_str().map(str::to_owned))
}

/// What a Deployment keeps of each of its pod templates.
#[derive(Clone, Debug, Deserialize)]
pub struct ReplicaSetView {
    /// Trimmed by [`trim_metadata`], but for the number of the revision.
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: ReplicaSetSpecView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ReplicaSetSpecView {
    replicas: i32,
}

view_of!(ReplicaSetView, ReplicaSet, NamespaceResourceScope);

impl ReplicaSetView {
    /// Drops what no observation reads.
    pub fn trim(&mut self) {
        let revision = self.metadata.annotations.as_mut().and_then(|notes| notes.remove_entry(REVISION_ANNOTATION));
        trim_metadata(&mut self.metadata);
        self.metadata.annotations = revision.map(|entry| [entry].into());
    }

    /// The number of its template's revision.
    pub fn revision(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(REVISION_ANNOTATION).map(String::as_str)
    }

    /// The label of its pods that names the template.
    pub fn template_hash(&self) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(TEMPLATE_HASH_LABEL).map(String::as_str)
    }

    /// Whether it should run nothing.
    pub fn is_scaled_down(&self) -> bool {
        self.spec.replicas == 0
    }
}

/// A node: only whether it is ready.
#[derive(Clone, Debug, Deserialize)]
pub struct NodeView {
    /// Trimmed to the name.
    pub metadata: ObjectMeta,
    #[serde(default)]
    status: NodeStatusView,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeStatusView {
    conditions: Vec<NodeConditionView>,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeConditionView {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    message: String,
}

view_of!(NodeView, Node, k8s_openapi::ClusterResourceScope);

impl NodeView {
    /// Drops what no observation reads.
    pub fn trim(&mut self) {
        trim_metadata(&mut self.metadata);
        self.metadata.labels = None;
        self.status.conditions.retain(|c| c.type_ == "Ready");
    }

    /// Why the node is not ready; `None` while it is, and while nothing is known.
    pub fn not_ready(&self) -> Option<&str> {
        self.status.conditions.first().filter(|c| c.status != "True").map(|c| c.message.as_str())
    }
}

/// An Event about a DaemonSet or a pod.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// Trimmed to the name.
    pub metadata: ObjectMeta,
    /// What it is about.
    pub involved_object: InvolvedObject,
    /// Its reason, such as `FailedCreate`.
    #[serde(default)]
    pub reason: String,
    /// Its words.
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    last_timestamp: Option<Timestamp>,
    #[serde(default)]
    event_time: Option<Timestamp>,
}

/// The object an Event is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct InvolvedObject {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

view_of!(EventView, Event, NamespaceResourceScope);

impl EventView {
    /// Drops what no observation reads.
    pub fn trim(&mut self) {
        trim_metadata(&mut self.metadata);
    }

    /// When it was last seen.
    pub fn seen(&self) -> Option<Timestamp> {
        self.last_timestamp.or(self.event_time)
    }
}

/// Keeps name, namespace, UID, version, times, labels and owners.
pub fn trim_metadata(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    metadata.annotations = None;
    metadata.generate_name = None;
    metadata.finalizers = None;
}

/// The owner reference with `controller: true`.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.as_ref()?.iter().find(|r| r.controller == Some(true))
}
