//! Instances that need a person's eye. Believed only when the workload controller has reported: before that, nobody knows
//! which instances are of the current revision.

use super::rollout::reported;
use super::{Situation, Verdict};
use crate::machine::Signal;
use crate::observation::{Instance, Problem, ProblemKind};
use crate::reason::Reason;
use crate::text::{name_some, name_troubles};

/// An instance has a hard problem.
pub(super) fn have_a_problem(situation: Situation<'_>) -> Option<Verdict> {
    reported(situation.observation)?;
    let sick: Vec<(&Instance, &Problem)> = situation.observation.instances.iter().filter_map(hard_problem).collect();
    let kind = sick.iter().map(|(_, problem)| problem.kind).min()?;
    let mut troubles: Vec<(&str, &str)> = sick
        .iter()
        .filter(|(_, problem)| problem.kind == kind)
        .map(|(instance, problem)| (instance.location.as_str(), problem.message.as_str()))
        .collect();
    troubles.sort_unstable();
    Some(Verdict::new(Signal::Faulty, problem_reason(kind), name_troubles(&troubles)))
}

/// An instance of the current revision had been ready, and is not.
pub(super) fn are_lost(situation: Situation<'_>) -> Option<Verdict> {
    reported(situation.observation)?;
    let instances = &situation.observation.instances;
    let mut lost: Vec<&str> = instances
        .iter()
        .filter(|instance| instance.current && instance.was_ready && !instance.ready)
        .map(|instance| instance.location.as_str())
        .collect();
    lost.sort_unstable();
    (!lost.is_empty()).then(|| {
        let wording = situation.observation.wording;
        let counted = match lost.len() {
            1 => format!("1 {} had been ready and is not", wording.singular()),
            count => format!("{count} {} had been ready and are not", wording.plural()),
        };
        let message = format!("{counted}: {}", name_some(&lost));
        Verdict::new(Signal::Faulty, Reason::InstanceLost, message)
    })
}

/// A problem of an instance that the current revision needs. A refused pod counts in any case: there is none to be current.
fn hard_problem(instance: &Instance) -> Option<(&Instance, &Problem)> {
    let problem = instance.problem.as_ref()?;
    let serves = instance.current && instance.ready;
    let counts = instance.current || problem.kind == ProblemKind::AdmissionRefused;
    (counts && !serves).then_some((instance, problem))
}

const fn problem_reason(kind: ProblemKind) -> Reason {
    match kind {
        ProblemKind::AdmissionRefused => Reason::AdmissionRefused,
        ProblemKind::ImagePull => Reason::ImagePullFailed,
        ProblemKind::ContainerCreate => Reason::ContainerCreateFailed,
        ProblemKind::VolumeMount => Reason::VolumeMountFailed,
        ProblemKind::OomKilled => Reason::OomKilled,
        ProblemKind::StartupProbe => Reason::StartupProbeFailed,
        ProblemKind::CrashLoop => Reason::CrashLooping,
        ProblemKind::Unschedulable => Reason::Unschedulable,
        ProblemKind::NodeNotReady => Reason::NodeNotReady,
    }
}
