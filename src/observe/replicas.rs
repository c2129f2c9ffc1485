//! Instances of a Deployment: one per replica.

use std::sync::Arc;

use kube::Resource;
use lmcache_crds::Endpoint;
use lmcache_states::Instance;

use super::instances::{Place, Seen, Sources, had_been_ready, sorted};
use super::live::REVISION_ANNOTATION;
use super::views::{PodView, ReplicaSetView, TEMPLATE_HASH_LABEL, controller_of};

impl Sources<'_> {
    /// The instances of a Deployment, by pod, and the list of endpoints. `sets` are ReplicaSets of its name.
    pub fn as_replicas(&self, sets: &[Arc<ReplicaSetView>]) -> (Vec<Instance>, Vec<Endpoint>) {
        let uid = self.workload.meta().uid.as_deref();
        let ours: Vec<_> =
            sets.iter().filter(|set| controller_of(&set.metadata).map(|c| c.uid.as_str()) == uid).collect();
        let revision = self.present_template(&ours);
        let pods = self.active(|pod| {
            let controller = pod.controller().map(|c| c.uid.as_str());
            ours.iter().any(|set| set.metadata.uid.as_deref() == controller)
        });
        let mut seen: Vec<Seen> = pods.iter().map(|pod| self.running(pod, self.replica(pod, revision))).collect();
        self.remember_the_lost(&mut seen, revision);
        let failure = self.workload.workload.as_ref().and_then(|status| status.creation_failure.as_deref());
        if self.missing(pods.len()) > 0 {
            seen.extend(failure.map(|message| self.refused(message)));
        }
        sorted(seen)
    }

    /// The template that pods should be made from; `None` while there is no ReplicaSet of it. Recreate scales the old one
    /// down, waits until its last pod is gone and only then makes the new one, which the Deployment counts as its revision.
    fn present_template<'s>(&self, ours: &[&'s Arc<ReplicaSetView>]) -> Option<&'s str> {
        let notes = self.workload.meta().annotations.as_ref();
        let wanted = notes.and_then(|notes| notes.get(REVISION_ANNOTATION))?;
        let newest = ours.iter().find(|set| set.revision() == Some(wanted))?;
        let is_old = newest.is_scaled_down() && self.counts.desired > 0;
        if is_old { None } else { newest.template_hash() }
    }

    /// Owned pods that are not on their way out. A ReplicaSet lets pods that have failed lie and makes others; they
    /// only count while there are no others.
    fn active(&self, owned: impl Fn(&PodView) -> bool) -> Vec<&PodView> {
        let all = self.pods.iter().map(AsRef::as_ref);
        let staying = all.filter(|pod| owned(pod) && pod.metadata.deletion_timestamp.is_none());
        let (ended, mut active): (Vec<&PodView>, Vec<&PodView>) = staying.partition(|pod| pod.has_ended());
        let missing = self.missing(active.len());
        let mut ended = ended;
        ended.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|t| t.0));
        active.extend(ended.into_iter().rev().take(missing));
        active
    }

    fn replica<'p>(&'p self, pod: &'p PodView, current: Option<&'p str>) -> Place<'p> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let remembered = self.before.endpoints.iter().find(|e| e.pod_name == name);
        Place { location: name.to_owned(), revision: pod.label(TEMPLATE_HASH_LABEL), current, remembered }
    }

    /// A pod that had been ready and is gone is replaced under another name. The loss lasts until its place is filled:
    /// it is handed on to a pod that is not ready yet, or stands for itself while there is none.
    fn remember_the_lost(&self, seen: &mut Vec<Seen>, revision: Option<&str>) {
        let kept = |endpoint: &Endpoint| seen.iter().any(|s| s.instance.pod.as_deref() == Some(&endpoint.pod_name));
        let gone: Vec<&Endpoint> = self
            .before
            .endpoints
            .iter()
            .filter(|e| had_been_ready(e) && revision.is_some() && e.revision.as_deref() == revision && !kept(e))
            .collect();
        let filled = seen.iter().filter(|s| s.instance.current && (s.instance.ready || s.instance.was_ready)).count();
        let mut losses = gone.into_iter().take(self.missing(filled));
        for replacement in seen.iter_mut().filter(|s| s.instance.current && !s.instance.ready && !s.instance.was_ready)
        {
            let Some(lost) = losses.next() else { return };
            replacement.instance.was_ready = true;
            if let Some(endpoint) = &mut replacement.endpoint {
                endpoint.lost_since = Some(self.lost_since(Some(lost)));
            }
        }
        let stand_alone: Vec<Seen> = losses.map(|lost| self.gone(lost.pod_name.clone(), lost)).collect();
        seen.extend(stand_alone);
    }
}

#[cfg(test)]
#[path = "replicas_tests.rs"]
mod tests;
