//! What an observation means: a chain of small pure checks, in the order of what must hold first. The first check that
//! applies gives the signal, the reason and the message; a wrong phase is decided in exactly one of them.

mod children;
mod deadline;
mod instances;
mod prerequisites;
mod rollout;

use lmcache_crds::PhaseRecord;

pub(crate) use children::{failure_reason, failure_text, is_undecided};
pub(crate) use deadline::strikes_at;
pub(crate) use prerequisites::{dependency_reason, dependency_text, spec_text};
pub(crate) use rollout::{came_forward, desired_changed};

use crate::machine::Signal;
use crate::observation::Observation;
use crate::reason::Reason;

/// What a check decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// What the machine is told.
    pub signal: Signal,
    /// Reason and message of the phase; `None` leaves those that stand.
    pub words: Option<(Reason, String)>,
}

impl Verdict {
    fn new(signal: Signal, reason: Reason, message: String) -> Self {
        Verdict { signal, words: Some((reason, message)) }
    }
}

/// What the checks look at.
#[derive(Clone, Copy)]
struct Situation<'a> {
    record: &'a PhaseRecord,
    observation: &'a Observation,
}

type Check = fn(Situation<'_>) -> Option<Verdict>;

const CHAIN: [Check; 10] = [
    prerequisites::spec_is_invalid,
    prerequisites::dependency_is_missing,
    children::cannot_be_applied,
    children::are_not_applied_yet,
    children::are_applied_for_the_first_time,
    // Before the count of nodes: a node that does not report is not counted as one to run on.
    instances::have_a_problem,
    rollout::has_nothing_to_run,
    instances::are_lost,
    deadline::is_exceeded,
    rollout::is_not_reported,
];

/// What `observation` means for a resource whose status is `record`.
pub(crate) fn classify(record: &PhaseRecord, observation: &Observation) -> Verdict {
    let situation = Situation { record, observation };
    CHAIN.iter().find_map(|check| check(situation)).unwrap_or_else(|| rollout::stands(situation))
}
