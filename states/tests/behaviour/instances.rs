//! Trouble with instances: which reason, which words.

use lmcache_crds::Phase;
use lmcache_states::{Instance, Observation, ProblemKind, Workload};
use rstest::rstest;

use crate::fixtures::{Engine, instance, outdated, running, settled, starting, troubled, unreported};

#[rstest]
#[case(ProblemKind::AdmissionRefused, "AdmissionRefused")]
#[case(ProblemKind::ImagePull, "ImagePullFailed")]
#[case(ProblemKind::ContainerCreate, "ContainerCreateFailed")]
#[case(ProblemKind::VolumeMount, "VolumeMountFailed")]
#[case(ProblemKind::OomKilled, "OOMKilled")]
#[case(ProblemKind::StartupProbe, "StartupProbeFailed")]
#[case(ProblemKind::CrashLoop, "CrashLooping")]
#[case(ProblemKind::Unschedulable, "Unschedulable")]
#[case(ProblemKind::NodeNotReady, "NodeNotReady")]
fn every_problem_has_its_own_reason(#[case] kind: ProblemKind, #[case] reason: &str) {
    let engine = Engine::after(&[running(vec![troubled(0, kind, "container server: text to search for")])]);
    assert_eq!(engine.stands(), (Phase::Degraded, reason));
    assert_eq!(engine.message(), "node-a: container server: text to search for");
}

#[test]
fn the_gravest_problem_gives_the_reason() {
    let instances = vec![
        troubled(0, ProblemKind::NodeNotReady, "the kubelet is silent"),
        troubled(1, ProblemKind::CrashLoop, "exit code 1"),
        troubled(2, ProblemKind::ImagePull, "manifest unknown"),
    ];
    let engine = Engine::after(&[running(instances)]);
    assert_eq!(engine.stands(), (Phase::Degraded, "ImagePullFailed"));
    assert_eq!(engine.message(), "node-c: manifest unknown");
}

#[rstest]
#[case::alike(&["x", "x", "x", "x"], "node-a, node-b, node-c and 1 more: x")]
#[case::different(&["w", "x", "y", "z"], "node-a: w; node-b: x; node-c: y; and 1 more")]
fn a_shared_problem_names_three_nodes(#[case] messages: &[&str], #[case] expected: &str) {
    let sick = messages.iter().enumerate().map(|(index, text)| troubled(index, ProblemKind::CrashLoop, text));
    let engine = Engine::after(&[running(sick.rev().collect())]);
    assert_eq!(engine.message(), expected);
}

#[test]
fn a_node_that_is_not_ready_explains_more_than_a_lost_instance() {
    let lost = Instance { was_ready: true, ..troubled(0, ProblemKind::NodeNotReady, "the kubelet is silent") };
    let mut engine = Engine::ready(2);
    engine.sees(&running(vec![lost, Instance { ready: false, ..instance(1) }]));
    assert_eq!(engine.stands(), (Phase::Degraded, "NodeNotReady"));
}

#[test]
fn the_only_node_is_lost_and_no_longer_counted_as_one_to_run_on() {
    let lost = Instance { was_ready: true, ..troubled(0, ProblemKind::NodeNotReady, "the kubelet is silent") };
    let mut seen = running(vec![lost]);
    seen.workload = seen.workload.map(|it| Workload { desired: 0, updated: 0, misscheduled: 1, ..it });
    let mut engine = Engine::ready(1);
    engine.sees(&seen);
    assert_eq!(engine.stands(), (Phase::Degraded, "NodeNotReady"));
    engine.sees(&settled(1));
    assert_eq!(engine.stands(), (Phase::Ready, "AllInstancesReady"));
}

#[rstest]
#[case::one(&[1], "1 instance had been ready and is not: node-b")]
#[case::several(&[0, 1, 2, 3], "4 instances had been ready and are not: node-a, node-b, node-c and 1 more")]
fn lost_instances_are_named(#[case] lost: &[usize], #[case] expected: &str) {
    let mut engine = Engine::ready(4);
    let mut seen = settled(4);
    for index in lost {
        seen.instances[*index].ready = false;
    }
    engine.sees(&seen);
    assert_eq!(engine.stands(), (Phase::Degraded, "InstanceLost"));
    assert_eq!(engine.message(), expected);
}

#[rstest]
#[case::of_a_ready_instance(Instance { ready: true, was_ready: true, ..troubled(0, ProblemKind::CrashLoop, "x") }, Phase::Ready)]
#[case::of_an_old_revision(Instance { current: false, ..troubled(0, ProblemKind::CrashLoop, "x") }, Phase::Rolling)]
#[case::refused_where_an_old_one_serves(Instance { problem: troubled(0, ProblemKind::AdmissionRefused, "x").problem, ..outdated(0) }, Phase::Degraded)]
#[case::refused_where_the_current_one_serves(Instance { problem: troubled(0, ProblemKind::AdmissionRefused, "x").problem, ..instance(0) }, Phase::Ready)]
#[case::refused_without_a_pod(Instance { pod: None, current: false, ..troubled(0, ProblemKind::AdmissionRefused, "x") }, Phase::Degraded)]
fn a_problem_counts_where_the_current_revision_needs_the_instance(#[case] sick: Instance, #[case] expected: Phase) {
    let engine = Engine::after(&[running(vec![sick])]);
    assert_eq!(engine.record.phase, expected, "{:#?}", engine.record);
}

#[test]
fn a_problem_counts_only_once_the_workload_controller_has_reported() {
    let sick = vec![troubled(0, ProblemKind::ImagePull, "manifest unknown")];
    let mut engine = Engine::after(&[Observation { instances: sick.clone(), ..unreported(1) }]);
    assert_eq!(engine.stands(), (Phase::Reconciled, "WaitingForWorkload"));
    engine.sees(&running(sick));
    assert_eq!(engine.stands(), (Phase::Degraded, "ImagePullFailed"));
}

#[test]
fn another_problem_changes_the_reason_without_a_step() {
    let mut engine = Engine::after(&[running(vec![troubled(0, ProblemKind::ImagePull, "manifest unknown")])]);
    let seen = engine.sees(&running(vec![troubled(0, ProblemKind::CrashLoop, "exit code 2")]));
    assert_eq!(seen.steps, []);
    assert_eq!(engine.stands(), (Phase::Degraded, "CrashLooping"));
}

#[rstest]
#[case::ascii("x")]
#[case::wide("é")]
fn a_long_message_is_cut_for_people_and_events(#[case] letter: &str) {
    let engine =
        Engine::after(&[running(vec![troubled(0, ProblemKind::Unschedulable, &letter.repeat(5000)), starting(1)])]);
    let message = engine.message();
    assert!(message.len() <= 1024 && message.len() > 1018 && message.ends_with('…'), "{}: {message}", message.len());
}
