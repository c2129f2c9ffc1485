//! The client that takes spans to the collector, over either protocol, on one TLS stack.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use opentelemetry_otlp::{Compression, Protocol, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tonic::transport::Endpoint;

use super::connection::{Connector, LastFailure};
use super::settings::{OtlpProtocol, TraceSettings};

/// The collector's answer to an export is a few bytes.
const ANSWER_LIMIT: usize = 64 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses before a connection that failed is tried again.
const RECONNECT: [Duration; 3] = [Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1600)];

/// The client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// A PEM file of the variables `OTEL_EXPORTER_OTLP_CERTIFICATE`, `_CLIENT_CERTIFICATE` or `_CLIENT_KEY`.
    #[error("cannot use {path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        reason: String,
    },
    /// The system has no certificate authorities.
    #[error("cannot read the system's certificate authorities: {0}")]
    Authorities(#[source] std::io::Error),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The exporter refuses the settings.
    #[error("cannot set up the exporter: {0}")]
    Build(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Makes the exporter. To be called, and used, inside of a tokio runtime.
pub(super) fn exporter(settings: &TraceSettings, failure: &LastFailure) -> Result<SpanExporter, ExporterError> {
    let connector = connector(settings, failure)?;
    match settings.protocol {
        OtlpProtocol::HttpProtobuf => {
            let client = Collector {
                client: Client::builder(TokioExecutor::new()).build(connector),
                headers: settings.headers.clone(),
                timeout: settings.timeout,
                failure: failure.clone(),
            };
            let builder = SpanExporter::builder()
                .with_http()
                .with_http_client(client)
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(settings.endpoint.to_string())
                .with_timeout(settings.timeout);
            Ok(if settings.compress { builder.with_compression(Compression::Gzip) } else { builder }.build()?)
        }
        OtlpProtocol::Grpc => {
            let channel = Endpoint::from(settings.endpoint.clone())
                .timeout(settings.timeout)
                .connect_with_connector_lazy(connector);
            let headers = settings.headers.clone();
            let with_headers = move |mut request: tonic::Request<()>| {
                let mut all = std::mem::take(request.metadata_mut()).into_headers();
                for (name, value) in &headers {
                    all.insert(name, value.clone());
                }
                *request.metadata_mut() = tonic::metadata::MetadataMap::from_headers(all);
                Ok(request)
            };
            let builder = SpanExporter::builder()
                .with_tonic()
                .with_channel(channel)
                .with_interceptor(with_headers)
                .with_timeout(settings.timeout);
            Ok(if settings.compress { builder.with_compression(Compression::Gzip) } else { builder }.build()?)
        }
    }
}

fn connector(settings: &TraceSettings, failure: &LastFailure) -> Result<Connector, ExporterError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls(settings)?).https_or_http();
    let inner = match settings.protocol {
        OtlpProtocol::Grpc => builder.enable_http2().wrap_connector(tcp),
        OtlpProtocol::HttpProtobuf => builder.enable_http1().wrap_connector(tcp),
    };
    Ok(Connector { inner, failure: failure.clone() })
}

fn tls(settings: &TraceSettings) -> Result<ClientConfig, ExporterError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let builder = match &settings.authorities {
        Some(path) => builder.with_root_certificates(authorities(path)?),
        // Without TLS an image without authorities is as good.
        None if settings.endpoint.scheme_str() != Some("https") => {
            builder.with_root_certificates(RootCertStore::empty())
        }
        None => {
            use hyper_rustls::ConfigBuilderExt as _;
            builder.with_native_roots().map_err(ExporterError::Authorities)?
        }
    };
    let Some((certificate, key)) = &settings.identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
    let refused = |error: rustls::Error| ExporterError::File {
        path: format!("{} with {}", certificate.display(), key.display()),
        reason: error.to_string(),
    };
    builder.with_client_auth_cert(chain, secret).map_err(refused)
}

fn authorities(path: &Path) -> Result<RootCertStore, ExporterError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, &error))?;
    }
    Ok(roots)
}

/// The certificates of a PEM file: at least one. A file of anything else would read as an empty one, and an operator that
/// trusts nobody would find out with its first export only.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ExporterError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| unusable(path, &error))?;
    if found.is_empty() {
        return Err(unusable(path, &"it holds no certificate in PEM"));
    }
    Ok(found)
}

fn unusable(path: &Path, reason: &dyn std::fmt::Display) -> ExporterError {
    ExporterError::File { path: path.display().to_string(), reason: reason.to_string() }
}

/// The HTTP client of the exporter.
struct Collector {
    client: Client<Connector, Full<Bytes>>,
    headers: Vec<(HeaderName, HeaderValue)>,
    timeout: Duration,
    failure: LastFailure,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Collector")
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        let answer = tokio::time::timeout(self.timeout, self.exchange(request)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {:?}", self.timeout).into()));
        answer.inspect_err(|error| self.failure.set(self.failure.explain(told(error.as_ref()))))
    }
}

impl Collector {
    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let mut pauses = RECONNECT.iter();
        let response = loop {
            let attempt = Request::from_parts(parts.clone(), Full::from(body.clone()));
            match self.client.request(attempt).await {
                Ok(response) => break response,
                // Nothing was sent yet: a collector that restarts is back in a moment.
                Err(error) if error.is_connect() => match pauses.next() {
                    Some(pause) => tokio::time::sleep(*pause).await,
                    None => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            }
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_LIMIT).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }
}

fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The endpoint without its query, for the log.
pub(super) fn shown(endpoint: &Uri) -> String {
    let text = endpoint.to_string();
    text.split('?').next().unwrap_or_default().to_owned()
}
