//! The command line: the flags of the reference operator, and our own. Pure: arguments and
//! environment in, [`Options`] out.

mod values;
mod webhooks;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, ValueEnum};
use lmcache_observability::traces::{OtlpFlags, OtlpProtocol, SAMPLERS};
use lmcache_observability::{DEFAULT_FILTER, LogFormat};

pub(crate) use values::url_host;
pub use values::{Bind, ListenAddress};
pub use webhooks::{WebhookCertificates, WebhookOptions};

/// Version of this build, from the workspace manifest.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit of this build, when the build was told it by `LMCACHE_OPERATOR_COMMIT`.
pub const COMMIT: &str = match option_env!("LMCACHE_OPERATOR_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Where the webhook handlers are switched off, as clients of the reference know it.
const ENABLE_WEBHOOKS: &str = "ENABLE_WEBHOOKS";

/// What a flag may say about Secrets in other namespaces than the resource's own (D14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CrossNamespaceSecrets {
    /// Only Secrets whose annotation `lmcache.ai/share-with` names the resource's namespace or `*`.
    Consent,
    /// Every Secret that the operator can read, as the reference does.
    Allow,
    /// None.
    Deny,
}

/// Everything the command line decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Kubeconfig to use; `None` means `KUBECONFIG`, then the cluster that the process runs in.
    pub kubeconfig: Option<PathBuf>,
    /// Where `/metrics` is served.
    pub metrics: MetricsOptions,
    /// Where `/healthz` and `/readyz` are served.
    pub health: Bind,
    /// Where webhooks are served and with which certificate; `None` when they are switched off.
    pub webhooks: Option<WebhookOptions>,
    /// Whether to wait for the Lease before working.
    pub leader_elect: bool,
    /// Namespace of the Lease and of the webhook certificates; `None` means the pod's own, or the kubeconfig's.
    pub leader_election_namespace: Option<String>,
    /// Namespaces to work in, sorted; empty means all.
    pub watch_namespaces: Vec<String>,
    /// DNS domain of the cluster, without a dot at its end (D78).
    pub cluster_domain: String,
    /// Whether Secrets of other namespaces may be used.
    pub cross_namespace_secrets: CrossNamespaceSecrets,
    /// How many resources are reconciled at once; at least 1.
    pub max_concurrent_reconciles: u16,
    /// Pause between two rounds in which the cache servers are asked for their hits; `None` means never.
    pub cache_metrics_interval: Option<Duration>,
    /// Level or filter of the log.
    pub log_level: String,
    /// Looks of the log.
    pub log_format: LogFormat,
    /// Where traces go, as far as flags say; the environment says the rest.
    pub otlp: OtlpFlags,
    /// What the flags ask for and will not get; for the log, once it is set up.
    pub warnings: Vec<String>,
}

/// The metrics endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsOptions {
    /// Address, or off.
    pub bind: Bind,
    /// HTTPS with Kubernetes authentication and authorization, or plain HTTP open to all.
    pub secure: bool,
    /// Certificate and key files; `None` means a self-signed certificate in memory.
    pub certificate: Option<CertificateFiles>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
}

/// A certificate and its key in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by its chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The flags as clap reads them.
#[derive(Debug, Parser)]
#[allow(clippy::struct_excessive_bools, reason = "a flag is a bool")]
#[allow(clippy::doc_markdown, reason = "the text is printed by --help, where backticks are noise")]
#[command(
    name = "manager",
    about = "Kubernetes operator for LMCache",
    args_override_self = true,
    disable_version_flag = true,
    after_help = "Flags may be written with one dash or two; a boolean flag is switched off by =false.\n\
        RUST_LOG wins over --log-level, the flags --otlp-* over the OTEL_* variables, which all work.
\
        ENABLE_WEBHOOKS=false switches the webhooks off."
)]
struct Flags {
    /// Kubeconfig file; empty means KUBECONFIG, then the cluster that the process runs in
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    kubeconfig: OsString,

    /// Address of /metrics as host:port or :port; 0 switches it off
    #[arg(long, value_name = "ADDRESS", default_value = "0", value_parser = values::bind)]
    metrics_bind_address: Bind,
    /// Serve metrics over HTTPS with Kubernetes authentication and authorization
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = values::boolean)]
    metrics_secure: bool,
    /// Folder of the metrics certificate; empty means a self-signed one in memory
    #[arg(long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    metrics_cert_path: OsString,
    /// File name of the metrics certificate
    #[arg(long, value_name = "FILE", default_value = "tls.crt", value_parser = NonEmptyStringValueParser::new())]
    metrics_cert_name: String,
    /// File name of the metrics key
    #[arg(long, value_name = "FILE", default_value = "tls.key", value_parser = NonEmptyStringValueParser::new())]
    metrics_cert_key: String,
    /// Offer HTTP/2 on TLS servers
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = values::boolean)]
    enable_http2: bool,
    /// Address of /healthz and /readyz as host:port or :port; 0 switches them off
    #[arg(long, value_name = "ADDRESS", default_value = ":8081", value_parser = values::bind)]
    health_probe_bind_address: Bind,

    /// Work only while holding the Lease f517be84.lmcache.ai
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_parser = values::boolean)]
    leader_elect: bool,
    /// Namespace of the Lease and of the webhook certificates; by default the pod's own, or the kubeconfig's
    #[arg(long, value_name = "NAMESPACE", value_parser = values::namespace)]
    leader_election_namespace: Option<String>,

    /// Namespaces to work in, separated by commas; by default all
    #[arg(long, value_name = "NAMESPACES", default_value = "", hide_default_value = true,
        value_parser = values::namespaces)]
    watch_namespaces: values::Namespaces,
    /// DNS domain of the cluster
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local", value_parser = values::domain)]
    cluster_domain: String,
    /// Whether a resource may use Secrets of other namespaces: with the Secret's consent, always, or never
    #[arg(long, value_name = "RULE", value_enum, default_value = "consent")]
    cross_namespace_secrets: CrossNamespaceSecrets,
    /// How many resources are reconciled at once; the children of one are applied together
    #[arg(long, value_name = "COUNT", default_value = "2", value_parser = clap::value_parser!(u16).range(1..=1024))]
    max_concurrent_reconciles: u16,
    /// How often the cache servers are asked for their hits, as 60s or 5m; 0 never
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = values::interval)]
    cache_metrics_interval: values::Interval,

    /// error, warn, info, debug or trace, or a filter as target=level,...
    #[arg(long, value_name = "LEVEL", value_parser = NonEmptyStringValueParser::new())]
    log_level: Option<String>,
    /// auto (JSON in a cluster and in pipes), json or human
    #[arg(long, value_name = "FORMAT", value_parser = values::log_format)]
    log_format: Option<LogFormat>,

    /// URL of a collector to export traces to, as OTEL_EXPORTER_OTLP_ENDPOINT; none by default
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// As OTEL_EXPORTER_OTLP_PROTOCOL; http/protobuf by default
    #[arg(long, value_name = "PROTOCOL", value_parser = PossibleValuesParser::new(OtlpProtocol::NAMES))]
    otlp_protocol: Option<String>,
    /// Sent with every export, as OTEL_EXPORTER_OTLP_HEADERS: name=value,...
    #[arg(long, value_name = "HEADERS")]
    otlp_headers: Option<String>,
    /// As OTEL_TRACES_SAMPLER; parentbased_always_on by default
    #[arg(long, value_name = "SAMPLER", value_parser = PossibleValuesParser::new(SAMPLERS))]
    otlp_sampler: Option<String>,
    /// As OTEL_TRACES_SAMPLER_ARG: the share of traces to keep, between 0 and 1
    #[arg(long, value_name = "SHARE")]
    otlp_sampler_arg: Option<String>,

    #[command(flatten)]
    webhooks: webhooks::WebhookFlags,

    /// As --log-format=human --log-level=debug; =false as json and info
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
        action = ArgAction::Set, value_parser = values::boolean)]
    zap_devel: Option<bool>,
    /// json or console; as --log-format
    #[arg(long, value_name = "ENCODER", value_parser = values::zap_encoder)]
    zap_encoder: Option<LogFormat>,
    /// debug, info, error, panic or a number; as --log-level
    #[arg(long, value_name = "LEVEL", value_parser = values::zap_level)]
    zap_log_level: Option<&'static str>,
    /// Accepted without effect
    #[arg(long, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,
    /// Accepted without effect
    #[arg(long, value_name = "ENCODING")]
    zap_time_encoding: Option<String>,

    /// Print version and commit
    #[arg(long, short = 'V', action = ArgAction::SetTrue)]
    version: bool,
}

/// Reads the command line. `arguments` begins with the program's name; `environment` gives a variable by its name.
///
/// The error is also what `--help` and `--version` end with: `clap::Error::exit` prints it where it belongs and ends the
/// process with the right code.
pub fn parse<I, T>(arguments: I, environment: impl Fn(&str) -> Option<String>) -> Result<Options, clap::Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString>,
{
    let mut command = Flags::command();
    let arguments = arguments.into_iter().map(|argument| double_dash(argument.into()));
    let matches = command.try_get_matches_from_mut(arguments)?;
    let flags = Flags::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    if flags.version {
        let text = format!("manager {VERSION} ({COMMIT})\n");
        return Err(clap::Error::raw(clap::error::ErrorKind::DisplayVersion, text));
    }
    let enabled = environment(ENABLE_WEBHOOKS).as_deref() != Some("false");
    flags.into_options(enabled).map_err(|text| command.error(clap::error::ErrorKind::ArgumentConflict, text))
}

/// `-metrics-secure` is as good as `--metrics-secure`; `-h` and `-V` stay what they are.
fn double_dash(argument: OsString) -> OsString {
    match argument.to_str().and_then(|text| text.strip_prefix('-')) {
        Some(name) if name.len() > 1 && name.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            let mut long = OsString::from("--");
            long.push(name);
            long
        }
        _ => argument,
    }
}

impl Flags {
    fn into_options(self, enable_webhooks: bool) -> Result<Options, String> {
        let mut warnings = self.warnings();
        let (log_level, log_format) = self.logging();
        let webhooks = self.webhooks.into_options(self.enable_http2, &mut warnings)?;
        let certificate = (!self.metrics_cert_path.is_empty()).then(|| {
            let folder = PathBuf::from(self.metrics_cert_path);
            CertificateFiles {
                certificate: folder.join(self.metrics_cert_name),
                key: folder.join(self.metrics_cert_key),
            }
        });
        Ok(Options {
            kubeconfig: (!self.kubeconfig.is_empty()).then(|| PathBuf::from(self.kubeconfig)),
            metrics: MetricsOptions {
                bind: self.metrics_bind_address,
                secure: self.metrics_secure,
                certificate,
                http2: self.enable_http2,
            },
            health: self.health_probe_bind_address,
            webhooks: webhooks.filter(|_| enable_webhooks),
            leader_elect: self.leader_elect,
            leader_election_namespace: self.leader_election_namespace,
            watch_namespaces: self.watch_namespaces.0,
            cluster_domain: self.cluster_domain,
            cross_namespace_secrets: self.cross_namespace_secrets,
            max_concurrent_reconciles: self.max_concurrent_reconciles,
            cache_metrics_interval: self.cache_metrics_interval.0,
            log_level,
            log_format,
            otlp: OtlpFlags {
                endpoint: self.otlp_endpoint,
                protocol: self.otlp_protocol,
                headers: self.otlp_headers,
                sampler: self.otlp_sampler,
                sampler_arg: self.otlp_sampler_arg,
            },
            warnings,
        })
    }

    /// Our own flags win over the zap ones, and those over `--zap-devel`, which sets both at once.
    fn logging(&self) -> (String, LogFormat) {
        let (devel_level, devel_format) = match self.zap_devel {
            Some(true) => (Some("debug"), Some(LogFormat::Human)),
            Some(false) => (Some("info"), Some(LogFormat::Json)),
            None => (None, None),
        };
        let level = self.log_level.as_deref().or(self.zap_log_level).or(devel_level).unwrap_or(DEFAULT_FILTER);
        let format = self.log_format.or(self.zap_encoder).or(devel_format).unwrap_or_default();
        (level.to_owned(), format)
    }

    fn warnings(&self) -> Vec<String> {
        let without_effect =
            |flag: &str| format!("Flag {flag} has no effect: log lines have one time format and no stack traces");
        let given = [
            (self.zap_stacktrace_level.is_some(), "--zap-stacktrace-level"),
            (self.zap_time_encoding.is_some(), "--zap-time-encoding"),
        ];
        given.into_iter().filter(|(given, _)| *given).map(|(_, flag)| without_effect(flag)).collect()
    }
}

#[cfg(test)]
mod tests;
