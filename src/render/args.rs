//! The server's command line. A flag and its value are two tokens; the order is fixed.

use lmcache_crds::{CoordinatorConnection, L2BackendSpec};

use super::adapter;
use super::context::Context;
use super::numbers::{fixed, minimal};

/// Where all addresses are meant.
pub(super) const ANY_ADDRESS: &str = "0.0.0.0";

/// Arguments of the engine container.
pub fn server_args(context: &Context<'_>) -> Vec<String> {
    let spec = context.spec;
    let mut args = Args(Vec::with_capacity(48));
    args.pair("--host", ANY_ADDRESS);
    args.pair("--port", spec.server_port().to_string());
    args.pair("--http-port", spec.http_port().to_string());
    // The frontend binds to loopback unless told otherwise, and nobody could reach it (D84).
    args.pair("--http-host", ANY_ADDRESS);
    args.pair("--l1-size-gb", fixed(spec.l1.size_gb, 1));
    args.pair("--chunk-size", spec.chunk_size().to_string());
    args.pair("--max-workers", spec.max_workers().to_string());
    args.pair("--hash-algorithm", spec.hash_algorithm().as_str());
    args.switch("--isolated-ipc", context.isolated_ipc);
    args.pair("--eviction-policy", spec.eviction_policy().as_str());
    args.pair("--eviction-trigger-watermark", fixed(spec.trigger_watermark(), 2));
    args.pair("--eviction-ratio", fixed(spec.eviction_ratio(), 2));
    if spec.prometheus_enabled() {
        args.pair("--prometheus-port", spec.workload.metrics_port().to_string());
    } else {
        // The server does not know --disable-prometheus and would not start (D75).
        args.switch("--disable-metrics", true);
    }
    if let Some(backend) = &spec.l2_backend {
        args.second_level(backend);
    }
    if let (Some(url), Some(connection)) = (context.coordinator_url(), &spec.coordinator) {
        args.coordinator(url, context.advertise_ip(), connection);
    }
    args.0.extend(context.kind_args.iter().cloned());
    args.0.extend(spec.workload.extra_args.iter().flatten().cloned());
    args.0
}

/// A command line that is being written.
pub(super) struct Args(pub Vec<String>);

impl Args {
    /// A flag with a value.
    pub fn pair(&mut self, flag: &str, value: impl Into<String>) {
        self.0.push(flag.to_owned());
        self.0.push(value.into());
    }

    /// A flag without a value, when it is on.
    pub fn switch(&mut self, flag: &str, on: bool) {
        if on {
            self.0.push(flag.to_owned());
        }
    }

    fn second_level(&mut self, backend: &L2BackendSpec) {
        if let Some(adapter) = adapter::text(backend) {
            self.pair("--l2-adapter", adapter);
        }
        self.pair("--l2-store-policy", backend.store_policy.unwrap_or_default().as_str());
        self.pair("--l2-prefetch-policy", backend.prefetch_policy.unwrap_or_default().as_str());
        self.pair("--l2-prefetch-max-in-flight", backend.prefetch_max_in_flight.unwrap_or(8).to_string());
    }

    fn coordinator(&mut self, url: &str, advertise_ip: Option<&str>, connection: &CoordinatorConnection) {
        self.pair("--coordinator-url", url);
        if let Some(ip) = advertise_ip {
            self.pair("--coordinator-advertise-ip", ip);
        }
        self.pair("--coordinator-heartbeat-interval", minimal(connection.heartbeat_interval.unwrap_or(5.0)));
        self.switch("--coordinator-event-reporting", connection.l2_event_reporting.unwrap_or(false));
        self.pair("--coordinator-event-flush-interval", minimal(connection.l2_event_flush_interval.unwrap_or(1.0)));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::Resolved;
    use super::super::testing::{spec, with_context};
    use super::*;

    const MINIMAL: &str = "--host 0.0.0.0 --port 5555 --http-port 8080 --http-host 0.0.0.0 --l1-size-gb 10.0 --chunk-size 256 \
        --max-workers 1 --hash-algorithm blake3 --isolated-ipc --eviction-policy LRU --eviction-trigger-watermark 0.80 \
        --eviction-ratio 0.20 --prometheus-port 9090";

    fn args(fields: Value) -> Vec<String> {
        with_context(&spec(fields), &Resolved::default(), |context| server_args(&context))
    }

    fn line(fields: Value) -> String {
        args(fields).join(" ")
    }

    #[test]
    fn minimal_spec_gives_the_known_line() {
        assert_eq!(line(json!({})), MINIMAL);
        assert_eq!(args(json!({})).len(), 25);
    }

    #[rstest]
    #[case(json!({"server": {"port": 6555, "httpPort": 9000}}), "--port 5555 --http-port 8080", "--port 6555 --http-port 9000")]
    #[case(json!({"server": {"chunkSize": 128, "maxWorkers": 4}}), "--chunk-size 256 --max-workers 1", "--chunk-size 128 --max-workers 4")]
    #[case(json!({"server": {"hashAlgorithm": "sha256_cbor"}}), "blake3", "sha256_cbor")]
    #[case(json!({"l1": {"sizeGB": 0.04}}), "10.0", "0.04")]
    #[case(json!({"l1": {"sizeGB": 10.25}}), "10.0", "10.25")]
    #[case(json!({"isolatedIPC": false}), " --isolated-ipc", "")]
    #[case(json!({"gpuVendor": "amd"}), " --isolated-ipc", "")]
    #[case(json!({"gpuVendor": "amd", "isolatedIPC": true}), "", "")]
    #[case(json!({"eviction": {"policy": "noop"}}), "LRU", "noop")]
    #[case(json!({"eviction": {"triggerWatermark": 0.125, "evictionRatio": 1}}), "0.80 --eviction-ratio 0.20", "0.125 --eviction-ratio 1.00")]
    #[case(json!({"eviction": {"evictionRatio": 0.004}}), "0.20", "0.004")]
    #[case(json!({"prometheus": {"port": 9191}}), "9090", "9191")]
    #[case(json!({"prometheus": {"enabled": false}}), "--prometheus-port 9090", "--disable-metrics")]
    fn every_field_changes_its_own_tokens_only(#[case] fields: Value, #[case] before: &str, #[case] after: &str) {
        assert_eq!(line(fields), MINIMAL.replacen(before, after, 1));
    }

    #[rstest]
    #[case(
        json!({"l2Backend": {"resp": {"host": "r", "port": 1}}}),
        r#"--l2-adapter {"host":"r","num_workers":8,"port":1,"type":"resp"} --l2-store-policy default --l2-prefetch-policy default --l2-prefetch-max-in-flight 8"#
    )]
    #[case(
        json!({"l2Backend": {"raw": {"type": "fs"}, "storePolicy": "skip_l1", "prefetchPolicy": "retain", "prefetchMaxInFlight": 3}}),
        r#"--l2-adapter {"type":"fs"} --l2-store-policy skip_l1 --l2-prefetch-policy retain --l2-prefetch-max-in-flight 3"#
    )]
    #[case(
        json!({"coordinator": {"url": "http://co:1"}}),
        "--coordinator-url http://co:1 --coordinator-heartbeat-interval 5 --coordinator-event-flush-interval 1"
    )]
    #[case(
        json!({"coordinator": {"url": "http://co:1", "advertiseIP": "", "heartbeatInterval": 2.50, "l2EventFlushInterval": 0.2}}),
        "--coordinator-url http://co:1 --coordinator-heartbeat-interval 2.5 --coordinator-event-flush-interval 0.2"
    )]
    #[case(
        json!({"coordinator": {"url": "http://co:1", "advertiseIP": "10.1.2.3", "heartbeatInterval": 30, "l2EventReporting": true}}),
        "--coordinator-url http://co:1 --coordinator-advertise-ip 10.1.2.3 --coordinator-heartbeat-interval 30 --coordinator-event-reporting --coordinator-event-flush-interval 1"
    )]
    #[case(json!({"extraArgs": ["--max-workers", "8", "--flag=x"]}), "--max-workers 8 --flag=x")]
    fn optional_parts_follow_the_common_ones(#[case] fields: Value, #[case] added: &str) {
        assert_eq!(line(fields), format!("{MINIMAL} {added}"));
    }

    #[test]
    fn a_referenced_coordinator_needs_its_resolved_url() {
        let fields = spec(json!({"coordinator": {"ref": {"name": "co"}}}));
        let unresolved = with_context(&fields, &Resolved::default(), |context| server_args(&context).join(" "));
        assert_eq!(unresolved, MINIMAL);
        let resolved = Resolved { coordinator_url: Some("http://co.ai.svc:9300".into()), ..Resolved::default() };
        let line = with_context(&fields, &resolved, |context| server_args(&context).join(" "));
        assert!(line.contains("--coordinator-url http://co.ai.svc:9300 "), "{line}");
    }

    #[test]
    fn a_kind_adds_its_flags_before_the_extra_arguments() {
        let fields = spec(json!({"extraArgs": ["--last"]}));
        let line = with_context(&fields, &Resolved::default(), |mut context| {
            context.kind_args = vec!["--engine-type".into(), "blend".into()];
            server_args(&context).join(" ")
        });
        assert_eq!(line, format!("{MINIMAL} --engine-type blend --last"));
    }
}
