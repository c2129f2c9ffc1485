//! Caches -> observation. The only place that reads pods, Events, nodes and workload status.

mod cache;
mod dependencies;
mod guarded;
mod instances;
mod live;
mod problems;
mod trouble;
mod views;
mod watches;

use std::sync::Arc;

use jiff::Timestamp;
use lmcache_crds::{Endpoint, EngineStatus};
use lmcache_states::{Instance, Workload};

pub use cache::{Cache, Feed};
pub use dependencies::{CredentialsMemo, DependencyError, Resolver, source_of};
pub use guarded::{Guarded, Malformed};
pub use instances::limit;
pub use live::{ADOPT_ANNOTATION, FIELD_MANAGER, Live, resource_version};
pub use trouble::{Pauses, backoff, chain, report};
pub use views::{controller_of, trim_metadata};
pub use watches::{Caches, GROUP, Opener, SHARE_ANNOTATION};

use crate::key::Key;
use kube::Resource;

/// What a workload and its pods say.
#[derive(Debug, Default)]
pub struct Running {
    /// Counts of the workload controller; `None` while there is no workload of ours.
    pub workload: Option<Workload>,
    /// One per node.
    pub instances: Vec<Instance>,
    /// The same as a user sees them.
    pub endpoints: Vec<Endpoint>,
}

/// Observes the DaemonSet of an engine and its pods.
///
/// `applied_generation` is the workload's generation that the last apply gave: a cache that is still behind it
/// tells nothing about this spec.
pub fn running(
    caches: &Caches,
    engine: &Key,
    uid: &str,
    applied_generation: Option<i64>,
    before: &EngineStatus,
    ports: (i32, i32),
    now: Timestamp,
) -> Running {
    let live = caches.daemonsets.get(&engine.namespace, &engine.name);
    let Some(live) = live.filter(|live| controller_of(live.meta()).is_some_and(|c| c.uid == uid)) else {
        return Running::default();
    };
    let counts = counts(&live, applied_generation);
    let pods = caches.pods.of(engine);
    let mut events = caches.events.of(engine);
    for pod in pods.iter().filter(|pod| !pod.ready()) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let key = Key::new(engine.namespace.clone(), name);
        events.extend(caches.events.of(&key));
    }
    let sources = instances::Sources {
        workload: &live,
        counts,
        pods: &pods,
        node: &|name| caches.nodes.get_cluster(name),
        events: &events,
        before,
        ports,
        now,
    };
    let (instances, endpoints) = sources.derive();
    Running { workload: Some(counts), instances, endpoints }
}

fn counts(live: &Arc<Live>, applied_generation: Option<i64>) -> Workload {
    let status = live.workload.unwrap_or_default();
    let generation = live.meta().generation.unwrap_or_default();
    Workload {
        observed: status.observed_generation >= generation && generation >= applied_generation.unwrap_or_default(),
        desired: status.desired_number_scheduled,
        updated: status.updated_number_scheduled,
        ready: status.number_ready,
        available: status.number_available,
        misscheduled: status.number_misscheduled,
    }
}
