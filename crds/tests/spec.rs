//! Specs: decoded without loss, defaulted, and resolved to what is used.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use lmcache_crds::{
    CacheBlendEngine, EngineSpec, EngineStatus, FieldError, GpuVendor, LMCacheCoordinator, LMCacheEngine,
    LMCacheEngineSpec, LogLevel, Phase, ReadinessProbe, validate, validate_cache_blend, validate_coordinator,
};
use rstest::rstest;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn spec(value: &Value) -> LMCacheEngineSpec {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"))
}

fn spec_with(extra: Value) -> LMCacheEngineSpec {
    let mut value = json!({"l1": {"sizeGB": 10}});
    if let (Value::Object(value), Value::Object(extra)) = (&mut value, extra) {
        value.extend(extra);
    }
    spec(&value)
}

#[test]
fn unset_and_empty_survive_decoding() {
    let full = json!({
        "l1": {"sizeGB": 0.5},
        "runtimeClassName": "",
        "nodeSelector": {},
        "isolatedIPC": false,
        "hostIPC": false,
        "hostNetwork": true,
        "image": {},
        "server": {},
        "env": [],
        "podLabels": {},
        "resourceOverrides": {},
        "pd": {},
        "injection": {},
        "networkPolicy": {"from": []},
        "coordinator": {"ref": {"name": ""}, "url": "", "advertiseIP": "", "l2EventReporting": true, "l2EventFlushInterval": 0.2},
        "l2Backend": {
            "resp": {"host": "h", "port": 1, "maxCapacityGB": 0.0},
            "serde": {"aesgcm": {"masterKeySecretRef": {"name": "k"}, "aesBits": 256}}
        },
    });
    let written = serde_json::to_value(spec(&full)).expect("a spec is JSON");
    assert_eq!(written, full);
    let minimal = json!({"l1": {"sizeGB": 10.0}});
    assert_eq!(serde_json::to_value(spec(&minimal)).expect("a spec is JSON"), minimal);
}

#[test]
fn an_explicit_null_is_unset() {
    let spec = spec_with(json!({"nodeSelector": null, "isolatedIPC": null, "server": {"port": null}}));
    assert_eq!(spec.common.workload.node_selector, None);
    assert_eq!(spec.isolated_ipc, None);
    assert_eq!(spec.common.server_port(), 5555);
}

/// D25: what the API server keeps of a number, we keep.
#[rstest]
#[case("9007199254740993")]
#[case("-9007199254740993")]
#[case("18446744073709551615")]
#[case("0.1")]
#[case("2.5")]
#[case("123456789.12345679")]
#[case("3.5844466002796428e+298")]
#[case("1e-7")]
#[case("true")]
#[case("null")]
#[case(r#"[1,"two",{"b":1}]"#)]
fn adapter_settings_pass_as_written(#[case] text: &str) {
    let document = format!(r#"{{"l1":{{"sizeGB":1}},"l2Backend":{{"raw":{{"type":"x","config":{{"n":{text}}}}}}}}}"#);
    let spec: LMCacheEngineSpec = serde_json::from_str(&document).expect("a spec");
    let raw = spec.common.l2_backend.and_then(|backend| backend.raw).expect("a raw adapter");
    let expected: Value = serde_json::from_str(text).expect("JSON");
    let found = raw.config.as_ref().and_then(|config| config.get("n"));
    assert_eq!(found, Some(&expected));
    assert_eq!(found.map(ToString::to_string).as_deref(), Some(text));
}

#[test]
fn sizes_may_be_whole_or_fractions() {
    for (size, expected) in [(json!(10), 10.0), (json!(0.5), 0.5), (json!(10.25), 10.25), (json!(1e3), 1000.0)] {
        let found = spec(&json!({"l1": {"sizeGB": size}})).common.l1.size_gb;
        assert!((found - expected).abs() < f64::EPSILON, "{size}: {found}");
    }
}

#[rstest]
#[case(json!({"gpuVendor": "intel"}))]
#[case(json!({"server": {"port": "5555"}}))]
#[case(json!({"eviction": {"policy": "lru"}}))]
fn values_that_the_schema_refuses_are_not_decoded(#[case] extra: Value) {
    let mut value = json!({"l1": {"sizeGB": 1}});
    value.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
    let decoded = serde_json::from_value::<LMCacheEngineSpec>(value);
    assert!(decoded.is_err(), "{extra} was decoded: {decoded:?}");
}

#[rstest]
#[case::unset(json!({}), Some(json!({"nvidia.com/gpu.present": "true"})))]
#[case::empty(json!({"nodeSelector": {}}), Some(json!({})))]
#[case::written(json!({"nodeSelector": {"pool": "gpu"}}), Some(json!({"pool": "gpu"})))]
#[case::amd(json!({"gpuVendor": "amd"}), None)]
#[case::amd_written(json!({"gpuVendor": "amd", "nodeSelector": {"a": "b"}}), Some(json!({"a": "b"})))]
fn node_selector_is_defaulted_for_nvidia_only(#[case] extra: Value, #[case] expected: Option<Value>) {
    let plain = spec_with(extra);
    let defaulted = plain.clone().with_defaults();
    let found = defaulted.common.workload.node_selector.as_ref().map(|labels| json!(labels));
    assert_eq!(found, expected);
    assert_eq!(json!(plain.common.node_selector()), expected.unwrap_or(json!({})));
    assert_eq!(defaulted.clone().with_defaults(), defaulted, "defaults are idempotent");
}

#[test]
fn defaults_fill_nothing_else() {
    let spec = spec_with(json!({})).with_defaults();
    let expected = json!({
        "l1": {"sizeGB": 10.0},
        "gpuVendor": "nvidia",
        "logLevel": "INFO",
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
    });
    assert_eq!(serde_json::to_value(spec).expect("a spec is JSON"), expected);
}

#[rstest]
#[case::nvidia(json!({}), true, false, Some("nvidia"))]
#[case::host_ipc_is_ignored(json!({"hostIPC": true}), true, false, Some("nvidia"))]
#[case::not_isolated(json!({"isolatedIPC": false, "hostIPC": true}), false, true, Some("nvidia"))]
#[case::amd(json!({"gpuVendor": "amd", "hostIPC": true}), false, true, None)]
#[case::amd_isolated(json!({"gpuVendor": "amd", "isolatedIPC": true, "hostIPC": true}), true, false, None)]
#[case::no_runtime_class(json!({"runtimeClassName": ""}), true, false, None)]
#[case::own_runtime_class(json!({"gpuVendor": "amd", "runtimeClassName": "custom"}), false, false, Some("custom"))]
fn ipc_and_runtime_class_follow_the_vendor(
    #[case] extra: Value,
    #[case] isolated: bool,
    #[case] host: bool,
    #[case] runtime_class: Option<&str>,
) {
    let spec = spec_with(extra);
    assert_eq!(spec.isolated_ipc(), isolated);
    assert_eq!(spec.host_ipc(), host);
    assert_eq!(spec.common.runtime_class_name(), runtime_class);
}

#[test]
fn unset_fields_resolve_to_the_schema_defaults() {
    let spec = EngineSpec::default();
    assert_eq!(spec.workload.image_reference(), "lmcache/vllm-openai:latest");
    assert_eq!((spec.server_port(), spec.http_port(), spec.workload.metrics_port()), (5555, 8080, 9090));
    assert_eq!((spec.chunk_size(), spec.max_workers(), spec.hash_algorithm().as_str()), (256, 1, "blake3"));
    assert_eq!((spec.trigger_watermark(), spec.eviction_ratio(), spec.eviction_policy().as_str()), (0.8, 0.2, "LRU"));
    assert_eq!((spec.prometheus_enabled(), spec.workload.service_monitor_enabled()), (true, false));
    assert_eq!(spec.workload.service_monitor_interval(), "30s");
    assert_eq!((spec.workload.log_level(), spec.gpu_vendor()), (LogLevel::Info, GpuVendor::Nvidia));
    assert_eq!((spec.readiness_probe(), spec.network_policy_enabled()), (ReadinessProbe::Tcp, false));
}

#[rstest]
#[case(json!({"repository": "r.example:5000/a"}), "r.example:5000/a:latest")]
#[case(json!({"repository": "a", "tag": "v1"}), "a:v1")]
#[case(json!({"repository": "a", "tag": "v1", "digest": "sha256:00"}), "a@sha256:00")]
#[case(json!({"repository": "", "tag": ""}), "lmcache/vllm-openai:latest")]
fn a_digest_wins_over_a_tag(#[case] image: Value, #[case] reference: &str) {
    assert_eq!(spec_with(json!({"image": image})).common.workload.image_reference(), reference);
}

#[rstest]
#[case(json!({"repository": "lmcache/vllm-openai", "tag": "latest"}), None)]
#[case(json!({}), None)]
#[case(json!({"repository": "r/payload"}), Some("r/payload:latest"))]
fn the_servers_image_is_no_payload(#[case] image: Value, #[case] reference: Option<&str>) {
    let spec = spec_with(json!({"injection": {"payloadImage": image}}));
    let found = spec.payload_image().and_then(lmcache_crds::PayloadImageSpec::reference);
    assert_eq!(found.as_deref(), reference);
}

#[rstest]
#[case(0.5, 30, 600)]
#[case(10.0, 30, 600)]
#[case(150.0, 30, 600)]
#[case(155.0, 31, 600)]
#[case(300.0, 60, 600)]
#[case(1200.0, 240, 1325)]
#[case(1e300, i32::MAX, 10_737_418_360)]
fn the_deadline_leaves_room_for_the_startup_probe(#[case] size: f64, #[case] failures: i32, #[case] deadline: u64) {
    let mut spec = EngineSpec::default();
    spec.l1.size_gb = size;
    assert_eq!(spec.startup_failure_threshold(), failures);
    assert_eq!(spec.progress_deadline(), Duration::from_secs(deadline));
    spec.workload.progress_deadline_seconds = Some(7);
    assert_eq!(spec.progress_deadline(), Duration::from_secs(7));
}

#[test]
fn a_status_made_by_the_schema_default_is_a_fresh_one() {
    let status: EngineStatus = serde_json::from_value(json!({"phase": "Pending"})).expect("a status");
    assert_eq!(status, EngineStatus::default());
    assert_eq!(status.record.phase, Phase::Pending);
}

/// Custom resources that work with the existing operator are decoded and valid here.
#[test]
fn every_recorded_resource_is_decoded_whole_and_valid() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/parity/cases");
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for file in fs::read_dir(&cases).expect("the recorded cases").map(|entry| entry.expect("a file").path()) {
        let text = fs::read_to_string(&file).expect("a text");
        for document in serde_norway::Deserializer::from_str(&text) {
            let value = Value::deserialize(document).expect("YAML");
            let kind = value["kind"].as_str().unwrap_or_default();
            match kind {
                "LMCacheEngine" => check::<LMCacheEngine>(&value, |name, it| validate(name, &it.spec)),
                "CacheBlendEngine" => {
                    check::<CacheBlendEngine>(&value, |name, it| validate_cache_blend(name, &it.spec));
                }
                "LMCacheCoordinator" => {
                    check::<LMCacheCoordinator>(&value, |name, it| validate_coordinator(name, &it.spec));
                }
                _ => continue,
            }
            *seen.entry(kind.to_owned()).or_default() += 1;
        }
    }
    for (kind, least) in [("LMCacheEngine", 20), ("CacheBlendEngine", 4), ("LMCacheCoordinator", 3)] {
        let found = seen.get(kind).copied().unwrap_or_default();
        assert!(found >= least, "only {found} of kind {kind} in {}", cases.display());
    }
}

fn check<K: DeserializeOwned + Serialize>(document: &Value, validate: impl Fn(&str, &K) -> Vec<FieldError>) {
    let resource: K = serde_json::from_value(document.clone()).unwrap_or_else(|error| panic!("{document}: {error}"));
    let written = serde_json::to_value(&resource).expect("JSON");
    let lost = lost("spec", &document["spec"], &written["spec"]);
    assert!(lost.is_empty(), "{document}: lost in decoding: {lost:?}");
    let name = document["metadata"]["name"].as_str().unwrap_or_default();
    let errors = validate(name, &resource);
    assert!(errors.is_empty(), "{document}: {errors:?}");
}

/// Paths whose value is not the same after decoding and encoding; core types write their required fields and numbers
/// may gain a fraction.
fn lost(path: &str, before: &Value, after: &Value) -> Vec<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let none = Value::Null;
            let fields = before.iter().map(|(name, value)| (name, value, after.get(name).unwrap_or(&none)));
            fields.flat_map(|(name, before, after)| lost(&format!("{path}.{name}"), before, after)).collect()
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            before.iter().zip(after).flat_map(|(before, after)| lost(&format!("{path}[]"), before, after)).collect()
        }
        _ if before == after || (before.is_number() && before.as_f64() == after.as_f64()) => Vec::new(),
        _ => vec![format!("{path}: {before} became {after}")],
    }
}

#[test]
fn printed_names_are_the_serialised_ones() {
    let names: BTreeMap<&str, Value> = [
        (GpuVendor::Amd.as_str(), json!(GpuVendor::Amd)),
        (LogLevel::Warning.as_str(), json!(LogLevel::Warning)),
        (lmcache_crds::HashAlgorithm::Sha256Cbor.as_str(), json!(lmcache_crds::HashAlgorithm::Sha256Cbor)),
        (lmcache_crds::EvictionPolicy::Noop.as_str(), json!(lmcache_crds::EvictionPolicy::Noop)),
        (lmcache_crds::StorePolicy::SkipL1.as_str(), json!(lmcache_crds::StorePolicy::SkipL1)),
        (lmcache_crds::PrefetchPolicy::Retain.as_str(), json!(lmcache_crds::PrefetchPolicy::Retain)),
        (lmcache_crds::KeyProvider::Hkdf.as_str(), json!(lmcache_crds::KeyProvider::Hkdf)),
        (lmcache_crds::PullPolicy::IfNotPresent.as_str(), json!(lmcache_crds::PullPolicy::IfNotPresent)),
        (lmcache_crds::LoadFailurePolicy::Ignore.as_str(), json!(lmcache_crds::LoadFailurePolicy::Ignore)),
    ]
    .into();
    for (name, value) in names {
        assert_eq!(json!(name), value);
    }
}
