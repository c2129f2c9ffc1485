//! Caches -> observation. The only place that reads pods, Events, nodes and workload status.

mod cache;
mod dependencies;
mod guarded;
pub mod hits;
mod injected;
mod instances;
mod live;
mod nodes;
mod problems;
mod replicas;
#[cfg(test)]
mod testing;
mod trouble;
mod views;
mod watches;
mod workload;

use std::sync::Arc;

use jiff::Timestamp;
use lmcache_crds::{Endpoint, Report};
use lmcache_states::{Instance, Workload};

pub use cache::{Cache, Feed};
pub use dependencies::{CredentialsMemo, DependencyError, References, Resolution, Resolver, shared_with, source_of};
pub use guarded::{Guarded, Malformed, PublishedStatus};
pub use injected::injected;
pub use instances::limit;
pub use live::{ADOPT_ANNOTATION, FIELD_MANAGER, Live, resource_version};
pub use trouble::{Pauses, backoff, chain, report};
pub use views::{controller_of, trim_metadata};
pub use watches::{Caches, GROUP, Opener, SHARE_ANNOTATION};

use crate::key::Key;
use crate::render::ChildKind;
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

/// The workload that is observed.
pub struct Target<'a> {
    /// Its kind: a DaemonSet or a Deployment.
    pub kind: ChildKind,
    /// Namespace and name, which are those of the resource.
    pub key: &'a Key,
    /// UID of the resource that must control it.
    pub owner: &'a str,
    /// The workload's generation that the last apply gave: a cache that is still behind it tells nothing about this spec.
    pub applied_generation: Option<i64>,
    /// Port of the server and of the metrics Service.
    pub ports: (i32, i32),
}

/// Observes a workload and its pods. `before` is the last written status.
pub fn running(caches: &Caches, target: &Target<'_>, before: &Report, now: Timestamp) -> Running {
    let key = target.key;
    let live = caches.children(target.kind).get(&key.namespace, &key.name);
    let Some(live) = live.filter(|live| controller_of(live.meta()).is_some_and(|c| c.uid == target.owner)) else {
        return Running::default();
    };
    let counts = counts(&live, target, before);
    let pods = caches.pods.of(key);
    let mut events = caches.events.of(key);
    for pod in pods.iter().filter(|pod| !pod.ready()) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        events.extend(caches.events.of(&Key::new(key.namespace.clone(), name)));
    }
    let sources = instances::Sources {
        workload: &live,
        counts,
        pods: &pods,
        node: &|name| caches.nodes.get_cluster(name),
        events: &events,
        before,
        ports: target.ports,
        now,
    };
    let (instances, endpoints) = match target.kind {
        ChildKind::Deployment => sources.as_replicas(&caches.replica_sets.of(key)),
        _ => sources.on_nodes(),
    };
    Running { workload: Some(counts), instances, endpoints }
}

fn counts(live: &Arc<Live>, target: &Target<'_>, before: &Report) -> Workload {
    let status = live.workload.clone().unwrap_or_default();
    let generation = live.meta().generation.unwrap_or_default();
    let is_current = generation >= target.applied_generation.unwrap_or_default();
    let observed = status.observed_generation >= generation && is_current;
    // A Deployment's own spec says how many are wanted. Until its controller knows of it, what was wanted before is what
    // the other counts speak of.
    let known = observed || target.kind != ChildKind::Deployment;
    Workload {
        observed,
        desired: if known { status.desired } else { before.desired },
        updated: status.updated,
        ready: status.ready,
        available: status.available,
        misscheduled: status.misscheduled,
    }
}
