//! The objects that the operator makes for a resource.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::Value;

use crate::scene::NAME;

/// One child of the resource [`NAME`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Child {
    /// The workload of an engine.
    DaemonSet,
    /// The workload of a coordinator.
    Deployment,
    /// How vLLM finds the instance of its node, and engines their coordinator.
    Service,
    /// How Prometheus finds the instances.
    MetricsService,
    /// How vLLM connects.
    Connection,
    /// The mirror of the store's credentials.
    Credentials,
    /// For the Prometheus operator.
    ServiceMonitor,
    /// Who may reach an engine.
    NetworkPolicy,
}

impl Child {
    /// Its kind.
    pub fn resource(self) -> ApiResource {
        match self {
            Child::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
            Child::Deployment => ApiResource::erase::<Deployment>(&()),
            Child::Service | Child::MetricsService => ApiResource::erase::<Service>(&()),
            Child::Connection => ApiResource::erase::<ConfigMap>(&()),
            Child::Credentials => ApiResource::erase::<Secret>(&()),
            Child::ServiceMonitor => {
                ApiResource::from_gvk(&GroupVersionKind::gvk("monitoring.coreos.com", "v1", "ServiceMonitor"))
            }
            Child::NetworkPolicy => ApiResource::erase::<NetworkPolicy>(&()),
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        let suffix = match self {
            Child::DaemonSet | Child::Deployment | Child::Service | Child::ServiceMonitor | Child::NetworkPolicy => "",
            Child::MetricsService => "-metrics",
            Child::Connection => "-connection",
            Child::Credentials => "-resp-auth",
        };
        format!("{NAME}{suffix}")
    }
}

const COUNTERS: [&str; 2] = ["deprecated.daemonset.template.generation", "deployment.kubernetes.io/revision"];

/// What an object says, without what the server and other controllers keep in it.
pub fn content(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap();
    value.as_object_mut().unwrap().remove("status");
    let metadata = value["metadata"].as_object_mut().unwrap();
    for key in ["resourceVersion", "generation", "managedFields"] {
        metadata.remove(key);
    }
    // The server, or the workload's controller, counts the template's generations here.
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !COUNTERS.contains(&key.as_str()));
    }
    if metadata.get("annotations").is_some_and(|it| it.as_object().is_some_and(serde_json::Map::is_empty)) {
        metadata.remove("annotations");
    }
    value
}

/// The resource that controls an object, by UID.
pub fn controller(object: &DynamicObject) -> Option<&str> {
    let owners = object.metadata.owner_references.iter().flatten();
    owners.filter(|it| it.controller == Some(true)).map(|it| it.uid.as_str()).next()
}
