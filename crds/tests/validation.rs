//! What is refused, in which words and in which order.

mod common;

use common::{decode, texts};
use lmcache_crds::{FieldError, LMCacheEngineSpec, join_errors, validate};
use rstest::rstest;

fn spec(yaml: &str) -> LMCacheEngineSpec {
    decode(&format!("l1: {{sizeGB: 10}}, {yaml}"))
}

#[rstest]
// Rules of the existing operator.
#[case::watermark_zero("eviction: {triggerWatermark: 0}", &["spec.eviction.triggerWatermark: Invalid value: 0: must be in (0.0, 1.0]"])]
#[case::watermark_above("eviction: {triggerWatermark: 1.1}", &["spec.eviction.triggerWatermark: Invalid value: 1.1: must be in (0.0, 1.0]"])]
#[case::ratio_negative("eviction: {evictionRatio: -0.5}", &["spec.eviction.evictionRatio: Invalid value: -0.5: must be in (0.0, 1.0]"])]
#[case::port_low("server: {port: 80}", &["spec.server.port: Invalid value: 80: must be in [1024, 65535]"])]
#[case::port_high("server: {port: 65536}", &["spec.server.port: Invalid value: 65536: must be in [1024, 65535]"])]
#[case::no_adapter("l2Backend: {}", &["spec.l2Backend: Required value: exactly one of resp or raw must be set"])]
#[case::two_adapters("l2Backend: {resp: {host: h, port: 1}, raw: {type: fs}}", &[r#"spec.l2Backend: Invalid value: "": exactly one of resp or raw must be set, got multiple"#])]
#[case::resp_empty("l2Backend: {resp: {host: '', port: 0, authSecretRef: {name: ''}}}", &[
    "spec.l2Backend.resp.host: Required value: must be a non-empty string",
    "spec.l2Backend.resp.port: Invalid value: 0: must be in [1, 65535]",
    "spec.l2Backend.resp.authSecretRef.name: Required value: must be non-empty",
])]
#[case::raw_empty("l2Backend: {raw: {type: ''}}", &["spec.l2Backend.raw.type: Required value: must be a non-empty string"])]
#[case::serde_empty("l2Backend: {raw: {type: fs}, serde: {}}", &["spec.l2Backend.serde: Required value: exactly one serde type must be set"])]
#[case::key_unnamed("l2Backend: {raw: {type: fs}, serde: {aesgcm: {masterKeySecretRef: {}}}}", &["spec.l2Backend.serde.aesgcm.masterKeySecretRef.name: Required value: must be non-empty"])]
#[case::serde_twice("l2Backend: {raw: {type: fs, config: {serde: {}}}, serde: {}}", &[
    "spec.l2Backend.serde: Required value: exactly one serde type must be set",
    r#"spec.l2Backend.serde: Invalid value: "": cannot be combined with a raw adapter that sets a 'serde' config key"#,
])]
#[case::coordinator_both("coordinator: {ref: {name: c}, url: 'http://c'}", &[r#"spec.coordinator: Invalid value: "": exactly one of ref or url must be set, got both"#])]
#[case::coordinator_none("coordinator: {}", &["spec.coordinator: Required value: exactly one of ref or url must be set"])]
#[case::coordinator_empty("coordinator: {ref: {name: ''}, url: ''}", &["spec.coordinator: Required value: exactly one of ref or url must be set"])]
#[case::intervals("coordinator: {url: u, heartbeatInterval: 0, l2EventFlushInterval: -1}", &[
    "spec.coordinator.heartbeatInterval: Invalid value: 0: must be greater than 0",
    "spec.coordinator.l2EventFlushInterval: Invalid value: -1: must be greater than 0",
])]
// D15: a payload image needs a repository.
#[case::payload_empty("injection: {payloadImage: {}}", &["spec.injection.payloadImage.repository: Required value: must be a non-empty string"])]
#[case::payload_blank("injection: {payloadImage: {repository: ''}}", &["spec.injection.payloadImage.repository: Required value: must be a non-empty string"])]
// D17: bounds.
#[case::http_port("server: {httpPort: 80}", &["spec.server.httpPort: Invalid value: 80: must be in [1024, 65535]"])]
#[case::chunk_size("server: {chunkSize: 0}", &["spec.server.chunkSize: Invalid value: 0: must be >= 1"])]
#[case::max_workers("server: {maxWorkers: 0}", &["spec.server.maxWorkers: Invalid value: 0: must be >= 1"])]
#[case::metrics_port("prometheus: {port: 0}", &["spec.prometheus.port: Invalid value: 0: must be in [1, 65535]"])]
#[case::num_workers("l2Backend: {resp: {host: h, port: 1, numWorkers: 0}}", &["spec.l2Backend.resp.numWorkers: Invalid value: 0: must be >= 1"])]
#[case::capacity("l2Backend: {resp: {host: h, port: 1, maxCapacityGB: -0.5}}", &["spec.l2Backend.resp.maxCapacityGB: Invalid value: -0.5: must be >= 0"])]
#[case::in_flight("l2Backend: {raw: {type: fs}, prefetchMaxInFlight: 0}", &["spec.l2Backend.prefetchMaxInFlight: Invalid value: 0: must be >= 1"])]
#[case::aes_bits("l2Backend: {raw: {type: fs}, serde: {aesgcm: {masterKeySecretRef: {name: k}, aesBits: 192}}}", &[r#"spec.l2Backend.serde.aesgcm.aesBits: Unsupported value: 192: supported values: "128", "256""#])]
#[case::side_channel("pd: {nixlSideChannelPort: 1}", &["spec.pd.nixlSideChannelPort: Invalid value: 1: must be in [1024, 65535]"])]
#[case::deadline("progressDeadlineSeconds: 0", &["spec.progressDeadlineSeconds: Invalid value: 0: must be >= 1"])]
#[case::interval("prometheus: {serviceMonitor: {interval: 5 minutes}}", &[r#"spec.prometheus.serviceMonitor.interval: Invalid value: "5 minutes": must be a Prometheus duration such as 30s or 1m30s"#])]
#[case::digest("image: {digest: 'sha256:abc'}", &[r#"spec.image.digest: Invalid value: "sha256:abc": must be an image digest: sha256: and 64 hexadecimal digits"#])]
// D18: port collisions, also with defaults.
#[case::server_is_http_default("server: {port: 8080}", &["spec.server.httpPort: Invalid value: 8080: must differ from spec.server.port"])]
#[case::http_is_server_default("server: {httpPort: 5555}", &["spec.server.httpPort: Invalid value: 5555: must differ from spec.server.port"])]
#[case::metrics_is_server("server: {port: 9090}", &["spec.prometheus.port: Invalid value: 9090: must differ from spec.server.port while metrics are enabled"])]
// D24: the adapter's type has one place.
#[case::type_in_config("l2Backend: {raw: {type: fs, config: {type: mock}}}", &[r#"spec.l2Backend.raw.config: Invalid value: "": must not hold a 'type' key: use spec.l2Backend.raw.type"#])]
// D43: the master key needs its volume and its directory.
#[case::key_volume("l2Backend: {raw: {type: fs}, serde: {aesgcm: {masterKeySecretRef: {name: k}}}}, volumes: [{name: a}, {name: l2-master-key}], volumeMounts: [{name: a, mountPath: /etc/lmcache/keys/}]", &[
    r#"spec.volumes[1].name: Invalid value: "l2-master-key": is taken by the master key of spec.l2Backend.serde.aesgcm"#,
    r#"spec.volumeMounts[0].mountPath: Invalid value: "/etc/lmcache/keys/": is taken by the master key of spec.l2Backend.serde.aesgcm"#,
])]
fn refuses(#[case] yaml: &str, #[case] expected: &[&str]) {
    let spec = spec(yaml);
    assert_eq!(texts(&validate("c1", &spec)), expected, "before defaults: {yaml}");
    assert_eq!(texts(&validate("c1", &spec.with_defaults())), expected, "after defaults: {yaml}");
}

#[rstest]
#[case::minimal("")]
#[case::noop_is_a_policy("eviction: {policy: noop, triggerWatermark: 1, evictionRatio: 1}")]
#[case::metrics_may_share_the_http_port("prometheus: {port: 8080}")]
#[case::metrics_off_cannot_collide("prometheus: {enabled: false, port: 5555}")]
#[case::only_the_name_of_a_volume(
    "volumes: [{name: l2-master-key}], volumeMounts: [{name: l2-master-key, mountPath: /etc/lmcache/keys}]"
)]
#[case::payload_default_of_old_releases("injection: {payloadImage: {repository: lmcache/vllm-openai, tag: latest}}")]
#[case::capacity_zero("l2Backend: {resp: {host: h, port: 65535, maxCapacityGB: 0}}")]
#[case::empty_interval("prometheus: {serviceMonitor: {interval: ''}}")]
#[case::composed_interval("prometheus: {serviceMonitor: {interval: 1h30m5s10ms}}")]
#[case::interval_in_milliseconds("prometheus: {serviceMonitor: {interval: 500ms}}")]
#[case::digest("image: {digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}")]
fn accepts(#[case] yaml: &str) {
    assert_eq!(texts(&validate("c1", &spec(yaml))), Vec::<String>::new(), "{yaml}");
}

#[rstest]
#[case("s5", false)]
#[case("5", false)]
#[case("5m3h", false)]
#[case("5ms3s", false)]
#[case(" 5s", false)]
#[case("1y2w3d4h5m6s7ms", true)]
#[case("0", true)]
fn knows_prometheus_durations(#[case] interval: &str, #[case] good: bool) {
    let spec = spec(&format!("prometheus: {{serviceMonitor: {{interval: '{interval}'}}}}"));
    assert_eq!(validate("c1", &spec).is_empty(), good, "{interval}: {:?}", validate("c1", &spec));
}

#[rstest]
#[case("c1", true)]
#[case("a", true)]
#[case("my-cache-2", true)]
#[case("my.cache", false)]
#[case("1cache", false)]
#[case("cache-", false)]
#[case("-cache", false)]
#[case("Cache", false)]
#[case("", false)]
#[case("a23456789012345678901234567890123456789012345678901234x", true)]
#[case("a23456789012345678901234567890123456789012345678901234xy", false)]
fn names_must_fit_into_service_names(#[case] name: &str, #[case] good: bool) {
    let found = texts(&validate(name, &spec("")));
    let expected = format!(
        "metadata.name: Invalid value: {name:?}: must be a DNS-1035 label (lower case letters, digits and '-', starting \
         with a letter, ending with a letter or digit) of at most 55 characters, so that the Service <name>-metrics can \
         exist"
    );
    assert_eq!(found, if good { vec![] } else { vec![expected] });
}

#[rstest]
#[case(0.0, "0")]
#[case(-1.0, "-1")]
#[case(-0.25, "-0.25")]
#[case(-1e21, "-1000000000000000000000")]
fn prints_numbers_in_their_shortest_form(#[case] size: f64, #[case] printed: &str) {
    let mut spec = spec("");
    spec.common.l1.size_gb = size;
    let expected = format!("spec.l1.sizeGB: Invalid value: {printed}: must be greater than 0");
    assert_eq!(texts(&validate("c1", &spec)), [expected]);
}

#[test]
fn lists_every_fault_in_the_order_of_the_rules() {
    let mut spec = spec(
        "server: {port: 1, httpPort: 1, chunkSize: -1}, eviction: {evictionRatio: 2}, coordinator: {}, \
         l2Backend: {raw: {type: '', config: {type: x}}}",
    );
    spec.common.l1.size_gb = 0.0;
    let errors = validate("1x", &spec);
    let paths: Vec<_> = errors.iter().map(FieldError::path).collect();
    assert_eq!(
        paths,
        [
            "spec.l1.sizeGB",
            "spec.eviction.evictionRatio",
            "spec.server.port",
            "spec.l2Backend.raw.type",
            "spec.coordinator",
            "spec.server.httpPort",
            "spec.server.chunkSize",
            "spec.server.httpPort",
            "metadata.name",
            "spec.l2Backend.raw.config",
        ]
    );
}

#[test]
fn joins_errors_with_semicolons_and_says_the_same_once() {
    let errors = validate("c1", &spec("server: {chunkSize: 0, maxWorkers: 0}"));
    let twice: Vec<_> = errors.iter().chain(&errors).cloned().collect();
    assert_eq!(
        join_errors(&twice),
        "spec.server.chunkSize: Invalid value: 0: must be >= 1; spec.server.maxWorkers: Invalid value: 0: must be >= 1"
    );
    assert_eq!(join_errors(&[]), "");
}
