//! Pods of a workload -> one instance per node, with what had been there before.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use lmcache_crds::{Endpoint, EngineStatus, MAX_ENDPOINTS, Phase, kubernetes_time};
use lmcache_states::{Instance, Problem, ProblemKind, Workload};

use super::live::{Live, TEMPLATE_GENERATION_ANNOTATION};
use super::problems::problem_of;
use super::views::{EventView, NodeView, PodView, REVISION_LABEL, TEMPLATE_GENERATION_LABEL};

/// Everything that instances are derived from.
pub struct Sources<'a> {
    /// The DaemonSet.
    pub workload: &'a Live,
    /// Its counts.
    pub counts: Workload,
    /// Its pods.
    pub pods: &'a [Arc<PodView>],
    /// Finds a node.
    pub node: &'a dyn Fn(&str) -> Option<Arc<NodeView>>,
    /// Events about the DaemonSet and its pods.
    pub events: &'a [Arc<EventView>],
    /// The last written status: what had been ready.
    pub before: &'a EngineStatus,
    /// `spec.server.port` and `spec.prometheus.port`.
    pub ports: (i32, i32),
    /// The present.
    pub now: Timestamp,
}

/// An instance and how it is listed in `status.endpoints`.
struct Seen {
    instance: Instance,
    endpoint: Option<Endpoint>,
}

impl Sources<'_> {
    /// The instances, sorted by location, and the list of endpoints.
    pub fn derive(&self) -> (Vec<Instance>, Vec<Endpoint>) {
        // Pods on their way out still tell which template they were made from.
        let (leaving, pods): (Vec<&PodView>, Vec<&PodView>) =
            self.owned_pods().partition(|pod| pod.metadata.deletion_timestamp.is_some());
        let revision = self.current_revision(&pods, &leaving);
        let mut seen: Vec<Seen> = pods.iter().map(|pod| self.running(pod, revision)).collect();
        let missing = usize::try_from(self.counts.desired).unwrap_or_default().saturating_sub(seen.len());
        if missing > 0 {
            let taken: BTreeSet<String> = seen.iter().map(|s| s.instance.location.clone()).collect();
            let untold = pods.is_empty() && leaving.is_empty();
            let lost: Vec<Seen> = self.lost(&taken, revision, untold).take(missing).collect();
            seen.extend(lost);
            seen.extend(self.refused(&pods));
        }
        seen.sort_by(|a, b| (&a.instance.location, &a.instance.pod).cmp(&(&b.instance.location, &b.instance.pod)));
        let endpoints = seen.iter().filter_map(|s| s.endpoint.clone()).collect();
        (seen.into_iter().map(|s| s.instance).collect(), endpoints)
    }

    /// Pods that this very DaemonSet controls (D33).
    fn owned_pods(&self) -> impl Iterator<Item = &PodView> {
        let uid = self.workload.meta().uid.as_deref();
        self.pods.iter().map(AsRef::as_ref).filter(move |pod| pod.controller().map(|c| c.uid.as_str()) == uid)
    }

    /// The revision that pods of the present template carry; `None` while there is no such pod.
    fn current_revision<'p>(&self, pods: &[&'p PodView], leaving: &[&'p PodView]) -> Option<&'p str> {
        let annotations = self.workload.meta().annotations.as_ref();
        let generation = annotations.and_then(|a| a.get(TEMPLATE_GENERATION_ANNOTATION)).map(String::as_str);
        let mut all = pods.iter().chain(leaving);
        let newest = all.find(|pod| generation.is_some() && pod.label(TEMPLATE_GENERATION_LABEL) == generation);
        // After a template went back to an older text, pods of that older generation count as updated.
        let all_updated = self.counts.observed && usize::try_from(self.counts.updated).is_ok_and(|n| n >= pods.len());
        let any = pods.first().filter(|_| all_updated);
        newest.or(any).and_then(|pod| pod.label(REVISION_LABEL))
    }

    fn running(&self, pod: &PodView, revision: Option<&str>) -> Seen {
        let own = pod.label(REVISION_LABEL);
        let current = own.is_some() && own == revision;
        let node_name = pod.spec.node_name.clone().or_else(|| pod.spec.waits_for.clone()).unwrap_or_default();
        let pod_name = pod.metadata.name.clone().unwrap_or_default();
        let node = (self.node)(&node_name);
        let remembered = self.before.endpoints.iter().find(|e| e.node_name == node_name && !node_name.is_empty());
        let was_ready = match remembered {
            Some(endpoint) => endpoint.revision.as_deref() == own && (endpoint.ready || endpoint.lost_since.is_some()),
            None => self.left_out(pod),
        };
        let ready = pod.ready();
        let endpoint = Endpoint {
            node_name: node_name.clone(),
            host_ip: pod.status.host_ip.clone().unwrap_or_default(),
            pod_name: pod_name.clone(),
            port: self.ports.0,
            metrics_port: self.ports.1,
            ready,
            revision: own.map(str::to_owned),
            lost_since: (was_ready && !ready).then(|| self.lost_since(remembered)),
        };
        let location = if node_name.is_empty() { pod_name.clone() } else { node_name };
        let problem = problem_of(pod, node.as_deref(), self.events);
        let instance =
            Instance { location, pod: Some(pod_name), current, ready, was_ready: was_ready && current, problem };
        Seen { instance, endpoint: Some(endpoint) }
    }

    /// Endpoints beyond the limit are not listed; those were ready, so a pod older than the last step to Ready was too.
    fn left_out(&self, pod: &PodView) -> bool {
        let record = &self.before.record;
        let created = pod.metadata.creation_timestamp.as_ref().map(|t| t.0);
        let became_ready = record.phase_transitions.iter().rev().find(|t| t.to == Phase::Ready).map(|t| t.time.0);
        self.before.endpoints_truncated.is_some() && created.zip(became_ready).is_some_and(|(c, r)| c <= r)
    }

    fn lost_since(&self, remembered: Option<&Endpoint>) -> Time {
        remembered.and_then(|e| e.lost_since.clone()).unwrap_or_else(|| kubernetes_time(self.now))
    }

    /// Nodes that had a ready instance of the present revision and now have no pod that serves. `untold`: there is no pod
    /// at all that could tell the revision.
    fn lost<'s>(
        &'s self,
        taken: &'s BTreeSet<String>,
        revision: Option<&'s str>,
        untold: bool,
    ) -> impl Iterator<Item = Seen> + 's {
        // Then the last status speaks of the present template if it had settled. Pods of old templates alone are the
        // beginning of a rollout that somebody else started (kubectl rollout restart).
        let settled = matches!(self.before.record.phase, Phase::Ready | Phase::Degraded) && self.counts.observed;
        let remembered = self.before.endpoints.iter().filter(move |endpoint| {
            (endpoint.ready || endpoint.lost_since.is_some())
                && !taken.contains(&endpoint.node_name)
                && (endpoint.revision.as_deref() == revision || (untold && settled))
                && (self.node)(&endpoint.node_name).is_some()
        });
        remembered.map(|endpoint| {
            let problem = (self.node)(&endpoint.node_name).and_then(|node| {
                let kind = ProblemKind::NodeNotReady;
                node.not_ready().map(|message| Problem { kind, message: format!("the node is not ready: {message}") })
            });
            Seen {
                instance: Instance {
                    location: endpoint.node_name.clone(),
                    pod: None,
                    current: true,
                    ready: false,
                    was_ready: true,
                    problem,
                },
                endpoint: Some(Endpoint {
                    ready: false,
                    lost_since: Some(self.lost_since(Some(endpoint))),
                    ..endpoint.clone()
                }),
            }
        })
    }

    /// The DaemonSet controller could not create a pod, and has not created one since.
    fn refused(&self, pods: &[&PodView]) -> Option<Seen> {
        let uid = self.workload.meta().uid.as_deref().unwrap_or_default();
        let newest_pod = pods.iter().filter_map(|p| p.metadata.creation_timestamp.as_ref()).map(|t| t.0).max();
        let event = self
            .events
            .iter()
            .filter(|e| e.reason == "FailedCreate" && e.involved_object.uid == uid)
            .filter(|e| newest_pod.is_none_or(|created| e.seen().is_some_and(|seen| seen >= created)))
            .max_by_key(|e| e.seen())?;
        let problem =
            Problem { kind: ProblemKind::AdmissionRefused, message: format!("FailedCreate: {}", event.message) };
        Some(Seen {
            instance: Instance {
                location: self.workload.meta().name.clone().unwrap_or_default(),
                pod: None,
                current: true,
                ready: false,
                was_ready: false,
                problem: Some(problem),
            },
            endpoint: None,
        })
    }
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

#[cfg(test)]
#[path = "instances_tests.rs"]
mod tests;
