#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use rstest::rstest;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::*;
use crate::cli::CertificateFiles;

struct Running {
    metrics: SocketAddr,
    health: SocketAddr,
    readiness: Readiness,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

fn loopback(port: u16) -> Bind {
    Bind::At(ListenAddress { host: "127.0.0.1".to_owned(), port })
}

fn config(secure: bool, certificate: Option<CertificateFiles>) -> ServeConfig {
    let metrics = MetricsOptions { bind: loopback(0), secure, certificate, http2: false };
    ServeConfig { metrics, health: loopback(0) }
}

/// A client whose API server cannot be reached.
fn client() -> kube::Client {
    let refuse = |_: ::http::Request<kube::client::Body>| async {
        Err::<::http::Response<kube::client::Body>, _>(tower::BoxError::from("refused"))
    };
    kube::Client::new(tower::service_fn(refuse), "default")
}

fn start(config: ServeConfig) -> Running {
    let servers = Servers::bind(config).unwrap();
    let (metrics, health) = (servers.metrics_address().unwrap(), servers.health_address().unwrap());
    let (readiness, shutdown) = (Readiness::default(), CancellationToken::new());
    let run = servers.run(Metrics::new("0", "0"), readiness.clone(), client(), shutdown.clone());
    Running { metrics, health, readiness, shutdown, task: tokio::spawn(run) }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str, headers: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A peer that closes without close_notify has still answered.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

async fn get(address: SocketAddr, path: &str, headers: &str) -> String {
    exchange(TcpStream::connect(address).await.unwrap(), path, headers).await
}

fn make_certificate(folder: &Path) -> (CertificateFiles, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = CertificateFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key") };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    (files, made.cert.der().clone())
}

/// A folder of this test's own.
fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("lmcache-operator-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

async fn connect_tls(
    address: SocketAddr,
    trusted: &CertificateDer<'static>,
    alpn: &[&[u8]],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let stream = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

#[tokio::test]
async fn the_process_is_alive_at_once_and_ready_when_nothing_is_awaited() {
    let running = start(config(false, None));
    assert!(get(running.health, "/healthz", "").await.starts_with("HTTP/1.1 200"));
    assert!(get(running.health, "/readyz", "").await.starts_with("HTTP/1.1 200"), "a standby is ready");
    running.readiness.awaiting(["Pod cache", "DaemonSet cache"]);
    running.readiness.arrived("Pod cache");
    let answer = get(running.health, "/readyz", "").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("waiting for DaemonSet cache"), "{answer}");
    assert!(get(running.health, "/healthz", "").await.starts_with("HTTP/1.1 200"));
    running.readiness.arrived("DaemonSet cache");
    assert!(get(running.health, "/readyz", "").await.starts_with("HTTP/1.1 200"));
}

#[rstest]
#[case::prometheus(
    "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n",
    "application/openmetrics-text; version=1.0.0"
)]
#[case::anything("Accept: */*\r\n", "text/plain; version=0.0.4")]
#[case::unsaid("", "text/plain; version=0.0.4")]
#[tokio::test]
async fn plain_metrics_are_served_in_the_format_that_is_asked_for(#[case] accept: &str, #[case] content_type: &str) {
    let running = start(config(false, None));
    let answer = get(running.metrics, "/metrics", accept).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("lmcache_operator_build_info{"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains(&format!("content-type: {content_type}")), "{answer}");
    assert_eq!(answer.contains("# EOF"), content_type.contains("openmetrics"), "{answer}");
}

#[rstest]
#[case::no_token("", "HTTP/1.1 401")]
#[case::api_server_unreachable("Authorization: Bearer token\r\n", "HTTP/1.1 500")]
#[tokio::test]
async fn secure_metrics_tell_nothing_to_a_stranger(#[case] headers: &str, #[case] expected: &str) {
    let (files, trusted) = make_certificate(&folder(&format!("stranger-{}", headers.len())));
    let running = start(config(true, Some(files)));
    let stream = connect_tls(running.metrics, &trusted, &[]).await.unwrap();
    let answer = exchange(stream, "/metrics", headers).await;
    assert!(answer.starts_with(expected) && !answer.contains("build_info") && !answer.contains("token"), "{answer}");
}

#[rstest]
#[case::by_default(false, "http/1.1")]
#[case::when_enabled(true, "h2")]
#[tokio::test]
async fn http2_is_offered_only_when_it_is_enabled(#[case] http2: bool, #[case] expected: &str) {
    let (files, trusted) = make_certificate(&folder(&format!("alpn-{http2}")));
    let mut config = config(true, Some(files));
    config.metrics.http2 = http2;
    let running = start(config);
    let stream = connect_tls(running.metrics, &trusted, &[b"h2", b"http/1.1"]).await.unwrap();
    let agreed = stream.get_ref().1.alpn_protocol().map(String::from_utf8_lossy);
    assert_eq!(agreed.as_deref(), Some(expected));
}

#[tokio::test]
async fn without_files_a_certificate_is_made_in_memory() {
    let running = start(config(true, None));
    let (_, other) = make_certificate(&folder("self-signed"));
    let error = connect_tls(running.metrics, &other, &[]).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "TLS speaks, with a certificate of its own: {error}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_certificate_is_taken_over_and_a_broken_one_is_not() {
    let folder = folder("reload");
    let (files, first) = make_certificate(&folder);
    let certificate = Certificate::load(Some(files.clone()), false).unwrap();
    let config = certificate.acceptor_config();
    let keeping = tokio::spawn(certificate.keep_current());
    let in_use = || Arc::as_ptr(&config.get_inner());
    let before = in_use();

    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(in_use(), before, "nothing changed");
    std::fs::write(&files.certificate, "no certificate").unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(in_use(), before, "a broken pair is not taken over");
    let (_, second) = make_certificate(&folder);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_ne!(in_use(), before, "a whole pair is");
    assert_ne!(first, second);
    keeping.abort();
}

#[tokio::test]
async fn an_address_in_use_is_told_with_its_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut metrics_taken = config(false, None);
    metrics_taken.metrics.bind = loopback(port);
    let mut health_taken = config(false, None);
    health_taken.health = loopback(port);
    for (config, flag) in [(metrics_taken, "--metrics-bind-address"), (health_taken, "--health-probe-bind-address")] {
        let text = Servers::bind(config).unwrap_err().to_string();
        assert!(
            text.contains(flag) && text.contains(&format!("127.0.0.1:{port}")) && text.contains("in use"),
            "{text}"
        );
    }
}

#[rstest]
#[case::missing(None, "cannot read")]
#[case::not_pem(Some("nonsense"), "no certificate in PEM format")]
#[tokio::test]
async fn an_unusable_certificate_is_told_with_its_file(#[case] content: Option<&str>, #[case] expected: &str) {
    let folder = folder(&format!("unusable-{}", content.is_some()));
    let (files, _) = make_certificate(&folder);
    match content {
        Some(content) => std::fs::write(&files.certificate, content).unwrap(),
        None => std::fs::remove_file(&files.certificate).unwrap(),
    }
    let running = start(config(true, Some(files)));
    let text = running.task.await.unwrap().unwrap_err().to_string();
    assert!(text.contains(expected) && text.contains("tls.crt"), "{text}");
}

#[tokio::test]
async fn a_key_of_another_certificate_is_refused() {
    let (files, _) = make_certificate(&folder("mismatch-a"));
    let (others, _) = make_certificate(&folder("mismatch-b"));
    let mixed = CertificateFiles { certificate: files.certificate, key: others.key };
    let error = Certificate::load(Some(mixed), false).err().unwrap();
    assert!(matches!(error, CertificateError::Unusable(_)), "{error}");
}

#[tokio::test]
async fn shutdown_ends_all_servers_and_frees_their_ports() {
    let running = start(config(false, None));
    assert!(get(running.health, "/healthz", "").await.starts_with("HTTP/1.1 200"));
    let _idle = TcpStream::connect(running.metrics).await.unwrap();
    running.shutdown.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(5), running.task).await;
    assert!(matches!(ended, Ok(Ok(Ok(())))), "{ended:?}");
    assert!(TcpStream::connect(running.health).await.is_err());
    assert!(TcpStream::connect(running.metrics).await.is_err());
}

#[tokio::test]
async fn what_is_switched_off_is_not_served() {
    let mut config = config(true, None);
    (config.metrics.bind, config.health) = (Bind::Off, Bind::Off);
    let servers = Servers::bind(config.clone()).unwrap();
    assert_eq!((servers.metrics_address(), servers.health_address()), (None, None));
    serve(config, Metrics::new("0", "0"), Readiness::default(), client(), CancellationToken::new()).await.unwrap();
}
