use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet};
use lmcache_crds::Phase::{Pending, Ready, Reconciled, Rolling};
use lmcache_crds::{EngineStatus, LMCacheEngine};
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::rules::testing::record;
use crate::workload::{Template as _, Workload as _};

/// What the recorded workload is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    DaemonSet,
    Deployment,
}

/// A recording written down by hand: one version a second.
struct Tape {
    kind: Kind,
    recording: Recording,
    clock: u64,
}

fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object")
}

impl Tape {
    fn new(kind: Kind) -> Self {
        let recording = Recording {
            name: "ai/x".to_owned(),
            started: Instant::now(),
            objects: Stream::default(),
            workloads: Stream::default(),
            revisions: Stream::default(),
            pods: Stream::default(),
        };
        Self { kind, recording, clock: 0 }
    }

    fn seen<T>(&mut self, uid: &str, object: T) -> Seen<T> {
        self.clock += 1;
        let at = self.recording.started + Duration::from_secs(self.clock);
        Seen { version: self.clock, at, uid: Some(uid.to_owned()), object, deleted: false }
    }

    /// A workload of two instances, all of the newest template.
    fn workload(&mut self, generation: i64, observed: i64, available: i32, writers: &[(&str, &str)]) {
        let writers: Vec<_> =
            writers.iter().map(|it| json!({"manager": it.0, "operation": "Apply", "time": it.1})).collect();
        let metadata = json!({"generation": generation, "managedFields": writers});
        let state = match self.kind {
            Kind::DaemonSet => {
                let status = json!({"observedGeneration": observed, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2,
                    "currentNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": available, "numberAvailable": available});
                read::<DaemonSet>(json!({"metadata": metadata, "status": status})).state()
            }
            Kind::Deployment => {
                let status = json!({"observedGeneration": observed, "replicas": 2, "updatedReplicas": 2,
                    "readyReplicas": available, "availableReplicas": available});
                let spec = json!({"replicas": 2, "selector": {}, "template": {}});
                read::<Deployment>(json!({"metadata": metadata, "spec": spec, "status": status})).state()
            }
        };
        let seen = self.seen("workload", state);
        self.recording.workloads.seen.push(seen);
    }

    fn labels(&self, revision: i64) -> Value {
        let label = match self.kind {
            Kind::DaemonSet => "controller-revision-hash",
            Kind::Deployment => "pod-template-hash",
        };
        json!({label: format!("r{revision}")})
    }

    fn revision(&mut self, revision: i64) {
        let name = format!("revision-{revision}");
        let metadata = json!({"name": name, "labels": self.labels(revision),
            "annotations": {"deployment.kubernetes.io/revision": revision.to_string()}});
        let kept = match self.kind {
            Kind::DaemonSet => {
                read::<ControllerRevision>(json!({"metadata": metadata, "revision": revision})).revision()
            }
            Kind::Deployment => read::<ReplicaSet>(json!({"metadata": metadata})).revision(),
        };
        let seen = self.seen(&name, kept);
        self.recording.revisions.seen.push(seen);
    }

    fn pod(&mut self, name: &str, revision: i64, ready: bool) {
        self.pod_in("Running", name, revision, ready);
    }

    fn pod_in(&mut self, phase: &str, name: &str, revision: i64, ready: bool) {
        let pod = read(json!({
            "metadata": {"name": name, "labels": self.labels(revision)},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        }));
        let seen = self.seen(name, pod);
        self.recording.pods.seen.push(seen);
    }

    fn status(&mut self, path: &[Phase]) {
        let mut engine: LMCacheEngine = read(json!({
            "apiVersion": "lmcache.lmcache.ai/v1alpha1", "kind": "LMCacheEngine",
            "metadata": {"name": "x", "generation": 1}, "spec": {"l1": {"sizeGB": 10}},
        }));
        engine.status = Some(EngineStatus { record: record(path), ..EngineStatus::default() });
        let seen = self.seen("x", engine);
        self.recording.objects.seen.push(seen);
    }

    /// Two ready pods of revision 1 under a workload that says so.
    fn complete(kind: Kind) -> Self {
        let mut tape = Self::new(kind);
        tape.workload(1, 0, 0, &[OPERATOR]);
        tape.revision(1);
        tape.pod("a", 1, true);
        tape.pod("b", 1, true);
        tape.workload(1, 1, 2, &[OPERATOR]);
        tape
    }

    fn found(&self) -> String {
        self.recording.violations().join("; ")
    }

    #[track_caller]
    fn assert_found(&self, text: &str) {
        assert!(self.found().contains(text), "{:?}: {}", self.kind, self.found());
    }
}

const READY: [Phase; 4] = [Pending, Reconciled, Rolling, Ready];
const OPERATOR: (&str, &str) = ("operator", "2026-01-01T00:00:00Z");
const LATER: (&str, &str) = ("operator", "2026-01-01T00:01:00Z");
const PERSON: (&str, &str) = ("kubectl-rollout", "2026-01-01T00:01:00Z");

#[rstest]
fn what_was_true_a_moment_ago_may_be_claimed(#[values(Kind::DaemonSet, Kind::Deployment)] kind: Kind) {
    let mut tape = Tape::complete(kind);
    tape.pod("a", 1, false);
    tape.workload(1, 1, 1, &[OPERATOR]);
    tape.status(&READY);
    assert_eq!(tape.found(), "");
    tape.clock += LAG.as_secs();
    tape.status(&[&READY[..], &[Rolling, Ready]].concat());
    tape.assert_found("not every desired instance");
}

#[rstest]
#[case(Kind::DaemonSet, "the DaemonSet's controller had not observed its generation 2")]
#[case(Kind::Deployment, "the Deployment's controller had not observed its generation 2")]
fn a_generation_that_the_operator_made_must_have_been_observed(#[case] kind: Kind, #[case] expected: &str) {
    let mut tape = Tape::complete(kind);
    tape.workload(2, 1, 2, &[LATER]);
    tape.status(&READY);
    tape.assert_found(expected);
}

#[rstest]
fn a_change_that_somebody_else_has_just_made_may_be_unknown(#[values(Kind::DaemonSet, Kind::Deployment)] kind: Kind) {
    let mut tape = Tape::complete(kind);
    tape.workload(2, 1, 2, &[OPERATOR, PERSON]);
    tape.status(&READY);
    assert_eq!(tape.found(), "");
}

#[rstest]
fn an_old_pod_contradicts_ready_however_well_it_serves(#[values(Kind::DaemonSet, Kind::Deployment)] kind: Kind) {
    let mut tape = Tape::complete(kind);
    tape.workload(2, 1, 2, &[LATER]);
    tape.revision(2);
    tape.pod("c", 2, true);
    tape.workload(2, 2, 2, &[LATER]);
    tape.status(&READY);
    tape.assert_found("was of an old revision");
}

#[rstest]
fn a_pod_that_is_not_ready_contradicts_ready(#[values(Kind::DaemonSet, Kind::Deployment)] kind: Kind) {
    let mut tape = Tape::complete(kind);
    tape.pod("a", 1, false);
    tape.clock += LAG.as_secs() + 1;
    tape.status(&READY);
    tape.assert_found("pod a was not ready");
}

#[test]
fn a_pod_that_has_ended_and_is_replaced_is_no_contradiction() {
    let mut tape = Tape::complete(Kind::Deployment);
    tape.pod_in("Failed", "a", 1, false);
    tape.pod("c", 1, true);
    tape.clock += LAG.as_secs() + 1;
    tape.status(&READY);
    assert_eq!(tape.found(), "");
}

#[test]
fn going_back_to_an_older_template_makes_its_replica_set_the_newest() {
    let mut tape = Tape::complete(Kind::Deployment);
    tape.workload(2, 1, 2, &[LATER]);
    tape.revision(2);
    tape.revision(1);
    // The controller gives the older set the highest number.
    if let Some(last) = tape.recording.revisions.seen.last_mut() {
        last.object.number = 3;
    }
    tape.workload(2, 2, 2, &[LATER]);
    tape.status(&READY);
    assert_eq!(tape.found(), "");
}

#[rstest]
fn what_may_have_been_missed_is_not_judged(#[values(Kind::DaemonSet, Kind::Deployment)] kind: Kind) {
    let mut tape = Tape::complete(kind);
    tape.workload(2, 1, 2, &[LATER]);
    let began = tape.recording.started + Duration::from_secs(tape.clock);
    tape.recording.workloads.gaps.push((began, began + Duration::from_secs(1)));
    tape.status(&READY);
    assert_eq!((tape.found().as_str(), tape.recording.unverified()), ("", 1));
}
