//! The history is a path along the machine's edges, and is only added to.

use std::time::Instant;

use lmcache_crds::{MAX_TRANSITIONS, Phase, PhaseRecord, PhaseTransition};
use lmcache_states::is_allowed;

use super::Status;

/// Checks history, phase and observed generation of the statuses of one life, oldest first.
pub(crate) fn of_history(life: &[Status<'_>], gaps: &[(Instant, Instant)]) -> Vec<String> {
    let mut violations = Vec::new();
    let mut before = None;
    for status in life {
        let missed = gaps.iter().any(|gap| gap.0 <= status.at && status.at <= gap.1);
        let found = alone(status).into_iter().chain(before.and_then(|before| follows(before, status, missed)));
        violations.extend(found.map(|text| format!("status {}: {text}", status.version)));
        before = Some(status);
    }
    violations
}

/// The steps that a status added to the history of the one before; `None` when something else was done to it.
pub(crate) fn added<'a>(before: &PhaseRecord, after: &'a PhaseRecord) -> Option<&'a [PhaseTransition]> {
    let (old, new) = (&before.phase_transitions, &after.phase_transitions);
    (0..=new.len()).find_map(|count| {
        let (kept, added) = new.split_at(new.len() - count);
        let total = old.len() + count;
        (old.ends_with(kept) && total.min(MAX_TRANSITIONS) == new.len()).then_some(added)
    })
}

fn alone(status: &Status<'_>) -> Vec<String> {
    let record = status.record;
    let history = &record.phase_transitions;
    let mut found = Vec::new();
    if history.len() > MAX_TRANSITIONS {
        found.push(format!("the history has {} entries", history.len()));
    }
    for step in history.iter().filter(|step| !is_allowed(step.from, step.to)) {
        found.push(format!("{} -> {} is no edge", step.from, step.to));
    }
    for pair in history.windows(2) {
        if pair[0].to != pair[1].from {
            found.push(format!("the history jumps from {} to {}", pair[0].to, pair[1].from));
        }
        if pair[0].time.0 > pair[1].time.0 || pair[0].generation > pair[1].generation {
            found.push(format!("the history goes back before {} -> {}", pair[1].from, pair[1].to));
        }
    }
    if history.len() < MAX_TRANSITIONS
        && let Some(first) = history.first()
        && first.from != Phase::Pending
    {
        found.push(format!("the history begins in {}", first.from));
    }
    let end = history.last().map_or(Phase::Pending, |step| step.to);
    if end != record.phase {
        found.push(format!("the phase is {}, but the history ends in {end}", record.phase));
    }
    if record.observed_generation.is_some_and(|observed| observed > status.generation) {
        found.push(format!("it observes a generation that does not exist, {:?}", record.observed_generation));
    }
    found
}

fn follows(before: &Status<'_>, status: &Status<'_>, missed: bool) -> Option<String> {
    if before.record.observed_generation > status.record.observed_generation {
        return Some("observedGeneration decreased".to_owned());
    }
    match added(before.record, status.record) {
        // As many new entries as fit may hide that entries were removed; only lost versions excuse that.
        Some(added) if added.len() < MAX_TRANSITIONS || missed => None,
        _ => Some(format!("the history of status {} was not only added to", before.version)),
    }
}

#[cfg(test)]
mod tests {
    use lmcache_crds::Phase::{Degraded, Pending, Ready, Reconciled, Rolling};
    use rstest::rstest;

    use super::*;
    use crate::rules::testing::{life, record};

    #[test]
    fn an_honest_life_has_no_violation() {
        let mut records = vec![record(&[])];
        let mut path = vec![Pending, Reconciled, Rolling, Ready];
        records.push(record(&path[..2]));
        records.push(record(&path));
        for _ in 0..12 {
            path.extend([Reconciled, Rolling, Degraded, Rolling, Ready]);
            records.push(record(&path));
        }
        let found = of_history(&life(&records), &[]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[rstest]
    #[case::skipped(&[Pending, Ready], "no edge")]
    #[case::backwards(&[Pending, Reconciled, Pending], "no edge")]
    #[case::begins_late(&[Reconciled, Rolling], "begins in Reconciled")]
    fn a_wrong_path_is_found(#[case] path: &[Phase], #[case] expected: &str) {
        let found = of_history(&life(&[record(path)]), &[]);
        assert!(found.iter().any(|it| it.contains(expected)), "{found:?}");
    }

    #[test]
    fn a_jump_and_a_phase_beside_the_history_are_found() {
        let mut jump = record(&[Pending, Reconciled, Rolling, Ready]);
        jump.phase_transitions.remove(1);
        let mut beside = record(&[Pending, Reconciled]);
        beside.phase = Rolling;
        let found = of_history(&life(&[jump, beside]), &[]);
        assert!(found.iter().any(|it| it.contains("jumps from Reconciled to Rolling")), "{found:?}");
        assert!(found.iter().any(|it| it.contains("the history ends in Reconciled")), "{found:?}");
    }

    #[test]
    fn a_rewritten_history_and_a_lower_generation_are_found() {
        let mut rewritten = record(&[Pending, Reconciled, Ready]);
        rewritten.phase_transitions[0].reason = "Other".to_owned();
        let mut older = rewritten.clone();
        older.observed_generation = Some(0);
        let found = of_history(&life(&[record(&[Pending, Reconciled]), rewritten, older]), &[]);
        assert!(found.iter().any(|it| it.contains("not only added to")), "{found:?}");
        assert!(found.iter().any(|it| it.contains("decreased")), "{found:?}");
    }
}
