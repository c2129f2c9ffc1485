//! Arbitrary observations: whole lies, and worlds that are nearly well, where the corners are.

use std::time::Duration;

use lmcache_crds::{Phase, PhaseRecord, PhaseTransition, kubernetes_time};
use lmcache_states::{
    Advisory, AdvisoryKind, ChildFailure, Children, Counts, DependencyIssue, DependencyKind, FailureKind, Instance,
    Observation, Problem, ProblemKind, Reason, Wording, Workload, edges,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::fixtures::{at, node, settled};

/// Any observation, most of them near to what happens.
pub fn observations() -> impl Strategy<Value = Observation> {
    prop_oneof![1 => arbitrary(), 4 => disturbed()]
}

/// Observations whose spec is valid and whose children are applied.
pub fn applied() -> impl Strategy<Value = Observation> {
    observations().prop_map(|observation| Observation {
        spec_errors: Vec::new(),
        dependencies: Vec::new(),
        children: Children::Applied,
        ..observation
    })
}

/// Observations with a field error, whatever else they say.
pub fn invalid() -> impl Strategy<Value = Observation> {
    (observations(), vec("[a-z.é]{1,20}", 1..4))
        .prop_map(|(observation, spec_errors)| Observation { spec_errors, ..observation })
}

/// One to four instances, all well: the guard of Ready holds.
pub fn healed() -> impl Strategy<Value = Observation> {
    (1..5_usize, 1..5_i64, 0..3000_i64, any::<[bool; 4]>()).prop_map(|(count, generation, seconds, was_ready)| {
        let mut observation = Observation { generation, now: at(seconds), ..settled(count) };
        for (instance, was_ready) in observation.instances.iter_mut().zip(was_ready) {
            instance.was_ready = was_ready;
        }
        observation
    })
}

/// Records in every phase, with a history that leads there.
pub fn records() -> impl Strategy<Value = PhaseRecord> {
    let reasons = select(Reason::ALL.to_vec());
    (vec((any::<Index>(), reasons.clone(), 1..4_i64), 0..24), reasons, option::of(1..4_i64), option::of(0..3000_i64))
        .prop_map(|(walk, reason, generation, progress)| {
            let mut record = PhaseRecord {
                observed_generation: generation,
                reason: Some(reason.as_str().to_owned()),
                message: Some("as it was".to_owned()),
                last_progress_time: progress.map(|seconds| kubernetes_time(at(seconds))),
                ..PhaseRecord::default()
            };
            for (choice, reason, generation) in walk {
                append(&mut record, choice, reason, generation);
            }
            let surplus = record.phase_transitions.len().saturating_sub(lmcache_crds::MAX_TRANSITIONS);
            record.phase_transitions.drain(..surplus);
            record
        })
}

fn append(record: &mut PhaseRecord, choice: Index, reason: Reason, generation: i64) {
    let open: Vec<(Phase, Phase)> = edges().into_iter().filter(|(from, _)| *from == record.phase).collect();
    let (from, to) = open[choice.index(open.len())];
    record.phase = to;
    record.phase_transitions.push(PhaseTransition {
        from,
        to,
        reason: reason.as_str().to_owned(),
        message: "as it was".to_owned(),
        generation,
        time: kubernetes_time(at(0)),
    });
}

fn disturbed() -> impl Strategy<Value = Observation> {
    let disturbances = vec((0..12_u8, any::<Index>(), parts()), 0..4);
    (healed(), disturbances, deadlines(), counts(), any::<bool>(), kinds()).prop_map(
        |(mut observation, disturbances, deadline, previous, fresh, (wording, advisories))| {
            observation.progress_deadline = deadline;
            (observation.wording, observation.advisories) = (wording, advisories);
            if fresh {
                observation.previous = previous;
            }
            for (which, place, parts) in disturbances {
                disturb(&mut observation, which, place, parts);
            }
            observation
        },
    )
}

type Parts = (Instance, Workload, Children, Vec<String>, Vec<DependencyIssue>);

fn disturb(observation: &mut Observation, which: u8, place: Index, parts: Parts) {
    let (instance, workload, children, errors, dependencies) = parts;
    let count = observation.instances.len();
    match (which, observation.workload.as_mut()) {
        (0, Some(report)) => report.observed = false,
        (1, Some(report)) => report.desired = workload.desired,
        (2, Some(report)) => report.updated = workload.updated,
        (3, Some(report)) => (report.ready, report.available) = (workload.ready, workload.available),
        (4, _) => observation.workload = None,
        (5 | 6, _) if count > 0 => observation.instances[place.index(count)] = instance,
        (7, _) if count > 0 => observation.instances[place.index(count)].ready = false,
        (8, _) => observation.instances.push(instance),
        (9, _) => observation.children = children,
        (10, _) => observation.spec_errors = errors,
        (11, _) => observation.dependencies = dependencies,
        _ => {}
    }
}

fn arbitrary() -> impl Strategy<Value = Observation> {
    let instances = vec(instances(), 0..5);
    (1..5_i64, parts(), option::of(workloads()), instances, counts(), 0..3000_i64, deadlines(), kinds()).prop_map(
        |(generation, parts, workload, instances, previous, seconds, progress_deadline, (wording, advisories))| {
            let (_, _, children, spec_errors, dependencies) = parts;
            let now = at(seconds);
            Observation {
                generation,
                spec_errors,
                dependencies,
                children,
                workload,
                instances,
                previous,
                now,
                progress_deadline,
                wording,
                advisories,
            }
        },
    )
}

/// What depends on the kind: its words and what it warns of.
fn kinds() -> impl Strategy<Value = (Wording, Vec<Advisory>)> {
    let advisory = (select(AdvisoryKind::ALL.to_vec()), option::of("[a-z ]{1,20}"))
        .prop_map(|(kind, concern)| vec![Advisory { kind, concern }]);
    (select(vec![Wording::Instances, Wording::Replicas]), prop_oneof![Just(Vec::new()), advisory])
}

fn parts() -> impl Strategy<Value = Parts> {
    (instances(), workloads(), children(), vec("[a-z.]{1,20}", 0..3), vec(dependencies(), 0..3))
}

fn deadlines() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(0), Just(600), 1..3000_u64, Just(u64::MAX)].prop_map(Duration::from_secs)
}

fn counts() -> impl Strategy<Value = Counts> {
    (0..5, 0..5, 0..5).prop_map(|(desired, updated, available)| Counts { desired, updated, available })
}

fn workloads() -> impl Strategy<Value = Workload> {
    (any::<bool>(), -1..5, -1..5, 0..5, 0..5, 0..2).prop_map(
        |(observed, desired, updated, ready, available, misscheduled)| Workload {
            observed,
            desired,
            updated,
            ready,
            available,
            misscheduled,
        },
    )
}

fn instances() -> impl Strategy<Value = Instance> {
    (0..4_usize, any::<(bool, bool, bool, bool)>(), option::weighted(0.3, problems())).prop_map(
        |(place, (pod, current, ready, was_ready), problem)| Instance {
            location: node(place),
            pod: pod.then(|| format!("engine-{place}")),
            current,
            ready,
            was_ready,
            problem,
        },
    )
}

/// Any trouble of an instance.
pub fn problems() -> impl Strategy<Value = Problem> {
    let kinds = select(vec![
        ProblemKind::AdmissionRefused,
        ProblemKind::ImagePull,
        ProblemKind::ContainerCreate,
        ProblemKind::VolumeMount,
        ProblemKind::OomKilled,
        ProblemKind::StartupProbe,
        ProblemKind::CrashLoop,
        ProblemKind::Unschedulable,
        ProblemKind::NodeNotReady,
    ]);
    (kinds, prop_oneof![9 => "[a-zé ]{0,20}", 1 => "é{900}"]).prop_map(|(kind, message)| Problem { kind, message })
}

fn dependencies() -> impl Strategy<Value = DependencyIssue> {
    let kinds = select(vec![
        DependencyKind::SecretNotFound,
        DependencyKind::SecretKeyMissing,
        DependencyKind::SecretNotShared,
        DependencyKind::CoordinatorNotFound,
    ]);
    (kinds, "[a-z ]{1,20}").prop_map(|(kind, message)| DependencyIssue { kind, message })
}

fn children() -> impl Strategy<Value = Children> {
    prop_oneof![
        2 => Just(Children::Applied),
        1 => Just(Children::Withheld),
        3 => vec(failures(), 0..3).prop_map(Children::Failed),
    ]
}

fn failures() -> impl Strategy<Value = ChildFailure> {
    let kinds = select(vec![
        FailureKind::Conflict,
        FailureKind::Forbidden,
        FailureKind::Rejected,
        FailureKind::Unavailable,
        FailureKind::Unavailable,
        FailureKind::Unavailable,
    ]);
    (select(vec!["Service ns/e", "DaemonSet ns/e"]), kinds, "[a-z ]{1,20}", 1..5_u32).prop_map(
        |(object, kind, message, attempts)| ChildFailure { object: object.to_owned(), kind, message, attempts },
    )
}
