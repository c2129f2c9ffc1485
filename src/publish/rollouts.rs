//! How long rollouts take, from the steps: from a change that was applied to Ready, to Degraded, or to the next change.

use std::time::Duration;

use jiff::Timestamp;
use lmcache_crds::{Phase, PhaseRecord, PhaseTransition};
use lmcache_observability::RolloutEnd;
use lmcache_states::{Reason, is_converging};

/// A rollout that is over.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub end: RolloutEnd,
    /// How long it took.
    pub took: Duration,
}

/// The rollouts that end with `steps`, which follow on `before`.
pub fn ended(before: &PhaseRecord, steps: &[PhaseTransition]) -> Vec<Ended> {
    let mut begun = is_converging(before.phase).then(|| begun(&before.phase_transitions)).flatten();
    let mut all = Vec::new();
    for step in steps {
        let time = step.time.0;
        let end = match step.to {
            Phase::Ready => Some(RolloutEnd::Ready),
            Phase::Degraded => Some(RolloutEnd::Degraded),
            _ if begins(step) => Some(RolloutEnd::Superseded),
            _ => None,
        };
        if let (Some(end), Some(start)) = (end, begun.filter(|_| is_converging(step.from))) {
            all.push(Ended { end, took: Duration::try_from(time.duration_since(start)).unwrap_or_default() });
        }
        if begins(step) {
            begun = Some(time);
        }
    }
    all
}

/// When the rollout began that the last steps belong to.
fn begun(history: &[PhaseTransition]) -> Option<Timestamp> {
    history.iter().rev().find(|step| begins(step)).map(|step| step.time.0)
}

/// Whether a rollout begins with this step: a change was applied, or a settled resource is on its way again.
fn begins(step: &PhaseTransition) -> bool {
    is_converging(step.to) && (!is_converging(step.from) || step.reason == Reason::SpecApplied.as_str())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use lmcache_crds::Phase::{Degraded, Pending, Ready, Reconciled, Rolling};
    use rstest::rstest;

    use super::*;

    type Step = (Phase, Phase, &'static str, i64);

    fn steps(all: &[Step]) -> Vec<PhaseTransition> {
        let step = |(from, to, reason, second): &Step| PhaseTransition {
            from: *from,
            to: *to,
            reason: (*reason).to_owned(),
            message: String::new(),
            generation: 1,
            time: Time(Timestamp::from_second(*second).unwrap()),
        };
        all.iter().map(step).collect()
    }

    const APPLIED: Step = (Pending, Reconciled, "SpecApplied", 10);
    const STARTS: Step = (Reconciled, Rolling, "InstancesStarting", 12);

    #[rstest]
    #[case::first(&[], &[APPLIED, STARTS, (Rolling, Ready, "AllInstancesReady", 30)], &[(RolloutEnd::Ready, 20)])]
    #[case::over_two_writes(&[APPLIED, STARTS], &[(Rolling, Ready, "AllInstancesReady", 31)], &[(RolloutEnd::Ready, 21)])]
    #[case::degraded(&[APPLIED], &[(Reconciled, Degraded, "ImagePullFailed", 15)], &[(RolloutEnd::Degraded, 5)])]
    #[case::superseded(
        &[APPLIED, STARTS],
        &[(Rolling, Reconciled, "SpecApplied", 20), (Reconciled, Ready, "AllInstancesReady", 50)],
        &[(RolloutEnd::Superseded, 10), (RolloutEnd::Ready, 30)],
    )]
    #[case::lost_while_ready(&[APPLIED, (Reconciled, Ready, "x", 11)], &[(Ready, Degraded, "InstanceLost", 90)], &[])]
    #[case::healed_on_a_detour(
        &[APPLIED, (Reconciled, Degraded, "ImagePullFailed", 11)],
        &[(Degraded, Rolling, "RollingUpdate", 40), (Rolling, Ready, "AllInstancesReady", 45)],
        &[(RolloutEnd::Ready, 5)],
    )]
    #[case::healed_at_once(&[APPLIED, (Reconciled, Degraded, "x", 11)], &[(Degraded, Ready, "AllInstancesReady", 40)], &[])]
    #[case::nothing_left_to_run(&[APPLIED, STARTS], &[(Rolling, Reconciled, "NoMatchingNodes", 20)], &[])]
    fn each_rollout_is_timed_once(
        #[case] before: &[Step],
        #[case] now: &[Step],
        #[case] expected: &[(RolloutEnd, u64)],
    ) {
        let history = steps(before);
        let phase = history.last().map_or(Pending, |step| step.to);
        let record = PhaseRecord { phase, phase_transitions: history, ..PhaseRecord::default() };
        let found: Vec<_> = ended(&record, &steps(now)).into_iter().map(|it| (it.end, it.took.as_secs())).collect();
        assert_eq!(found, expected);
    }
}
