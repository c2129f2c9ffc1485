//! `CacheBlendEngine`: defaulted, resolved, and what is refused beside what every engine kind refuses.

mod common;

use common::{decode, texts};
use lmcache_crds::{CacheBlendEngineSpec, CudagraphMode, FieldError, PayloadImageSpec, validate, validate_cache_blend};
use rstest::rstest;
use serde_json::json;

/// A spec with these fields, and an image to stage unless `injection` or `pd` is among them.
fn spec(yaml: &str) -> CacheBlendEngineSpec {
    let payload = "injection: {payloadImage: {repository: r/p}}";
    let needs_payload = !yaml.contains("injection:") && !yaml.contains("pd:");
    bare(&if needs_payload { format!("{payload}, {yaml}") } else { yaml.to_owned() })
}

fn bare(yaml: &str) -> CacheBlendEngineSpec {
    decode(&format!("l1: {{sizeGB: 10}}, {yaml}"))
}

#[rstest]
// Rules of the existing operator.
#[case::chunk_size("server: {chunkSize: 128}", &["spec.server.chunkSize: Invalid value: 128: must be 256 for CacheBlend (chunk_size == block_size 64 * 4)"])]
#[case::check_layer("blend: {checkLayer: -1}", &["spec.blend.checkLayer: Invalid value: -1: must be >= 0"])]
#[case::ratio_zero("blend: {recompRatio: 0}", &["spec.blend.recompRatio: Invalid value: 0: must be in (0.0, 1.0]"])]
#[case::ratio_above("blend: {recompRatio: 1.1}", &["spec.blend.recompRatio: Invalid value: 1.1: must be in (0.0, 1.0]"])]
#[case::bucket("blend: {partialBucket: 0}", &["spec.blend.partialBucket: Invalid value: 0: must be >= 1"])]
#[case::no_payload("injection: {targetContainer: vllm}", &["spec.injection.payloadImage: Required value: must be specified for CacheBlend injection"])]
#[case::no_repository("injection: {payloadImage: {tag: v1}}", &["spec.injection.payloadImage.repository: Required value: must be a non-empty string"])]
#[case::blank_repository("injection: {payloadImage: {repository: ''}}", &["spec.injection.payloadImage.repository: Required value: must be a non-empty string"])]
// D15: the server's own image is no payload.
#[case::old_payload_default(
    "injection: {payloadImage: {repository: lmcache/vllm-openai, tag: latest}}",
    &["spec.injection.payloadImage: Required value: must be specified for CacheBlend injection"],
)]
// D16: decoders need none, but what is written must be right.
#[case::no_repository_with_pd("pd: {}, injection: {payloadImage: {}}", &["spec.injection.payloadImage.repository: Required value: must be a non-empty string"])]
// D62.
#[case::digest("injection: {payloadImage: {repository: r/p, digest: 'sha256:abc'}}", &[r#"spec.injection.payloadImage.digest: Invalid value: "sha256:abc": must be an image digest: sha256: and 64 hexadecimal digits"#])]
fn refuses(#[case] yaml: &str, #[case] expected: &[&str]) {
    let spec = spec(yaml);
    assert_eq!(texts(&validate_cache_blend("b1", &spec)), expected, "before defaults: {yaml}");
    assert_eq!(texts(&validate_cache_blend("b1", &spec.with_defaults())), expected, "after defaults: {yaml}");
}

#[rstest]
#[case::minimal("")]
#[case::edges("blend: {checkLayer: 0, recompRatio: 1, partialBucket: 1}, server: {chunkSize: 256}")]
#[case::decoder_only("pd: {}")]
#[case::decoder_only_with_old_payload_default("pd: {}, injection: {payloadImage: {repository: lmcache/vllm-openai}}")]
fn accepts(#[case] yaml: &str) {
    assert_eq!(texts(&validate_cache_blend("b1", &spec(yaml))), Vec::<String>::new(), "{yaml}");
}

#[test]
fn an_image_to_stage_is_needed_even_when_nothing_is_written() {
    let expected = ["spec.injection.payloadImage: Required value: must be specified for CacheBlend injection"];
    assert_eq!(texts(&validate_cache_blend("b1", &bare(""))), expected);
    assert_eq!(texts(&validate_cache_blend("b1", &bare("").with_defaults())), expected);
}

/// What one engine kind refuses of the shared fields, the other refuses in the same words and order.
#[rstest]
#[case::numbers("eviction: {triggerWatermark: 2, evictionRatio: 0}, server: {port: 1, httpPort: 1, maxWorkers: 0}")]
#[case::second_level("l2Backend: {resp: {host: '', port: 0, authSecretRef: {name: ''}}, raw: {type: ''}, serde: {}}")]
#[case::adapter("l2Backend: {raw: {type: x, config: {type: y, serde: {}}}, serde: {aesgcm: {masterKeySecretRef: {}}}}")]
#[case::coordinator("coordinator: {heartbeatInterval: 0, l2EventFlushInterval: -1}")]
#[case::workload(
    "prometheus: {port: 0, serviceMonitor: {interval: often}}, image: {digest: x}, progressDeadlineSeconds: 0"
)]
#[case::clash("server: {port: 8080}, prometheus: {port: 8080}")]
#[case::key(
    "l2Backend: {raw: {type: x}, serde: {aesgcm: {masterKeySecretRef: {name: k}}}}, volumes: [{name: l2-master-key}]"
)]
fn refuses_what_an_lmcache_engine_refuses(#[case] yaml: &str) {
    let spec = spec(yaml);
    let plain = lmcache_crds::LMCacheEngineSpec { common: spec.common.clone(), ..Default::default() };
    let expected = texts(&validate("1x", &plain));
    assert!(expected.len() > 1, "{yaml}: {expected:?}");
    assert_eq!(texts(&validate_cache_blend("1x", &spec)), expected, "{yaml}");
}

#[test]
fn lists_every_fault_in_the_order_of_the_rules() {
    let mut spec = bare(
        "server: {port: 1, chunkSize: 2, maxWorkers: 0}, blend: {checkLayer: -1, recompRatio: 2, partialBucket: 0}, \
         coordinator: {}, l2Backend: {}",
    );
    spec.common.l1.size_gb = 0.0;
    let errors = validate_cache_blend("1x", &spec);
    let paths: Vec<_> = errors.iter().map(FieldError::path).collect();
    assert_eq!(
        paths,
        [
            "spec.l1.sizeGB",
            "spec.server.port",
            "spec.server.chunkSize",
            "spec.blend.checkLayer",
            "spec.blend.recompRatio",
            "spec.blend.partialBucket",
            "spec.injection.payloadImage",
            "spec.l2Backend",
            "spec.coordinator",
            "spec.server.maxWorkers",
            "metadata.name",
        ]
    );
}

#[test]
fn defaults_fill_what_cache_blend_needs_and_nothing_else() {
    let found = serde_json::to_value(bare("").with_defaults()).expect("a spec is JSON");
    let expected = json!({
        "l1": {"sizeGB": 10.0},
        "gpuVendor": "nvidia",
        "logLevel": "INFO",
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "server": {"chunkSize": 256},
        "blend": {"checkLayer": 1, "recompRatio": 0.15},
        "injection": {"cudagraph": "eager"},
    });
    assert_eq!(found, expected);
}

#[test]
fn defaults_keep_what_is_written() {
    let written = json!({
        "l1": {"sizeGB": 10.0},
        "gpuVendor": "amd",
        "logLevel": "ERROR",
        "server": {"chunkSize": 128, "port": 6001},
        "blend": {"checkLayer": 3, "recompRatio": 0.5, "partialBucket": 2},
        "injection": {
            "payloadImage": {"repository": "r/p", "tag": "t", "pullPolicy": "Never"},
            "targetContainer": "vllm",
            "cudagraph": "piecewise",
        },
    });
    let spec: CacheBlendEngineSpec = serde_json::from_value(written.clone()).expect("a spec");
    assert_eq!(serde_json::to_value(spec.with_defaults()).expect("a spec is JSON"), written);
    let image = bare("injection: {payloadImage: {repository: r/p}}").with_defaults();
    let image = image.injection.and_then(|injection| injection.common.payload_image);
    let expected = json!({"repository": "r/p", "tag": "latest", "pullPolicy": "IfNotPresent"});
    assert_eq!(serde_json::to_value(image).expect("an image is JSON"), expected);
}

#[test]
fn unset_fields_resolve_to_the_schema_defaults() {
    let spec = CacheBlendEngineSpec::default();
    assert_eq!((spec.check_layer(), spec.recomp_ratio(), spec.partial_bucket()), (1, 0.15, None));
    assert_eq!((spec.cudagraph(), spec.host_ipc()), (CudagraphMode::Eager, false));
    assert!(bare("hostIPC: true, gpuVendor: nvidia").host_ipc(), "this kind never isolates IPC");
    assert_eq!(CudagraphMode::FullDecodeOnly.as_str(), "full_decode_only");
}

#[rstest]
#[case("lmcache/vllm-openai", None)]
#[case("", None)]
#[case("r/payload", Some("r/payload:latest"))]
fn the_servers_image_is_no_payload(#[case] repository: &str, #[case] reference: Option<&str>) {
    let spec = bare(&format!("injection: {{payloadImage: {{repository: '{repository}'}}}}"));
    assert_eq!(spec.payload_image().and_then(PayloadImageSpec::reference).as_deref(), reference);
}
