//! What is refused at admission, with the field named.

use kube::api::DynamicObject;
use rstest::rstest;

use crate::{CBE, LMC, LMCC, api, engine, names, object, refusal, try_create};

#[rstest]
// Types, required fields and closed sets.
#[case::no_l1("{}", "spec.l1", "Required value")]
#[case::no_size("{l1: {}}", "spec.l1.sizeGB", "Required value")]
#[case::size_text("{l1: {sizeGB: big}}", "spec.l1.sizeGB", "must be of type number")]
#[case::size_zero("{l1: {sizeGB: 0}}", "spec.l1.sizeGB", "should be greater than 0")]
#[case::vendor("{l1: {sizeGB: 1}, gpuVendor: intel}", "spec.gpuVendor", "Unsupported value")]
#[case::log_level("{l1: {sizeGB: 1}, logLevel: debug}", "spec.logLevel", "Unsupported value")]
#[case::policy("{l1: {sizeGB: 1}, eviction: {policy: FIFO}}", "spec.eviction.policy", "Unsupported value")]
#[case::hash("{l1: {sizeGB: 1}, server: {hashAlgorithm: md5}}", "spec.server.hashAlgorithm", "Unsupported value")]
#[case::probe("{l1: {sizeGB: 1}, probes: {readiness: grpc}}", "spec.probes.readiness", "Unsupported value")]
// D17: bounds.
#[case::watermark_zero(
    "{l1: {sizeGB: 1}, eviction: {triggerWatermark: 0}}",
    "spec.eviction.triggerWatermark",
    "greater than 0"
)]
#[case::watermark_high(
    "{l1: {sizeGB: 1}, eviction: {triggerWatermark: 1.1}}",
    "spec.eviction.triggerWatermark",
    "less than or equal to 1"
)]
#[case::ratio("{l1: {sizeGB: 1}, eviction: {evictionRatio: -0.5}}", "spec.eviction.evictionRatio", "greater than 0")]
#[case::port_low("{l1: {sizeGB: 1}, server: {port: 80}}", "spec.server.port", "greater than or equal to 1024")]
#[case::port_high("{l1: {sizeGB: 1}, server: {port: 65536}}", "spec.server.port", "less than or equal to 65535")]
#[case::http_port("{l1: {sizeGB: 1}, server: {httpPort: 80}}", "spec.server.httpPort", "greater than or equal to 1024")]
#[case::chunk("{l1: {sizeGB: 1}, server: {chunkSize: 0}}", "spec.server.chunkSize", "greater than or equal to 1")]
#[case::workers("{l1: {sizeGB: 1}, server: {maxWorkers: 0}}", "spec.server.maxWorkers", "greater than or equal to 1")]
#[case::metrics_port("{l1: {sizeGB: 1}, prometheus: {port: 0}}", "spec.prometheus.port", "greater than or equal to 1")]
#[case::interval(
    "{l1: {sizeGB: 1}, prometheus: {serviceMonitor: {interval: 5 minutes}}}",
    "spec.prometheus.serviceMonitor.interval",
    "should match"
)]
#[case::resp_port(
    "{l1: {sizeGB: 1}, l2Backend: {resp: {host: h, port: 0}}}",
    "spec.l2Backend.resp.port",
    "greater than or equal to 1"
)]
#[case::resp_workers(
    "{l1: {sizeGB: 1}, l2Backend: {resp: {host: h, port: 1, numWorkers: 0}}}",
    "spec.l2Backend.resp.numWorkers",
    "greater than or equal to 1"
)]
#[case::capacity(
    "{l1: {sizeGB: 1}, l2Backend: {resp: {host: h, port: 1, maxCapacityGB: -1}}}",
    "spec.l2Backend.resp.maxCapacityGB",
    "greater than or equal to 0"
)]
#[case::in_flight(
    "{l1: {sizeGB: 1}, l2Backend: {raw: {type: fs}, prefetchMaxInFlight: 0}}",
    "spec.l2Backend.prefetchMaxInFlight",
    "greater than or equal to 1"
)]
#[case::aes_bits(
    "{l1: {sizeGB: 1}, l2Backend: {raw: {type: fs}, serde: {aesgcm: {masterKeySecretRef: {name: k}, aesBits: 192}}}}",
    "spec.l2Backend.serde.aesgcm.aesBits",
    "Unsupported value"
)]
#[case::heartbeat(
    "{l1: {sizeGB: 1}, coordinator: {url: u, heartbeatInterval: 0}}",
    "spec.coordinator.heartbeatInterval",
    "greater than 0"
)]
#[case::flush(
    "{l1: {sizeGB: 1}, coordinator: {url: u, l2EventFlushInterval: -1}}",
    "spec.coordinator.l2EventFlushInterval",
    "greater than 0"
)]
#[case::side_channel(
    "{l1: {sizeGB: 1}, pd: {nixlSideChannelPort: 1}}",
    "spec.pd.nixlSideChannelPort",
    "greater than or equal to 1024"
)]
#[case::deadline(
    "{l1: {sizeGB: 1}, progressDeadlineSeconds: 0}",
    "spec.progressDeadlineSeconds",
    "greater than or equal to 1"
)]
#[case::digest("{l1: {sizeGB: 1}, image: {digest: 'sha256:abc'}}", "spec.image.digest", "should match")]
// D18: port collisions, also with defaults.
#[case::server_is_http(
    "{l1: {sizeGB: 1}, server: {port: 6000, httpPort: 6000}}",
    "spec.server.httpPort",
    "must differ from spec.server.port"
)]
#[case::server_is_http_default(
    "{l1: {sizeGB: 1}, server: {port: 8080}}",
    "spec.server.httpPort",
    "must differ from spec.server.port"
)]
#[case::http_is_server_default(
    "{l1: {sizeGB: 1}, server: {httpPort: 5555}}",
    "spec.server.httpPort",
    "must differ from spec.server.port"
)]
#[case::metrics_is_server(
    "{l1: {sizeGB: 1}, server: {port: 9090}}",
    "spec",
    "spec.prometheus.port must differ from spec.server.port"
)]
#[case::server_is_metrics(
    "{l1: {sizeGB: 1}, prometheus: {port: 5555}}",
    "spec",
    "spec.prometheus.port must differ from spec.server.port"
)]
// One of two.
#[case::no_adapter("{l1: {sizeGB: 1}, l2Backend: {}}", "spec.l2Backend", "exactly one of resp or raw must be set")]
#[case::two_adapters(
    "{l1: {sizeGB: 1}, l2Backend: {resp: {host: h, port: 1}, raw: {type: fs}}}",
    "spec.l2Backend",
    "exactly one of resp or raw must be set, got multiple"
)]
#[case::coordinator_both(
    "{l1: {sizeGB: 1}, coordinator: {ref: {name: c}, url: 'http://c'}}",
    "spec.coordinator",
    "exactly one of ref or url must be set, got both"
)]
#[case::coordinator_none(
    "{l1: {sizeGB: 1}, coordinator: {}}",
    "spec.coordinator",
    "exactly one of ref or url must be set"
)]
#[case::coordinator_blank(
    "{l1: {sizeGB: 1}, coordinator: {ref: {name: ''}, url: ''}}",
    "spec.coordinator",
    "exactly one of ref or url must be set"
)]
#[case::no_serde(
    "{l1: {sizeGB: 1}, l2Backend: {raw: {type: fs}, serde: {}}}",
    "spec.l2Backend.serde",
    "exactly one serde type must be set"
)]
// What must not be blank.
#[case::host(
    "{l1: {sizeGB: 1}, l2Backend: {resp: {host: '', port: 1}}}",
    "spec.l2Backend.resp.host",
    "must be a non-empty string"
)]
#[case::auth(
    "{l1: {sizeGB: 1}, l2Backend: {resp: {host: h, port: 1, authSecretRef: {name: ''}}}}",
    "spec.l2Backend.resp.authSecretRef.name",
    "must be non-empty"
)]
#[case::raw_type(
    "{l1: {sizeGB: 1}, l2Backend: {raw: {type: ''}}}",
    "spec.l2Backend.raw.type",
    "must be a non-empty string"
)]
#[case::key(
    "{l1: {sizeGB: 1}, l2Backend: {raw: {type: fs}, serde: {aesgcm: {masterKeySecretRef: {}}}}}",
    "spec.l2Backend.serde.aesgcm.masterKeySecretRef.name",
    "must be non-empty"
)]
// D43: the master key's places.
#[case::key_volume(
    "{l1: {sizeGB: 1}, l2Backend: {raw: {type: fs}, serde: {aesgcm: {masterKeySecretRef: {name: k}}}}, volumes: [{name: l2-master-key}]}",
    "spec",
    "the volume name l2-master-key is taken by the master key"
)]
#[case::key_path(
    "{l1: {sizeGB: 1}, l2Backend: {raw: {type: fs}, serde: {aesgcm: {masterKeySecretRef: {name: k}}}}, volumes: [{name: v}], volumeMounts: [{name: v, mountPath: /etc/lmcache/keys}]}",
    "spec",
    "the mount path /etc/lmcache/keys is taken by the master key"
)]
#[tokio::test]
async fn an_engine_is_refused(
    #[case] spec: &str,
    #[case] field: &str,
    #[case] text: &str,
    #[values(LMC, CBE)] kind: &str,
) {
    check(kind, &engine(kind, "refused", spec), field, text).await;
}

/// D15: a payload image needs a repository.
#[rstest]
#[case::payload_empty("{l1: {sizeGB: 1}, injection: {payloadImage: {}}}", "Required value")]
#[case::payload_blank("{l1: {sizeGB: 1}, injection: {payloadImage: {repository: ''}}}", "at least 1")]
#[tokio::test]
async fn a_payload_image_without_a_repository_is_refused(
    #[case] spec: &str,
    #[case] text: &str,
    #[values(LMC, CBE)] kind: &str,
) {
    check(kind, &object(kind, "refused", spec), "spec.injection.payloadImage.repository", text).await;
}

const CHUNK_SIZE: &str = "must be 256 for CacheBlend (chunk_size == block_size 64 * 4)";
const PAYLOAD: &str = "spec.injection.payloadImage must be specified for CacheBlend injection, unless spec.pd is set";

#[rstest]
#[case::no_l1("{}", "spec.l1", "Required value")]
#[case::chunk_size("{l1: {sizeGB: 1}, pd: {}, server: {chunkSize: 128}}", "spec.server.chunkSize", CHUNK_SIZE)]
#[case::check_layer(
    "{l1: {sizeGB: 1}, pd: {}, blend: {checkLayer: -1}}",
    "spec.blend.checkLayer",
    "greater than or equal to 0"
)]
#[case::ratio_zero("{l1: {sizeGB: 1}, pd: {}, blend: {recompRatio: 0}}", "spec.blend.recompRatio", "greater than 0")]
#[case::ratio_high(
    "{l1: {sizeGB: 1}, pd: {}, blend: {recompRatio: 2}}",
    "spec.blend.recompRatio",
    "less than or equal to 1"
)]
#[case::bucket(
    "{l1: {sizeGB: 1}, pd: {}, blend: {partialBucket: 0}}",
    "spec.blend.partialBucket",
    "greater than or equal to 1"
)]
#[case::cudagraph(
    "{l1: {sizeGB: 1}, pd: {}, injection: {cudagraph: full}}",
    "spec.injection.cudagraph",
    "Unsupported value"
)]
// D15: an image to stage is needed, and the server's is none.
#[case::no_injection("{l1: {sizeGB: 1}}", "spec", PAYLOAD)]
#[case::no_payload("{l1: {sizeGB: 1}, injection: {}}", "spec", PAYLOAD)]
#[case::old_payload_default(
    "{l1: {sizeGB: 1}, injection: {payloadImage: {repository: lmcache/vllm-openai}}}",
    "spec",
    PAYLOAD
)]
#[tokio::test]
async fn a_cache_blend_engine_is_refused(#[case] spec: &str, #[case] field: &str, #[case] text: &str) {
    check(CBE, &object(CBE, "refused", spec), field, text).await;
}

#[rstest]
#[case::port_zero("{port: 0}", "spec.port", "greater than or equal to 1")]
#[case::port_high("{port: 65536}", "spec.port", "less than or equal to 65535")]
#[case::replicas("{replicas: -1}", "spec.replicas", "greater than or equal to 0")]
#[case::timeout("{instanceTimeout: 0}", "spec.instanceTimeout", "greater than 0")]
#[case::health("{healthCheckInterval: -1}", "spec.healthCheckInterval", "greater than or equal to 0")]
#[case::eviction("{evictionCheckInterval: -1}", "spec.evictionCheckInterval", "greater than or equal to 0")]
#[case::ratio_low("{evictionRatio: -0.1}", "spec.evictionRatio", "greater than or equal to 0")]
#[case::ratio_high("{evictionRatio: 1.1}", "spec.evictionRatio", "less than or equal to 1")]
#[case::watermark_zero("{triggerWatermark: 0}", "spec.triggerWatermark", "greater than 0")]
#[case::watermark_high("{triggerWatermark: 2}", "spec.triggerWatermark", "less than or equal to 1")]
#[case::chunk_size("{blendChunkSize: 0}", "spec.blendChunkSize", "greater than or equal to 1")]
#[case::stride("{blendProbeStride: 0}", "spec.blendProbeStride", "greater than or equal to 1")]
#[case::hash("{hashAlgorithm: md5}", "spec.hashAlgorithm", "Unsupported value")]
#[case::log_level("{logLevel: debug}", "spec.logLevel", "Unsupported value")]
#[case::metrics_port("{prometheus: {port: 0}}", "spec.prometheus.port", "greater than or equal to 1")]
#[case::interval(
    "{prometheus: {serviceMonitor: {interval: often}}}",
    "spec.prometheus.serviceMonitor.interval",
    "should match"
)]
#[case::deadline("{progressDeadlineSeconds: 0}", "spec.progressDeadlineSeconds", "greater than or equal to 1")]
#[case::digest("{image: {digest: 'sha256:abc'}}", "spec.image.digest", "should match")]
#[tokio::test]
async fn a_coordinator_is_refused(#[case] spec: &str, #[case] field: &str, #[case] text: &str) {
    check(LMCC, &object(LMCC, "refused", spec), field, text).await;
}

async fn check(kind: &str, object: &DynamicObject, field: &str, text: &str) {
    let what = object.data.to_string();
    let refusal = refusal(&what, try_create(&api(kind).await, object).await);
    assert!(names(&refusal, field, text), "{kind} {what}: want {field}: {text}, got {refusal:#?}");
}

/// D19: a name must leave room for the Service `<name>-metrics`.
#[rstest]
#[case::dot("my.cache")]
#[case::digit_first("1cache")]
#[case::too_long("a2345678901234567890123456789012345678901234567890123456")]
#[tokio::test]
async fn a_name_is_refused(#[case] name: &str, #[values(LMC, CBE, LMCC)] kind: &str) {
    let object = if kind == LMCC { object(kind, name, "{}") } else { engine(kind, name, "{l1: {sizeGB: 1}}") };
    check(kind, &object, "metadata.name", "must be a DNS-1035 label").await;
    check(kind, &object, "metadata.name", "Service <name>-metrics").await;
}

/// A person who makes two mistakes reads of both at once.
#[rstest]
#[case::engine(LMC, "{l1: {sizeGB: 0}, server: {port: 1, chunkSize: 0}, logLevel: LOUD}", &["spec.l1.sizeGB", "spec.server.port", "spec.server.chunkSize", "spec.logLevel"])]
#[case::cache_blend(CBE, "{l1: {sizeGB: 0}, blend: {checkLayer: -1, recompRatio: 0}}", &["spec.l1.sizeGB", "spec.blend.checkLayer", "spec.blend.recompRatio"])]
#[case::coordinator(LMCC, "{port: 0, replicas: -1, hashAlgorithm: md5}", &["spec.port", "spec.replicas", "spec.hashAlgorithm"])]
#[tokio::test]
async fn every_bound_is_told_at_once(#[case] kind: &str, #[case] spec: &str, #[case] fields: &[&str]) {
    let refusal = refusal(spec, try_create(&api(kind).await, &object(kind, "refused", spec)).await);
    for field in fields {
        assert!(names(&refusal, field, ""), "{kind}: {field} is not named: {refusal:#?}");
    }
}
