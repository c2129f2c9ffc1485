//! A child as it stands on the API server, trimmed to what the operator compares and reads.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::DynamicResourceScope;
use kube::discovery::ApiResource;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::views::controller_of;
use super::workload::WorkloadStatus;

/// The name under which the operator applies (server-side apply).
pub const FIELD_MANAGER: &str = "lmcache-operator";

/// A live child. Its content is kept as compact text: a tree of values costs several times the memory.
#[derive(Clone)]
pub struct Live {
    metadata: ObjectMeta,
    /// Everything but status and foreign managed fields, as JSON text.
    content: Box<str>,
    /// Hash of `content`.
    pub fingerprint: u64,
    /// What the controller of a workload reports; `None` for other kinds.
    pub workload: Option<WorkloadStatus>,
}

impl Live {
    /// The whole object but its status, and the fields that the operator's own apply owns.
    ///
    /// # Errors
    /// Only if the stored text were not JSON, which it is by construction.
    pub fn parse(&self) -> Result<Content, serde_json::Error> {
        serde_json::from_str(&self.content)
    }

    /// `metadata.resourceVersion` as a number; 0 when absent.
    pub fn version(&self) -> u64 {
        resource_version(&self.metadata)
    }
}

/// A parsed live child.
#[derive(Deserialize)]
pub struct Content {
    /// The object without status and managed fields.
    pub object: Value,
    /// `fieldsV1` of the operator's own apply entry; `null` when it never applied the object.
    pub owned: Value,
}

/// `metadata.resourceVersion` as a number: comparable within one resource since Kubernetes 1.35.
pub fn resource_version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0)
}

impl std::fmt::Debug for Live {
    // The content of a Secret must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live")
            .field("name", &self.metadata.name)
            .field("namespace", &self.metadata.namespace)
            .field("resource_version", &self.metadata.resource_version)
            .finish_non_exhaustive()
    }
}

impl<'de> Deserialize<'de> for Live {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Live::try_from(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl TryFrom<Value> for Live {
    type Error = serde_json::Error;

    fn try_from(mut object: Value) -> Result<Self, Self::Error> {
        let status = object.as_object_mut().and_then(|o| o.remove("status")).unwrap_or_default();
        let workload = WorkloadStatus::read(&object, status)?;
        let mut metadata = object.get_mut("metadata").map(Value::take).unwrap_or_default();
        let owned = take_owned_fields(&mut metadata);
        let mut trimmed = serde_json::Map::new();
        for key in ["name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp"] {
            if let Some(value) = metadata.as_object_mut().and_then(|m| m.remove(key)) {
                trimmed.insert(key.to_owned(), value);
            }
        }
        let mut kept: ObjectMeta = serde_json::from_value(Value::Object(trimmed))?;
        for key in ["creationTimestamp", "selfLink"] {
            metadata.as_object_mut().map(|m| m.remove(key));
        }
        kept.owner_references = Deserialize::deserialize(&metadata["ownerReferences"])?;
        // Only an object that nobody controls is judged by its labels.
        if controller_of(&kept).is_none() {
            kept.labels = Deserialize::deserialize(&metadata["labels"])?;
        }
        kept.annotations = Deserialize::deserialize(&metadata["annotations"])?;
        if let Some(annotations) = &mut kept.annotations {
            annotations.retain(|key, _| KEPT_ANNOTATIONS.contains(&key.as_str()));
        }
        object["metadata"] = metadata;
        let content = serde_json::json!({ "object": object, "owned": owned }).to_string().into_boxed_str();
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        Ok(Live { metadata: kept, content, fingerprint: hasher.finish(), workload })
    }
}

/// The annotation by which its user hands an object over to the operator (D01).
pub const ADOPT_ANNOTATION: &str = "lmcache.ai/adopt";
/// Where the API server counts changes of a DaemonSet's pod template.
pub const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";
/// Where the Deployment controller counts revisions, on a Deployment and on each of its ReplicaSets.
pub const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";
const KEPT_ANNOTATIONS: [&str; 3] = [ADOPT_ANNOTATION, TEMPLATE_GENERATION_ANNOTATION, REVISION_ANNOTATION];

fn take_owned_fields(metadata: &mut Value) -> Value {
    let Some(Value::Array(entries)) = metadata.as_object_mut().and_then(|m| m.remove("managedFields")) else {
        return Value::Null;
    };
    entries
        .into_iter()
        .find(|e| e["manager"] == FIELD_MANAGER && e["operation"] == "Apply" && e.get("subresource").is_none())
        .and_then(|mut e| e.get_mut("fieldsV1").map(Value::take))
        .unwrap_or_default()
}

impl Resource for Live {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }
    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }
    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }
    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
