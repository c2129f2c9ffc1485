//! The progress deadline. Counted in whole seconds, as the status keeps its times.

use std::time::Duration;

use jiff::Timestamp;
use lmcache_crds::{Phase, PhaseRecord};

use super::rollout::{came_forward, describe, is_complete};
use super::{Situation, Verdict};
use crate::machine::{Signal, is_converging};
use crate::observation::Observation;
use crate::reason::Reason;

/// A rollout came no further for longer than the deadline, and has not since.
pub(super) fn is_exceeded(situation: Situation<'_>) -> Option<Verdict> {
    let Situation { record, observation } = situation;
    if is_complete(observation) {
        return None;
    }
    let exceeded = if is_converging(record.phase) {
        has_passed(record, observation)
    } else {
        record.phase == Phase::Degraded && began_overdue(record, observation.generation) && !came_forward(observation)
    };
    exceeded.then(|| {
        let seconds = observation.progress_deadline.as_secs();
        let message = format!("no progress for more than {seconds} s: {}", describe(observation));
        Verdict::new(Signal::Overdue, Reason::ProgressDeadlineExceeded, message)
    })
}

/// The first whole second at which the deadline strikes; `None` before a rollout has begun, or when it is beyond any clock.
pub(crate) fn strikes_at(record: &PhaseRecord, deadline: Duration) -> Option<Timestamp> {
    let last = record.last_progress_time.as_ref()?;
    let seconds = i64::try_from(deadline.as_secs()).ok()?.checked_add(1)?;
    Timestamp::from_second(last.0.as_second().checked_add(seconds)?).ok()
}

fn has_passed(record: &PhaseRecord, observation: &Observation) -> bool {
    strikes_at(record, observation.progress_deadline).is_some_and(|at| observation.now >= at)
}

/// Whether this generation's stay in Degraded began with the deadline. The present reason would not do: it may have been
/// another problem's meanwhile.
fn began_overdue(record: &PhaseRecord, generation: i64) -> bool {
    let overdue = Reason::ProgressDeadlineExceeded.as_str();
    match record.phase_transitions.last() {
        Some(step) if step.to == record.phase => step.generation == generation && step.reason == overdue,
        _ => record.reason.as_deref() == Some(overdue),
    }
}
