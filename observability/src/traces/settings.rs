//! Where traces go: the standard environment variables of OpenTelemetry, and flags that win over them. Pure.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use opentelemetry_sdk::trace::Sampler;

/// The flags `--otlp-*`; each is an alias of an environment variable and wins over it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OtlpFlags {
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub endpoint: Option<String>,
    /// `OTEL_EXPORTER_OTLP_PROTOCOL`.
    pub protocol: Option<String>,
    /// `OTEL_EXPORTER_OTLP_HEADERS`. May hold a credential, so it is never shown.
    pub headers: Option<String>,
    /// `OTEL_TRACES_SAMPLER`.
    pub sampler: Option<String>,
    /// `OTEL_TRACES_SAMPLER_ARG`.
    pub sampler_arg: Option<String>,
}

impl fmt::Debug for OtlpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpFlags")
            .field("endpoint", &self.endpoint)
            .field("protocol", &self.protocol)
            .field("headers", &self.headers.as_ref().map(|_| "<hidden>"))
            .field("sampler", &self.sampler)
            .field("sampler_arg", &self.sampler_arg)
            .finish()
    }
}

/// Protocols of the exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// `grpc`, by custom on port 4317.
    Grpc,
    /// `http/protobuf`, by custom on port 4318; the default.
    HttpProtobuf,
}

impl OtlpProtocol {
    /// Every name, for flags.
    pub const NAMES: [&str; 2] = ["grpc", "http/protobuf"];

    /// The name that variables and flags use.
    pub const fn as_str(self) -> &'static str {
        match self {
            OtlpProtocol::Grpc => "grpc",
            OtlpProtocol::HttpProtobuf => "http/protobuf",
        }
    }
}

/// Names of the samplers that are known.
pub const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// A variable or flag cannot be used. Header values are never part of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {origin}: want {want}")]
pub struct InvalidTraceSetting {
    /// The flag or the variable.
    pub origin: String,
    /// What it should be.
    pub want: String,
}

/// Everything that exporting needs to know.
#[derive(Clone)]
pub struct TraceSettings {
    /// The URL that spans are sent to; with `http/protobuf` the path is part of it.
    pub endpoint: Uri,
    /// How.
    pub protocol: OtlpProtocol,
    /// Sent with every request.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// How long one export may take, retries included.
    pub(crate) timeout: Duration,
    pub(crate) compress: bool,
    pub(crate) sampler: Sampler,
    /// PEM file of the authorities that are trusted; the system's by default.
    pub(crate) authorities: Option<PathBuf>,
    /// PEM files of the certificate and the key that the operator shows.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
    /// How many finished spans may wait.
    pub(crate) queue: usize,
    /// How many are sent at once.
    pub(crate) batch: usize,
    /// How long a span may wait for company.
    pub(crate) delay: Duration,
    /// `OTEL_SERVICE_NAME`.
    pub(crate) service_name: Option<String>,
    /// `POD_NAME`, `POD_NAMESPACE` and `NODE_NAME`, as the downward API gives them.
    pub(crate) pod: Place,
}

/// Where the process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub pod: Option<String>,
    pub namespace: Option<String>,
    pub node: Option<String>,
}

impl TraceSettings {
    /// Reads flags and environment; `None` when nobody asked for traces.
    pub fn read(
        flags: &OtlpFlags,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, InvalidTraceSetting> {
        let source = Source { environment: &environment };
        let off = source.text("OTEL_SDK_DISABLED").is_some_and(|it| it.value.eq_ignore_ascii_case("true"))
            || source.text("OTEL_TRACES_EXPORTER").is_some_and(|it| it.value == "none");
        let own = flags.endpoint.clone().filter(|it| !it.is_empty());
        let (given, whole) = match own {
            Some(value) => (Given { origin: "--otlp-endpoint".to_owned(), value }, false),
            None if off => return Ok(None),
            None => {
                match (source.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), source.text("OTEL_EXPORTER_OTLP_ENDPOINT")) {
                    (Some(given), _) => (given, true),
                    (None, Some(given)) => (given, false),
                    (None, None) => return Ok(None),
                }
            }
        };
        let protocol = protocol(source.signal(flags.protocol.as_deref(), "--otlp-protocol", "PROTOCOL"))?;
        let insecure = source.signal(None, "", "INSECURE").is_some_and(|it| it.value.eq_ignore_ascii_case("true"));
        let headers = source.signal(flags.headers.as_deref(), "--otlp-headers", "HEADERS");
        let file = |name: &str| source.signal(None, "", name);
        Ok(Some(TraceSettings {
            endpoint: endpoint(&given, protocol, whole, insecure)?,
            protocol,
            headers: headers.map_or(Ok(Vec::new()), |given| parse_headers(&given))?,
            timeout: millis(source.signal(None, "", "TIMEOUT"), 10_000)?,
            compress: compress(source.signal(None, "", "COMPRESSION"))?,
            sampler: sampler(&source, flags)?,
            authorities: file("CERTIFICATE").map(|given| given.value.into()),
            identity: identity(file("CLIENT_CERTIFICATE"), file("CLIENT_KEY"))?,
            queue: count(source.text("OTEL_BSP_MAX_QUEUE_SIZE"), 2048)?,
            batch: count(source.text("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), 512)?,
            delay: millis(source.text("OTEL_BSP_SCHEDULE_DELAY"), 5000)?,
            service_name: source.text("OTEL_SERVICE_NAME").map(|it| it.value),
            pod: Place {
                pod: source.text("POD_NAME").map(|it| it.value),
                namespace: source.text("POD_NAMESPACE").map(|it| it.value),
                node: source.text("NODE_NAME").map(|it| it.value),
            },
        }))
    }
}

impl fmt::Debug for TraceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("TraceSettings")
            .field("endpoint", &self.endpoint)
            .field("protocol", &self.protocol)
            .field("headers", &names)
            .field("sampler", &self.sampler)
            .finish_non_exhaustive()
    }
}

/// A value and where it comes from.
struct Given {
    origin: String,
    value: String,
}

impl Given {
    fn invalid(&self, want: impl Into<String>) -> InvalidTraceSetting {
        InvalidTraceSetting { origin: self.origin.clone(), want: want.into() }
    }
}

struct Source<'a> {
    environment: &'a dyn Fn(&str) -> Option<String>,
}

impl Source<'_> {
    /// An empty variable is one that is not set.
    fn text(&self, name: &str) -> Option<Given> {
        let value = (self.environment)(name)?.trim().to_owned();
        (!value.is_empty()).then(|| Given { origin: name.to_owned(), value })
    }

    /// The flag, else the variable for traces, else the one for every signal.
    fn signal(&self, flag: Option<&str>, flag_name: &str, name: &str) -> Option<Given> {
        if let Some(value) = flag.filter(|value| !value.is_empty()) {
            return Some(Given { origin: flag_name.to_owned(), value: value.to_owned() });
        }
        let specific = self.text(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"));
        specific.or_else(|| self.text(&format!("OTEL_EXPORTER_OTLP_{name}")))
    }
}

fn protocol(given: Option<Given>) -> Result<OtlpProtocol, InvalidTraceSetting> {
    match given {
        None => Ok(OtlpProtocol::HttpProtobuf),
        Some(given) => match given.value.as_str() {
            "grpc" => Ok(OtlpProtocol::Grpc),
            "http/protobuf" => Ok(OtlpProtocol::HttpProtobuf),
            _ => Err(given.invalid(OtlpProtocol::NAMES.join(" or "))),
        },
    }
}

/// `whole` says that an HTTP endpoint holds its path already.
fn endpoint(given: &Given, protocol: OtlpProtocol, whole: bool, insecure: bool) -> Result<Uri, InvalidTraceSetting> {
    let want = || given.invalid("a URL such as http://collector:4318, or http://collector:4317 with protocol grpc");
    let mut text = given.value.clone();
    if protocol == OtlpProtocol::Grpc && !text.contains("://") {
        text = format!("{}://{text}", if insecure { "http" } else { "https" });
    }
    if protocol == OtlpProtocol::HttpProtobuf && !whole {
        text = format!("{}/v1/traces", text.trim_end_matches('/'));
    }
    let uri: Uri = text.parse().map_err(|_| want())?;
    let usable = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    // Userinfo would show wherever the endpoint is told; credentials belong into the headers.
    let plain = uri.authority().is_none_or(|authority| !authority.as_str().contains('@'));
    if usable && plain { Ok(uri) } else { Err(want()) }
}

/// `key=value,...`; values are percent-encoded.
fn parse_headers(given: &Given) -> Result<Vec<(HeaderName, HeaderValue)>, InvalidTraceSetting> {
    let pairs = given.value.split(',').filter(|pair| !pair.trim().is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let mut value = HeaderValue::from_bytes(&percent_decode(value.trim())?).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_str(name.trim()).ok()?, value))
        })
        .collect::<Option<_>>()
        .ok_or_else(|| given.invalid("name=value,... with percent-encoded values"))
}

fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    Some(bytes)
}

/// One without the other would leave the operator unknown to a collector that wants to know it.
fn identity(certificate: Option<Given>, key: Option<Given>) -> Result<Option<(PathBuf, PathBuf)>, InvalidTraceSetting> {
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some((certificate.value.into(), key.value.into()))),
        (Some(certificate), None) => Err(certificate.invalid("OTEL_EXPORTER_OTLP_CLIENT_KEY with it")),
        (None, Some(key)) => Err(key.invalid("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE with it")),
    }
}

fn compress(given: Option<Given>) -> Result<bool, InvalidTraceSetting> {
    match given {
        None => Ok(false),
        Some(given) => match given.value.as_str() {
            "gzip" => Ok(true),
            "none" => Ok(false),
            _ => Err(given.invalid("gzip or none")),
        },
    }
}

fn millis(given: Option<Given>, default: u64) -> Result<Duration, InvalidTraceSetting> {
    let value = match given {
        None => default,
        Some(given) => given.value.parse().map_err(|_| given.invalid("a number of milliseconds"))?,
    };
    Ok(Duration::from_millis(value.clamp(1, 600_000)))
}

fn count(given: Option<Given>, default: usize) -> Result<usize, InvalidTraceSetting> {
    let value = match given {
        None => default,
        Some(given) => given.value.parse().map_err(|_| given.invalid("a number of spans"))?,
    };
    Ok(value.clamp(1, 1 << 16))
}

fn sampler(source: &Source<'_>, flags: &OtlpFlags) -> Result<Sampler, InvalidTraceSetting> {
    let flag = |value: &Option<String>, origin: &str| {
        value.clone().filter(|it| !it.is_empty()).map(|value| Given { origin: origin.to_owned(), value })
    };
    let given = flag(&flags.sampler, "--otlp-sampler").or_else(|| source.text("OTEL_TRACES_SAMPLER"));
    let argument = flag(&flags.sampler_arg, "--otlp-sampler-arg").or_else(|| source.text("OTEL_TRACES_SAMPLER_ARG"));
    let ratio = || match &argument {
        None => Ok(1.0),
        Some(given) => {
            let ratio = given.value.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            ratio.ok_or_else(|| given.invalid("a share between 0 and 1"))
        }
    };
    let parent_based = |root| Sampler::ParentBased(Box::new(root));
    let Some(given) = given else { return Ok(parent_based(Sampler::AlwaysOn)) };
    Ok(match given.value.as_str() {
        "always_on" => Sampler::AlwaysOn,
        "always_off" => Sampler::AlwaysOff,
        "traceidratio" => Sampler::TraceIdRatioBased(ratio()?),
        "parentbased_always_on" => parent_based(Sampler::AlwaysOn),
        "parentbased_always_off" => parent_based(Sampler::AlwaysOff),
        "parentbased_traceidratio" => parent_based(Sampler::TraceIdRatioBased(ratio()?)),
        _ => return Err(given.invalid(SAMPLERS.join(", "))),
    })
}
