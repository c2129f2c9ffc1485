//! What is different for a kind whose instances are replicas, and what is said beside the phase.

use lmcache_crds::Phase::{Pending, Ready, Reconciled, Rolling};
use lmcache_states::{Advisory, AdvisoryKind, Observation, Wording};

use crate::fixtures::{Engine, condition, instance, outdated, path, report, settled, starting};

fn replicas(count: usize) -> Observation {
    Observation { wording: Wording::Replicas, ..settled(count) }
}

fn advised(concern: Option<&str>) -> Observation {
    let concern = concern.map(str::to_owned);
    let advisories = vec![Advisory { kind: AdvisoryKind::RegistryConsistent, concern }];
    Observation { advisories, ..replicas(2) }
}

#[test]
fn zero_replicas_is_a_state_to_rest_in_and_says_so() {
    let mut coordinator = Engine::default();
    let first = coordinator.sees(&replicas(0));
    assert_eq!(path(&first.steps), [(Reconciled, "SpecApplied")]);
    assert_eq!(coordinator.stands(), (Reconciled, "ScaledToZero"));
    assert_eq!(first.wake_at, None, "nothing is awaited");
    assert!(condition(&coordinator.record, "Reconciling").is_none(), "{:#?}", coordinator.record.conditions);
    let available = condition(&coordinator.record, "Available").expect("it is always there");
    assert_eq!((available.status.as_str(), available.reason.as_str()), ("False", "NoReadyReplicas"));
    assert_eq!(available.message, "0/0 replicas ready");
}

#[test]
fn more_replicas_beside_those_that_serve_is_scaling_up() {
    let mut coordinator = Engine::after(&[replicas(1)]);
    assert_eq!(coordinator.stands(), (Ready, "AllInstancesReady"));
    let mut more = Observation { generation: 2, instances: vec![instance(0), starting(1)], ..replicas(1) };
    report(&mut more, 2);
    assert_eq!(path(&coordinator.sees(&more).steps), [(Reconciled, "SpecApplied"), (Rolling, "ScalingUp")]);
    assert_eq!(coordinator.message(), "2/2 replicas updated, 1/2 ready; waiting for node-b");
}

#[test]
fn replicas_of_a_new_template_are_a_rolling_update() {
    let mut coordinator = Engine::after(&[replicas(1)]);
    let mut changed = Observation { generation: 2, instances: vec![starting(0)], ..replicas(1) };
    report(&mut changed, 1);
    assert_eq!(path(&coordinator.sees(&changed).steps), [(Reconciled, "SpecApplied"), (Rolling, "RollingUpdate")]);
}

#[test]
fn coming_back_from_zero_is_scaling_up_for_there_is_nothing_to_be_replaced() {
    let mut coordinator = Engine::after(&[replicas(1), Observation { generation: 2, ..replicas(0) }]);
    assert_eq!(coordinator.stands(), (Reconciled, "ScaledToZero"));
    let mut back = Observation { generation: 3, instances: vec![starting(0)], ..replicas(0) };
    report(&mut back, 1);
    assert_eq!(path(&coordinator.sees(&back).steps), [(Rolling, "ScalingUp")]);
}

#[test]
fn replicas_of_the_revision_before_do_not_make_all_instances_ready() {
    let mut surging = Observation { instances: vec![instance(0), starting(1), outdated(2)], ..replicas(0) };
    report(&mut surging, 2);
    let coordinator = Engine::after(&[replicas(2), surging]);
    let all = condition(&coordinator.record, "AllInstancesReady").expect("it is always there");
    assert_eq!((coordinator.record.phase, all.status.as_str()), (Rolling, "False"));
    assert_eq!(all.message, "2/2 replicas ready, 1 of them of the present revision");
}

#[test]
fn an_advisory_is_a_condition_and_moves_no_phase() {
    let mut coordinator = Engine::after(&[advised(None)]);
    let holds = condition(&coordinator.record, "RegistryConsistent").expect("it was looked at").clone();
    assert_eq!((holds.status.as_str(), holds.reason.as_str()), ("True", "OneRegistry"));
    let steps = coordinator.sees(&advised(Some("two replicas know different engines"))).steps;
    assert_eq!(path(&steps), []);
    let warns = condition(&coordinator.record, "RegistryConsistent").expect("it was looked at");
    assert_eq!((warns.status.as_str(), warns.reason.as_str()), ("False", "SeveralReplicas"));
    assert_eq!(warns.message, "two replicas know different engines");
    assert_eq!(coordinator.stands(), (Ready, "AllInstancesReady"));
}

#[test]
fn an_advisory_that_no_longer_applies_leaves_no_condition() {
    let mut coordinator = Engine::after(&[advised(Some("x"))]);
    coordinator.sees(&replicas(2));
    assert!(condition(&coordinator.record, "RegistryConsistent").is_none());
    assert_ne!(coordinator.record.phase, Pending);
}
