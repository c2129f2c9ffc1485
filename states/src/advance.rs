//! The walk: from the last status along allowed edges until the observation asks for no further step.

use jiff::Timestamp;
use lmcache_crds::{MAX_TRANSITIONS, Phase, PhaseRecord, PhaseTransition, kubernetes_time};

use crate::classify::{Verdict, came_forward, classify, desired_changed, is_undecided, strikes_at};
use crate::conditions;
use crate::machine::{Signal, is_converging, next};
use crate::observation::Observation;
use crate::text::{PHASE_MESSAGE_LIMIT, truncate};

/// More than the longest walk takes (Pending, Reconciled, Rolling, Ready, and one look that finds nothing to do).
const MAX_LOOKS: usize = 8;

/// What an observation led to.
#[derive(Clone, Debug, PartialEq)]
pub struct Advance {
    /// The record to write. Equal to the previous one when nothing changed.
    pub record: PhaseRecord,
    /// The steps taken, oldest first; they are also the newest entries of the record's history.
    pub steps: Vec<PhaseTransition>,
    /// When the progress deadline would strike, always later than the observation; only while the phase is Reconciled or
    /// Rolling and something is awaited. Observe again then, even if nothing happens before.
    pub wake_at: Option<Timestamp>,
}

/// Advances from the record in the last written status by one observation.
///
/// Replaying is silent: the same observation again gives no steps and an equal record, once `previous` holds the counts
/// just written and `was_ready` the instances just seen ready.
///
/// `observed_generation` moves with every verdict. It stays only while nothing is known about a new generation (its
/// children are not applied, and nothing says that they cannot be) and the phase still speaks of the one before, so that
/// Ready never claims a generation that was not applied.
pub fn advance(previous: &PhaseRecord, observation: &Observation) -> Advance {
    let mut walk = Walk { record: previous.clone(), observation, steps: Vec::new() };
    walk.note_progress();
    let mut last = Signal::Held;
    for _ in 0..MAX_LOOKS {
        let verdict = classify(&walk.record, observation);
        last = verdict.signal;
        if !walk.follow(verdict) {
            break;
        }
    }
    walk.finish(last)
}

struct Walk<'a> {
    record: PhaseRecord,
    observation: &'a Observation,
    steps: Vec<PhaseTransition>,
}

impl Walk<'_> {
    /// Does what a verdict asks for; false when that changes nothing that a further look would see.
    fn follow(&mut self, verdict: Verdict) -> bool {
        let from = self.record.phase;
        let to = next(from, verdict.signal);
        if let Some((reason, message)) = verdict.words {
            self.record.reason = Some(reason.as_str().to_owned());
            self.record.message = Some(truncate(&message, PHASE_MESSAGE_LIMIT));
        }
        let starts = verdict.signal == Signal::SpecApplied;
        if starts {
            self.record.observed_generation = Some(self.observation.generation);
        }
        if starts || to.is_some_and(|to| is_converging(to) && !is_converging(from)) {
            self.restart_deadline();
        }
        if let Some(to) = to {
            self.step(from, to);
        }
        starts || to.is_some()
    }

    fn step(&mut self, from: Phase, to: Phase) {
        let step = PhaseTransition {
            from,
            to,
            reason: self.record.reason.clone().unwrap_or_default(),
            message: self.record.message.clone().unwrap_or_default(),
            generation: self.generation(),
            time: kubernetes_time(self.observation.now),
        };
        self.record.phase = to;
        let history = &mut self.record.phase_transitions;
        history.push(step.clone());
        history.drain(..history.len().saturating_sub(MAX_TRANSITIONS));
        self.steps.push(step);
    }

    /// The generation that the phase speaks of.
    fn generation(&self) -> i64 {
        let seen = self.observation.generation;
        match self.record.observed_generation {
            Some(before) if self.record.phase != Phase::Pending && is_undecided(self.observation) => before,
            _ => seen,
        }
    }

    fn note_progress(&mut self) {
        let moved = came_forward(self.observation) || desired_changed(self.observation);
        let missing = self.record.last_progress_time.is_none() && is_converging(self.record.phase);
        if self.record.phase != Phase::Pending && (moved || missing) {
            self.restart_deadline();
        }
    }

    fn restart_deadline(&mut self) {
        self.record.last_progress_time = Some(kubernetes_time(self.observation.now));
    }

    fn finish(mut self, last: Signal) -> Advance {
        self.record.observed_generation = Some(self.generation());
        self.record.conditions = conditions::update(&self.record, self.observation);
        let awaits = is_converging(self.record.phase) && matches!(last, Signal::Progressing | Signal::WorkloadPending);
        let wake_at = if awaits { strikes_at(&self.record, self.observation.progress_deadline) } else { None };
        Advance { record: self.record, steps: self.steps, wake_at }
    }
}
