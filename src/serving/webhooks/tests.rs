#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use lmcache_observability::WebhookOutcome;
use rstest::rstest;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use super::*;
use crate::admission::review::{AdmissionRequest, Response};

/// Does what the name of the object says.
struct Obeys(AtomicUsize);

impl Handler for Obeys {
    fn webhook(&self) -> &'static str {
        "test"
    }

    fn handle<'a>(&'a self, request: &'a AdmissionRequest) -> BoxFuture<'a, Response> {
        self.0.fetch_add(1, Ordering::Relaxed);
        async {
            match request.name.as_str() {
                "panic" => panic!("as told"),
                "hang" => std::future::pending().await,
                "slow" => sleep(Duration::from_millis(300)).await,
                _ => {}
            }
            Response::allowed(WebhookOutcome::Allowed, "valid")
        }
        .boxed()
    }
}

struct Running {
    address: SocketAddr,
    served: ServedCertificate,
    trusted: CertificateDer<'static>,
    metrics: Metrics,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), ServeError>>,
}

fn certificate() -> (Arc<CertifiedKey>, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let der = made.cert.der().clone();
    let key = CertifiedKey::from_der(vec![der.clone()], key, &rustls::crypto::ring::default_provider()).unwrap();
    (Arc::new(key), der)
}

fn start(http2: bool, limits: Limits) -> Running {
    let mut server = WebhookServer::bind(&ListenAddress { host: "127.0.0.1".to_owned(), port: 0 }).unwrap();
    server.limits = limits;
    let (address, metrics, served) = (server.address(), Metrics::new("0", "0"), ServedCertificate::default());
    let (key, trusted) = certificate();
    served.replace(&key, &metrics);
    let shutdown = CancellationToken::new();
    let mut handlers = Handlers::new();
    handlers.insert("/test", Arc::new(Obeys(AtomicUsize::new(0))));
    let task = tokio::spawn(server.run(served.clone(), http2, handlers, metrics.clone(), shutdown.clone()));
    Running { address, served, trusted, metrics, shutdown, task }
}

fn quick() -> Limits {
    let short = Duration::from_millis(300);
    Limits {
        first_request: short,
        idle: short * 2,
        body: short,
        turn: short,
        answer: short * 2,
        linger: short,
        drain: short,
        ..Limits::default()
    }
}

async fn connect(running: &Running, alpn: &[&[u8]]) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(running.trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(running.address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

fn review(name: &str) -> Bytes {
    let request = json!({"uid": "u", "name": name, "operation": "CREATE", "object": {}});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    review.to_string().into()
}

fn request(path: &str, content_type: &str, body: Bytes) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(Method::POST).uri(path).header("host", "localhost");
    builder.header("content-type", content_type).body(Full::new(body)).unwrap()
}

async fn client(running: &Running) -> http1::SendRequest<Full<Bytes>> {
    let stream = connect(running, &[b"http/1.1"]).await.unwrap();
    let (client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn text(response: http::Response<Incoming>) -> (StatusCode, String) {
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn ask(running: &Running, path: &str, content_type: &str, body: Bytes) -> (StatusCode, String) {
    text(client(running).await.send_request(request(path, content_type, body)).await.unwrap()).await
}

fn counted(running: &Running, outcome: &str, reason: &str) -> bool {
    let labels = format!(r#"{{webhook="test",outcome="{outcome}",reason="{reason}"}} 1"#);
    running.metrics.encode().contains(&format!("lmcache_operator_webhook_requests_total{labels}"))
}

#[rstest]
#[case::http1(&["http/1.1"], false)]
#[case::http1_by_default(&["h2", "http/1.1"], false)]
#[case::nothing_said(&[], true)]
#[tokio::test]
async fn a_question_is_answered(#[case] alpn: &[&str], #[case] http2: bool) {
    let running = start(http2, Limits::default());
    let alpn: Vec<&[u8]> = alpn.iter().map(|protocol| protocol.as_bytes()).collect();
    let stream = connect(&running, &alpn).await.unwrap();
    let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let request = request("/test?timeout=10s", "application/json; charset=utf-8", review("x"));
        let (status, body) = text(client.send_request(request).await.unwrap()).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["response"], json!({"uid": "u", "allowed": true}));
    }
}

#[tokio::test]
async fn many_questions_share_a_connection_of_http2() {
    let running = start(true, Limits::default());
    let stream = connect(&running, &[b"h2", b"http/1.1"]).await.unwrap();
    let (client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let begun = tokio::time::Instant::now();
    let asked = (0..50).map(|_| {
        let mut client = client.clone();
        async move {
            client
                .send_request(request("https://localhost/test", "application/json", review("slow")))
                .await
                .unwrap()
                .status()
        }
    });
    let statuses = futures::future::join_all(asked).await;
    assert!(statuses.iter().all(|status| *status == StatusCode::OK), "{statuses:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "one after the other: {:?}", begun.elapsed());
}

#[rstest]
#[case::unknown_path("/mutate", "application/json", "{}", 404, "no webhook is served on this path")]
#[case::content_type("/test", "text/plain", "{}", 415, "want content type application/json")]
#[case::no_content_type("/test", "", "{}", 415, "want content type application/json")]
#[case::malformed("/test", "application/json", "{\"apiVersion\"", 400, "the body is not JSON: EOF while parsing")]
#[case::empty("/test", "application/json", "", 400, "the body is not JSON")]
#[case::other_kind("/test", "application/json", r#"{"kind": "Pod"}"#, 400, "want admission.k8s.io/v1 AdmissionReview")]
#[tokio::test]
async fn what_is_no_question_gets_a_clear_answer(
    #[case] path: &str,
    #[case] content_type: &str,
    #[case] body: &'static str,
    #[case] expected: u16,
    #[case] hint: &str,
) {
    let running = start(false, Limits::default());
    let (status, text) = ask(&running, path, content_type, body.into()).await;
    assert_eq!(status.as_u16(), expected, "{text}");
    assert!(text.contains(hint) && text.len() < 300, "want {hint:?} in {text:?}");
    let reason = if expected == 415 { "content-type" } else { "malformed" };
    assert_eq!(counted(&running, "error", reason), expected != 404, "{}", running.metrics.encode());
}

#[tokio::test]
async fn another_method_is_refused() {
    let running = start(false, Limits::default());
    let mut request = request("/test", "application/json", Bytes::new());
    *request.method_mut() = Method::GET;
    let response = client(&running).await.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[rstest]
#[case::one_mebibyte(1 << 20, 200)]
#[case::three_mebibytes(3 << 20, 200)]
#[case::too_large(5 << 20, 413)]
#[tokio::test]
async fn a_large_body_is_taken_up_to_a_bound(#[case] size: usize, #[case] expected: u16) {
    let running = start(false, Limits::default());
    let mut review: Value = serde_json::from_slice(&review("x")).unwrap();
    review["request"]["object"] = json!({"metadata": {"annotations": {"large": "x".repeat(size)}}});
    // The server may close before everything is sent; its answer counts.
    let mut stream = connect(&running, &[]).await.unwrap();
    let body = review.to_string();
    let head = format!(
        "POST /test HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let _ = stream.write_all(body.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{answer}");
}

#[tokio::test]
async fn a_large_body_of_unknown_size_is_cut() {
    let running = start(false, Limits::default());
    let mut stream = connect(&running, &[]).await.unwrap();
    let head = "POST /test HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = [format!("{:x}\r\n", 1 << 20).as_bytes(), &vec![b' '; 1 << 20], b"\r\n"].concat();
    for _ in 0..5 {
        let _ = stream.write_all(&chunk).await;
    }
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8(answer).unwrap(), "HTTP/1.1 413");
}

#[rstest]
#[case::panic("panic", "panic", "it panicked")]
#[case::hang("hang", "timeout", "it did not answer in time")]
#[tokio::test]
async fn a_handler_that_fails_lets_the_object_pass_with_a_warning(
    #[case] name: &str,
    #[case] reason: &str,
    #[case] why: &str,
) {
    let running = start(false, quick());
    let (status, body) = ask(&running, "/test", "application/json", review(name)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["response"]["allowed"], true);
    let warning = answer["response"]["warnings"][0].as_str().unwrap();
    assert!(warning.contains(why), "{warning}");
    assert!(counted(&running, "error", reason), "{}", running.metrics.encode());
    assert_eq!(ask(&running, "/test", "application/json", review("x")).await.0, StatusCode::OK, "it goes on");
}

#[rstest]
#[case::says_nothing("", false, "")]
#[case::half_a_handshake("\u{16}\u{3}\u{1}", false, "")]
#[case::nothing_after_tls("", true, "")]
#[case::half_a_head("POST /test HTTP/1.1\r\nHost: h\r\n", true, "")]
#[case::half_a_body(
    "POST /test HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    true,
    "HTTP/1.1 408"
)]
#[tokio::test]
async fn a_slow_client_is_given_up(#[case] sent: &str, #[case] tls: bool, #[case] expected: &str) {
    let running = start(false, quick());
    let mut answer = Vec::new();
    let read = async {
        if tls {
            let mut stream = connect(&running, &[]).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            let _ = stream.read_to_end(&mut answer).await;
        } else {
            let mut stream = TcpStream::connect(running.address).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
            let _ = stream.read_to_end(&mut answer).await;
        }
    };
    timeout(Duration::from_secs(5), read).await.expect("the connection stays open");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with(expected), "{answer:?}");
}

#[tokio::test]
async fn a_connection_that_rests_too_long_is_closed_and_one_that_works_is_not() {
    let running = start(false, quick());
    let mut client = client(&running).await;
    for _ in 0..6 {
        let response = client.send_request(request("/test", "application/json", review("slow"))).await.unwrap();
        assert_eq!(text(response).await.0, StatusCode::OK);
        sleep(Duration::from_millis(100)).await;
    }
    sleep(Duration::from_millis(1500)).await;
    assert!(client.send_request(request("/test", "application/json", review("x"))).await.is_err());
}

#[tokio::test]
async fn idle_connections_make_place_for_those_that_ask() {
    let running = start(false, Limits { connections: 20, ..Limits::default() });
    let mut working = client(&running).await;
    let first = working.send_request(request("/test", "application/json", review("x"))).await.unwrap();
    assert_eq!(text(first).await.0, StatusCode::OK);
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(running.address).await.unwrap());
    }
    assert_eq!(ask(&running, "/test", "application/json", review("x")).await.0, StatusCode::OK, "a new one");
    let again = working.send_request(request("/test", "application/json", review("x"))).await.unwrap();
    assert_eq!(text(again).await.0, StatusCode::OK, "the one that was there before");
    let mut closed = 0;
    for mut stream in idle {
        let mut byte = [0];
        let ended = timeout(Duration::from_millis(5), stream.read(&mut byte)).await;
        closed += usize::from(matches!(ended, Ok(Ok(0) | Err(_))));
    }
    assert!((180..=199).contains(&closed), "{closed} of 200 idle connections were closed");
}

#[test]
fn a_place_is_free_again_when_its_connection_ends() {
    let connections = Connections::new(2);
    let busy: Vec<_> = (0..2).map(|_| connections.admit().unwrap()).collect();
    let _requests: Vec<_> = busy.iter().map(|connection| connection.activity().request()).collect();
    assert!(connections.admit().is_none(), "nobody makes place who has asked something");
    drop(busy);
    assert_eq!(connections.len(), 0);
    assert!(connections.admit().is_some());
}

#[tokio::test]
async fn a_certificate_is_exchanged_without_a_connection_noticing() {
    let mut running = start(false, Limits::default());
    let mut before = client(&running).await;
    let (key, trusted) = certificate();
    assert!(running.served.replace(&key, &running.metrics));
    assert!(!running.served.replace(&key, &running.metrics), "it is served already");
    let response = before.send_request(request("/test", "application/json", review("x"))).await.unwrap();
    assert_eq!(text(response).await.0, StatusCode::OK);
    assert!(connect(&running, &[]).await.is_err(), "a new connection still gets the old certificate");
    running.trusted = trusted;
    assert_eq!(ask(&running, "/test", "application/json", review("x")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn the_shutdown_answers_what_is_under_way_and_what_still_comes() {
    let running = start(false, quick());
    let (mut one, mut other) = (client(&running).await, client(&running).await);
    let under_way =
        tokio::spawn(async move { one.send_request(request("/test", "application/json", review("slow"))).await });
    sleep(Duration::from_millis(50)).await;
    running.shutdown.cancel();
    let late = other.send_request(request("/test", "application/json", review("x"))).await.unwrap();
    assert_eq!(late.status(), StatusCode::OK);
    assert_eq!(ask(&running, "/test", "application/json", review("x")).await.0, StatusCode::OK, "a new connection");
    assert_eq!(under_way.await.unwrap().unwrap().status(), StatusCode::OK);
    let ended = timeout(Duration::from_secs(3), running.task).await;
    assert!(matches!(ended, Ok(Ok(Ok(())))), "{ended:?}");
    assert!(TcpStream::connect(running.address).await.is_err());
}

#[tokio::test]
async fn without_a_certificate_no_handshake_succeeds_until_there_is_one() {
    let server = WebhookServer::bind(&ListenAddress { host: "127.0.0.1".to_owned(), port: 0 }).unwrap();
    let (address, metrics, served) = (server.address(), Metrics::new("0", "0"), ServedCertificate::default());
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(server.run(served.clone(), false, Handlers::new(), metrics.clone(), shutdown.clone()));
    let (key, trusted) = certificate();
    let running = Running { address, served, trusted, metrics, shutdown, task };
    assert!(connect(&running, &[]).await.is_err());
    running.served.replace(&key, &running.metrics);
    connect(&running, &[]).await.unwrap();
}

#[test]
fn an_address_in_use_is_told_with_its_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = WebhookServer::bind(&ListenAddress { host: "127.0.0.1".to_owned(), port }).unwrap_err().to_string();
    assert!(error.contains("--webhook-bind-address") && error.contains("in use"), "{error}");
}
