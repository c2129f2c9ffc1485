//! How far the workload controller has come.

use lmcache_crds::{Phase, PhaseRecord, PhaseTransition};

use super::{Situation, Verdict};
use crate::machine::Signal;
use crate::observation::{Instance, Observation, Wording, Workload};
use crate::reason::Reason;
use crate::text::name_some;

/// The workload controller has nothing to run: no node matches, or the spec asks for no replica.
pub(super) fn has_nothing_to_run(situation: Situation<'_>) -> Option<Verdict> {
    let workload = reported(situation.observation)?;
    let (reason, message) = match situation.observation.wording {
        Wording::Instances => (
            Reason::NoMatchingNodes,
            "no node matches: label a node for it, or change spec.nodeSelector, spec.affinity or spec.tolerations",
        ),
        Wording::Replicas => (Reason::ScaledToZero, "spec.replicas is 0: nothing runs, as the spec asks"),
    };
    (workload.desired <= 0).then(|| Verdict::new(Signal::NothingToRun, reason, message.to_owned()))
}

/// The workload controller has not reported on what was applied.
pub(super) fn is_not_reported(situation: Situation<'_>) -> Option<Verdict> {
    let observation = situation.observation;
    reported(observation).is_none().then(|| {
        let message = describe(observation);
        Verdict::new(Signal::WorkloadPending, Reason::WaitingForWorkload, message)
    })
}

/// Nothing is in the way: either all is there, or it is on its way.
pub(super) fn stands(situation: Situation<'_>) -> Verdict {
    let Situation { record, observation } = situation;
    let message = describe(observation);
    if !is_complete(observation) || (record.phase == Phase::Reconciled && came_up_unseen(observation)) {
        return Verdict::new(Signal::Progressing, rolling_reason(record, observation), message);
    }
    let (ready, desired) = observation.workload.map_or((0, 0), |workload| (workload.ready, workload.desired));
    let message = format!("{ready}/{desired} {} ready", observation.wording.plural());
    Verdict::new(Signal::Complete, Reason::AllInstancesReady, message)
}

/// The workload controller's report, if it speaks of what was applied.
pub(super) fn reported(observation: &Observation) -> Option<&Workload> {
    observation.workload.as_ref().filter(|workload| workload.observed)
}

/// The guard of Ready (docs/phases.md, rule 2): the controller has observed the present generation, every desired instance is
/// updated and available, and the instances themselves say the same. Caches of pods and workloads lag differently, so
/// neither is believed alone.
pub(super) fn is_complete(observation: &Observation) -> bool {
    let Some(workload) = reported(observation) else { return false };
    let Ok(desired) = usize::try_from(workload.desired) else { return false };
    let serving = observation.instances.iter().filter(|instance| serves(instance)).count();
    desired > 0
        && workload.updated >= workload.desired
        && workload.available >= workload.desired
        && serving >= desired
        && observation.instances.iter().all(|instance| instance.current)
}

/// Whether an instance was updated or became available since the status was last written.
pub(crate) fn came_forward(observation: &Observation) -> bool {
    let Some(workload) = &observation.workload else { return false };
    let previous = observation.previous;
    workload.available > previous.available || (workload.observed && workload.updated > previous.updated)
}

/// Whether another number of instances is wanted than when the status was last written.
pub(crate) fn desired_changed(observation: &Observation) -> bool {
    reported(observation).is_some_and(|workload| workload.desired != observation.previous.desired)
}

/// How far the rollout has come and what it waits for.
pub(super) fn describe(observation: &Observation) -> String {
    let Some(workload) = &observation.workload else { return "waiting for the workload to be created".to_owned() };
    if !workload.observed {
        return "waiting for the workload controller to report on the present revision".to_owned();
    }
    let Workload { desired, updated, ready, .. } = workload;
    let noun = observation.wording.plural();
    let mut text = format!("{updated}/{desired} {noun} updated, {ready}/{desired} ready");
    let mut awaited: Vec<&str> = observation
        .instances
        .iter()
        .filter(|instance| !serves(instance))
        .map(|instance| instance.location.as_str())
        .collect();
    if !awaited.is_empty() {
        awaited.sort_unstable();
        text.push_str("; waiting for ");
        text.push_str(&name_some(&awaited));
    }
    text
}

/// Why instances are being brought up. Once said it stays for as long as the engine is Rolling, unless instances of an old
/// revision turn up.
fn rolling_reason(record: &PhaseRecord, observation: &Observation) -> Reason {
    if observation.instances.iter().any(|instance| !instance.current) {
        return Reason::RollingUpdate;
    }
    if record.phase == Phase::Rolling
        && let Some(reason) = record.reason.as_deref().and_then(Reason::parse)
        && reason.explains_rolling()
    {
        return reason;
    }
    if record.phase == Phase::Ready && template_changed(observation) {
        return Reason::RollingUpdate;
    }
    if fell_from_ready(record) && !desired_changed(observation) {
        return Reason::InstancesReturning;
    }
    let replicas = observation.wording == Wording::Replicas;
    // Those that serve already are of this revision: the others are added to them.
    if replicas && observation.instances.iter().any(|it| serves(it) && it.was_ready) {
        return Reason::ScalingUp;
    }
    let more_wanted = if replicas { Reason::ScalingUp } else { Reason::NodesJoining };
    let generation = observation.generation;
    let told = record.phase_transitions.iter().rev().find_map(|step| reason_after(step, generation, more_wanted));
    // Where none was wanted, there is none to be replaced.
    let told = told.map(|told| if replicas && observation.previous.desired == 0 { more_wanted } else { told });
    told.unwrap_or(if record.phase == Phase::Ready { more_wanted } else { Reason::InstancesStarting })
}

/// Whether the trouble came upon a rollout that was over.
fn fell_from_ready(record: &PhaseRecord) -> bool {
    record.phase == Phase::Degraded && record.phase_transitions.last().is_some_and(|step| step.from == Phase::Ready)
}

/// Whether fewer instances than before are of the current revision though no more are wanted: somebody changed the template
/// beside the spec (`kubectl rollout restart`).
fn template_changed(observation: &Observation) -> bool {
    let previous = observation.previous;
    reported(observation).is_some_and(|now| now.updated < previous.updated && now.desired <= previous.desired)
}

/// What a step of the past says about instances that come up now; `None` leaves it to earlier steps.
fn reason_after(step: &PhaseTransition, generation: i64, more_wanted: Reason) -> Option<Reason> {
    let of_this_generation = step.generation == generation;
    let reason = Reason::parse(&step.reason)?;
    match (step.to, reason) {
        (Phase::Rolling, reason) if of_this_generation && reason.explains_rolling() => Some(reason),
        (Phase::Ready, _) | (Phase::Reconciled, Reason::NoMatchingNodes) if of_this_generation => Some(more_wanted),
        (Phase::Ready, _) => Some(Reason::RollingUpdate),
        // The workload changed without a new generation: credentials were rotated, or drift was repaired.
        (Phase::Reconciled, Reason::WaitingForWorkload) if of_this_generation => Some(Reason::RollingUpdate),
        _ => None,
    }
}

/// Whether an instance came up since the status was last written: its Rolling was never seen.
fn came_up_unseen(observation: &Observation) -> bool {
    observation.instances.iter().any(|instance| serves(instance) && !instance.was_ready)
}

fn serves(instance: &Instance) -> bool {
    instance.current && instance.ready
}
