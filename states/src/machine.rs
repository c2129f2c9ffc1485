//! The state machine: which phase follows which on what signal. The only place that knows the edges.
//!
//! The states are the phases themselves. `State` and `Superstate` are implemented by hand with exhaustive matches, so that
//! a phase without a rule does not compile. Nothing happens on entry or exit: rehydrating runs entry actions.

use lmcache_crds::Phase;
use statig::blocking::{IntoStateMachine, IntoStateMachineExt as _, State, Superstate};
use statig::{Outcome, Outcome::Handled, Outcome::Super, Outcome::Transition};

/// What an observation means for the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Nothing can be said now; what stands, stands.
    Held,
    /// The children of this spec cannot be applied until somebody helps.
    Blocked,
    /// Every child of a generation was applied, for the first time.
    SpecApplied,
    /// The workload controller has not reported on what was applied.
    WorkloadPending,
    /// The workload controller found nothing to run.
    NothingToRun,
    /// Instances are being brought up.
    Progressing,
    /// Every desired instance runs the current revision and is available.
    Complete,
    /// An instance is in trouble.
    Faulty,
    /// A rollout came no further for longer than the deadline.
    Overdue,
}

impl Signal {
    /// Every signal, in the order of the checks that give them.
    pub(crate) const ALL: [Signal; 9] = [
        Signal::Held,
        Signal::Blocked,
        Signal::SpecApplied,
        Signal::NothingToRun,
        Signal::Faulty,
        Signal::Overdue,
        Signal::WorkloadPending,
        Signal::Progressing,
        Signal::Complete,
    ];

    /// The name as the diagram shows it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Signal::Held => "Held",
            Signal::Blocked => "Blocked",
            Signal::SpecApplied => "SpecApplied",
            Signal::WorkloadPending => "WorkloadPending",
            Signal::NothingToRun => "NothingToRun",
            Signal::Progressing => "Progressing",
            Signal::Complete => "Complete",
            Signal::Faulty => "Faulty",
            Signal::Overdue => "Overdue",
        }
    }
}

/// What phases have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// No child was ever applied.
    Unapplied,
    /// Children of some generation exist.
    Applied,
    /// On the way to what the spec asks for; the progress deadline counts.
    Converging,
    /// Arrived, or in need of help.
    Settled,
}

impl Group {
    /// The name as the diagram shows it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Group::Unapplied => "Unapplied",
            Group::Applied => "Applied",
            Group::Converging => "Converging",
            Group::Settled => "Settled",
        }
    }

    /// The group around this one.
    pub(crate) const fn parent(self) -> Option<Group> {
        match self {
            Group::Unapplied | Group::Applied => None,
            Group::Converging | Group::Settled => Some(Group::Applied),
        }
    }
}

/// The group that a phase is in.
pub(crate) const fn group(phase: Phase) -> Group {
    match phase {
        Phase::Pending => Group::Unapplied,
        Phase::Reconciled | Phase::Rolling => Group::Converging,
        Phase::Ready | Phase::Degraded => Group::Settled,
    }
}

/// Whether a phase is on the way to what the spec asks for (Reconciled, Rolling).
pub fn is_converging(phase: Phase) -> bool {
    group(phase) == Group::Converging
}

/// The phase that `signal` leads to from `from`; `None` when the phase stays.
pub(crate) fn next(from: Phase, signal: Signal) -> Option<Phase> {
    let mut taken: Option<(Phase, Phase)> = None;
    let mut machine = PhaseMachine.uninitialized_state_machine();
    *machine.state_mut() = from;
    machine.init_with_context(&mut taken).handle_with_context(&signal, &mut taken);
    taken.map(|(_, to)| to)
}

struct PhaseMachine;

impl IntoStateMachine for PhaseMachine {
    type Event<'evt> = Signal;
    type Context<'ctx> = Option<(Phase, Phase)>;
    type State = Phase;
    type Superstate<'sub> = Group;

    fn initial() -> Phase {
        Phase::Pending
    }

    // Not before_transition: statig 0.4.1 calls that one with source and target swapped.
    fn after_transition(&mut self, source: &Phase, target: &Phase, taken: &mut Option<(Phase, Phase)>) {
        *taken = Some((*source, *target));
    }
}

impl State<PhaseMachine> for Phase {
    /// A phase says only which signals keep it; where the others lead is said once, by the groups.
    fn call_handler(
        &mut self,
        _: &mut PhaseMachine,
        signal: &Signal,
        _: &mut Option<(Phase, Phase)>,
    ) -> Outcome<Phase> {
        let keeps = match self {
            Phase::Pending => false,
            Phase::Reconciled => {
                matches!(signal, Signal::SpecApplied | Signal::WorkloadPending | Signal::NothingToRun)
            }
            Phase::Rolling => matches!(signal, Signal::Progressing),
            Phase::Ready => matches!(signal, Signal::Complete),
            Phase::Degraded => matches!(signal, Signal::Blocked | Signal::Faulty),
        };
        if keeps { Handled } else { Super }
    }

    fn superstate(&mut self) -> Option<Group> {
        Some(group(*self))
    }
}

impl Superstate<PhaseMachine> for Group {
    fn call_handler(
        &mut self,
        _: &mut PhaseMachine,
        signal: &Signal,
        _: &mut Option<(Phase, Phase)>,
    ) -> Outcome<Phase> {
        match self {
            Group::Unapplied => match signal {
                Signal::SpecApplied => Transition(Phase::Reconciled),
                // Nothing is skipped: what instances look like counts only once the children are applied.
                Signal::Held
                | Signal::Blocked
                | Signal::WorkloadPending
                | Signal::NothingToRun
                | Signal::Progressing
                | Signal::Complete
                | Signal::Faulty
                | Signal::Overdue => Handled,
            },
            Group::Applied => match signal {
                // The groups inside answer Overdue.
                Signal::Held | Signal::Overdue => Handled,
                Signal::Blocked | Signal::Faulty => Transition(Phase::Degraded),
                Signal::SpecApplied | Signal::WorkloadPending | Signal::NothingToRun => Transition(Phase::Reconciled),
                Signal::Progressing => Transition(Phase::Rolling),
                Signal::Complete => Transition(Phase::Ready),
            },
            Group::Converging => match signal {
                Signal::Overdue => Transition(Phase::Degraded),
                _ => Super,
            },
            // The deadline belongs to a rollout: it cannot take Ready away, and Degraded stays until there is progress.
            Group::Settled => match signal {
                Signal::Overdue => Handled,
                _ => Super,
            },
        }
    }

    fn superstate(&mut self) -> Option<Group> {
        self.parent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statig_gives_source_before_target_after_a_transition() {
        let mut taken = None;
        let mut machine = PhaseMachine.uninitialized_state_machine();
        *machine.state_mut() = Phase::Ready;
        machine.init_with_context(&mut taken).handle_with_context(&Signal::Faulty, &mut taken);
        assert_eq!(taken, Some((Phase::Ready, Phase::Degraded)), "statig changed the argument order of its hook");
    }

    #[test]
    fn rehydrating_takes_no_step() {
        for phase in Phase::ALL {
            let mut taken = None;
            let mut machine = PhaseMachine.uninitialized_state_machine();
            *machine.state_mut() = phase;
            let machine = machine.init_with_context(&mut taken);
            assert_eq!((*machine.state(), taken), (phase, None));
        }
    }

    #[test]
    fn a_step_always_leads_to_another_phase() {
        for phase in Phase::ALL {
            for signal in Signal::ALL {
                assert_ne!(next(phase, signal), Some(phase), "{phase} on {signal:?} is no step");
            }
        }
    }

    #[test]
    fn a_signal_given_again_takes_no_further_step() {
        for phase in Phase::ALL {
            for signal in Signal::ALL {
                let mut at = phase;
                let mut steps = 0;
                while let Some(to) = next(at, signal) {
                    at = to;
                    steps += 1;
                    assert!(steps <= 1, "{phase} on {signal:?} does not come to rest");
                }
            }
        }
    }

    #[test]
    fn every_signal_is_probed() {
        for (index, signal) in Signal::ALL.iter().enumerate() {
            assert!(!Signal::ALL[..index].contains(signal), "{signal:?} is listed twice");
        }
    }
}
