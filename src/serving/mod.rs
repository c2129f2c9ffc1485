//! What the process serves and how it comes to lead: health, metrics, leader election.

pub mod leader;
pub mod webhooks;

mod authorization;
mod http;
mod readiness;
mod tls;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use axum::Router;
use axum_server::Handle;
use lmcache_observability::Metrics;
use tokio_util::sync::CancellationToken;

use crate::cli::{Bind, ListenAddress, MetricsOptions, Options};
use authorization::Authorizer;
use tls::Certificate;

pub use readiness::Readiness;
pub use tls::CertificateError;

const METRICS_FLAG: &str = "--metrics-bind-address";
const HEALTH_FLAG: &str = "--health-probe-bind-address";

/// How long open connections may take to end after the shutdown began.
const DRAIN: Duration = Duration::from_secs(2);

/// How long a client may take to send its first request; nobody holds a connection for nothing.
const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// What is served, and where.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// `/metrics`.
    pub metrics: MetricsOptions,
    /// `/healthz` and `/readyz`.
    pub health: Bind,
}

impl From<&Options> for ServeConfig {
    fn from(options: &Options) -> Self {
        ServeConfig { metrics: options.metrics.clone(), health: options.health.clone() }
    }
}

/// Why something cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken, not ours, or not allowed to us.
    #[error("cannot listen on {address} ({flag}): {source}; choose another address, or 0 to switch it off")]
    Bind {
        /// The flag that asked for it.
        flag: &'static str,
        /// The address as it was given.
        address: ListenAddress,
        /// What the system says.
        source: io::Error,
    },
    /// The metrics certificate cannot be used.
    #[error("cannot serve metrics over HTTPS: {0}")]
    Certificate(#[from] CertificateError),
    /// The webhook server cannot speak TLS.
    #[error("cannot serve webhooks: {0}")]
    WebhookTls(#[source] rustls::Error),
    /// A server ended although nobody asked it to.
    #[error("server of {flag} failed: {source}")]
    Failed {
        /// The flag that asked for it.
        flag: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// Sockets that are open but do not answer yet.
#[derive(Debug)]
pub struct Servers {
    metrics: Option<(TcpListener, SocketAddr)>,
    health: Option<(TcpListener, SocketAddr)>,
    options: MetricsOptions,
}

impl Servers {
    /// Opens every socket of `config`, so that an address in use ends the start and not the run.
    pub fn bind(config: ServeConfig) -> Result<Self, ServeError> {
        Ok(Servers {
            health: listen_unless_off(HEALTH_FLAG, &config.health)?,
            metrics: listen_unless_off(METRICS_FLAG, &config.metrics.bind)?,
            options: config.metrics,
        })
    }

    /// Where `/metrics` is served; `None` when it is off.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(|(_, address)| *address)
    }

    /// Where `/healthz` and `/readyz` are served; `None` when they are off.
    pub fn health_address(&self) -> Option<SocketAddr> {
        self.health.as_ref().map(|(_, address)| *address)
    }

    /// Serves until `shutdown`, then lets open requests end for two seconds. `client` asks the API server who a scraper is;
    /// it is used for secure metrics only.
    pub async fn run(
        self,
        metrics: Metrics,
        readiness: Readiness,
        client: kube::Client,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        let health = run_health(self.health, readiness, shutdown.clone());
        let metrics = run_metrics(self.metrics, self.options, metrics, client, shutdown);
        let ((), ()) = tokio::try_join!(health, metrics)?;
        Ok(())
    }
}

/// Opens the sockets of `config` and serves on them until `shutdown`; [`Servers`] does the two in two steps.
pub async fn serve(
    config: ServeConfig,
    metrics: Metrics,
    readiness: Readiness,
    client: kube::Client,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    Servers::bind(config)?.run(metrics, readiness, client, shutdown).await
}

fn listen_unless_off(flag: &'static str, bind: &Bind) -> Result<Option<(TcpListener, SocketAddr)>, ServeError> {
    match bind {
        Bind::Off => Ok(None),
        Bind::At(address) => listen(flag, address).map(Some),
    }
}

fn listen(flag: &'static str, address: &ListenAddress) -> Result<(TcpListener, SocketAddr), ServeError> {
    let open = || {
        let listener = open(address)?;
        let local = listener.local_addr()?;
        Ok((listener, local))
    };
    open().map_err(|source| ServeError::Bind { flag, address: address.clone(), source })
}

/// Without a host every interface is meant: both families where there is IPv6, otherwise IPv4.
fn open(address: &ListenAddress) -> io::Result<TcpListener> {
    if !address.host.is_empty() {
        return TcpListener::bind((address.host.as_str(), address.port));
    }
    match TcpListener::bind(("::", address.port)) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind(("0.0.0.0", address.port)),
        result => result,
    }
}

async fn run_health(
    socket: Option<(TcpListener, SocketAddr)>,
    readiness: Readiness,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let Some((listener, address)) = socket else { return Ok(()) };
    tracing::info!(%address, "Serving health probes");
    run_plain(HEALTH_FLAG, listener, http::health(readiness), shutdown).await
}

async fn run_metrics(
    socket: Option<(TcpListener, SocketAddr)>,
    options: MetricsOptions,
    metrics: Metrics,
    client: kube::Client,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let Some((listener, address)) = socket else { return Ok(()) };
    if !options.secure {
        tracing::info!(%address, secure = false, "Serving metrics server");
        return run_plain(METRICS_FLAG, listener, http::metrics(metrics, None), shutdown).await;
    }
    let certificate = Certificate::load(options.certificate, options.http2)?;
    tracing::info!(%address, secure = true, "Serving metrics server");
    let router = http::metrics(metrics, Some(Authorizer::new(client)));
    let server = failed(METRICS_FLAG, axum_server::from_tcp_rustls(listener, certificate.acceptor_config()))?;
    let server = if options.http2 { server } else { server.http1_only() };
    let handle = Handle::new();
    let serving = server.handle(handle.clone()).first_request_timeout(FIRST_REQUEST).serve(router.into_make_service());
    let result = tokio::select! {
        result = serving_until(serving, handle, shutdown) => result,
        () = certificate.keep_current() => Ok(()),
    };
    failed(METRICS_FLAG, result)
}

async fn run_plain(
    flag: &'static str,
    listener: TcpListener,
    router: Router,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let handle = Handle::new();
    let server = failed(flag, axum_server::from_tcp(listener))?
        .http1_only()
        .first_request_timeout(FIRST_REQUEST)
        .handle(handle.clone());
    failed(flag, serving_until(server.serve(router.into_make_service()), handle, shutdown).await)
}

async fn serving_until(
    serving: impl Future<Output = io::Result<()>>,
    handle: Handle<SocketAddr>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    tokio::pin!(serving);
    tokio::select! {
        result = &mut serving => return result,
        () = shutdown.cancelled() => handle.graceful_shutdown(Some(DRAIN)),
    }
    serving.await
}

fn failed<T>(flag: &'static str, result: io::Result<T>) -> Result<T, ServeError> {
    result.map_err(|source| ServeError::Failed { flag, source })
}

#[cfg(test)]
mod tests;
