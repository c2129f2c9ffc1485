//! What must hold always: for arbitrary observations, and for arbitrary sequences of them from any beginning.

use std::time::Duration;

use lmcache_crds::{MAX_TRANSITIONS, Phase, PhaseRecord, PhaseTransition, kubernetes_time};
use lmcache_states::{Advance, AdvisoryKind, Children, FailureKind, Observation, Reason, advance, is_allowed};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::fixtures::{at, condition, counts, seen_again};
use crate::generators::{applied, healed, invalid, observations, problems, records};

/// Rule 2 of the phases, written a second time: what Ready must mean.
fn guard_of_ready(observation: &Observation) -> bool {
    let Some(workload) = observation.workload else { return false };
    let good = observation.instances.iter().filter(|it| it.current && it.ready).count();
    workload.observed
        && workload.desired > 0
        && workload.updated >= workload.desired
        && workload.available >= workload.desired
        && i64::try_from(good).is_ok_and(|good| good >= i64::from(workload.desired))
        && !observation.instances.iter().any(|it| !it.current)
}

/// Whether nothing is known about the children: neither applied, nor hindered.
fn undecided(observation: &Observation) -> bool {
    let open = match &observation.children {
        Children::Applied => false,
        Children::Withheld => true,
        Children::Failed(all) => all.iter().all(|it| it.kind == FailureKind::Unavailable && it.attempts < 3),
    };
    open && observation.spec_errors.is_empty() && observation.dependencies.is_empty()
}

fn check(before: &PhaseRecord, observation: &Observation) -> Result<Advance, TestCaseError> {
    let after = advance(before, observation);
    steps_are_a_walk(before, &after)?;
    phase_tells_the_truth(before, observation, &after.record)?;
    conditions_agree_with_the_phase(&after.record)?;
    advisories_are_told(observation, &after.record)?;
    transition_times_are_honest(before, observation, &after.record)?;
    words_fit(&after)?;
    replay_is_silent(observation, &after)?;
    Ok(after)
}

fn steps_are_a_walk(before: &PhaseRecord, after: &Advance) -> Result<(), TestCaseError> {
    let mut at = before.phase;
    for step in &after.steps {
        prop_assert_eq!(step.from, at, "not where the walk stood: {:#?}", after.steps);
        prop_assert!(is_allowed(step.from, step.to), "no such edge: {:#?}", step);
        at = step.to;
    }
    prop_assert_eq!(at, after.record.phase);
    prop_assert!(after.steps.len() <= 5, "{:#?}", after.steps);
    let expected: Vec<&PhaseTransition> = before.phase_transitions.iter().chain(&after.steps).collect();
    let kept: Vec<&PhaseTransition> = after.record.phase_transitions.iter().collect();
    prop_assert_eq!(&kept[..], &expected[expected.len().saturating_sub(MAX_TRANSITIONS)..]);
    Ok(())
}

fn phase_tells_the_truth(
    before: &PhaseRecord,
    observation: &Observation,
    after: &PhaseRecord,
) -> Result<(), TestCaseError> {
    if after.phase == Phase::Ready {
        prop_assert!(guard_of_ready(observation), "Ready without its guard: {:#?}", observation);
    }
    let hindered = !(observation.spec_errors.is_empty() && observation.dependencies.is_empty());
    prop_assert!(after.phase != Phase::Pending || hindered || observation.children != Children::Applied);
    let holds = undecided(observation) && before.phase != Phase::Pending && before.observed_generation.is_some();
    let expected = if holds { before.observed_generation } else { Some(observation.generation) };
    prop_assert_eq!(after.observed_generation, expected);
    Ok(())
}

fn conditions_agree_with_the_phase(record: &PhaseRecord) -> Result<(), TestCaseError> {
    let is_true = |type_| condition(record, type_).is_some_and(|it| it.status == "True");
    let has = |type_| condition(record, type_).is_some();
    let converging = matches!(record.phase, Phase::Reconciled | Phase::Rolling);
    prop_assert_eq!(is_true("Ready"), record.phase == Phase::Ready);
    let at_rest = record.reason.as_deref() == Some("ScaledToZero");
    let reconciling = converging && !at_rest;
    prop_assert_eq!((has("Reconciling"), is_true("Reconciling")), (reconciling, reconciling));
    prop_assert!(!(has("Reconciling") && has("Stalled")));
    prop_assert!(!has("Stalled") || record.phase == Phase::Degraded);
    for type_ in ["ConfigValid", "Available", "AllInstancesReady", "DependenciesReady", "Applied", "Ready"] {
        prop_assert_eq!(record.conditions.iter().filter(|it| it.type_ == type_).count(), 1, "{}", type_);
    }
    Ok(())
}

fn advisories_are_told(observation: &Observation, record: &PhaseRecord) -> Result<(), TestCaseError> {
    for kind in AdvisoryKind::ALL {
        let advisory = observation.advisories.iter().find(|it| it.kind == kind);
        let expected = advisory.map(|it| if it.concern.is_none() { "True" } else { "False" });
        let found = condition(record, kind.as_str()).map(|it| it.status.as_str());
        prop_assert_eq!(found, expected, "{:?}", kind);
    }
    Ok(())
}

fn transition_times_are_honest(
    before: &PhaseRecord,
    observation: &Observation,
    after: &PhaseRecord,
) -> Result<(), TestCaseError> {
    for now in &after.conditions {
        let old = condition(before, &now.type_).filter(|old| old.status == now.status);
        let expected = old.map_or(kubernetes_time(observation.now), |old| old.last_transition_time.clone());
        prop_assert_eq!(&now.last_transition_time, &expected, "{}", now.type_);
    }
    Ok(())
}

fn words_fit(after: &Advance) -> Result<(), TestCaseError> {
    for step in &after.steps {
        prop_assert!(Reason::parse(&step.reason).is_some() && step.message.len() <= 1024, "{:#?}", step);
    }
    let reason = after.record.reason.as_deref().and_then(Reason::parse);
    prop_assert!(reason.is_some(), "{:?}", after.record.reason);
    prop_assert!(after.record.message.as_ref().is_some_and(|message| message.len() <= 1024));
    for condition in &after.record.conditions {
        prop_assert!(condition.message.len() <= 32_768 && !condition.reason.is_empty(), "{:#?}", condition);
    }
    Ok(())
}

fn replay_is_silent(observation: &Observation, after: &Advance) -> Result<(), TestCaseError> {
    let replayed = advance(&after.record, &seen_again(observation));
    prop_assert_eq!(&replayed.steps, &[]);
    prop_assert_eq!(&replayed.record, &after.record);
    if let Some(wake_at) = after.wake_at {
        prop_assert!(wake_at > observation.now && replayed.wake_at == Some(wake_at));
        let shortly_before =
            Observation { now: wake_at - jiff::SignedDuration::from_millis(1), ..seen_again(observation) };
        prop_assert_eq!(&advance(&after.record, &shortly_before).record, &after.record, "silent until it wakes");
        let struck = advance(&after.record, &Observation { now: wake_at, ..seen_again(observation) });
        prop_assert_eq!(struck.record.phase, Phase::Degraded, "the deadline strikes when it said");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn every_rule_holds_along_every_life(life in vec(observations(), 1..12)) {
        let mut record = PhaseRecord::default();
        for observation in &life {
            record = check(&record, observation)?.record;
        }
    }

    #[test]
    fn every_rule_holds_from_every_beginning(record in records(), observation in observations()) {
        check(&record, &observation)?;
    }

    #[test]
    fn a_constant_observation_comes_to_rest(record in records(), observation in observations()) {
        let once = advance(&record, &observation);
        let mut again = once.record.clone();
        for _ in 0..5 {
            again = advance(&again, &seen_again(&observation)).record;
        }
        prop_assert_eq!(again, once.record);
    }

    #[test]
    fn what_is_applied_decides_the_phase_wherever_it_began(begun in vec(records(), 2..5), observation in applied()) {
        let reached: Vec<Phase> = begun
            .into_iter()
            .map(|record| {
                // Another generation, so that no earlier deadline is in the way.
                let record = PhaseRecord { observed_generation: Some(0), ..record };
                advance(&record, &observation).record.phase
            })
            .collect();
        prop_assert!(reached.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", reached);
    }

    #[test]
    fn whatever_happened_heals(record in records(), life in vec(observations(), 0..6), good in healed()) {
        let mut record = record;
        for observation in &life {
            record = advance(&record, observation).record;
        }
        prop_assert_eq!(advance(&record, &good).record.phase, Phase::Ready);
    }

    #[test]
    fn degraded_is_left_when_a_rollout_goes_on(record in records(), good in healed()) {
        let record = PhaseRecord { phase: Phase::Degraded, ..record };
        let mut rolling = good;
        rolling.instances.iter_mut().for_each(|it| (it.ready, it.was_ready) = (false, false));
        rolling.workload.iter_mut().for_each(|it| (it.ready, it.available) = (0, 0));
        rolling.previous.updated = 0;
        prop_assert_eq!(advance(&record, &rolling).record.phase, Phase::Rolling);
    }

    #[test]
    fn an_invalid_spec_never_gets_further(record in records(), observation in invalid()) {
        let after = advance(&record, &observation);
        prop_assert!(after.steps.iter().all(|step| step.to == Phase::Degraded), "{:#?}", after.steps);
        let expected = if record.phase == Phase::Pending { Phase::Pending } else { Phase::Degraded };
        prop_assert_eq!(after.record.phase, expected);
    }

    #[test]
    fn a_passing_failure_takes_no_step_but_out_of_a_false_ready(record in records(), observation in observations()) {
        let after = advance(&record, &observation);
        if undecided(&observation) && !after.steps.is_empty() {
            prop_assert_eq!(record.phase, Phase::Ready);
            prop_assert!(!guard_of_ready(&observation));
        }
    }

    #[test]
    fn an_exceeded_deadline_stays_until_there_is_progress(
        record in records(),
        good in healed(),
        detours in vec(prop_oneof![Just(None), problems().prop_map(Some)], 0..4),
    ) {
        let stuck = Observation { progress_deadline: Duration::from_mins(10), ..held_up(good) };
        let begun = PhaseRecord {
            phase: Phase::Rolling,
            observed_generation: Some(stuck.generation),
            last_progress_time: Some(kubernetes_time(at(-601))),
            ..record
        };
        let struck = advance(&begun, &stuck).record;
        prop_assert_eq!(struck.reason.as_deref(), Some("ProgressDeadlineExceeded"));
        let mut later = struck.clone();
        for problem in detours {
            let mut detour = stuck.clone();
            detour.instances[0].problem = problem;
            later = advance(&later, &detour).record;
            prop_assert_eq!(later.phase, Phase::Degraded);
        }
        prop_assert_eq!(&advance(&later, &stuck).record, &struck);
        let mut better = stuck;
        better.previous.available -= 1;
        prop_assert_eq!(advance(&later, &better).record.phase, Phase::Rolling);
    }
}

/// The same, but its first instance has yet to come up, and nothing moved since the last status.
fn held_up(mut observation: Observation) -> Observation {
    (observation.instances[0].ready, observation.instances[0].was_ready) = (false, false);
    if let Some(workload) = &mut observation.workload {
        (workload.ready, workload.available) = (workload.ready - 1, workload.available - 1);
    }
    observation.previous = counts(&observation);
    observation
}
