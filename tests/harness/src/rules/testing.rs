//! Records for the tests of the rules.

use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lmcache_crds::{MAX_TRANSITIONS, Phase, PhaseRecord, PhaseTransition};
use lmcache_states::conditions::{ALL_INSTANCES_READY, AVAILABLE, READY, RECONCILING};
use lmcache_states::is_converging;

use super::Status;

/// Some seconds after an arbitrary point in time.
pub(super) fn at(seconds: i64) -> Time {
    Time(Timestamp::from_second(1_800_000_000 + seconds).unwrap_or_default())
}

pub(super) fn condition(type_: &str, status: &str, seconds: i64) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: "Because".to_owned(),
        message: String::new(),
        observed_generation: Some(1),
        last_transition_time: at(seconds),
    }
}

/// An honest record of generation 1 that has gone this path. Conditions keep their time as long as their status.
pub(super) fn record(path: &[Phase]) -> PhaseRecord {
    let mut steps: Vec<_> = path
        .windows(2)
        .zip(1..)
        .map(|(edge, second)| PhaseTransition {
            from: edge[0],
            to: edge[1],
            reason: "Because".to_owned(),
            message: String::new(),
            generation: 1,
            time: at(second),
        })
        .collect();
    steps.drain(..steps.len().saturating_sub(MAX_TRANSITIONS));
    let phase = path.last().copied().unwrap_or_default();
    let status = if phase == Phase::Ready { "True" } else { "False" };
    let mut conditions = [READY, AVAILABLE, ALL_INSTANCES_READY].map(|it| condition(it, status, 0)).to_vec();
    if is_converging(phase) {
        conditions.push(condition(RECONCILING, "True", 0));
    }
    PhaseRecord { phase, observed_generation: Some(1), phase_transitions: steps, conditions, ..PhaseRecord::default() }
}

pub(super) fn life(records: &[PhaseRecord]) -> Vec<Status<'_>> {
    let at = Instant::now();
    records.iter().zip(1..).map(|(record, version)| Status { version, at, generation: 1, record }).collect()
}
