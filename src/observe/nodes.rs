//! Instances of a DaemonSet: one per node.

use std::collections::BTreeSet;

use kube::Resource;
use lmcache_crds::{Endpoint, Phase};
use lmcache_states::Instance;

use super::instances::{Place, Seen, Sources, had_been_ready, sorted};
use super::live::TEMPLATE_GENERATION_ANNOTATION;
use super::views::{PodView, REVISION_LABEL, TEMPLATE_GENERATION_LABEL};

impl Sources<'_> {
    /// The instances of a DaemonSet, by node, and the list of endpoints.
    pub fn on_nodes(&self) -> (Vec<Instance>, Vec<Endpoint>) {
        // Pods on their way out still tell which template they were made from.
        let (leaving, pods): (Vec<&PodView>, Vec<&PodView>) =
            self.owned_pods().partition(|pod| pod.metadata.deletion_timestamp.is_some());
        let revision = self.current_revision(&pods, &leaving);
        let mut seen: Vec<Seen> = pods.iter().map(|pod| self.running(pod, self.place(pod, revision))).collect();
        let missing = self.missing(seen.len());
        if missing > 0 {
            let taken: BTreeSet<String> = seen.iter().map(|s| s.instance.location.clone()).collect();
            let untold = pods.is_empty() && leaving.is_empty();
            let lost: Vec<Seen> = self.lost(&taken, revision, untold).take(missing).collect();
            seen.extend(lost);
            seen.extend(self.not_created(&pods));
        }
        sorted(seen)
    }

    /// Pods that this very DaemonSet controls (D33).
    fn owned_pods(&self) -> impl Iterator<Item = &PodView> {
        let uid = self.workload.meta().uid.as_deref();
        self.pods.iter().map(AsRef::as_ref).filter(move |pod| pod.controller().map(|c| c.uid.as_str()) == uid)
    }

    fn place<'p>(&'p self, pod: &'p PodView, current: Option<&'p str>) -> Place<'p> {
        let node = pod.node_name().unwrap_or_default();
        let location = if node.is_empty() { pod.metadata.name.as_deref().unwrap_or_default() } else { node };
        let remembered = self.before.endpoints.iter().find(|e| e.node_name == node && !node.is_empty());
        Place { location: location.to_owned(), revision: pod.label(REVISION_LABEL), current, remembered }
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
            had_been_ready(endpoint)
                && !taken.contains(&endpoint.node_name)
                && (endpoint.revision.as_deref() == revision || (untold && settled))
                && (self.node)(&endpoint.node_name).is_some()
        });
        remembered.map(|endpoint| self.gone(endpoint.node_name.clone(), endpoint))
    }

    /// The DaemonSet controller could not create a pod, and has not created one since.
    fn not_created(&self, pods: &[&PodView]) -> Option<Seen> {
        let uid = self.workload.meta().uid.as_deref().unwrap_or_default();
        let newest_pod = pods.iter().filter_map(|p| p.metadata.creation_timestamp.as_ref()).map(|t| t.0).max();
        let event = self
            .events
            .iter()
            .filter(|e| e.reason == "FailedCreate" && e.involved_object.uid == uid)
            .filter(|e| newest_pod.is_none_or(|created| e.seen().is_some_and(|seen| seen >= created)))
            .max_by_key(|e| e.seen())?;
        Some(self.refused(&event.message))
    }
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;
