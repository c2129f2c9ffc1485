//! What rendering gives back: children as complete objects for server-side apply.

use std::fmt;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::core::{ApiResource, GroupVersionKind};
use serde::Serialize;
use serde_json::Value;

use super::stored;

/// Kinds of objects that a resource can own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ChildKind {
    /// Copy of the credentials of a RESP server.
    Secret,
    /// The cache servers, one per matching node.
    DaemonSet,
    /// The coordinator.
    Deployment,
    /// Lookup or front Service, and metrics Service.
    Service,
    /// Connection documents for vLLM.
    ConfigMap,
    /// Scrape configuration of the Prometheus Operator.
    ServiceMonitor,
    /// Who may reach the cache servers.
    NetworkPolicy,
}

impl ChildKind {
    /// Every kind, in the order in which they are derived.
    pub const ALL: [ChildKind; 7] = [
        ChildKind::Secret,
        ChildKind::DaemonSet,
        ChildKind::Deployment,
        ChildKind::Service,
        ChildKind::ConfigMap,
        ChildKind::ServiceMonitor,
        ChildKind::NetworkPolicy,
    ];

    /// The Kubernetes kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChildKind::Secret => "Secret",
            ChildKind::DaemonSet => "DaemonSet",
            ChildKind::Deployment => "Deployment",
            ChildKind::Service => "Service",
            ChildKind::ConfigMap => "ConfigMap",
            ChildKind::ServiceMonitor => "ServiceMonitor",
            ChildKind::NetworkPolicy => "NetworkPolicy",
        }
    }

    /// The `apiVersion` that objects of this kind are rendered with.
    pub const fn api_version(self) -> &'static str {
        match self {
            ChildKind::Secret | ChildKind::Service | ChildKind::ConfigMap => "v1",
            ChildKind::DaemonSet | ChildKind::Deployment => "apps/v1",
            ChildKind::ServiceMonitor => "monitoring.coreos.com/v1",
            ChildKind::NetworkPolicy => "networking.k8s.io/v1",
        }
    }

    /// Group, version, kind and plural, for a dynamic client.
    pub fn api_resource(self) -> ApiResource {
        match self {
            ChildKind::Secret => ApiResource::erase::<Secret>(&()),
            ChildKind::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
            ChildKind::Deployment => ApiResource::erase::<Deployment>(&()),
            ChildKind::Service => ApiResource::erase::<Service>(&()),
            ChildKind::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            ChildKind::ServiceMonitor => ApiResource::from_gvk_with_plural(
                &GroupVersionKind::gvk("monitoring.coreos.com", "v1", "ServiceMonitor"),
                "servicemonitors",
            ),
            ChildKind::NetworkPolicy => ApiResource::erase::<NetworkPolicy>(&()),
        }
    }
}

impl fmt::Display for ChildKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One object that the spec wants.
#[derive(Clone, PartialEq)]
pub struct Child {
    /// Kind of the object.
    pub kind: ChildKind,
    /// `metadata.name`; the namespace is the engine's.
    pub name: String,
    /// The whole object: `apiVersion`, `kind`, `metadata` (name, namespace, labels, one controlling owner reference)
    /// and `spec` or `data`. It holds only fields that the operator means to own; nothing in it is null.
    pub object: Value,
}

impl Child {
    /// A child from its typed object, without what the API server would not store.
    pub(super) fn new(kind: ChildKind, name: String, object: &impl Serialize) -> Self {
        // Objects whose keys are strings always serialise.
        let mut object = serde_json::to_value(object).unwrap_or_default();
        stored::prune(&mut object);
        Child { kind, name, object }
    }
}

impl fmt::Debug for Child {
    /// Shows everything but the data of a Secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Child");
        out.field("kind", &self.kind).field("name", &self.name);
        if self.kind == ChildKind::Secret {
            out.field("object", &"<redacted>").finish()
        } else {
            out.field("object", &self.object).finish()
        }
    }
}

/// Every object that the spec wants, and every object that it wants gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Children {
    /// Objects to apply, in this order: what others need comes first.
    pub wanted: Vec<Child>,
    /// Objects to delete when they exist and are ours, by kind and name.
    pub unwanted: Vec<(ChildKind, String)>,
}

impl Children {
    /// The wanted object of this kind and name.
    pub fn get(&self, kind: ChildKind, name: &str) -> Option<&Child> {
        self.wanted.iter().find(|child| child.kind == kind && child.name == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn debug_of_a_secret_hides_its_data() {
        let object = json!({"data": {"password": "aHVudGVyMg=="}});
        let child = Child { kind: ChildKind::Secret, name: "c1-resp-auth".into(), object };
        let children = Children { wanted: vec![child], unwanted: Vec::new() };
        let shown = format!("{children:?}");
        assert!(shown.contains("c1-resp-auth") && !shown.contains("aHVudGVyMg"), "{shown}");
    }

    #[test]
    fn every_kind_has_an_api_resource_that_matches_its_api_version() {
        for kind in ChildKind::ALL {
            let resource = kind.api_resource();
            assert_eq!(
                (resource.api_version.as_str(), resource.kind.as_str(), resource.plural),
                (
                    kind.api_version(),
                    kind.as_str(),
                    format!("{}s", kind.as_str().to_lowercase()).replace("policys", "policies")
                ),
                "{kind}"
            );
        }
    }
}
