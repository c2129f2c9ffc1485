//! Conditions (`metav1.Condition`) that follow from a record and an observation.
//!
//! | type | status | reason |
//! |---|---|---|
//! | `ConfigValid` | True, False | `Valid`, `ValidationFailed` |
//! | `Available` | True, False | `AtLeastOneReady`, `NoReadyInstances` (coordinator: `NoReadyReplicas`) |
//! | `AllInstancesReady` | True, False | `AllReady`, `NotAllReady` |
//! | `DependenciesReady` | True | `AllFound` |
//! | | False | that of the issue: `SecretNotFound`, `SecretKeyMissing`, `SecretNotShared`, `CoordinatorNotFound` |
//! | | Unknown | `InvalidSpec`: references of an invalid spec are not looked up |
//! | `Applied` | True | `AllApplied` |
//! | | False | that of the failure (`Conflict`, `Forbidden`, `Rejected`, `ApplyFailed`), of what withheld the children (`InvalidSpec`, that of the dependency), or `Applying` |
//! | `Ready` | True, False | that of the phase |
//! | `Reconciling` | True while Converging, else absent; absent too at rest (`ScaledToZero`) | that of the phase |
//! | `Stalled` | True in Degraded when waiting does not heal, else absent | that of the phase |
//! | `CoordinatorCompatible` | True, False; absent without `spec.coordinator.ref` | `SettingsAgree`, `SettingsDiffer` |
//! | `RegistryConsistent` | True, False; coordinators only | `OneRegistry`, `SeveralReplicas` |
//! | `InjectionCurrent` | True, False; absent without injected pods | `PodsCurrent`, `PodsOutdated` |

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use lmcache_crds::{Phase, PhaseRecord, kubernetes_time};

use crate::classify::{dependency_reason, dependency_text, failure_reason, failure_text, spec_text};
use crate::machine::is_converging;
use crate::observation::{Advisory, AdvisoryKind, Children, Observation, Wording, Workload};
use crate::reason::Reason;
use crate::text::{CONDITION_MESSAGE_LIMIT, truncate};

/// The spec passes validation.
pub const CONFIG_VALID: &str = "ConfigValid";
/// At least one instance is ready, of whatever revision.
pub const AVAILABLE: &str = "Available";
/// Every desired instance is ready and of the current revision.
pub const ALL_INSTANCES_READY: &str = "AllInstancesReady";
/// What the spec refers to is there.
pub const DEPENDENCIES_READY: &str = "DependenciesReady";
/// Every child of this generation is applied.
pub const APPLIED: &str = "Applied";
/// The phase is Ready.
pub const READY: &str = "Ready";
/// The phase is on the way to what the spec asks for (kstatus).
pub const RECONCILING: &str = "Reconciling";
/// The phase is Degraded and waiting does not heal it (kstatus).
pub const STALLED: &str = "Stalled";

/// Every condition type that is managed here, in the order in which they are listed.
pub const TYPES: [&str; 11] = [
    CONFIG_VALID,
    AVAILABLE,
    ALL_INSTANCES_READY,
    DEPENDENCIES_READY,
    APPLIED,
    READY,
    RECONCILING,
    STALLED,
    AdvisoryKind::CoordinatorCompatible.as_str(),
    AdvisoryKind::RegistryConsistent.as_str(),
    AdvisoryKind::InjectionCurrent.as_str(),
];

struct Finding {
    type_: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

impl Finding {
    fn new(type_: &'static str, holds: bool, reason: &str, message: String) -> Self {
        Finding { type_, status: if holds { "True" } else { "False" }, reason: reason.to_owned(), message }
    }
}

/// The conditions of `record` after `observation`, with those of other owners kept at the end. `record.conditions` are the
/// ones before: `lastTransitionTime` moves only where the status differs from theirs.
pub(crate) fn update(record: &PhaseRecord, observation: &Observation) -> Vec<Condition> {
    let of_spec = observation.generation;
    let of_phase = record.observed_generation.unwrap_or(of_spec);
    let (workload, wording) = (observation.workload.as_ref(), observation.wording);
    let mut findings = vec![
        (config_valid(observation), of_spec),
        (available(workload, wording), of_phase),
        (all_instances_ready(observation), of_phase),
        (dependencies_ready(observation), of_spec),
        (applied(observation), of_spec),
        (of_the_phase(READY, record.phase == Phase::Ready, record), of_phase),
    ];
    if is_converging(record.phase) && !phase_reason(record).is_some_and(Reason::is_at_rest) {
        findings.push((of_the_phase(RECONCILING, true, record), of_phase));
    }
    if is_stalled(record) {
        findings.push((of_the_phase(STALLED, true, record), of_phase));
    }
    findings.extend(observation.advisories.iter().map(|advisory| (advised(advisory), of_spec)));
    let before = &record.conditions;
    let ours = findings.into_iter().map(|(finding, generation)| carry_over(finding, generation, before, observation));
    let foreign = before.iter().filter(|condition| !TYPES.contains(&condition.type_.as_str())).cloned();
    ours.chain(foreign).collect()
}

fn carry_over(finding: Finding, generation: i64, before: &[Condition], observation: &Observation) -> Condition {
    let same = before.iter().find(|old| old.type_ == finding.type_ && old.status == finding.status);
    let since = same.map_or_else(|| kubernetes_time(observation.now), |old| old.last_transition_time.clone());
    Condition {
        type_: finding.type_.to_owned(),
        status: finding.status.to_owned(),
        reason: finding.reason,
        message: truncate(&finding.message, CONDITION_MESSAGE_LIMIT),
        observed_generation: Some(generation),
        last_transition_time: since,
    }
}

fn config_valid(observation: &Observation) -> Finding {
    let errors = &observation.spec_errors;
    if errors.is_empty() {
        Finding::new(CONFIG_VALID, true, "Valid", "Spec validation passed".to_owned())
    } else {
        Finding::new(CONFIG_VALID, false, "ValidationFailed", spec_text(errors))
    }
}

fn available(workload: Option<&Workload>, wording: Wording) -> Finding {
    let (ready, desired) = workload.map_or((0, 0), |workload| (workload.ready, workload.desired));
    let holds = ready > 0;
    let reason = match wording {
        _ if holds => "AtLeastOneReady",
        Wording::Instances => "NoReadyInstances",
        Wording::Replicas => "NoReadyReplicas",
    };
    Finding::new(AVAILABLE, holds, reason, format!("{ready}/{desired} {} ready", wording.plural()))
}

fn all_instances_ready(observation: &Observation) -> Finding {
    let noun = observation.wording.plural();
    let Some(Workload { observed, desired, updated, ready, .. }) = &observation.workload else {
        return Finding::new(ALL_INSTANCES_READY, false, "NotAllReady", format!("0/0 {noun} ready"));
    };
    // A Deployment's ready replicas may be those of the revision before, beside new ones that are not ready yet.
    let instances = &observation.instances;
    let serving = instances.iter().filter(|instance| instance.current && instance.ready).count();
    let enough = usize::try_from(*desired).is_ok_and(|desired| serving >= desired);
    let old_serve = !enough || instances.iter().any(|instance| !instance.current);
    let holds = *observed && *desired > 0 && updated >= desired && ready >= desired && !old_serve;
    let reason = if holds { "AllReady" } else { "NotAllReady" };
    let but = if !observed {
        ", the workload controller has not reported on the present revision".to_owned()
    } else if updated < desired {
        format!(", {updated}/{desired} updated")
    } else if ready >= desired && old_serve {
        format!(", {serving} of them of the present revision")
    } else {
        String::new()
    };
    Finding::new(ALL_INSTANCES_READY, holds, reason, format!("{ready}/{desired} {noun} ready{but}"))
}

fn dependencies_ready(observation: &Observation) -> Finding {
    let issues = &observation.dependencies;
    if let Some(reason) = dependency_reason(issues) {
        return Finding::new(DEPENDENCIES_READY, false, reason.as_str(), dependency_text(issues));
    }
    if !observation.spec_errors.is_empty() {
        let message = "not looked up: the spec is invalid".to_owned();
        let reason = Reason::InvalidSpec.as_str().to_owned();
        return Finding { type_: DEPENDENCIES_READY, status: "Unknown", reason, message };
    }
    Finding::new(DEPENDENCIES_READY, true, "AllFound", "Everything that the spec refers to is there".to_owned())
}

fn applied(observation: &Observation) -> Finding {
    let generation = observation.generation;
    let (reason, message) = match &observation.children {
        Children::Applied => {
            let message = format!("Every child of generation {generation} is applied");
            return Finding::new(APPLIED, true, "AllApplied", message);
        }
        Children::Failed(failures) if !failures.is_empty() => (failure_reason(failures), failure_text(failures)),
        Children::Failed(_) | Children::Withheld => why_withheld(observation),
    };
    Finding::new(APPLIED, false, reason.as_str(), message)
}

fn why_withheld(observation: &Observation) -> (Reason, String) {
    if !observation.spec_errors.is_empty() {
        return (Reason::InvalidSpec, "the spec is invalid, so nothing was applied".to_owned());
    }
    match dependency_reason(&observation.dependencies) {
        Some(reason) => (reason, dependency_text(&observation.dependencies)),
        None => (Reason::Applying, "the children are about to be applied".to_owned()),
    }
}

fn of_the_phase(type_: &'static str, holds: bool, record: &PhaseRecord) -> Finding {
    let reason = record.reason.as_deref().unwrap_or(record.phase.as_str());
    Finding::new(type_, holds, reason, record.message.clone().unwrap_or_default())
}

fn advised(advisory: &Advisory) -> Finding {
    let message = advisory.concern.clone().unwrap_or_else(|| advisory.kind.all_well().to_owned());
    let holds = advisory.concern.is_none();
    Finding::new(advisory.kind.as_str(), holds, advisory.kind.reason(holds), message)
}

fn phase_reason(record: &PhaseRecord) -> Option<Reason> {
    record.reason.as_deref().and_then(Reason::parse)
}

fn is_stalled(record: &PhaseRecord) -> bool {
    record.phase == Phase::Degraded && phase_reason(record).is_some_and(Reason::stalls)
}
