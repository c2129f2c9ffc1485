//! The guard of Ready, one violated part at a time.

use lmcache_crds::Phase;
use lmcache_states::{Observation, Workload};
use rstest::rstest;

use crate::fixtures::{Engine, outdated, settled, starting};

fn with_workload(change: fn(&mut Workload)) -> Observation {
    let mut observation = settled(2);
    observation.workload.iter_mut().for_each(change);
    observation
}

#[rstest]
#[case::not_observed(with_workload(|it| it.observed = false), Phase::Reconciled, "WaitingForWorkload")]
#[case::no_workload(Observation { workload: None, ..settled(2) }, Phase::Reconciled, "WaitingForWorkload")]
#[case::not_all_updated(with_workload(|it| it.updated = 1), Phase::Rolling, "RollingUpdate")]
#[case::restarted(Observation { instances: Vec::new(), ..with_workload(|it| it.updated = 0) }, Phase::Rolling, "RollingUpdate")]
#[case::not_all_available(with_workload(|it| it.available = 1), Phase::Rolling, "NodesJoining")]
#[case::more_desired(with_workload(|it| (it.desired, it.updated, it.available) = (3, 3, 3)), Phase::Rolling, "NodesJoining")]
#[case::nothing_desired(with_workload(|it| it.desired = 0), Phase::Reconciled, "NoMatchingNodes")]
#[case::an_old_instance(Observation { instances: vec![outdated(0), settled(2).instances[1].clone()], ..settled(2) }, Phase::Rolling, "RollingUpdate")]
#[case::an_old_instance_too_many(Observation { instances: [settled(2).instances, vec![outdated(2)]].concat(), ..settled(2) }, Phase::Rolling, "RollingUpdate")]
#[case::an_instance_not_ready(Observation { instances: vec![starting(0), settled(2).instances[1].clone()], ..settled(2) }, Phase::Rolling, "NodesJoining")]
#[case::no_instance_seen(Observation { instances: Vec::new(), ..settled(2) }, Phase::Rolling, "NodesJoining")]
fn ready_is_left_when_its_guard_is_violated(
    #[case] observation: Observation,
    #[case] phase: Phase,
    #[case] reason: &str,
) {
    let mut engine = Engine::ready(2);
    engine.sees(&observation);
    assert_eq!(engine.stands(), (phase, reason), "{:#?}", engine.record);
    engine.sees(&settled(2));
    assert_eq!(engine.stands(), (Phase::Ready, "AllInstancesReady"), "does not heal: {:#?}", engine.record);
}

#[test]
fn names_three_of_the_instances_that_are_awaited() {
    let mut engine = Engine::default();
    engine.sees(&crate::fixtures::running((0..5).rev().map(starting).collect()));
    let expected = "5/5 instances updated, 0/5 ready; waiting for node-a, node-b, node-c and 2 more";
    assert_eq!(engine.message(), expected);
}
