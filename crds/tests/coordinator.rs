//! `LMCacheCoordinator`: defaulted, resolved, and what is refused, in which words and in which order.

mod common;

use std::time::Duration;

use common::{decode, texts};
use lmcache_crds::{
    CacheStatus, CoordinatorStatus, Endpoint, EngineStatus, FieldError, HashAlgorithm, LMCacheCoordinatorSpec,
    LogLevel, Phase, PhaseRecord, Report, validate_coordinator,
};
use rstest::rstest;
use serde_json::json;

fn spec(yaml: &str) -> LMCacheCoordinatorSpec {
    decode(yaml)
}

#[rstest]
// Rules of the existing operator.
#[case::port_zero("port: 0", "spec.port: Invalid value: 0: must be in [1, 65535]")]
#[case::port_high("port: 65536", "spec.port: Invalid value: 65536: must be in [1, 65535]")]
#[case::replicas("replicas: -1", "spec.replicas: Invalid value: -1: must be >= 0")]
#[case::timeout("instanceTimeout: 0", "spec.instanceTimeout: Invalid value: 0: must be greater than 0")]
#[case::health("healthCheckInterval: -1", "spec.healthCheckInterval: Invalid value: -1: must be >= 0")]
#[case::eviction("evictionCheckInterval: -0.5", "spec.evictionCheckInterval: Invalid value: -0.5: must be >= 0")]
#[case::ratio_low("evictionRatio: -0.1", "spec.evictionRatio: Invalid value: -0.1: must be in [0.0, 1.0]")]
#[case::ratio_high("evictionRatio: 1.1", "spec.evictionRatio: Invalid value: 1.1: must be in [0.0, 1.0]")]
#[case::watermark_low("triggerWatermark: 0", "spec.triggerWatermark: Invalid value: 0: must be in (0.0, 1.0]")]
#[case::watermark_high("triggerWatermark: 2", "spec.triggerWatermark: Invalid value: 2: must be in (0.0, 1.0]")]
#[case::chunk_size("blendChunkSize: 0", "spec.blendChunkSize: Invalid value: 0: must be > 0")]
#[case::stride("blendProbeStride: -3", "spec.blendProbeStride: Invalid value: -3: must be > 0")]
// D17 and D62: bounds and formats.
#[case::metrics_port("prometheus: {port: 0}", "spec.prometheus.port: Invalid value: 0: must be in [1, 65535]")]
#[case::deadline("progressDeadlineSeconds: 0", "spec.progressDeadlineSeconds: Invalid value: 0: must be >= 1")]
#[case::interval("prometheus: {serviceMonitor: {interval: often}}", r#"spec.prometheus.serviceMonitor.interval: Invalid value: "often": must be a Prometheus duration such as 30s or 1m30s"#)]
#[case::digest(
    "image: {digest: 'sha256:abc'}",
    r#"spec.image.digest: Invalid value: "sha256:abc": must be an image digest: sha256: and 64 hexadecimal digits"#
)]
fn refuses(#[case] yaml: &str, #[case] expected: &str) {
    let spec = spec(yaml);
    assert_eq!(texts(&validate_coordinator("co", &spec)), [expected], "before defaults: {yaml}");
    assert_eq!(texts(&validate_coordinator("co", &spec.with_defaults())), [expected], "after defaults: {yaml}");
}

#[rstest]
#[case::minimal("")]
#[case::nothing_to_run("replicas: 0")]
#[case::loops_off("healthCheckInterval: 0, evictionCheckInterval: 0, evictionRatio: 0, triggerWatermark: 1")]
#[case::edges("port: 65535, evictionRatio: 1, blendChunkSize: 1, blendProbeStride: 1, instanceTimeout: 0.1")]
#[case::metrics_port_may_be_the_port("port: 9090, prometheus: {}")]
fn accepts(#[case] yaml: &str) {
    assert_eq!(texts(&validate_coordinator("co", &spec(yaml))), Vec::<String>::new(), "{yaml}");
}

#[test]
fn lists_every_fault_in_the_order_of_the_rules() {
    let spec = spec(
        "progressDeadlineSeconds: 0, prometheus: {port: 0}, blendProbeStride: 0, blendChunkSize: 0, \
         triggerWatermark: 0, evictionRatio: 2, evictionCheckInterval: -1, healthCheckInterval: -1, \
         instanceTimeout: 0, replicas: -1, port: 0",
    );
    let errors = validate_coordinator("my.coordinator", &spec);
    let paths: Vec<_> = errors.iter().map(FieldError::path).collect();
    assert_eq!(
        paths,
        [
            "spec.port",
            "spec.replicas",
            "spec.instanceTimeout",
            "spec.healthCheckInterval",
            "spec.evictionCheckInterval",
            "spec.evictionRatio",
            "spec.triggerWatermark",
            "spec.blendChunkSize",
            "spec.blendProbeStride",
            "spec.prometheus.port",
            "spec.progressDeadlineSeconds",
            "metadata.name",
        ]
    );
}

#[test]
fn names_must_fit_into_service_names() {
    let longest = "a".repeat(lmcache_crds::MAX_NAME_LENGTH);
    assert_eq!(texts(&validate_coordinator(&longest, &spec(""))), Vec::<String>::new());
    let found = texts(&validate_coordinator(&format!("{longest}a"), &spec("")));
    assert!(found.len() == 1 && found[0].starts_with("metadata.name: Invalid value: "), "{found:?}");
}

#[test]
fn defaults_fill_the_log_level_and_the_replicas() {
    let found = serde_json::to_value(spec("").with_defaults()).expect("a spec is JSON");
    assert_eq!(found, json!({"logLevel": "INFO", "replicas": 1}));
    let written = json!({"logLevel": "ERROR", "replicas": 0, "nodeSelector": {}, "host": ""});
    let spec: LMCacheCoordinatorSpec = serde_json::from_value(written.clone()).expect("a spec");
    assert_eq!(serde_json::to_value(spec.with_defaults()).expect("a spec is JSON"), written);
}

#[test]
fn unset_fields_resolve_to_the_schema_defaults() {
    let spec = LMCacheCoordinatorSpec::default();
    assert_eq!((spec.replicas(), spec.host(), spec.port()), (1, "0.0.0.0", 9300));
    assert_eq!((spec.instance_timeout(), spec.health_check_interval()), (30.0, 10.0));
    assert_eq!((spec.eviction_check_interval(), spec.eviction_ratio(), spec.trigger_watermark()), (5.0, 0.2, 1.0));
    assert_eq!((spec.chunk_size(), spec.hash_algorithm()), (256, HashAlgorithm::Blake3));
    assert_eq!((spec.enable_blend_lookup(), spec.workload.log_level()), (false, LogLevel::Info));
    assert_eq!((spec.workload.metrics_port(), spec.progress_deadline()), (9090, Duration::from_mins(10)));
    assert_eq!(spec.workload.image_reference(), "lmcache/vllm-openai:latest");
}

#[rstest]
#[case::left_out("", false)]
#[case::empty("prometheus: {}", true)]
#[case::on("prometheus: {enabled: true}", true)]
#[case::off("prometheus: {enabled: false}", false)]
fn metrics_are_published_only_when_they_are_asked_for(#[case] yaml: &str, #[case] enabled: bool) {
    assert_eq!(spec(yaml).prometheus_enabled(), enabled, "{yaml}");
}

#[rstest]
#[case("", "http://co.cache.svc:9300")]
#[case("port: 80", "http://co.cache.svc:80")]
fn engines_register_at_the_service(#[case] yaml: &str, #[case] url: &str) {
    assert_eq!(spec(yaml).url("co", "cache"), url);
}

#[test]
fn the_deadline_is_the_written_one() {
    assert_eq!(spec("progressDeadlineSeconds: 7").progress_deadline(), Duration::from_secs(7));
}

fn report() -> Report {
    Report {
        record: PhaseRecord { phase: Phase::Degraded, reason: Some("InstanceLost".to_owned()), ..Default::default() },
        desired: 4,
        updated: 3,
        ready: 2,
        available: 1,
        cache: None,
        endpoint: None,
        endpoints: vec![Endpoint { node_name: "n".to_owned(), ready: true, ..Endpoint::default() }],
        endpoints_truncated: Some(5),
    }
}

#[test]
fn a_report_survives_the_status_of_every_kind() {
    let cache = Some(CacheStatus::new(1, 3, jiff::Timestamp::UNIX_EPOCH));
    let engine = Report { cache, ..report() };
    assert_eq!(Report::from(&EngineStatus::from(engine.clone())), engine);
    let report = Report { endpoint: Some("http://co.cache.svc:9300".to_owned()), ..report() };
    let status = CoordinatorStatus::from(report.clone());
    let counts = (status.replicas, status.updated_replicas, status.ready_replicas, status.available_replicas);
    assert_eq!((counts, &status.endpoint), ((4, 3, 2, 1), &report.endpoint));
    assert_eq!(Report::from(&status), report);
}

/// D81: a count is never left out.
#[test]
fn counts_of_zero_are_written() {
    let found = serde_json::to_value(CoordinatorStatus::default()).expect("a status is JSON");
    let expected = json!({
        "phase": "Pending", "replicas": 0, "updatedReplicas": 0, "readyReplicas": 0, "availableReplicas": 0,
    });
    assert_eq!(found, expected);
}

#[test]
fn a_status_made_by_the_schema_default_is_a_fresh_one() {
    let status: CoordinatorStatus = serde_json::from_value(json!({"phase": "Pending"})).expect("a status");
    assert_eq!(status, CoordinatorStatus::default());
}
