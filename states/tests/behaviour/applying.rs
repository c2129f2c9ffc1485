//! What keeps children from being applied: when the phase holds, and when it says so.

use lmcache_crds::Phase;
use lmcache_states::{ChildFailure, Children, DependencyIssue, DependencyKind, FailureKind, Instance, Observation};
use rstest::rstest;

use crate::fixtures::{Engine, condition, failure, instance, invalid, missing, path, running, says, settled, starting};

fn failing(failures: Vec<ChildFailure>) -> Observation {
    Observation { children: Children::Failed(failures), ..settled(1) }
}

fn flaky(attempts: u32) -> Observation {
    failing(vec![failure("Service ns/engine", FailureKind::Unavailable, "timed out", attempts)])
}

#[rstest]
#[case::invalid_spec(
    invalid(),
    "InvalidSpec",
    "spec.server.port: must be at most 65535; spec.l1.sizeGB: must be positive"
)]
#[case::no_secret(
    missing(DependencyKind::SecretNotFound, "Secret ns/a not found"),
    "SecretNotFound",
    "Secret ns/a not found"
)]
#[case::no_key(missing(DependencyKind::SecretKeyMissing, "no key"), "SecretKeyMissing", "no key")]
#[case::not_shared(missing(DependencyKind::SecretNotShared, "annotate it"), "SecretNotShared", "annotate it")]
#[case::no_coordinator(missing(DependencyKind::CoordinatorNotFound, "create it"), "CoordinatorNotFound", "create it")]
#[case::conflict(failing(vec![failure("DaemonSet ns/e", FailureKind::Conflict, "owned by Deployment x", 1)]), "Conflict", "DaemonSet ns/e: owned by Deployment x")]
#[case::forbidden(failing(vec![failure("Secret ns/e", FailureKind::Forbidden, "cannot patch", 1)]), "Forbidden", "Secret ns/e: cannot patch")]
#[case::rejected(failing(vec![failure("DaemonSet ns/e", FailureKind::Rejected, "denied", 1)]), "Rejected", "DaemonSet ns/e: denied")]
#[case::unavailable_too_often(flaky(3), "ApplyFailed", "Service ns/engine: timed out")]
fn is_pending_at_first_and_degraded_later(
    #[case] observation: Observation,
    #[case] reason: &str,
    #[case] message: &str,
) {
    let mut fresh = Engine::default();
    assert_eq!(path(&fresh.sees(&observation).steps), []);
    assert_eq!((fresh.stands(), fresh.message()), ((Phase::Pending, reason), message));

    for generation in [1, 2] {
        let mut engine = Engine::ready(1);
        let seen = engine.sees(&Observation { generation, ..observation.clone() });
        assert_eq!(path(&seen.steps), [(Phase::Degraded, reason)]);
        assert_eq!(engine.message(), message);
        assert_eq!(engine.record.observed_generation, Some(generation));
    }
}

#[test]
fn the_first_apply_is_announced() {
    let engine = Engine::after(&[Observation { children: Children::Withheld, workload: None, ..settled(0) }]);
    assert_eq!(engine.stands(), (Phase::Pending, "Applying"));
}

#[test]
fn the_gravest_failure_gives_the_reason_and_all_are_named() {
    let engine = Engine::after(&[failing(vec![
        failure("Service ns/e", FailureKind::Unavailable, "timed out", 1),
        failure("ConfigMap ns/e", FailureKind::Rejected, "denied", 1),
        failure("DaemonSet ns/e", FailureKind::Conflict, "owned by x", 1),
    ])]);
    assert_eq!(engine.stands(), (Phase::Pending, "Conflict"));
    assert_eq!(engine.message(), "DaemonSet ns/e: owned by x; ConfigMap ns/e: denied; Service ns/e: timed out");
}

#[test]
fn the_gravest_missing_dependency_gives_the_reason_and_all_are_named() {
    let mut observation = missing(DependencyKind::CoordinatorNotFound, "no coordinator");
    observation
        .dependencies
        .push(DependencyIssue { kind: DependencyKind::SecretNotFound, message: "no secret".into() });
    let engine = Engine::after(&[observation]);
    assert_eq!(engine.stands(), (Phase::Pending, "SecretNotFound"));
    assert_eq!(engine.message(), "no secret; no coordinator");
}

#[rstest]
#[case::ready(Engine::ready(1), Phase::Ready)]
#[case::rolling(Engine::after(&[running(vec![starting(0)])]), Phase::Rolling)]
#[case::reconciled(Engine::after(&[settled(0)]), Phase::Reconciled)]
fn a_passing_failure_changes_nothing_but_applied(#[case] mut engine: Engine, #[case] phase: Phase) {
    let stood = engine.record.clone();
    for attempts in 1..3 {
        let seen = engine.sees(&flaky(attempts));
        assert_eq!(seen.steps, []);
        assert_eq!((engine.record.phase, &engine.record.reason), (phase, &stood.reason));
        assert_eq!(says(&engine.record, "Applied"), ("False", "ApplyFailed", "Service ns/engine: timed out"));
        assert_eq!(condition(&engine.record, "Stalled"), None);
    }
    assert_eq!(path(&engine.sees(&flaky(3)).steps), [(Phase::Degraded, "ApplyFailed")]);
}

#[test]
fn a_passing_failure_is_told_while_pending() {
    let mut engine = Engine::after(&[flaky(1)]);
    assert_eq!(engine.stands(), (Phase::Pending, "ApplyFailed"));
    assert_eq!(engine.record.observed_generation, Some(1));
    assert_eq!(path(&engine.sees(&settled(1)).steps).first(), Some(&(Phase::Reconciled, "SpecApplied")));
}

#[test]
fn ready_never_claims_a_generation_that_was_not_applied() {
    let mut engine = Engine::ready(1);
    engine.sees(&Observation { generation: 2, ..flaky(1) });
    assert_eq!((engine.record.phase, engine.record.observed_generation), (Phase::Ready, Some(1)));
    let generations = |type_| condition(&engine.record, type_).and_then(|it| it.observed_generation);
    assert_eq!((generations("Ready"), generations("AllInstancesReady")), (Some(1), Some(1)));
    assert_eq!((generations("ConfigValid"), generations("Applied")), (Some(2), Some(2)));

    let applied = engine.sees(&Observation { generation: 2, ..settled(1) });
    assert_eq!(path(&applied.steps), [(Phase::Reconciled, "SpecApplied"), (Phase::Ready, "AllInstancesReady")]);
    assert_eq!(engine.record.observed_generation, Some(2));
}

#[test]
fn ready_is_left_for_a_lost_instance_even_while_the_api_server_is_flaky() {
    let lost = Instance { ready: false, ..instance(0) };
    let mut engine = Engine::ready(1);
    let seen = engine.sees(&Observation { children: flaky(1).children, ..running(vec![lost]) });
    assert_eq!(path(&seen.steps), [(Phase::Degraded, "InstanceLost")]);
}

#[test]
fn a_reason_that_has_passed_is_not_told_on() {
    let mut engine = Engine::ready(1);
    engine.sees(&missing(DependencyKind::SecretNotFound, "Secret ns/a not found"));
    engine.sees(&flaky(1));
    assert_eq!(engine.stands(), (Phase::Degraded, "ApplyFailed"));
    assert_eq!(path(&engine.sees(&settled(1)).steps), [(Phase::Ready, "AllInstancesReady")]);
}
