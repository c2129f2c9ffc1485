//! Ready is only claimed when it was true.
//!
//! The operator sees workload and pods through caches, so its status may be based on what was true a moment ago. A claim is
//! therefore accepted when what it says was true at some time up to [`LAG`] before it was heard of. What is not accepted:
//! that the controller of the `DaemonSet` or Deployment has never said so about the generation that was there when the claim
//! was written. Versions of different objects are ordered by resourceVersion, not by when they were heard of.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use lmcache_crds::Phase;

use super::Status;
use crate::kind::PhaseObject;
use crate::recording::{Recording, Seen, Stream};
use crate::report::is_ready;
use crate::workload::{WorkloadState, revision_hash};

/// How far behind the world an honest operator may be.
const LAG: Duration = Duration::from_secs(5);

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

fn unjustified<K>(claim: &Status<'_>, recording: &Recording<K>) -> Option<String> {
    let all: Vec<_> = recording.workloads.seen.iter().filter(|it| it.version < claim.version).collect();
    let Some(current) = all.last().filter(|it| !it.deleted) else {
        return Some("there was no workload".to_owned());
    };
    let versions: Vec<_> = all.iter().copied().filter(|it| it.uid == current.uid).collect();
    let generation = oldest_acceptable_generation(&versions, claim.at);
    let accepted = |it: &Seen<WorkloadState>| it.object.generation >= generation && it.object.is_observed();
    let Some(observed) = versions.iter().find(|it| accepted(it)) else {
        let kind = &current.object.kind;
        return Some(format!("the {kind}'s controller had not observed its generation {generation}"));
    };
    let mut ends = versions.iter().skip(1).map(|it| Some(it.at)).chain([None]);
    let fresh_and_complete = versions.iter().any(|it| {
        let is_fresh = ends.next().flatten().is_none_or(|end| end + LAG >= claim.at);
        is_fresh && accepted(it) && it.object.is_complete()
    });
    if !fresh_and_complete {
        return Some(format!("not every desired instance was updated and available of generation {generation}"));
    }
    old_or_unready_pods(claim, recording, observed.version)
}

/// The workload's generation at the time of the claim; or an earlier one, if what came after it was just now and by someone
/// else than who created the workload (`kubectl rollout restart`), so that the operator need not have known.
fn oldest_acceptable_generation(versions: &[&Seen<WorkloadState>], claimed: Instant) -> i64 {
    let creator = versions.first().and_then(|it| it.object.creator());
    let mut acceptable = versions.last().map_or(0, |it| it.object.generation);
    for pair in versions.windows(2).rev() {
        let (before, after) = (&pair[0].object, &pair[1].object);
        if before.generation == after.generation {
            continue;
        }
        if pair[1].at + LAG < claimed || !is_foreign_change(before, after, creator) {
            break;
        }
        acceptable = before.generation;
    }
    acceptable
}

fn is_foreign_change(before: &WorkloadState, after: &WorkloadState, creator: Option<&str>) -> bool {
    let changed: Vec<_> = after.writers.iter().filter(|it| !before.writers.contains(it)).collect();
    !changed.is_empty() && changed.iter().all(|it| it.manager.as_deref() != creator)
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
    let newest = recording.revisions.at_version(version).max_by_key(|it| it.object.number);
    let current = newest.and_then(|it| it.object.hash.as_deref());
    let pods = recording.pods.at_version(version).map(|it| &it.object);
    let live: Vec<&Pod> = pods.filter(|it| it.metadata.deletion_timestamp.is_none() && !has_ended(it)).collect();
    if live.is_empty() {
        return Some("there was no pod".to_owned());
    }
    if let Some(old) = live.iter().find(|pod| current.is_some() && revision_hash(**pod) != current) {
        return Some(format!("pod {} was of an old revision", old.name_any()));
    }
    live.iter().find(|pod| !is_ready(pod)).map(|pod| format!("pod {} was not ready", pod.name_any()))
}

/// Whether a pod has ended for good: a `ReplicaSet` lets it lie and makes another.
fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

#[cfg(test)]
#[path = "readiness_tests.rs"]
mod tests;
