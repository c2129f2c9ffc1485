//! Pods of a workload -> its instances, with what had been there before. How a DaemonSet and a Deployment differ in this is in
//! `nodes.rs` and `replicas.rs`.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use lmcache_crds::{Endpoint, MAX_ENDPOINTS, Phase, Report, kubernetes_time};
use lmcache_states::{Instance, Problem, ProblemKind, Workload};

use super::live::Live;
use super::problems::problem_of;
use super::views::{EventView, NodeView, PodView};

/// Everything that instances are derived from.
pub struct Sources<'a> {
    /// The workload.
    pub workload: &'a Live,
    /// Its counts.
    pub counts: Workload,
    /// Its pods.
    pub pods: &'a [Arc<PodView>],
    /// Finds a node.
    pub node: &'a dyn Fn(&str) -> Option<Arc<NodeView>>,
    /// Events about the workload and its pods.
    pub events: &'a [Arc<EventView>],
    /// The last written status: what had been ready.
    pub before: &'a Report,
    /// Port of the server and of the metrics Service.
    pub ports: (i32, i32),
    /// The present.
    pub now: Timestamp,
}

/// An instance and how it is listed in `status.endpoints`.
pub(super) struct Seen {
    pub instance: Instance,
    pub endpoint: Option<Endpoint>,
}

/// What the kind of the workload says of a pod.
pub(super) struct Place<'p> {
    /// How the instance is called.
    pub location: String,
    /// The revision that the pod was made from.
    pub revision: Option<&'p str>,
    /// The revision of the present template.
    pub current: Option<&'p str>,
    /// What was remembered of this instance.
    pub remembered: Option<&'p Endpoint>,
}

impl Sources<'_> {
    /// An instance that has a pod.
    pub(super) fn running(&self, pod: &PodView, place: Place<'_>) -> Seen {
        let Place { location, revision, current, remembered } = place;
        let current = revision.is_some() && revision == current;
        let node_name = pod.node_name().unwrap_or_default();
        let pod_name = pod.metadata.name.clone().unwrap_or_default();
        let was_ready = match remembered {
            Some(endpoint) => had_been_ready(endpoint) && endpoint.revision.as_deref() == revision,
            None => self.left_out(pod),
        };
        let ready = pod.ready();
        let endpoint = Endpoint {
            node_name: node_name.to_owned(),
            host_ip: pod.status.host_ip.clone().unwrap_or_default(),
            pod_name: pod_name.clone(),
            port: self.ports.0,
            metrics_port: self.ports.1,
            ready,
            revision: revision.map(str::to_owned),
            lost_since: (was_ready && !ready).then(|| self.lost_since(remembered)),
        };
        let problem = problem_of(pod, (self.node)(node_name).as_deref(), self.events);
        let instance =
            Instance { location, pod: Some(pod_name), current, ready, was_ready: was_ready && current, problem };
        Seen { instance, endpoint: Some(endpoint) }
    }

    /// An instance that had been ready and has no pod any more.
    pub(super) fn gone(&self, location: String, endpoint: &Endpoint) -> Seen {
        let node = (self.node)(&endpoint.node_name);
        let problem = node.as_ref().and_then(|node| node.not_ready()).map(|message| Problem {
            kind: ProblemKind::NodeNotReady,
            message: format!("the node is not ready: {message}"),
        });
        let instance = Instance { location, pod: None, current: true, ready: false, was_ready: true, problem };
        let lost_since = Some(self.lost_since(Some(endpoint)));
        Seen { instance, endpoint: Some(Endpoint { ready: false, lost_since, ..endpoint.clone() }) }
    }

    /// A pod that the workload's controller could not create.
    pub(super) fn refused(&self, message: &str) -> Seen {
        let kind = ProblemKind::AdmissionRefused;
        let problem = Some(Problem { kind, message: format!("FailedCreate: {message}") });
        let location = kube::Resource::meta(self.workload).name.clone().unwrap_or_default();
        let instance = Instance { location, pod: None, current: true, ready: false, was_ready: false, problem };
        Seen { instance, endpoint: None }
    }

    /// How many instances are wanted beyond those that have pods.
    pub(super) fn missing(&self, pods: usize) -> usize {
        usize::try_from(self.counts.desired).unwrap_or_default().saturating_sub(pods)
    }

    /// Endpoints beyond the limit are not listed; those were ready, so a pod older than the last step to Ready was too.
    fn left_out(&self, pod: &PodView) -> bool {
        let record = &self.before.record;
        let created = pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
        let became_ready = record.phase_transitions.iter().rev().find(|t| t.to == Phase::Ready).map(|t| t.time.0);
        self.before.endpoints_truncated.is_some() && created.zip(became_ready).is_some_and(|(c, r)| c <= r)
    }

    pub(super) fn lost_since(&self, remembered: Option<&Endpoint>) -> Time {
        remembered.and_then(|e| e.lost_since.clone()).unwrap_or_else(|| kubernetes_time(self.now))
    }
}

/// Whether an endpoint stands for an instance that had been ready, even if it is lost by now.
pub(super) fn had_been_ready(endpoint: &Endpoint) -> bool {
    endpoint.ready || endpoint.lost_since.is_some()
}

/// The instances, sorted by location, and the list of endpoints.
pub(super) fn sorted(mut seen: Vec<Seen>) -> (Vec<Instance>, Vec<Endpoint>) {
    seen.sort_by(|a, b| (&a.instance.location, &a.instance.pod).cmp(&(&b.instance.location, &b.instance.pod)));
    let endpoints = seen.iter().filter_map(|s| s.endpoint.clone()).collect();
    (seen.into_iter().map(|s| s.instance).collect(), endpoints)
}

/// At most [`MAX_ENDPOINTS`] endpoints, those that are not ready first, sorted by node and pod (D06 D74);
/// and how many were left out.
pub fn limit(mut endpoints: Vec<Endpoint>) -> (Vec<Endpoint>, Option<i32>) {
    let total = endpoints.len();
    if total > MAX_ENDPOINTS {
        endpoints.sort_by(|a, b| (a.ready, &a.node_name, &a.pod_name).cmp(&(b.ready, &b.node_name, &b.pod_name)));
        endpoints.truncate(MAX_ENDPOINTS);
    }
    endpoints.sort_by(|a, b| (&a.node_name, &a.pod_name).cmp(&(&b.node_name, &b.pod_name)));
    let left_out = i32::try_from(total - endpoints.len()).unwrap_or(i32::MAX);
    (endpoints, (left_out > 0).then_some(left_out))
}
