//! What the helpers need to know about a kind.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use lmcache_crds::{LMCacheEngine, PhaseRecord};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Label of every child: the name of the resource that it belongs to.
pub const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";
/// Label of every child: who manages it.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`].
pub const MANAGER: &str = "lmcache-operator";

/// A custom resource that goes through phases.
pub trait PhaseObject:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// The part of the status that the state machine owns; `None` before the first status.
    fn record(&self) -> Option<&PhaseRecord>;
}

impl PhaseObject for LMCacheEngine {
    fn record(&self) -> Option<&PhaseRecord> {
        self.status.as_ref().map(|status| &status.record)
    }
}

/// Selects the children of a resource.
pub fn instance_selector(name: &str) -> String {
    format!("{INSTANCE_LABEL}={name},{MANAGED_BY_LABEL}={MANAGER}")
}
