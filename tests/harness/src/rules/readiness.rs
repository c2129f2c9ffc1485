//! Ready is only claimed when it was true.
//!
//! The operator sees `DaemonSet` and pods through caches, so its status may be based on what was true a moment ago. A claim is
//! therefore accepted when what it says was true at some time up to [`LAG`] before it was heard of. What is not accepted:
//! that the `DaemonSet`'s controller has never said so about the generation of the `DaemonSet` that was there when the claim was
//! written. Versions of different objects are ordered by resourceVersion, not by when they were heard of.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{Resource, ResourceExt as _};
use lmcache_crds::Phase;

use super::Status;
use crate::kind::PhaseObject;
use crate::recording::{Recording, Seen, Stream};
use crate::report::is_ready;

/// How far behind the world an honest operator may be.
const LAG: Duration = Duration::from_secs(5);

const HASH_LABEL: &str = "controller-revision-hash";

/// Checks every status of one life that claims Ready.
pub(crate) fn of_readiness<K: PhaseObject>(life: &[Status<'_>], recording: &Recording<K>) -> Vec<String> {
    let claims = life.iter().filter(|it| it.record.phase == Phase::Ready && !near_gap(recording, it.at));
    let check = |claim: &Status<'_>| {
        let why = unjustified(claim, recording)?;
        Some(format!("status {}: Ready was claimed, but {why}", claim.version))
    };
    claims.filter_map(check).collect()
}

/// Whether versions may have been missed around this time.
pub(crate) fn near_gap<K>(recording: &Recording<K>, at: Instant) -> bool {
    let gaps = [&recording.objects.gaps, &recording.workloads.gaps, &recording.revisions.gaps, &recording.pods.gaps];
    gaps.into_iter().flatten().any(|gap| gap.0 <= at + LAG && at <= gap.1 + LAG)
}

/// The revision of the template that a pod was made from.
pub(crate) fn revision_hash(object: &impl Resource) -> Option<&str> {
    object.meta().labels.as_ref()?.get(HASH_LABEL).map(String::as_str)
}

fn unjustified<K>(claim: &Status<'_>, recording: &Recording<K>) -> Option<String> {
    let sets: Vec<_> = recording.workloads.seen.iter().filter(|it| it.version < claim.version).collect();
    let Some(current) = sets.last().filter(|it| !it.deleted) else {
        return Some("there was no DaemonSet".to_owned());
    };
    let sets: Vec<_> = sets.iter().copied().filter(|it| it.object.uid() == current.object.uid()).collect();
    let generation = oldest_acceptable_generation(&sets, claim.at);
    let accepted = |it: &Seen<DaemonSet>| it.object.metadata.generation >= Some(generation) && is_observed(&it.object);
    let Some(observed) = sets.iter().find(|it| accepted(it)) else {
        return Some(format!("the DaemonSet's controller had not observed its generation {generation}"));
    };
    let mut ends = sets.iter().skip(1).map(|it| Some(it.at)).chain([None]);
    let fresh_and_complete = sets.iter().any(|it| {
        let is_fresh = ends.next().flatten().is_none_or(|end| end + LAG >= claim.at);
        is_fresh && accepted(it) && is_complete(&it.object)
    });
    if !fresh_and_complete {
        return Some(format!("not every desired instance was updated and available of generation {generation}"));
    }
    old_or_unready_pods(claim, recording, observed.version)
}

/// The `DaemonSet`'s generation at the time of the claim; or an earlier one, if what came after it was just now and by someone
/// else than who created the `DaemonSet` (`kubectl rollout restart`), so that the operator need not have known.
fn oldest_acceptable_generation(sets: &[&Seen<DaemonSet>], claimed: Instant) -> i64 {
    let generation = |it: &Seen<DaemonSet>| it.object.metadata.generation.unwrap_or_default();
    let creator = sets.first().and_then(|it| creator(&it.object));
    let mut acceptable = sets.last().map_or(0, |it| generation(it));
    for pair in sets.windows(2).rev() {
        if generation(pair[0]) == generation(pair[1]) {
            continue;
        }
        if pair[1].at + LAG < claimed || !is_foreign_change(&pair[0].object, &pair[1].object, creator.as_deref()) {
            break;
        }
        acceptable = generation(pair[0]);
    }
    acceptable
}

/// Who wrote the first version that was seen.
fn creator(set: &DaemonSet) -> Option<String> {
    writers(set).into_iter().min_by_key(|it| it.time.clone())?.manager
}

fn writers(set: &DaemonSet) -> Vec<ManagedFieldsEntry> {
    let entries = set.metadata.managed_fields.clone().unwrap_or_default();
    entries.into_iter().filter(|it| it.subresource.is_none()).collect()
}

fn is_foreign_change(before: &DaemonSet, after: &DaemonSet, creator: Option<&str>) -> bool {
    let old = writers(before);
    let changed: Vec<_> = writers(after).into_iter().filter(|it| !old.contains(it)).collect();
    !changed.is_empty() && changed.iter().all(|it| it.manager.as_deref() != creator)
}

fn is_observed(set: &DaemonSet) -> bool {
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    observed.is_some() && observed == set.metadata.generation
}

fn is_complete(set: &DaemonSet) -> bool {
    let Some(status) = &set.status else {
        return false;
    };
    let desired = status.desired_number_scheduled;
    desired > 0
        && status.updated_number_scheduled.unwrap_or_default() == desired
        && status.number_available.unwrap_or_default() == desired
}

/// Looks for a moment, since the controller observed the generation, at which every live pod was new and ready.
fn old_or_unready_pods<K>(claim: &Status<'_>, recording: &Recording<K>, since: u64) -> Option<String> {
    let between = |version: u64| since < version && version < claim.version;
    let mut moments = vec![(since, None)];
    moments.extend(arrivals(&recording.pods).chain(arrivals(&recording.revisions)).filter(|it| between(it.0)));
    moments.sort_by_key(|it| it.0);
    let mut why = "there was no pod".to_owned();
    for (index, (version, _)) in moments.iter().enumerate() {
        let end = moments.get(index + 1).and_then(|next| next.1);
        if end.is_some_and(|end| end + LAG < claim.at) {
            continue;
        }
        match fault_at(recording, *version) {
            None => return None,
            Some(fault) => why = fault,
        }
    }
    Some(why)
}

fn arrivals<T>(stream: &Stream<T>) -> impl Iterator<Item = (u64, Option<Instant>)> {
    stream.seen.iter().map(|it| (it.version, Some(it.at)))
}

fn fault_at<K>(recording: &Recording<K>, version: u64) -> Option<String> {
    let newest = recording.revisions.at_version(version).max_by_key(|it| it.object.revision);
    let current = newest.and_then(|it| revision_hash(&it.object));
    let pods = recording.pods.at_version(version).map(|it| &it.object);
    let live: Vec<&Pod> = pods.filter(|it| it.metadata.deletion_timestamp.is_none()).collect();
    if live.is_empty() {
        return Some("there was no pod".to_owned());
    }
    if let Some(old) = live.iter().find(|pod| current.is_some() && revision_hash(**pod) != current) {
        return Some(format!("pod {} was of an old revision", old.name_any()));
    }
    live.iter().find(|pod| !is_ready(pod)).map(|pod| format!("pod {} was not ready", pod.name_any()))
}

#[cfg(test)]
mod tests {
    use lmcache_crds::Phase::{Pending, Ready, Reconciled, Rolling};
    use lmcache_crds::{EngineStatus, LMCacheEngine};
    use serde_json::{Value, json};

    use super::*;
    use crate::rules::testing::record;

    /// A recording written down by hand: one version a second.
    struct Tape {
        recording: Recording,
        clock: u64,
    }

    impl Tape {
        fn new() -> Self {
            let recording = Recording {
                name: "ai/x".to_owned(),
                started: Instant::now(),
                objects: Stream::default(),
                workloads: Stream::default(),
                revisions: Stream::default(),
                pods: Stream::default(),
            };
            Self { recording, clock: 0 }
        }

        fn seen<T: serde::de::DeserializeOwned>(&mut self, object: Value) -> Seen<T> {
            self.clock += 1;
            let at = self.recording.started + Duration::from_secs(self.clock);
            Seen { version: self.clock, at, object: serde_json::from_value(object).expect("an object"), deleted: false }
        }

        fn set(&mut self, generation: i64, observed: i64, available: i32, writers: &[(&str, &str)]) {
            let writers: Vec<_> =
                writers.iter().map(|it| json!({"manager": it.0, "operation": "Apply", "time": it.1})).collect();
            let seen = self.seen(json!({
                "metadata": {"uid": "set", "generation": generation, "managedFields": writers},
                "status": {"observedGeneration": observed, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2,
                           "currentNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": available, "numberAvailable": available},
            }));
            self.recording.workloads.seen.push(seen);
        }

        fn revision(&mut self, revision: i64) {
            let seen = self.seen(json!({
                "metadata": {"uid": format!("revision-{revision}"), "labels": {HASH_LABEL: format!("r{revision}")}},
                "revision": revision,
            }));
            self.recording.revisions.seen.push(seen);
        }

        fn pod(&mut self, name: &str, revision: i64, ready: bool) {
            let seen = self.seen(json!({
                "metadata": {"name": name, "uid": name, "labels": {HASH_LABEL: format!("r{revision}")}},
                "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
            }));
            self.recording.pods.seen.push(seen);
        }

        fn status(&mut self, path: &[Phase]) {
            let mut seen = self.seen::<LMCacheEngine>(json!({
                "apiVersion": "lmcache.lmcache.ai/v1alpha1", "kind": "LMCacheEngine",
                "metadata": {"name": "x", "uid": "x", "generation": 1}, "spec": {"l1": {"sizeGB": 10}},
            }));
            seen.object.status = Some(EngineStatus { record: record(path), ..EngineStatus::default() });
            self.recording.objects.seen.push(seen);
        }

        /// Two ready pods of revision 1 under a `DaemonSet` that says so.
        fn complete() -> Self {
            let mut tape = Self::new();
            tape.set(1, 0, 0, &[OPERATOR]);
            tape.revision(1);
            tape.pod("a", 1, true);
            tape.pod("b", 1, true);
            tape.set(1, 1, 2, &[OPERATOR]);
            tape
        }

        fn found(&self) -> String {
            self.recording.violations().join("; ")
        }
    }

    const READY: [Phase; 4] = [Pending, Reconciled, Rolling, Ready];
    const OPERATOR: (&str, &str) = ("operator", "2026-01-01T00:00:00Z");
    const LATER: (&str, &str) = ("operator", "2026-01-01T00:01:00Z");
    const PERSON: (&str, &str) = ("kubectl-rollout", "2026-01-01T00:01:00Z");

    #[test]
    fn what_was_true_a_moment_ago_may_be_claimed() {
        let mut tape = Tape::complete();
        tape.pod("a", 1, false);
        tape.set(1, 1, 1, &[OPERATOR]);
        tape.status(&READY);
        assert_eq!(tape.found(), "");
        tape.clock += LAG.as_secs();
        tape.status(&[&READY[..], &[Rolling, Ready]].concat());
        assert!(tape.found().contains("not every desired instance"), "{}", tape.found());
    }

    #[test]
    fn a_generation_that_the_operator_made_must_have_been_observed() {
        let mut tape = Tape::complete();
        tape.set(2, 1, 2, &[LATER]);
        tape.status(&READY);
        assert!(tape.found().contains("had not observed its generation 2"), "{}", tape.found());
    }

    #[test]
    fn a_change_that_somebody_else_has_just_made_may_be_unknown() {
        let mut tape = Tape::complete();
        tape.set(2, 1, 2, &[OPERATOR, PERSON]);
        tape.status(&READY);
        assert_eq!(tape.found(), "");
    }

    #[test]
    fn an_old_pod_and_a_pod_that_is_not_ready_contradict_ready() {
        let mut tape = Tape::complete();
        tape.set(2, 1, 2, &[LATER]);
        tape.revision(2);
        tape.pod("c", 2, true);
        tape.set(2, 2, 2, &[LATER]);
        tape.status(&READY);
        assert!(
            tape.found().contains("pod b was of an old revision") || tape.found().contains("pod a was"),
            "{}",
            tape.found()
        );

        let mut tape = Tape::complete();
        tape.pod("a", 1, false);
        tape.clock += LAG.as_secs() + 1;
        tape.status(&READY);
        assert!(tape.found().contains("pod a was not ready"), "{}", tape.found());
    }

    #[test]
    fn what_may_have_been_missed_is_not_judged() {
        let mut tape = Tape::complete();
        tape.set(2, 1, 2, &[LATER]);
        let began = tape.recording.started + Duration::from_secs(tape.clock);
        tape.recording.workloads.gaps.push((began, began + Duration::from_secs(1)));
        tape.status(&READY);
        assert_eq!((tape.found().as_str(), tape.recording.unverified()), ("", 1));
    }
}
