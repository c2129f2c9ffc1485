//! What a scrape shows.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lmcache_crds::{Phase, PhaseRecord, PhaseTransition, Report};
use lmcache_observability::{ApplyOutcome, Metrics, ReconcileResult, WebhookOutcome};
use proptest::prelude::*;
use rstest::rstest;

const KIND: &str = "LMCacheEngine";

fn metrics() -> Metrics {
    Metrics::new("0.1.0", "abcdef")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn condition(type_: &str, status: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: "Test".to_owned(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(at(0)),
    }
}

fn status(phase: Phase) -> Report {
    let conditions = vec![condition("Ready", "False"), condition("Available", "True"), condition("Applied", "Unknown")];
    Report {
        record: PhaseRecord { phase, conditions, ..PhaseRecord::default() },
        desired: 3,
        updated: 2,
        ready: 1,
        ..Report::default()
    }
}

fn step(from: Phase, to: Phase, reason: &str, second: i64) -> PhaseTransition {
    PhaseTransition {
        from,
        to,
        reason: reason.to_owned(),
        message: "not for a label".to_owned(),
        generation: 1,
        time: Time(at(second)),
    }
}

#[track_caller]
fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|seen| seen == *line), "no line\n{line}\nin\n{text}");
    }
}

#[test]
fn an_engine_shows_its_phase_its_instances_and_its_conditions() {
    let metrics = metrics();
    metrics.engine_state(KIND, "team-a", "engine", &status(Phase::Rolling));
    assert_lines(
        &metrics.encode(),
        &[
            "# TYPE lmcache_operator_engine_phase gauge",
            r#"lmcache_operator_engine_phase{kind="LMCacheEngine",namespace="team-a",name="engine",phase="Rolling"} 1"#,
            r#"lmcache_operator_engine_phase{kind="LMCacheEngine",namespace="team-a",name="engine",phase="Ready"} 0"#,
            r#"lmcache_operator_engine_instances{kind="LMCacheEngine",namespace="team-a",name="engine",state="desired"} 3"#,
            r#"lmcache_operator_engine_instances{kind="LMCacheEngine",namespace="team-a",name="engine",state="updated"} 2"#,
            r#"lmcache_operator_engine_instances{kind="LMCacheEngine",namespace="team-a",name="engine",state="ready"} 1"#,
            r#"lmcache_operator_engine_condition{kind="LMCacheEngine",namespace="team-a",name="engine",type="Available"} 1"#,
            r#"lmcache_operator_engine_condition{kind="LMCacheEngine",namespace="team-a",name="engine",type="Ready"} 0"#,
            r#"lmcache_operator_engine_condition{kind="LMCacheEngine",namespace="team-a",name="engine",type="Applied"} -1"#,
        ],
    );
}

#[test]
fn an_engine_that_is_deleted_takes_its_series_with_it() {
    let metrics = metrics();
    let before = scrape_without_process(&metrics);
    metrics.engine_state(KIND, "team-a", "engine", &status(Phase::Ready));
    metrics.engine_state(KIND, "team-b", "engine", &status(Phase::Ready));
    metrics.forget(KIND, "team-a", "engine");
    let text = metrics.encode();
    assert!(!text.contains("team-a") && text.contains("team-b"), "{text}");
    metrics.forget(KIND, "team-b", "engine");
    assert_eq!(scrape_without_process(&metrics), before);
}

#[test]
fn an_engine_shows_its_hits_once_they_are_known() {
    let metrics = metrics();
    metrics.engine_state(KIND, "team-a", "engine", &status(Phase::Ready));
    assert!(!metrics.encode().contains("hit_tokens_total{"), "{}", metrics.encode());
    let cache = Some(lmcache_crds::CacheStatus::new(5, 9, at(0)));
    metrics.engine_state(KIND, "team-a", "engine", &Report { cache, ..status(Phase::Ready) });
    assert_lines(
        &metrics.encode(),
        &[
            r#"lmcache_operator_cache_hit_tokens_total{kind="LMCacheEngine",namespace="team-a",name="engine"} 5"#,
            r#"lmcache_operator_cache_requested_tokens_total{kind="LMCacheEngine",namespace="team-a",name="engine"} 9"#,
        ],
    );
}

#[test]
fn a_bucket_leads_to_a_trace_in_openmetrics_only() {
    let metrics = metrics();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    metrics.reconcile_finished(KIND, ReconcileResult::Success, Duration::from_millis(2), Some(trace));
    let exemplar = format!("# {{trace_id=\"{trace}\"}} 0.002");
    assert!(metrics.encode().contains(&exemplar), "{}", metrics.encode());
    assert!(!metrics.encode_prometheus().contains("trace_id"), "{}", metrics.encode_prometheus());
}

#[test]
fn a_condition_that_went_away_leaves_no_series() {
    let metrics = metrics();
    let mut reconciling = status(Phase::Rolling);
    reconciling.record.conditions.push(condition("Reconciling", "True"));
    metrics.engine_state(KIND, "team-a", "engine", &reconciling);
    metrics.engine_state(KIND, "team-a", "engine", &status(Phase::Ready));
    let text = metrics.encode();
    assert!(!text.contains("Reconciling"), "{text}");
}

#[rstest]
#[case::known_since(Some(60), Some("40.0"))]
#[case::clock_went_back(Some(130), Some("0.0"))]
#[case::first_step_of_unknown_age(None, None)]
fn a_step_counts_and_times_the_phase_that_was_left(#[case] since: Option<i64>, #[case] sum: Option<&str>) {
    let metrics = metrics();
    metrics.phase_step(KIND, &step(Phase::Rolling, Phase::Ready, "AllInstancesReady", 100), since.map(at), None);
    let text = metrics.encode();
    assert_lines(
        &text,
        &[
            r#"lmcache_operator_phase_transitions_total{kind="LMCacheEngine",from="Rolling",to="Ready",reason="AllInstancesReady"} 1"#,
        ],
    );
    let name = r#"lmcache_operator_phase_duration_seconds_sum{kind="LMCacheEngine",phase="Rolling"} "#;
    let seen = text.lines().find_map(|line| line.strip_prefix(name));
    assert_eq!(seen, sum, "{text}");
    assert!(!text.contains("not for a label"), "{text}");
}

#[test]
fn webhooks_are_counted_by_outcome_and_their_certificate_is_shown_while_there_is_one() {
    let metrics = metrics();
    let expiry = "lmcache_operator_webhook_certificate_expiry_timestamp_seconds";
    assert!(!metrics.encode().lines().any(|line| line.starts_with(expiry)), "{}", metrics.encode());
    metrics.webhook_request("validating", WebhookOutcome::Denied, "invalid", Duration::from_micros(300));
    metrics.webhook_certificate_expires(at(1_000));
    metrics.webhook_certificate_expires(at(2_000));
    assert_lines(
        &metrics.encode(),
        &[
            r#"lmcache_operator_webhook_requests_total{webhook="validating",outcome="denied",reason="invalid"} 1"#,
            r#"lmcache_operator_webhook_duration_seconds_bucket{le="0.00025",webhook="validating",outcome="denied",reason="invalid"} 0"#,
            r#"lmcache_operator_webhook_duration_seconds_bucket{le="0.0005",webhook="validating",outcome="denied",reason="invalid"} 1"#,
            &format!("{expiry} 2000"),
        ],
    );
}

#[test]
fn reconciles_and_applies_are_counted_by_kind_and_outcome() {
    let metrics = metrics();
    let running = metrics.reconcile_started(KIND);
    let second = metrics.reconcile_started(KIND);
    drop(second);
    metrics.reconcile_finished(KIND, ReconcileResult::Success, Duration::from_millis(2), None);
    metrics.reconcile_error(KIND, "conflict");
    metrics.queue_depth(KIND, 7);
    metrics.applied(KIND, "DaemonSet", ApplyOutcome::Created);
    metrics.applied(KIND, "DaemonSet", ApplyOutcome::Unchanged);
    metrics.watch_restarted("daemonsets", "expired");
    metrics.set_leader(true);
    assert_lines(
        &metrics.encode(),
        &[
            r#"lmcache_operator_reconcile_in_flight{kind="LMCacheEngine"} 1"#,
            r#"lmcache_operator_reconcile_duration_seconds_count{kind="LMCacheEngine",result="success"} 1"#,
            r#"lmcache_operator_reconcile_duration_seconds_bucket{le="0.001",kind="LMCacheEngine",result="success"} 0"#,
            r#"lmcache_operator_reconcile_duration_seconds_bucket{le="0.005",kind="LMCacheEngine",result="success"} 1"#,
            r#"lmcache_operator_reconcile_errors_total{kind="LMCacheEngine",error="conflict"} 1"#,
            r#"lmcache_operator_reconcile_queue_depth{kind="LMCacheEngine"} 7"#,
            r#"lmcache_operator_applies_total{kind="LMCacheEngine",child="DaemonSet",outcome="created"} 1"#,
            r#"lmcache_operator_applies_total{kind="LMCacheEngine",child="DaemonSet",outcome="unchanged"} 1"#,
            r#"lmcache_operator_watch_restarts_total{resource="daemonsets",cause="expired"} 1"#,
            "lmcache_operator_leader 1",
            r#"lmcache_operator_build_info{version="0.1.0",commit="abcdef"} 1"#,
        ],
    );
    drop(running);
    assert_lines(&metrics.encode(), &[r#"lmcache_operator_reconcile_in_flight{kind="LMCacheEngine"} 0"#]);
}

#[test]
fn both_text_formats_name_counters_as_their_readers_expect() {
    let metrics = metrics();
    metrics.applied(KIND, "Service", ApplyOutcome::Configured);
    let (open, classic) = (metrics.encode(), metrics.encode_prometheus());
    assert_lines(&open, &["# TYPE lmcache_operator_applies counter", "# EOF"]);
    assert_lines(&classic, &["# TYPE lmcache_operator_applies_total counter"]);
    assert!(!classic.contains("# EOF"), "{classic}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_metrics_carry_their_usual_names() {
    let text = metrics().encode();
    for name in [
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "process_start_time_seconds ",
        "process_open_fds ",
    ] {
        assert!(text.lines().any(|line| line.starts_with(name)), "no {name} in\n{text}");
    }
}

/// CPU and memory move between two scrapes; nothing else does by itself.
fn scrape_without_process(metrics: &Metrics) -> String {
    metrics
        .encode()
        .lines()
        .filter(|line| !line.contains("process_"))
        .fold(String::new(), |all, line| all + line + "\n")
}

proptest! {
    #[test]
    fn the_number_of_series_of_an_engine_never_depends_on_its_past(phases in prop::collection::vec(0_usize..5, 1..20)) {
        let metrics = metrics();
        for phase in &phases {
            metrics.engine_state(KIND, "team-a", "engine", &status(Phase::ALL[*phase]));
        }
        let text = metrics.encode();
        let current: Vec<&str> =
            text.lines().filter(|line| line.contains("engine_phase{") && line.ends_with(" 1")).collect();
        prop_assert_eq!(text.matches("team-a").count(), 5 + 3 + 3, "{}", text);
        prop_assert_eq!(current.len(), 1, "{}", text);
    }
}
