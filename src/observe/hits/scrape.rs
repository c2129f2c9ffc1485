//! One request to the metrics of one cache server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::text::{Reader, Tokens};

/// A server that takes longer is not counted in this round.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// No server publishes more; what comes after it is not read.
const BODY_LIMIT: usize = 16 << 20;

/// Why a server could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    /// No HTTP.
    #[error("no answer: {0}")]
    Http(#[from] hyper::Error),
    /// Another status than 200.
    #[error("answered {0}")]
    Status(http::StatusCode),
    /// The request cannot be built.
    #[error("cannot ask: {0}")]
    Request(#[from] http::Error),
    /// More than any server should say.
    #[error("answered more than {} MiB", BODY_LIMIT >> 20)]
    TooLong,
    /// Too slow.
    #[error("took longer than {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Asks the server at this address for its counters; `None` when it has none.
///
/// # Errors
/// When it cannot be reached, answers with another status than 200, too much or too slowly.
pub async fn scrape(address: IpAddr, port: u16) -> Result<Option<Tokens>, ScrapeError> {
    tokio::time::timeout(TIMEOUT, ask(SocketAddr::new(address, port))).await.unwrap_or(Err(ScrapeError::Timeout))
}

async fn ask(address: SocketAddr) -> Result<Option<Tokens>, ScrapeError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = http::Request::get("/metrics")
        .header(http::header::HOST, address.to_string())
        .header(http::header::ACCEPT, "text/plain; version=0.0.4")
        .body(Empty::<Bytes>::new())?;
    let reading = async {
        let mut response = sender.send_request(request).await?;
        if response.status() != http::StatusCode::OK {
            return Err(ScrapeError::Status(response.status()));
        }
        let (mut reader, mut length) = (Reader::default(), 0);
        while let Some(frame) = response.frame().await {
            let frame = frame?;
            let piece = frame.data_ref().map(Bytes::as_ref).unwrap_or_default();
            length += piece.len();
            if length > BODY_LIMIT {
                return Err(ScrapeError::TooLong);
            }
            reader.push(piece);
        }
        Ok(reader.finish())
    };
    // The connection is driven beside the request, and goes with it.
    tokio::pin!(connection, reading);
    tokio::select! {
        answer = &mut reading => answer,
        ended = &mut connection => {
            ended?;
            reading.await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;

    use super::*;

    async fn served(router: Router) -> u16 {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async { axum::serve(listener, router).await });
        port
    }

    async fn answer(router: Router) -> Result<Option<Tokens>, ScrapeError> {
        let port = served(router).await;
        scrape(Ipv4Addr::LOCALHOST.into(), port).await
    }

    #[tokio::test]
    async fn counters_are_read_over_http() {
        let text = "lmcache_mp_lookup_hit_tokens_total 5\nlmcache_mp_lookup_requested_tokens_total 9\n";
        let tokens = answer(Router::new().route("/metrics", get(move || async move { text }))).await.unwrap();
        assert_eq!(tokens, Some(Tokens { hit: 5.0, requested: 9.0 }));
    }

    #[tokio::test]
    async fn ten_mebibytes_of_something_else_count_nothing() {
        let text = "some_other_metric{label=\"value\"} 1\n".repeat((10 << 20) / 36);
        let tokens = answer(Router::new().route("/metrics", get(move || async move { text }))).await.unwrap();
        assert_eq!(tokens, None);
    }

    #[tokio::test]
    async fn what_never_ends_is_given_up() {
        let text = "x".repeat(BODY_LIMIT + 1);
        let answer = answer(Router::new().route("/metrics", get(move || async move { text }))).await;
        assert!(matches!(answer, Err(ScrapeError::TooLong)), "{answer:?}");
    }

    #[tokio::test]
    async fn an_error_page_is_no_answer() {
        let answer = answer(Router::new().route("/metrics", get(|| async { StatusCode::SERVICE_UNAVAILABLE }))).await;
        assert!(matches!(answer, Err(ScrapeError::Status(StatusCode::SERVICE_UNAVAILABLE))), "{answer:?}");
    }

    #[tokio::test]
    async fn nobody_there_is_an_error() {
        let port = served(Router::new()).await;
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let closed = listener.local_addr().unwrap().port();
        drop(listener);
        assert!(matches!(scrape(Ipv4Addr::LOCALHOST.into(), closed).await, Err(ScrapeError::Connect(_))));
        assert!(matches!(scrape(Ipv4Addr::LOCALHOST.into(), port).await, Err(ScrapeError::Status(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_given_up() {
        let router = Router::new().route("/metrics", get(std::future::pending::<&str>));
        let answer = answer(router).await;
        assert!(matches!(answer, Err(ScrapeError::Timeout)), "{answer:?}");
    }
}
