//! What the helpers need to know about a kind.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::Resource;
use lmcache_crds::{CacheBlendEngine, LMCacheCoordinator, LMCacheEngine, PhaseRecord};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::workload::Workload;

/// Label of every child: what it is part of.
pub const NAME_LABEL: &str = "app.kubernetes.io/name";
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
    /// What runs its pods.
    type Workload: Workload;

    /// Value of [`NAME_LABEL`] on its children.
    const APPLICATION: &'static str;

    /// The part of the status that the state machine owns; `None` before the first status.
    fn record(&self) -> Option<&PhaseRecord>;
}

/// Every kind keeps its record in its status.
macro_rules! phase_object {
    ($kind:ty, $workload:ty, $application:literal) => {
        impl PhaseObject for $kind {
            type Workload = $workload;
            const APPLICATION: &'static str = $application;

            fn record(&self) -> Option<&PhaseRecord> {
                self.status.as_ref().map(|status| &status.record)
            }
        }
    };
}

phase_object!(LMCacheEngine, DaemonSet, "lmcache");
phase_object!(CacheBlendEngine, DaemonSet, "lmcache");
phase_object!(LMCacheCoordinator, Deployment, "lmcache-coordinator");

/// Selects the children of a resource, pods included. Those of an engine of the other kind with the same name are among them.
pub fn instance_selector<K: PhaseObject>(name: &str) -> String {
    format!("{NAME_LABEL}={},{INSTANCE_LABEL}={name},{MANAGED_BY_LABEL}={MANAGER}", K::APPLICATION)
}
