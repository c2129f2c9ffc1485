//! What a recorder saw.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use lmcache_crds::{LMCacheEngine, Phase, PhaseRecord, PhaseTransition};

use crate::kind::PhaseObject;
use crate::report::{is_ready, record_lines};
use crate::rules::{self, Status};
use crate::workload::{Revision, WorkloadState, revision_hash};

/// One version of an object.
#[derive(Clone, Debug)]
pub struct Seen<T> {
    /// Its resourceVersion. Versions of all objects of one server stand in the order of their writing.
    pub version: u64,
    /// When the recorder heard of it.
    pub at: Instant,
    /// UID of the object.
    pub uid: Option<String>,
    /// The object; its last state when it was deleted.
    pub object: T,
    /// Whether this version is its deletion.
    pub deleted: bool,
}

/// Every version of the objects of one kind, in the order of their writing.
#[derive(Clone, Debug)]
pub struct Stream<T> {
    /// The versions.
    pub seen: Vec<Seen<T>>,
    /// Times in which versions may have been missed, or were heard of late, because the watch was interrupted.
    pub gaps: Vec<(Instant, Instant)>,
}

impl<T> Default for Stream<T> {
    fn default() -> Self {
        Self { seen: Vec::new(), gaps: Vec::new() }
    }
}

impl<T> Stream<T> {
    /// The objects that existed at a version, each in its newest version then.
    pub fn at_version(&self, version: u64) -> impl Iterator<Item = &Seen<T>> {
        let mut known = BTreeSet::new();
        let until = self.seen.iter().rev().skip_while(move |it| it.version > version);
        until.filter(move |it| known.insert(it.uid.clone())).filter(|it| !it.deleted)
    }

    /// The same versions in another form.
    pub(crate) fn map<R>(self, read: impl Fn(T) -> R) -> Stream<R> {
        let seen = self.seen.into_iter().map(|Seen { version, at, uid, object, deleted }| {
            let object = read(object);
            Seen { version, at, uid, object, deleted }
        });
        Stream { seen: seen.collect(), gaps: self.gaps }
    }
}

/// Everything that was seen of one resource: itself, its workload, the revisions of that, and its pods.
#[derive(Clone, Debug)]
pub struct Recording<K = LMCacheEngine> {
    pub(crate) name: String,
    pub(crate) started: Instant,
    /// The resource, in every version.
    pub objects: Stream<K>,
    /// Its `DaemonSet` or Deployment.
    pub workloads: Stream<WorkloadState>,
    /// The revisions of the workload's pod template.
    pub revisions: Stream<Revision>,
    /// Its pods: metadata and status.
    pub pods: Stream<Pod>,
}

impl<K: PhaseObject> Recording<K> {
    /// Every status that was written, one list for each life of the resource (a resource of the same name may have been
    /// created again).
    pub fn lives(&self) -> Vec<Vec<Status<'_>>> {
        let mut lives: Vec<(Option<String>, Vec<Status<'_>>)> = Vec::new();
        for seen in self.objects.seen.iter().filter(|it| !it.deleted) {
            let Some(record) = seen.object.record() else {
                continue;
            };
            let uid = seen.uid.clone();
            let generation = seen.object.meta().generation.unwrap_or_default();
            let status = Status { version: seen.version, at: seen.at, generation, record };
            match lives.iter_mut().find(|life| life.0 == uid) {
                Some((_, statuses)) if statuses.last().is_some_and(|last| last.record == record) => {}
                Some((_, statuses)) => statuses.push(status),
                None => lives.push((uid, vec![status])),
            }
        }
        lives.into_iter().map(|life| life.1).collect()
    }

    /// Every step of every life, also those that have dropped out of the history since.
    pub fn steps(&self) -> Vec<PhaseTransition> {
        let empty = PhaseRecord::default();
        let mut steps = Vec::new();
        for life in self.lives() {
            let before = std::iter::once(&empty).chain(life.iter().map(|it| it.record));
            for (before, after) in before.zip(&life) {
                let added = rules::added(before, after.record).unwrap_or_default();
                steps.extend_from_slice(added);
            }
        }
        steps
    }

    /// The phases in the order in which they were entered, beginning with Pending.
    pub fn phases(&self) -> Vec<Phase> {
        std::iter::once(Phase::Pending).chain(self.steps().into_iter().map(|step| step.to)).collect()
    }

    /// What contradicts the rules of the phases, each with the version of the status in question.
    pub fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        for life in self.lives() {
            violations.extend(rules::of_history(&life, &self.objects.gaps));
            violations.extend(rules::of_conditions(&life));
            violations.extend(rules::of_readiness(&life, self));
        }
        violations
    }

    /// How many statuses that claim Ready could not be checked against the workload because a watch was interrupted.
    pub fn unverified(&self) -> usize {
        let ready = |status: &Status<'_>| status.record.phase == Phase::Ready;
        self.lives().iter().flatten().filter(|it| ready(it) && rules::near_gap(self, it.at)).count()
    }

    /// Panics with the violations and the whole timeline unless every status obeyed the rules, or when there was none.
    ///
    /// The rules: the history is a path along the machine's edges, begins in Pending and is only added to; the phase is
    /// its end; the conditions agree with the phase; `lastTransitionTime` moves exactly when a condition's status does;
    /// `observedGeneration` never decreases; and Ready is only claimed when the workload's controller had observed the
    /// newest generation of its object and every live pod was new and available.
    pub fn assert_obeys_the_rules(&self) {
        assert!(!self.lives().is_empty(), "{} never had a status\n{}", self.name, self.timeline());
        let violations = self.violations();
        assert!(
            violations.is_empty(),
            "{} broke the rules of the phases:\n- {}\n{}",
            self.name,
            violations.join("\n- "),
            self.timeline()
        );
    }

    /// Everything that was seen, in order.
    pub fn timeline(&self) -> String {
        let mut entries = Vec::new();
        let mut last: Option<&PhaseRecord> = None;
        for it in &self.objects.seen {
            let record = it.object.record();
            let generation = it.object.meta().generation.unwrap_or_default();
            let mut text = format!("{} generation {generation}", K::kind(&()));
            if record == last {
                text.push_str(", status as before");
            } else if let Some(record) = record {
                let _ = write!(text, "\n{}", record_lines(record).trim_end());
            }
            last = record;
            entries.push(self.entry(it, &text));
        }
        entries.extend(self.workloads.seen.iter().map(|it| self.entry(it, &workload_line(&it.object))));
        entries.extend(self.revisions.seen.iter().map(|it| {
            let Revision { kind, name, number, .. } = &it.object;
            self.entry(it, &format!("{kind} {name}, revision {number}"))
        }));
        entries.extend(self.pods.seen.iter().map(|it| self.entry(it, &pod_line(&it.object))));
        entries.sort_by_key(|entry| entry.0);
        let lines: Vec<_> = entries.into_iter().map(|entry| entry.1).collect();
        format!("timeline of {} (resourceVersion, time of hearing):\n{}", self.name, lines.join("\n"))
    }

    fn entry<T>(&self, seen: &Seen<T>, text: &str) -> (u64, String) {
        let deleted = if seen.deleted { " deleted" } else { "" };
        let after = seen.at.duration_since(self.started);
        (seen.version, format!("{:>7} {:>8.3}s {text}{deleted}", seen.version, after.as_secs_f64()))
    }
}

fn workload_line(workload: &WorkloadState) -> String {
    let WorkloadState { kind, generation, observed_generation, desired, updated, ready, available, .. } = workload;
    format!(
        "{kind} generation {generation}, observed {}: desired {desired}, updated {updated}, ready {ready}, available \
         {available}",
        observed_generation.unwrap_or_default(),
    )
}

fn pod_line(pod: &Pod) -> String {
    format!(
        "Pod {} of {}{}{}",
        pod.name_any(),
        revision_hash(pod).unwrap_or("no revision"),
        if is_ready(pod) { ", ready" } else { ", not ready" },
        if pod.metadata.deletion_timestamp.is_some() { ", terminating" } else { "" },
    )
}
