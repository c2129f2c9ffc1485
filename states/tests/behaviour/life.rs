//! Whole lives: which steps an engine takes from one observation to the next.

use lmcache_crds::{MAX_TRANSITIONS, Phase, kubernetes_time};
use lmcache_states::{DependencyKind, Instance, Observation, ProblemKind};

use crate::fixtures::{
    Engine, at, instance, invalid, missing, outdated, path, running, settled, starting, troubled, unreported,
};

use Phase::{Degraded, Pending, Ready, Reconciled, Rolling};

#[test]
fn a_new_engine_walks_through_every_phase() {
    let mut engine = Engine::default();
    let applied = Observation { workload: None, instances: Vec::new(), ..settled(0) };
    assert_eq!(path(&engine.sees(&applied).steps), [(Reconciled, "SpecApplied")]);
    assert_eq!(engine.stands(), (Reconciled, "WaitingForWorkload"));

    let starts = engine.sees(&running(vec![starting(0), starting(1)]));
    assert_eq!(path(&starts.steps), [(Rolling, "InstancesStarting")]);
    assert_eq!(engine.message(), "2/2 instances updated, 0/2 ready; waiting for node-a, node-b");

    let half = engine.sees(&running(vec![instance(0), starting(1)]));
    assert_eq!(path(&half.steps), []);
    assert_eq!(engine.message(), "2/2 instances updated, 1/2 ready; waiting for node-b");

    assert_eq!(path(&engine.sees(&settled(2)).steps), [(Ready, "AllInstancesReady")]);
    assert_eq!(engine.message(), "2/2 instances ready");
}

#[test]
fn a_finished_engine_seen_for_the_first_time_still_shows_every_phase() {
    let up = Instance { was_ready: false, ..instance(0) };
    let seen = Engine::default().sees(&Observation { now: at(7), ..running(vec![up]) });
    assert_eq!(
        path(&seen.steps),
        [(Reconciled, "SpecApplied"), (Rolling, "InstancesStarting"), (Ready, "AllInstancesReady")]
    );
    assert_eq!(seen.steps, seen.record.phase_transitions);
    assert!(seen.steps.iter().all(|step| step.time == kubernetes_time(at(7)) && step.generation == 1));
}

#[test]
fn a_trouble_seen_at_once_is_told_after_the_children_were_applied() {
    let seen = Engine::default().sees(&running(vec![troubled(0, ProblemKind::ImagePull, "not found")]));
    assert_eq!(path(&seen.steps), [(Reconciled, "SpecApplied"), (Degraded, "ImagePullFailed")]);
}

#[test]
fn every_generation_has_its_own_entry() {
    let mut engine = Engine::ready(2);
    let edited = Observation { generation: 2, ..settled(2) };
    let seen = engine.sees(&edited);
    assert_eq!(path(&seen.steps), [(Reconciled, "SpecApplied"), (Ready, "AllInstancesReady")]);
    assert_eq!(engine.record.observed_generation, Some(2));
}

#[test]
fn a_generation_that_rolled_out_unseen_is_shown_rolling() {
    let mut engine = Engine::ready(1);
    let up = Instance { was_ready: false, ..instance(0) };
    let seen = engine.sees(&Observation { generation: 2, ..running(vec![up]) });
    assert_eq!(
        path(&seen.steps),
        [(Reconciled, "SpecApplied"), (Rolling, "RollingUpdate"), (Ready, "AllInstancesReady")]
    );
}

#[test]
fn a_rolling_update_is_never_ready_in_between() {
    let mut engine = Engine::ready(2);
    let second = |observation| Observation { generation: 2, ..observation };
    assert_eq!(path(&engine.sees(&second(unreported(2))).steps), [(Reconciled, "SpecApplied")]);
    assert_eq!(
        path(&engine.sees(&second(running(vec![outdated(0), outdated(1)]))).steps),
        [(Rolling, "RollingUpdate")]
    );
    for instances in [vec![starting(0), outdated(1)], vec![instance(0), outdated(1)], vec![instance(0), starting(1)]] {
        let seen = engine.sees(&second(running(instances)));
        assert_eq!(path(&seen.steps), [], "{:#?}", seen.record);
        assert_eq!(engine.stands(), (Rolling, "RollingUpdate"));
    }
    assert_eq!(path(&engine.sees(&second(settled(2))).steps), [(Ready, "AllInstancesReady")]);
}

#[test]
fn a_spec_changed_in_mid_rollout_starts_anew() {
    let mut engine = Engine::after(&[running(vec![instance(0), starting(1)])]);
    let seen = engine.sees(&Observation { generation: 2, ..running(vec![outdated(0), outdated(1)]) });
    assert_eq!(path(&seen.steps), [(Reconciled, "SpecApplied"), (Rolling, "RollingUpdate")]);
}

#[test]
fn rotated_credentials_roll_without_a_new_generation() {
    let mut engine = Engine::ready(2);
    assert_eq!(path(&engine.sees(&unreported(2)).steps), [(Reconciled, "WaitingForWorkload")]);
    assert_eq!(path(&engine.sees(&running(vec![starting(0), outdated(1)])).steps), [(Rolling, "RollingUpdate")]);
}

#[test]
fn a_joining_node_is_not_a_fault() {
    let mut engine = Engine::ready(2);
    let joined = engine.sees(&running(vec![instance(0), instance(1), starting(2)]));
    assert_eq!(path(&joined.steps), [(Rolling, "NodesJoining")]);
    engine.sees(&running(vec![instance(0), instance(1), starting(2), starting(3)]));
    assert_eq!(engine.stands(), (Rolling, "NodesJoining"));
    assert_eq!(path(&engine.sees(&settled(4)).steps), [(Ready, "AllInstancesReady")]);
}

#[test]
fn a_healed_trouble_goes_on_with_the_rollout_it_was_in() {
    let mut engine = Engine::ready(1);
    engine.sees(&running(vec![instance(0), starting(1)]));
    engine.sees(&running(vec![instance(0), troubled(1, ProblemKind::CrashLoop, "exit code 1")]));
    assert_eq!(engine.stands(), (Degraded, "CrashLooping"));
    let healed = engine.sees(&running(vec![instance(0), starting(1)]));
    assert_eq!(path(&healed.steps), [(Rolling, "NodesJoining")]);
}

#[test]
fn a_lost_instance_degrades_and_heals() {
    let mut engine = Engine::ready(2);
    let lost = Instance { ready: false, ..instance(1) };
    assert_eq!(path(&engine.sees(&running(vec![instance(0), lost])).steps), [(Degraded, "InstanceLost")]);
    assert_eq!(path(&engine.sees(&settled(2)).steps), [(Ready, "AllInstancesReady")]);
}

#[test]
fn a_lost_instance_that_starts_anew_returns_and_joins_nothing() {
    let mut engine = Engine::ready(2);
    let lost = Instance { ready: false, ..instance(1) };
    assert_eq!(path(&engine.sees(&running(vec![instance(0), lost])).steps), [(Degraded, "InstanceLost")]);
    // It serves, and the workload controller has not counted it yet.
    let mut returning = settled(2);
    returning.workload.iter_mut().for_each(|it| (it.ready, it.available) = (1, 1));
    assert_eq!(path(&engine.sees(&returning).steps), [(Rolling, "InstancesReturning")]);
    assert_eq!(path(&engine.sees(&returning).steps), [], "said once, it stays");
    assert_eq!(path(&engine.sees(&settled(2)).steps), [(Ready, "AllInstancesReady")]);
}

#[test]
fn a_node_that_joins_while_an_instance_is_lost_is_told_as_such() {
    let mut engine = Engine::ready(2);
    let lost = Instance { ready: false, ..instance(1) };
    engine.sees(&running(vec![instance(0), lost]));
    let joined = engine.sees(&running(vec![instance(0), instance(1), starting(2)]));
    assert_eq!(path(&joined.steps), [(Rolling, "NodesJoining")]);
}

#[test]
fn keeps_serving_when_the_new_spec_is_invalid() {
    let mut engine = Engine::ready(2);
    let broken = Observation { generation: 2, workload: settled(2).workload, ..invalid() };
    assert_eq!(path(&engine.sees(&broken).steps), [(Degraded, "InvalidSpec")]);
    assert_eq!(engine.record.observed_generation, Some(2));
    let corrected = Observation { generation: 3, ..settled(2) };
    assert_eq!(path(&engine.sees(&corrected).steps), [(Reconciled, "SpecApplied"), (Ready, "AllInstancesReady")]);
}

#[test]
fn an_engine_that_was_never_applied_stays_pending() {
    let mut engine = Engine::default();
    assert_eq!(path(&engine.sees(&invalid()).steps), []);
    assert_eq!(engine.stands(), (Pending, "InvalidSpec"));
    let waits = Observation { generation: 2, ..missing(DependencyKind::SecretNotFound, "Secret ns/auth not found") };
    assert_eq!(path(&engine.sees(&waits).steps), []);
    assert_eq!(engine.stands(), (Pending, "SecretNotFound"));
    assert_eq!(engine.record.observed_generation, Some(2));
    let found = Observation { generation: 2, workload: None, ..settled(0) };
    assert_eq!(path(&engine.sees(&found).steps), [(Reconciled, "SpecApplied")]);
}

#[test]
fn an_engine_whose_nodes_all_vanish_is_not_ready() {
    let mut engine = Engine::ready(2);
    assert_eq!(path(&engine.sees(&settled(0)).steps), [(Reconciled, "NoMatchingNodes")]);
    assert!(engine.message().contains("spec.nodeSelector"), "{}", engine.message());
    assert_eq!(path(&engine.sees(&running(vec![starting(0)])).steps), [(Rolling, "NodesJoining")]);
}

#[test]
fn the_history_keeps_the_newest_steps() {
    let mut engine = Engine::ready(1);
    for generation in 2..20 {
        engine.sees(&Observation { generation, ..settled(1) });
    }
    let history = &engine.record.phase_transitions;
    assert_eq!(history.len(), MAX_TRANSITIONS);
    assert_eq!(history.last().map(|step| (step.to, step.generation)), Some((Ready, 19)));
}
