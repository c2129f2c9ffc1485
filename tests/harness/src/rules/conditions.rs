//! The conditions agree with the phase, and their times are honest.

use lmcache_crds::{Phase, PhaseRecord};
use lmcache_states::conditions::{ALL_INSTANCES_READY, AVAILABLE, READY, RECONCILING, STALLED};
use lmcache_states::{Reason, is_converging};

use super::Status;
use crate::wait::condition;

/// Checks the conditions of the statuses of one life, oldest first.
pub(crate) fn of_conditions(life: &[Status<'_>]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut before: Option<&Status<'_>> = None;
    for status in life {
        let found = with_phase(status.record).into_iter().chain(before.into_iter().flat_map(|it| times(it, status)));
        violations.extend(found.map(|text| format!("status {}: {text}", status.version)));
        before = Some(status);
    }
    violations
}

fn with_phase(record: &PhaseRecord) -> Vec<String> {
    let (phase, mut found) = (record.phase, Vec::new());
    // The status that the definition gives to a new object: nobody has written it.
    if *record == PhaseRecord::default() {
        return found;
    }
    let status = |type_: &str| condition(record, type_).map(|it| it.status.as_str());
    let mut demand = |holds: bool, text: &str| {
        if !holds {
            found.push(format!("phase {phase}, but {text}"));
        }
    };
    let is_ready = phase == Phase::Ready;
    demand(status(READY) == Some(if is_ready { "True" } else { "False" }), "condition Ready says otherwise");
    // What the spec wants to be at rest is on its way to nothing.
    let rests = record.reason.as_deref() == Some(Reason::ScaledToZero.as_str());
    let on_its_way = is_converging(phase) && !rests;
    demand((status(RECONCILING) == Some("True")) == on_its_way, "condition Reconciling says otherwise");
    demand(phase == Phase::Degraded || status(STALLED) != Some("True"), "condition Stalled is True");
    for type_ in [RECONCILING, STALLED] {
        demand(matches!(status(type_), None | Some("True")), "a condition that is only present while True is not True");
    }
    if is_ready {
        demand(status(AVAILABLE) == Some("True"), "condition Available is not True");
        demand(status(ALL_INSTANCES_READY) == Some("True"), "condition AllInstancesReady is not True");
    }
    found
}

fn times(before: &Status<'_>, status: &Status<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for new in &status.record.conditions {
        let Some(old) = condition(before.record, &new.type_) else {
            continue;
        };
        let (was, is) = (old.last_transition_time.0, new.last_transition_time.0);
        // Times are whole seconds: two changes within one look like none.
        if (old.status == new.status && was != is) || is < was {
            let change = format!("{} ({was}) -> {} ({is})", old.status, new.status);
            found.push(format!("lastTransitionTime of {} is wrong: {change}", new.type_));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use lmcache_crds::Phase::{Degraded, Pending, Ready, Reconciled};
    use rstest::rstest;

    use super::*;
    use crate::rules::testing::{at, condition, life, record};

    #[rstest]
    #[case::ready_without_condition(&[Pending, Reconciled, Ready], READY, "False", "condition Ready says otherwise")]
    #[case::ready_too_early(&[Pending, Reconciled], READY, "True", "condition Ready says otherwise")]
    #[case::converging_without_condition(&[Pending, Reconciled], RECONCILING, "False", "Reconciling says otherwise")]
    #[case::stalled_while_pending(&[Pending], STALLED, "True", "Stalled is True")]
    #[case::reconciling_while_degraded(&[Pending, Reconciled, Degraded], RECONCILING, "True", "Reconciling says otherwise")]
    #[case::ready_and_not_available(&[Pending, Reconciled, Ready], AVAILABLE, "False", "Available is not True")]
    fn a_condition_that_contradicts_the_phase_is_found(
        #[case] path: &[Phase],
        #[case] type_: &str,
        #[case] status: &str,
        #[case] expected: &str,
    ) {
        let honest = record(path);
        assert_eq!(of_conditions(&life(std::slice::from_ref(&honest))), Vec::<String>::new());
        let mut lying = honest;
        lying.conditions.retain(|it| it.type_ != type_);
        lying.conditions.push(condition(type_, status, 0));
        let found = of_conditions(&life(&[lying]));
        assert!(found.iter().any(|it| it.contains(expected)), "{found:?}");
    }

    #[rstest]
    #[case::at_rest("ScaledToZero", false, true)]
    #[case::at_rest_and_yet_reconciling("ScaledToZero", true, false)]
    #[case::nowhere_to_run("NoMatchingNodes", true, true)]
    #[case::nowhere_to_run_and_not_reconciling("NoMatchingNodes", false, false)]
    fn only_what_is_scaled_to_zero_may_rest_in_reconciled(
        #[case] reason: &str,
        #[case] reconciling: bool,
        #[case] honest: bool,
    ) {
        let mut seen = record(&[Pending, Reconciled]);
        seen.reason = Some(reason.to_owned());
        if !reconciling {
            seen.conditions.retain(|it| it.type_ != RECONCILING);
        }
        let found = of_conditions(&life(&[seen]));
        assert_eq!(found.is_empty(), honest, "{found:?}");
    }

    #[rstest]
    #[case::honest("True", "False", 5, false)]
    #[case::twice_in_one_second("True", "False", 0, false)]
    #[case::unchanged("True", "True", 0, false)]
    #[case::moved_without_change("True", "True", 5, true)]
    #[case::moved_back("True", "False", -5, true)]
    fn last_transition_time_moves_with_the_status(
        #[case] was: &str,
        #[case] is: &str,
        #[case] seconds: i64,
        #[case] wrong: bool,
    ) {
        let (mut before, mut after) = (record(&[Pending]), record(&[Pending]));
        before.conditions.push(condition("Applied", was, 0));
        after.conditions.push(condition("Applied", is, 0));
        if let Some(last) = after.conditions.last_mut() {
            last.last_transition_time = at(seconds);
        }
        let found = of_conditions(&life(&[before, after]));
        assert_eq!(found.iter().any(|it| it.contains("lastTransitionTime of Applied")), wrong, "{found:?}");
    }
}
