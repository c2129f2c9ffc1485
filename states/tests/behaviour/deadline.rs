//! The progress deadline: when it strikes, what it counts from, how it heals.

use jiff::Timestamp;
use lmcache_crds::{Phase, kubernetes_time};
use lmcache_states::{DependencyKind, Observation, ProblemKind};

use crate::fixtures::{
    Engine, at, condition, instance, missing, path, running, settled, starting, troubled, unreported,
};

fn later(seconds: i64, observation: Observation) -> Observation {
    Observation { now: at(seconds), ..observation }
}

fn stuck(seconds: i64) -> Observation {
    later(seconds, running(vec![instance(0), starting(1)]))
}

fn second(seconds: i64) -> Timestamp {
    kubernetes_time(at(seconds)).0
}

fn overdue() -> Engine {
    let mut engine = Engine::after(&[stuck(0)]);
    assert_eq!(path(&engine.sees(&stuck(601)).steps), [(Phase::Degraded, "ProgressDeadlineExceeded")]);
    engine
}

#[test]
fn strikes_when_nothing_came_forward_and_says_when_it_will() {
    let mut engine = Engine::default();
    assert_eq!(engine.sees(&stuck(0)).wake_at, Some(second(601)));
    assert_eq!(engine.sees(&stuck(600)).steps, []);
    let struck = engine.sees(&stuck(601));
    assert_eq!(path(&struck.steps), [(Phase::Degraded, "ProgressDeadlineExceeded")]);
    assert_eq!(struck.wake_at, None);
    let expected = "no progress for more than 600 s: 2/2 instances updated, 1/2 ready; waiting for node-b";
    assert_eq!(engine.message(), expected);
    assert!(condition(&engine.record, "Stalled").is_some(), "{:#?}", engine.record.conditions);
}

#[test]
fn counts_from_the_last_progress() {
    let mut engine = Engine::after(&[later(0, running(vec![starting(0), starting(1)]))]);
    assert_eq!(engine.sees(&stuck(500)).wake_at, Some(second(1101)));
    assert_eq!(engine.sees(&stuck(1100)).steps, []);
    assert_eq!(engine.sees(&stuck(1101)).record.phase, Phase::Degraded);
}

#[test]
fn a_change_of_the_desired_number_starts_it_anew() {
    let mut engine = Engine::after(&[stuck(0)]);
    engine.sees(&later(500, running(vec![instance(0), starting(1), starting(2)])));
    assert_eq!(engine.record.last_progress_time, Some(kubernetes_time(at(500))));
}

#[test]
fn a_new_generation_starts_it_anew() {
    let mut engine = overdue();
    let seen = engine.sees(&Observation { generation: 2, ..stuck(700) });
    assert_eq!(path(&seen.steps), [(Phase::Reconciled, "SpecApplied"), (Phase::Rolling, "InstancesStarting")]);
    assert_eq!(seen.wake_at, Some(second(1301)));
}

#[test]
fn strikes_when_the_workload_controller_never_reports() {
    let mut engine = Engine::default();
    assert_eq!(engine.sees(&later(0, unreported(1))).wake_at, Some(second(601)));
    let struck = engine.sees(&later(601, unreported(1)));
    assert_eq!(path(&struck.steps), [(Phase::Degraded, "ProgressDeadlineExceeded")]);
}

#[test]
fn does_not_count_while_there_is_nothing_to_run() {
    let mut engine = Engine::default();
    assert_eq!(engine.sees(&later(0, settled(0))).wake_at, None);
    engine.sees(&later(5000, settled(0)));
    assert_eq!(engine.stands(), (Phase::Reconciled, "NoMatchingNodes"));
    engine.sees(&later(5001, running(vec![starting(0)])));
    assert_eq!(engine.stands(), (Phase::Rolling, "InstancesStarting"));
}

#[test]
fn does_not_count_while_ready() {
    let mut engine = Engine::ready(2);
    assert_eq!(engine.sees(&later(5000, settled(2))).wake_at, None);
    assert_eq!(path(&engine.sees(&later(5001, running(vec![instance(0), instance(1), starting(2)]))).steps).len(), 1);
    assert_eq!(engine.stands(), (Phase::Rolling, "NodesJoining"));
}

#[test]
fn stays_exceeded_until_there_is_progress() {
    let mut engine = overdue();
    assert_eq!(engine.sees(&stuck(9000)).steps, []);
    let rising = later(9001, running(vec![instance(0), instance(1), starting(2)]));
    assert_eq!(path(&engine.sees(&rising).steps), [(Phase::Rolling, "InstancesStarting")]);
    assert_eq!(engine.sees(&rising).wake_at, Some(second(9602)));
}

#[test]
fn stays_exceeded_when_another_problem_comes_and_goes() {
    let mut engine = overdue();
    engine.sees(&later(700, running(vec![instance(0), troubled(1, ProblemKind::CrashLoop, "exit code 1")])));
    assert_eq!(engine.stands(), (Phase::Degraded, "CrashLooping"));
    assert_eq!(engine.sees(&stuck(800)).steps, []);
    assert_eq!(engine.stands(), (Phase::Degraded, "ProgressDeadlineExceeded"));
}

#[test]
fn what_an_older_generation_missed_is_not_held_against_a_newer_one() {
    let mut engine = overdue();
    let hindered = missing(DependencyKind::SecretNotFound, "Secret ns/auth not found");
    let workload = stuck(0).workload;
    engine.sees(&later(700, Observation { generation: 2, workload, ..hindered }));
    assert_eq!(engine.stands(), (Phase::Degraded, "SecretNotFound"));
    let found = engine.sees(&Observation { generation: 2, ..stuck(800) });
    assert_eq!(path(&found.steps), [(Phase::Rolling, "InstancesStarting")]);
}

#[test]
fn a_rollout_whose_beginning_was_not_kept_begins_now() {
    let mut engine = Engine::after(&[stuck(0)]);
    engine.record.last_progress_time = None;
    let seen = engine.sees(&stuck(5000));
    assert_eq!((seen.steps, seen.wake_at), (Vec::new(), Some(second(5601))));
}

#[test]
fn heals_at_once_when_everything_is_there() {
    let mut engine = overdue();
    assert_eq!(path(&engine.sees(&later(700, settled(2))).steps), [(Phase::Ready, "AllInstancesReady")]);
}

#[test]
fn a_healed_problem_gets_a_whole_deadline() {
    let mut engine = Engine::after(&[later(0, running(vec![troubled(0, ProblemKind::ImagePull, "not found")]))]);
    engine.sees(&later(5000, running(vec![troubled(0, ProblemKind::ImagePull, "not found")])));
    let healed = engine.sees(&later(5001, running(vec![starting(0)])));
    assert_eq!(path(&healed.steps), [(Phase::Rolling, "InstancesStarting")]);
    assert_eq!(healed.wake_at, Some(second(5602)));
}

#[test]
fn a_clock_that_goes_back_harms_nobody() {
    let mut engine = Engine::after(&[stuck(0)]);
    assert_eq!(engine.sees(&stuck(-4000)).steps, []);
}

#[test]
fn a_deadline_beyond_any_clock_never_strikes() {
    let endless = |seconds| Observation { progress_deadline: std::time::Duration::MAX, ..stuck(seconds) };
    let mut engine = Engine::default();
    assert_eq!(engine.sees(&endless(0)).wake_at, None);
    assert_eq!(engine.sees(&endless(1_000_000)).steps, []);
}
