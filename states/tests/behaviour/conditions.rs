//! Conditions: statuses, reasons, messages, times.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lmcache_crds::kubernetes_time;
use lmcache_states::conditions::TYPES;
use lmcache_states::{Children, DependencyKind, FailureKind, Instance, Observation, ProblemKind, Reason};
use rstest::rstest;

use crate::fixtures::{
    Engine, at, condition, failure, instance, invalid, missing, outdated, running, says, settled, starting, troubled,
    unreported,
};

fn types(engine: &Engine) -> Vec<&str> {
    engine.record.conditions.iter().map(|condition| condition.type_.as_str()).collect()
}

#[test]
fn a_ready_engine_says_yes_to_everything() {
    let engine = Engine::ready(3);
    assert_eq!(types(&engine), TYPES[..6]);
    let record = &engine.record;
    assert_eq!(says(record, "ConfigValid"), ("True", "Valid", "Spec validation passed"));
    assert_eq!(says(record, "Available"), ("True", "AtLeastOneReady", "3/3 instances ready"));
    assert_eq!(says(record, "AllInstancesReady"), ("True", "AllReady", "3/3 instances ready"));
    assert_eq!(says(record, "DependenciesReady"), ("True", "AllFound", "Everything that the spec refers to is there"));
    assert_eq!(says(record, "Applied"), ("True", "AllApplied", "Every child of generation 1 is applied"));
    assert_eq!(says(record, "Ready"), ("True", "AllInstancesReady", "3/3 instances ready"));
    assert!(record.conditions.iter().all(|condition| condition.observed_generation == Some(1)));
}

#[test]
fn a_rolling_update_stays_available_and_is_reconciling() {
    let mut engine = Engine::ready(3);
    engine.sees(&running(vec![instance(0), outdated(1), outdated(2)]));
    let record = &engine.record;
    assert_eq!(types(&engine), TYPES[..7]);
    assert_eq!(says(record, "Available"), ("True", "AtLeastOneReady", "3/3 instances ready"));
    assert_eq!(says(record, "AllInstancesReady"), ("False", "NotAllReady", "3/3 instances ready, 1/3 updated"));
    let message = "1/3 instances updated, 3/3 ready; waiting for node-b, node-c";
    assert_eq!(says(record, "Ready"), ("False", "RollingUpdate", message));
    assert_eq!(says(record, "Reconciling"), ("True", "RollingUpdate", message));
}

#[test]
fn an_old_report_counts_for_available_only() {
    let engine = Engine::after(&[unreported(2)]);
    assert_eq!(says(&engine.record, "Available").0, "True");
    let (status, reason, message) = says(&engine.record, "AllInstancesReady");
    assert_eq!((status, reason), ("False", "NotAllReady"));
    assert!(message.starts_with("2/2 instances ready, "), "{message}");
}

#[rstest]
#[case::no_workload(Observation { workload: None, ..settled(0) }, "0/0 instances ready")]
#[case::nothing_desired(settled(0), "0/0 instances ready")]
#[case::none_ready(running(vec![starting(0)]), "0/1 instances ready")]
fn nothing_ready_is_not_available(#[case] observation: Observation, #[case] message: &str) {
    let engine = Engine::after(&[observation]);
    assert_eq!(says(&engine.record, "Available"), ("False", "NoReadyInstances", message));
    assert_eq!(says(&engine.record, "AllInstancesReady"), ("False", "NotAllReady", message));
}

#[test]
fn an_invalid_spec_lists_every_error_and_stalls_what_serves() {
    let mut engine = Engine::ready(1);
    engine.sees(&Observation { generation: 2, workload: settled(1).workload, ..invalid() });
    let record = &engine.record;
    let errors = "spec.server.port: must be at most 65535; spec.l1.sizeGB: must be positive";
    assert_eq!(says(record, "ConfigValid"), ("False", "ValidationFailed", errors));
    assert_eq!(says(record, "Available").0, "True");
    assert_eq!(says(record, "DependenciesReady").0, "Unknown");
    assert_eq!(says(record, "Applied"), ("False", "InvalidSpec", "the spec is invalid, so nothing was applied"));
    assert_eq!(says(record, "Stalled"), ("True", "InvalidSpec", errors));
    assert!(record.conditions.iter().all(|condition| condition.observed_generation == Some(2)));
}

#[test]
fn pending_is_neither_reconciling_nor_stalled() {
    let engine = Engine::after(&[invalid()]);
    assert_eq!(types(&engine), TYPES[..6]);
}

#[test]
fn a_missing_dependency_is_the_reason_that_nothing_is_applied() {
    let engine = Engine::after(&[missing(DependencyKind::SecretNotShared, "Secret b/auth is not shared with a")]);
    let expected = ("False", "SecretNotShared", "Secret b/auth is not shared with a");
    assert_eq!(says(&engine.record, "DependenciesReady"), expected);
    assert_eq!(says(&engine.record, "Applied"), expected);
}

#[test]
fn every_object_that_failed_is_named() {
    let failures = vec![
        failure("Service ns/e", FailureKind::Rejected, "denied", 1),
        failure("DaemonSet ns/e", FailureKind::Conflict, "owned by Deployment x", 1),
    ];
    let engine = Engine::after(&[Observation { children: Children::Failed(failures), ..settled(0) }]);
    let message = "DaemonSet ns/e: owned by Deployment x; Service ns/e: denied";
    assert_eq!(says(&engine.record, "Applied"), ("False", "Conflict", message));
}

#[rstest]
#[case(FailureKind::Conflict, true)]
#[case(FailureKind::Forbidden, true)]
#[case(FailureKind::Rejected, true)]
#[case(FailureKind::Unavailable, false)]
fn stalled_is_what_waiting_does_not_heal(#[case] kind: FailureKind, #[case] stalled: bool) {
    let mut engine = Engine::ready(1);
    engine.sees(&Observation { children: Children::Failed(vec![failure("Service ns/e", kind, "x", 5)]), ..settled(1) });
    assert_eq!(condition(&engine.record, "Stalled").is_some(), stalled, "{:#?}", engine.record);
}

#[test]
fn an_instance_in_trouble_is_not_stalled() {
    let engine = Engine::after(&[running(vec![troubled(0, ProblemKind::ImagePull, "not found")])]);
    assert_eq!(types(&engine), TYPES[..6]);
}

#[test]
fn transition_times_move_with_the_status_only() {
    let mut engine = Engine::ready(2);
    let lost = Instance { ready: false, ..instance(1) };
    engine.sees(&Observation { now: at(100), ..running(vec![instance(0), lost]) });
    let since = |engine: &Engine, type_: &str| {
        condition(&engine.record, type_).map(|condition| condition.last_transition_time.clone())
    };
    assert_eq!(since(&engine, "Available"), Some(kubernetes_time(at(0))), "True before and after");
    assert_eq!(since(&engine, "Ready"), Some(kubernetes_time(at(100))));
    engine.sees(&Observation { now: at(200), ..running(vec![instance(0), troubled(1, ProblemKind::CrashLoop, "x")]) });
    assert_eq!(says(&engine.record, "Ready").1, "CrashLooping");
    assert_eq!(since(&engine, "Ready"), Some(kubernetes_time(at(100))), "another reason is no transition");
}

#[test]
fn conditions_of_others_are_kept_at_the_end() {
    let foreign = Condition {
        type_: "TemplateCurrent".to_owned(),
        status: "False".to_owned(),
        reason: "ReferenceRendering".to_owned(),
        message: "a restart brings metrics".to_owned(),
        observed_generation: None,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    };
    let mut engine = Engine::default();
    engine.record.conditions.push(foreign.clone());
    engine.sees(&settled(1));
    engine.sees(&running(vec![instance(0), starting(1)]));
    assert_eq!(engine.record.conditions.last(), Some(&foreign));
    assert_eq!(types(&engine).len(), 8);
}

#[test]
fn a_message_fits_the_api() {
    let errors = vec!["é".repeat(40_000)];
    let engine = Engine::after(&[Observation { spec_errors: errors, ..invalid() }]);
    let (_, _, message) = says(&engine.record, "ConfigValid");
    assert!(message.len() <= 32_768 && message.len() > 32_760 && message.ends_with('…'), "{}", message.len());
}

#[test]
fn reasons_are_words_that_the_api_takes_and_are_read_back() {
    for reason in Reason::ALL {
        let word = reason.as_str();
        assert!(word.starts_with(|letter: char| letter.is_ascii_uppercase()), "{word}");
        assert!(word.chars().all(|letter| letter.is_ascii_alphanumeric()), "{word}");
        assert_eq!(Reason::parse(word), Some(reason));
    }
    assert_eq!(Reason::parse("Nonsense"), None);
}
