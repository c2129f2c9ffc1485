#![allow(clippy::unwrap_used)]

use std::time::Duration;

use clap::error::ErrorKind;
use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn read(flags: &[&str]) -> Result<Options, clap::Error> {
    parse(std::iter::once(&"manager").chain(flags).copied(), |_| None)
}

#[track_caller]
fn options(flags: &[&str]) -> Options {
    read(flags).unwrap_or_else(|error| panic!("{flags:?}: {error}"))
}

fn at(host: &str, port: u16) -> Bind {
    Bind::At(ListenAddress { host: host.to_owned(), port })
}

fn self_managed(seconds: u64, url: Option<&str>) -> WebhookCertificates {
    WebhookCertificates::SelfManaged { validity: Duration::from_secs(seconds), url: url.map(str::to_owned) }
}

fn files(certificate: &str, key: &str) -> WebhookCertificates {
    WebhookCertificates::Files(CertificateFiles { certificate: certificate.into(), key: key.into() })
}

#[test]
fn no_flag_gives_the_documented_defaults() {
    let expected = Options {
        kubeconfig: None,
        metrics: MetricsOptions { bind: Bind::Off, secure: true, certificate: None, http2: false },
        health: at("", 8081),
        webhooks: Some(WebhookOptions {
            address: ListenAddress { host: String::new(), port: 9443 },
            http2: false,
            certificates: self_managed(90 * 86_400, None),
            prefix: "lmcache-operator".to_owned(),
        }),
        leader_elect: false,
        leader_election_namespace: None,
        watch_namespaces: Vec::new(),
        cluster_domain: "cluster.local".to_owned(),
        cross_namespace_secrets: CrossNamespaceSecrets::Consent,
        max_concurrent_reconciles: 2,
        cache_metrics_interval: Some(Duration::from_mins(1)),
        log_level: "info".to_owned(),
        log_format: LogFormat::Auto,
        otlp: OtlpFlags::default(),
        warnings: Vec::new(),
    };
    assert_eq!(options(&[]), expected);
}

#[rstest]
#[case("0", None)]
#[case("30s", Some(30))]
#[case("5m", Some(300))]
#[case("24h", Some(86_400))]
fn the_interval_of_cache_metrics_is_a_duration_or_off(#[case] text: &str, #[case] expected: Option<u64>) {
    let options = options(&[&format!("--cache-metrics-interval={text}")]);
    assert_eq!(options.cache_metrics_interval.map(|interval| interval.as_secs()), expected, "{text}");
}

#[rstest]
fn an_interval_that_is_no_duration_is_refused(#[values("25h", "60", "s", "1.5s", "-1s", "ä", "")] text: &str) {
    assert!(read(&[&format!("--cache-metrics-interval={text}")]).is_err(), "{text}");
}

#[test]
fn the_arguments_of_the_deployment_are_read() {
    let read = options(&[
        "--metrics-bind-address=:8443",
        "--leader-elect",
        "--health-probe-bind-address=:8081",
        "--webhook-cert-path=/tmp/k8s-webhook-server/serving-certs",
    ]);
    assert_eq!((&read.metrics.bind, read.leader_elect, &read.health), (&at("", 8443), true, &at("", 8081)));
    let folder = "/tmp/k8s-webhook-server/serving-certs";
    let expected = files(&format!("{folder}/tls.crt"), &format!("{folder}/tls.key"));
    assert_eq!(read.webhooks.map(|webhooks| webhooks.certificates), Some(expected));
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
}

#[rstest]
#[case(&["-leader-elect"], true)]
#[case(&["--leader-elect=true"], true)]
#[case(&["--leader-elect=1"], true)]
#[case(&["-leader-elect=T"], true)]
#[case(&["--leader-elect=false"], false)]
#[case(&["--leader-elect", "--leader-elect=false"], false)]
#[case(&["--leader-elect=false", "-leader-elect"], true)]
fn a_boolean_is_read_as_go_reads_it_and_the_last_one_wins(#[case] flags: &[&str], #[case] expected: bool) {
    assert_eq!(options(flags).leader_elect, expected, "{flags:?}");
}

#[test]
fn flags_say_where_traces_go() {
    let read = options(&[
        "--otlp-endpoint=http://collector:4317",
        "--otlp-protocol=grpc",
        "--otlp-headers=authorization=s3cret",
        "--otlp-sampler=traceidratio",
        "--otlp-sampler-arg=0.1",
    ]);
    let text = |value: &str| Some(value.to_owned());
    let expected = OtlpFlags {
        endpoint: text("http://collector:4317"),
        protocol: text("grpc"),
        headers: text("authorization=s3cret"),
        sampler: text("traceidratio"),
        sampler_arg: text("0.1"),
    };
    assert_eq!(read.otlp, expected);
    assert!(!format!("{read:?}").contains("s3cret"), "{read:?}");
    for wrong in ["--otlp-protocol=http/json", "--otlp-sampler=sometimes"] {
        assert_eq!(super::tests::read(&[wrong]).unwrap_err().kind(), ErrorKind::InvalidValue, "{wrong}");
    }
}

#[rstest]
#[case("0", Bind::Off)]
#[case(":8443", at("", 8443))]
#[case("127.0.0.1:8080", at("127.0.0.1", 8080))]
#[case("localhost:0", at("localhost", 0))]
#[case("[::1]:8443", at("::1", 8443))]
fn an_address_is_read(#[case] text: &str, #[case] expected: Bind) {
    assert_eq!(options(&["-metrics-bind-address", text]).metrics.bind, expected, "{text}");
    assert_eq!(options(&["--health-probe-bind-address", text]).health, expected, "{text}");
}

#[test]
fn every_flag_of_our_own_is_read() {
    let read = options(&[
        "--kubeconfig=/etc/kube/config",
        "--metrics-secure=false",
        "--metrics-cert-path=/certs",
        "--metrics-cert-key=key.pem",
        "--enable-http2",
        "--leader-election-namespace=lmcache",
        "--watch-namespaces=team-b, team-a,team-b,",
        "--cluster-domain=corp.example.",
        "--cross-namespace-secrets=deny",
        "--max-concurrent-reconciles=1",
        "--log-level=info,lmcache_operator=debug",
        "--log-format=json",
    ]);
    assert_eq!(read.kubeconfig, Some("/etc/kube/config".into()));
    assert!(!read.metrics.secure && read.metrics.http2, "{read:?}");
    let files = CertificateFiles { certificate: "/certs/tls.crt".into(), key: "/certs/key.pem".into() };
    assert_eq!(read.metrics.certificate, Some(files));
    assert_eq!(read.leader_election_namespace.as_deref(), Some("lmcache"));
    assert_eq!(read.watch_namespaces, ["team-a", "team-b"]);
    assert_eq!(read.cluster_domain, "corp.example");
    assert_eq!(read.cross_namespace_secrets, CrossNamespaceSecrets::Deny);
    assert_eq!(read.max_concurrent_reconciles, 1);
    assert_eq!((read.log_level.as_str(), read.log_format), ("info,lmcache_operator=debug", LogFormat::Json));
}

#[rstest]
#[case(&["--metrics-bind-address=8443"], "--metrics-bind-address", "want [host]:port")]
#[case(&["--metrics-bind-address=:70000"], "--metrics-bind-address", "not between 0 and 65535")]
#[case(&["--health-probe-bind-address=::1:8081"], "--health-probe-bind-address", "want [host]:port")]
#[case(&["--health-probe-bind-address=[nonsense]:8081"], "--health-probe-bind-address", "not an IPv6 address")]
#[case(&["--health-probe-bind-address="], "--health-probe-bind-address", "")]
#[case(&["--leader-elect=maybe"], "--leader-elect", "want true or false")]
#[case(&["--watch-namespaces=team-a,Team_B"], "--watch-namespaces", "\"Team_B\" is no name of a namespace")]
#[case(&["--leader-election-namespace="], "--leader-election-namespace", "")]
#[case(&["--cluster-domain=cluster..local"], "--cluster-domain", "want a DNS domain")]
#[case(&["--cross-namespace-secrets=perhaps"], "--cross-namespace-secrets", "consent, allow, deny")]
#[case(&["--max-concurrent-reconciles=0"], "--max-concurrent-reconciles", "1..=1024")]
#[case(&["--max-concurrent-reconciles=many"], "--max-concurrent-reconciles", "invalid digit")]
#[case(&["--log-format=xml"], "--log-format", "want auto, json or human")]
#[case(&["--zap-encoder=xml"], "--zap-encoder", "want json or console")]
#[case(&["--zap-log-level=0"], "--zap-log-level", "want debug, info, error, panic")]
#[case(&["--metrics-cert-name="], "--metrics-cert-name", "")]
#[case(&["--webhook-certs=vault"], "--webhook-certs", "want self-managed, cert-manager, path or a folder")]
#[case(&["--webhook-cert-validity=9s"], "--webhook-cert-validity", "between 10s and 36500d")]
#[case(&["--webhook-cert-validity="], "--webhook-cert-validity", "")]
#[case(&["--webhook-cert-validity=5"], "--webhook-cert-validity", "want a duration such as 90d")]
#[case(&["--webhook-cert-validity=9999999999999999999999d"], "--webhook-cert-validity", "want a duration")]
#[case(&["--webhook-url=http://127.0.0.1:1"], "--webhook-url", "want https://host:port")]
#[case(&["--webhook-url=https://127.0.0.1"], "--webhook-url", "want https://host:port")]
#[case(&["--webhook-url=https://h:1/path"], "--webhook-url", "want https://host:port")]
#[case(&["--webhook-url=https://h:1", "--webhook-certs=path"], "--webhook-url", "needs --webhook-certs=self-managed")]
#[case(&["--webhook-prefix=A"], "--webhook-prefix", "want lower case letters")]
#[case(&["--webhook-bind-address=9443"], "--webhook-bind-address", "want [host]:port")]
#[case(&["--leader-elct"], "--leader-elct", "similar argument exists: '--leader-elect'")]
#[case(&["-metrics-bind-adress=:8443"], "--metrics-bind-adress", "'--metrics-bind-address'")]
#[case(&["--leader-elect", "false"], "'false'", "")]
fn what_cannot_be_read_is_refused_by_its_name(#[case] flags: &[&str], #[case] name: &str, #[case] hint: &str) {
    let error = read(flags).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(name) && text.contains(hint), "{flags:?}: want {name:?} and {hint:?} in\n{text}");
    assert_eq!(error.exit_code(), 2, "{text}");
}

#[rstest]
#[case(&["--zap-devel"], "debug", LogFormat::Human)]
#[case(&["--zap-devel=false"], "info", LogFormat::Json)]
#[case(&["--zap-devel=false", "--zap-log-level=error"], "error", LogFormat::Json)]
#[case(&["--zap-devel", "--zap-encoder=json"], "debug", LogFormat::Json)]
#[case(&["--zap-log-level=1", "--zap-encoder=console"], "debug", LogFormat::Human)]
#[case(&["--zap-log-level=5"], "trace", LogFormat::Auto)]
#[case(&["--zap-log-level=panic", "--log-level=warn"], "warn", LogFormat::Auto)]
#[case(&["--zap-encoder=json", "--log-format=human"], "info", LogFormat::Human)]
fn zap_flags_are_mapped_and_our_own_win(#[case] flags: &[&str], #[case] level: &str, #[case] format: LogFormat) {
    let read = options(flags);
    assert_eq!((read.log_level.as_str(), read.log_format), (level, format), "{flags:?}");
    assert!(read.warnings.is_empty(), "{read:?}");
}

#[test]
fn zap_flags_without_a_counterpart_are_accepted_with_a_warning() {
    let read = options(&["--zap-stacktrace-level=error", "--zap-time-encoding=iso8601"]);
    let [stacktrace, time] = read.warnings.as_slice() else { panic!("{read:?}") };
    assert!(stacktrace.contains("--zap-stacktrace-level") && time.contains("--zap-time-encoding"), "{read:?}");
}

#[rstest]
#[case(None, true)]
#[case(Some("false"), false)]
#[case(Some("true"), true)]
#[case(Some("False"), true)]
#[case(Some(""), true)]
fn only_exactly_false_switches_the_webhooks_off(#[case] value: Option<&str>, #[case] expected: bool) {
    let environment = |name: &str| (name == "ENABLE_WEBHOOKS").then(|| value.map(str::to_owned)).flatten();
    let read = parse(["manager"], environment).unwrap();
    assert_eq!(read.webhooks.is_some(), expected, "{read:?}");
    assert!(read.warnings.is_empty(), "{read:?}");
}

#[rstest]
#[case(&["--webhook-certs=self-managed"], self_managed(90 * 86_400, None))]
#[case(&["--webhook-cert-validity=1h30m"], self_managed(5400, None))]
#[case(&["-webhook-url", "https://127.0.0.1:9443/"], self_managed(90 * 86_400, Some("https://127.0.0.1:9443")))]
#[case(&["--webhook-url=https://[::1]:0"], self_managed(90 * 86_400, Some("https://[::1]:0")))]
#[case(&["--webhook-cert-path=/c", "--webhook-cert-name=a", "--webhook-cert-key=b"], files("/c/a", "/c/b"))]
#[case(&["--webhook-certs=path", "--webhook-cert-path=/c"], files("/c/tls.crt", "/c/tls.key"))]
#[case(&["--webhook-certs=cert-manager", "--webhook-cert-path=/c"], files("/c/tls.crt", "/c/tls.key"))]
#[case(&["--webhook-certs=/c"], files("/c/tls.crt", "/c/tls.key"))]
fn a_webhook_certificate_comes_in_one_of_three_ways(#[case] flags: &[&str], #[case] expected: WebhookCertificates) {
    let read = options(flags);
    assert!(read.warnings.is_empty(), "{read:?}");
    assert_eq!(read.webhooks.map(|webhooks| webhooks.certificates), Some(expected), "{flags:?}");
}

#[test]
fn files_without_a_folder_are_where_the_reference_looks() {
    let folder = std::env::temp_dir().join("k8s-webhook-server/serving-certs");
    let expected = CertificateFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key") };
    let read = options(&["--webhook-certs=cert-manager"]).webhooks.map(|webhooks| webhooks.certificates);
    assert_eq!(read, Some(WebhookCertificates::Files(expected)));
}

#[test]
fn the_webhook_server_is_called_as_it_is_told() {
    let read = options(&["--webhook-bind-address=127.0.0.1:1", "--webhook-prefix=release", "--enable-http2"]);
    let webhooks = read.webhooks.unwrap();
    assert_eq!((webhooks.address.to_string().as_str(), webhooks.prefix.as_str()), ("127.0.0.1:1", "release"));
    assert!(webhooks.http2);
    assert_eq!(options(&["--webhook-bind-address=0"]).webhooks, None);
}

#[test]
fn a_folder_that_is_not_read_is_named() {
    let read = options(&["--webhook-certs=self-managed", "--webhook-cert-path=/c"]);
    assert_eq!(read.warnings, ["Flag --webhook-cert-path has no effect with --webhook-certs=self-managed"]);
}

#[rstest]
#[case("--version", ErrorKind::DisplayVersion, VERSION)]
#[case("-V", ErrorKind::DisplayVersion, VERSION)]
#[case("--help", ErrorKind::DisplayHelp, "--cross-namespace-secrets")]
#[case("-h", ErrorKind::DisplayHelp, "--watch-namespaces")]
fn version_and_help_end_well(#[case] flag: &str, #[case] kind: ErrorKind, #[case] text: &str) {
    let answer = read(&[flag]).unwrap_err();
    assert_eq!((answer.kind(), answer.exit_code()), (kind, 0), "{answer}");
    assert!(answer.to_string().contains(text), "{answer}");
}

#[test]
fn the_definition_of_the_flags_is_sound() {
    Flags::command().debug_assert();
}

proptest! {
    #[test]
    fn an_address_that_is_accepted_reads_the_same_when_it_is_written_again(text in "[a-z0-9.:\\[\\]]{0,24}") {
        if let Ok(Bind::At(address)) = values::bind(&text) {
            prop_assert_eq!(values::bind(&address.to_string()), Ok(Bind::At(address)));
        }
    }

    #[test]
    fn no_command_line_makes_the_parser_panic(flags in prop::collection::vec("-{0,3}[a-z0-9=:.,-]{0,30}", 0..6)) {
        let _ = parse(std::iter::once("manager".to_owned()).chain(flags), |_| None);
    }
}
