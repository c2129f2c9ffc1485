use rstest::rstest;

use super::settings::*;

fn read(flags: &OtlpFlags, environment: &[(&str, &str)]) -> Result<Option<TraceSettings>, InvalidTraceSetting> {
    let find = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    TraceSettings::read(flags, find)
}

#[track_caller]
fn settings(environment: &[(&str, &str)]) -> TraceSettings {
    read(&OtlpFlags::default(), environment).unwrap().unwrap_or_else(|| panic!("{environment:?} gives none"))
}

#[rstest]
#[case::nothing_is_set(&[])]
#[case::empty_is_not_set(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")])]
#[case::only_a_protocol(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")])]
#[case::disabled(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ("OTEL_SDK_DISABLED", "true")])]
#[case::no_exporter(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ("OTEL_TRACES_EXPORTER", "none")])]
fn without_an_endpoint_there_is_nothing_to_set_up(#[case] environment: &[(&str, &str)]) {
    assert!(read(&OtlpFlags::default(), environment).unwrap().is_none(), "{environment:?}");
}

#[rstest]
#[case(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")], "http://c:4318/v1/traces", OtlpProtocol::HttpProtobuf)]
#[case(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://c/otlp/")], "https://c/otlp/v1/traces", OtlpProtocol::HttpProtobuf)]
#[case(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/in")], "http://c:4318/in", OtlpProtocol::HttpProtobuf)]
#[case(
    &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
    "http://c:4317/",
    OtlpProtocol::Grpc
)]
#[case(
    &[("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317"), ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")],
    "https://c:4317/",
    OtlpProtocol::Grpc
)]
#[case(
    &[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "true"),
    ],
    "http://c:4317/",
    OtlpProtocol::Grpc
)]
fn an_endpoint_is_read(#[case] environment: &[(&str, &str)], #[case] uri: &str, #[case] protocol: OtlpProtocol) {
    let read = settings(environment);
    assert_eq!((read.endpoint.to_string().as_str(), read.protocol), (uri, protocol), "{environment:?}");
}

#[test]
fn a_flag_wins_over_every_variable() {
    let flags = OtlpFlags {
        endpoint: Some("http://flag:1".to_owned()),
        protocol: Some("grpc".to_owned()),
        headers: Some("x-token=flag".to_owned()),
        sampler: Some("always_off".to_owned()),
        sampler_arg: None,
    };
    let environment = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://variable:1"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "x-token=variable"),
        ("OTEL_TRACES_SAMPLER", "always_on"),
        ("OTEL_SDK_DISABLED", "true"),
    ];
    let read = read(&flags, &environment).unwrap().unwrap();
    assert_eq!((read.endpoint.host(), read.protocol), (Some("flag"), OtlpProtocol::Grpc));
    assert_eq!(read.headers[0].1, "flag");
    assert!(matches!(read.sampler, opentelemetry_sdk::trace::Sampler::AlwaysOff), "{:?}", read.sampler);
}

#[test]
fn headers_are_decoded_and_never_shown() {
    let text = "authorization=Bearer%20s3cret, x-scope = tenant ,";
    let read = settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), ("OTEL_EXPORTER_OTLP_HEADERS", text)]);
    let headers: Vec<(&str, &str)> =
        read.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    assert_eq!(headers, [("authorization", "Bearer s3cret"), ("x-scope", "tenant")]);
    let flags = OtlpFlags { headers: Some(text.to_owned()), ..OtlpFlags::default() };
    let shown = format!("{read:?} {:?} {flags:?}", read.headers);
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[rstest]
#[case("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")]
#[case("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://collector")]
#[case("OTEL_EXPORTER_OTLP_ENDPOINT", "http://")]
#[case("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:s3cret@collector")]
#[case("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]
#[case("OTEL_EXPORTER_OTLP_HEADERS", "s3cret")]
#[case("OTEL_EXPORTER_OTLP_HEADERS", "a=%s3cret")]
#[case("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")]
#[case("OTEL_EXPORTER_OTLP_COMPRESSION", "zip")]
#[case("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "s3cret.crt")]
#[case("OTEL_EXPORTER_OTLP_CLIENT_KEY", "s3cret.key")]
#[case("OTEL_TRACES_SAMPLER", "sometimes")]
#[case("OTEL_BSP_MAX_QUEUE_SIZE", "many")]
fn what_cannot_be_used_is_named_without_its_value(#[case] name: &str, #[case] value: &str) {
    let error = read(&OtlpFlags::default(), &[(name, value), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c")]);
    let error = error.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(name) && !error.contains("s3cret"), "{error}");
}

#[rstest]
#[case("traceidratio", "2")]
#[case("parentbased_traceidratio", "half")]
fn a_share_lies_between_0_and_1(#[case] sampler: &str, #[case] share: &str) {
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"),
        ("OTEL_TRACES_SAMPLER", sampler),
        ("OTEL_TRACES_SAMPLER_ARG", share),
    ];
    let error = read(&OtlpFlags::default(), &environment).map(|_| ()).unwrap_err();
    assert_eq!(error.origin, "OTEL_TRACES_SAMPLER_ARG", "{error}");
}
