//! The webhook server: HTTPS, one handler a path, and bounds on everything that a client can make it hold.

mod connections;
mod routes;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use lmcache_observability::Metrics;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{ServeError, listen};
use crate::admission::certificates::ServedCertificate;
use crate::admission::review::Handler;
use crate::cli::ListenAddress;
use connections::{Connection, Connections};

const FLAG: &str = "--webhook-bind-address";

/// What a client can make the server hold, and for how long.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections that are open at a time. An API server needs one, or one for each request that is under way.
    connections: usize,
    /// How long a client may take until its first request is there, TLS included.
    first_request: Duration,
    /// How long a connection may rest between requests: longer than an API server's 90 s, so that it is the one who closes.
    idle: Duration,
    /// How long a client may take to send a body.
    body: Duration,
    /// How long a request may wait for its turn.
    turn: Duration,
    /// How long a handler may think: the API server gives up after ten seconds.
    answer: Duration,
    /// How long new requests are still served after the shutdown began: the API server learns of it by and by.
    linger: Duration,
    /// How long requests that are under way may take after that.
    drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 512,
            first_request: Duration::from_secs(10),
            idle: Duration::from_secs(150),
            body: Duration::from_secs(5),
            turn: Duration::from_secs(5),
            answer: Duration::from_secs(8),
            linger: Duration::from_secs(2),
            drain: Duration::from_secs(3),
        }
    }
}

/// Flow control of HTTP/2: what one stream, and one connection, may send ahead. Bytes.
const STREAM_WINDOW: u32 = 128 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;
const MAX_STREAMS: u32 = 128;

/// Which handler answers on which path.
pub type Handlers = BTreeMap<&'static str, Arc<dyn Handler>>;

/// A socket that is open but does not answer yet.
#[derive(Debug)]
pub struct WebhookServer {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
}

impl WebhookServer {
    /// Opens the socket, so that an address in use ends the start and not the run.
    pub fn bind(address: &ListenAddress) -> Result<Self, ServeError> {
        let (listener, address) = listen(FLAG, address)?;
        Ok(WebhookServer { listener, address, limits: Limits::default() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown`, goes on for two seconds, and lets requests that are under way end for three more.
    pub async fn run(
        self,
        served: ServedCertificate,
        http2: bool,
        handlers: Handlers,
        metrics: Metrics,
        shutdown: CancellationToken,
    ) -> Result<(), ServeError> {
        let failed = |source| ServeError::Failed { flag: FLAG, source };
        let config = served.server_config(http2).map_err(ServeError::WebhookTls)?;
        self.listener.set_nonblocking(true).map_err(failed)?;
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(failed)?;
        tracing::info!(address = %self.address, http2, "Serving webhooks");
        let limits = self.limits;
        let router = routes::router(handlers, &metrics, limits);
        let server = Server { tls: TlsAcceptor::from(Arc::new(config)), router, limits };
        let connections = Connections::new(limits.connections);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let end = async {
            shutdown.cancelled().await;
            sleep(limits.linger).await;
        };
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        if let Some(connection) = connections.admit() {
                            tasks.spawn(server.clone().connection(stream, connection, stop.clone()));
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "Failed to accept a connection for webhooks");
                        sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = tasks.join_next() => {}
            }
        }
        drop(listener);
        stop.cancel();
        let drained = async { while tasks.join_next().await.is_some() {} };
        if timeout(limits.drain, drained).await.is_err() {
            tracing::warn!("Gave up webhook requests that did not end within {} s", limits.drain.as_secs());
        }
        Ok(())
    }
}

#[derive(Clone)]
struct Server {
    tls: TlsAcceptor,
    router: axum::Router,
    limits: Limits,
}

impl Server {
    async fn connection(self, stream: TcpStream, connection: Connection, stop: CancellationToken) {
        // What is answered is small and awaited.
        let _ = stream.set_nodelay(true);
        let secure = tokio::select! {
            secure = timeout(self.limits.first_request, self.tls.accept(stream)) => secure,
            () = connection.evicted() => return,
            () = stop.cancelled() => return,
        };
        match secure {
            Ok(Ok(stream)) => self.serve(stream, &connection, &stop).await,
            Ok(Err(error)) => tracing::debug!(%error, "A TLS handshake with the webhook server failed"),
            Err(_) => tracing::debug!("A client of the webhook server did not finish its TLS handshake"),
        }
    }

    async fn serve(self, stream: TlsStream<TcpStream>, connection: &Connection, stop: &CancellationToken) {
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let activity = connection.activity();
        let (router, limits) = (self.router, self.limits);
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let (router, request_guard) = (router.clone(), activity.request());
            async move {
                let response = router.oneshot(request.map(Body::new)).await;
                drop(request_guard);
                response
            }
        });
        let builder = builder(http2, limits);
        let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        tokio::pin!(serving);
        let mut stopping = false;
        loop {
            tokio::select! {
                result = serving.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "A connection to the webhook server broke");
                    }
                    return;
                }
                () = connection.evicted() => return,
                () = connection.rested(limits.first_request, limits.idle), if !stopping => {
                    if !connection.has_asked() {
                        return;
                    }
                    stopping = true;
                    serving.as_mut().graceful_shutdown();
                }
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    serving.as_mut().graceful_shutdown();
                }
                // Half a request is no reason to wait.
                () = sleep(limits.drain), if stopping => return,
            }
        }
    }
}

fn builder(http2: bool, limits: Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Resting between requests counts as well, and that is limited by us.
        .header_read_timeout(limits.idle * 2)
        .max_buf_size(64 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10));
    if http2 { builder.http2_only() } else { builder.http1_only() }
}

#[cfg(test)]
mod tests;
