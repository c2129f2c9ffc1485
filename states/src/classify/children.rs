//! Whether this generation's children are applied.

use lmcache_crds::Phase;

use super::rollout::is_complete;
use super::{Situation, Verdict};
use crate::machine::Signal;
use crate::observation::{ChildFailure, Children, FailureKind, Observation};
use crate::reason::Reason;

/// How often an apply may fail for want of the API server before it is called a fault.
const PATIENCE: u32 = 3;

/// A child cannot be applied: someone has to act, or the API server has failed too often.
pub(super) fn cannot_be_applied(situation: Situation<'_>) -> Option<Verdict> {
    let Children::Failed(failures) = &situation.observation.children else { return None };
    if failures.iter().all(may_heal) {
        return None;
    }
    Some(Verdict::new(Signal::Blocked, failure_reason(failures), failure_text(failures)))
}

/// A passing failure, or an apply that has not been tried: nothing is known about this generation yet, so what stands,
/// stands. Only Ready is not held against the evidence: it must be true of every observation.
pub(super) fn are_not_applied_yet(situation: Situation<'_>) -> Option<Verdict> {
    let Situation { record, observation } = situation;
    let (reason, message) = match &observation.children {
        Children::Applied => return None,
        Children::Failed(failures) if !failures.is_empty() => (Reason::ApplyFailed, failure_text(failures)),
        Children::Failed(_) | Children::Withheld => {
            (Reason::Applying, "the children are about to be applied".to_owned())
        }
    };
    if record.phase == Phase::Ready && !is_complete(observation) {
        return None;
    }
    // A reason that has passed must not be told on: neither in Pending, nor where an earlier apply was in the way.
    let same_generation = record.observed_generation.is_none_or(|before| before == observation.generation);
    let was_blocked = record.reason.as_deref().and_then(Reason::parse).is_some_and(Reason::blocks_apply);
    let says_so = record.phase == Phase::Pending || (record.phase == Phase::Degraded && same_generation && was_blocked);
    Some(Verdict { signal: Signal::Held, words: says_so.then_some((reason, message)) })
}

/// Every child of a generation is applied for the first time.
pub(super) fn are_applied_for_the_first_time(situation: Situation<'_>) -> Option<Verdict> {
    let Situation { record, observation } = situation;
    let generation = observation.generation;
    let first = record.phase == Phase::Pending || record.observed_generation != Some(generation);
    (first && observation.children == Children::Applied).then(|| {
        let message = format!("every child of generation {generation} is applied");
        Verdict::new(Signal::SpecApplied, Reason::SpecApplied, message)
    })
}

/// Whether an observation says nothing about its generation: the children are not applied, and nothing says that they
/// cannot be.
pub(crate) fn is_undecided(observation: &Observation) -> bool {
    let open = match &observation.children {
        Children::Withheld => true,
        Children::Applied => false,
        Children::Failed(failures) => failures.iter().all(may_heal),
    };
    open && observation.spec_errors.is_empty() && observation.dependencies.is_empty()
}

/// The reason of the failure that matters most.
pub(crate) fn failure_reason(failures: &[ChildFailure]) -> Reason {
    match failures.iter().map(|failure| failure.kind).min() {
        Some(FailureKind::Conflict) => Reason::Conflict,
        Some(FailureKind::Forbidden) => Reason::Forbidden,
        Some(FailureKind::Rejected) => Reason::Rejected,
        Some(FailureKind::Unavailable) | None => Reason::ApplyFailed,
    }
}

/// Every object that failed and why, the one that gives the reason first.
pub(crate) fn failure_text(failures: &[ChildFailure]) -> String {
    let mut failures: Vec<&ChildFailure> = failures.iter().collect();
    failures.sort_by(|a, b| (a.kind, &a.object).cmp(&(b.kind, &b.object)));
    failures.iter().map(|failure| format!("{}: {}", failure.object, failure.message)).collect::<Vec<_>>().join("; ")
}

fn may_heal(failure: &ChildFailure) -> bool {
    failure.kind == FailureKind::Unavailable && failure.attempts < PATIENCE
}
