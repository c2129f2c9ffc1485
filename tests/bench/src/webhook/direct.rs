//! The injector alone: direct requests over HTTPS on connections that stay.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use lmcache_testbed::Cluster;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::latencies::Latencies;
use crate::machine::Usage;
use crate::sample::{review, typical};
use crate::stage::{NAMESPACE, Operator, Place, registered};

/// Connections that stay open.
const CONNECTIONS: usize = 16;
/// Requests a second when answers are timed.
const PACE: f64 = 1_000.0;
const WARM_UP: Duration = Duration::from_secs(2);

/// What was measured.
pub struct Run {
    /// Size of the pod as JSON.
    pub pod_bytes: usize,
    /// Requests a second, as many as come through.
    pub rate: f64,
    /// Requests for each second of processor time that the operator used meanwhile.
    pub rate_of_cpu: f64,
    /// Answers at that rate.
    pub full: Latencies,
    /// Answers at [`PACE`].
    pub paced: Latencies,
}

/// Starts an operator on one processor and asks it, first as often as it can answer, then at a pace.
pub async fn measure(cluster: &Cluster, manager: &Path, time: Duration) -> Result<Run> {
    let mut operator = Operator::start(manager, cluster, "alone", &[], Place::OneProcessor).await?;
    let pod = typical();
    let client = Client::new(cluster, review(&pod, NAMESPACE)).await?;
    client.run(None, WARM_UP).await?;
    let (usage, begun) = (Usage::of(operator.pid()?)?, Instant::now());
    let full = client.run(None, time).await?;
    let (took, after) = (begun.elapsed(), Usage::of(operator.pid()?)?);
    let paced = client.run(Some(PACE), time).await?;
    operator.check()?;
    operator.stop().await;
    #[allow(clippy::cast_precision_loss, reason = "requests of one run are few")]
    let count = full.len() as f64;
    Ok(Run {
        pod_bytes: pod.to_string().len(),
        rate: count / took.as_secs_f64(),
        rate_of_cpu: count / (after.cpu_seconds - usage.cpu_seconds),
        full,
        paced,
    })
}

/// Sends one request again and again.
struct Client {
    address: String,
    tls: TlsConnector,
    request: Arc<Vec<u8>>,
}

impl Client {
    async fn new(cluster: &Cluster, body: String) -> Result<Self> {
        let (address, path, bundle) = registered(cluster).await?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&bundle) {
            roots.add(authority?)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let head = format!(
            "POST {path}?timeout=10s HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let request = Arc::new([head.into_bytes(), body.into_bytes()].concat());
        Ok(Client { address, tls: TlsConnector::from(Arc::new(config)), request })
    }

    /// Asks on all connections for a time, at most `pace` times a second.
    async fn run(&self, pace: Option<f64>, time: Duration) -> Result<Latencies> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from("127.0.0.1")?;
            connections.push(Connection { stream: self.tls.connect(name, stream).await?, answer: Vec::new() });
        }
        let (begun, next) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for mut connection in connections {
            let (next, request) = (next.clone(), self.request.clone());
            tasks.spawn(async move {
                let mut times = Vec::new();
                loop {
                    let sent = due(begun, next.fetch_add(1, Ordering::Relaxed), pace).await;
                    if begun.elapsed() >= time {
                        return anyhow::Ok(times);
                    }
                    connection.ask(&request).await?;
                    times.push(sent.elapsed());
                }
            });
        }
        let mut times = Vec::new();
        while let Some(result) = tasks.join_next().await {
            times.extend(result??);
        }
        Ok(Latencies::new(times))
    }
}

/// Waits until a request is due, and says since when its time counts: one that is late because all connections were
/// busy counts from when it should have been sent.
async fn due(begun: Instant, number: usize, pace: Option<f64>) -> Instant {
    #[allow(clippy::cast_precision_loss, reason = "requests of one run are few")]
    let due = pace.map(|pace| begun + Duration::from_secs_f64(number as f64 / pace));
    let Some(due) = due else { return Instant::now() };
    if due <= Instant::now() {
        return due;
    }
    tokio::time::sleep_until(due.into()).await;
    Instant::now()
}

struct Connection {
    stream: TlsStream<TcpStream>,
    answer: Vec<u8>,
}

impl Connection {
    /// Sends a request and reads its answer, which must be an injection.
    async fn ask(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        self.answer.clear();
        let mut whole = None;
        while whole.is_none_or(|whole| self.answer.len() < whole) {
            ensure!(self.stream.read_buf(&mut self.answer).await? > 0, "the operator closed a connection");
            whole = whole.or_else(|| length(&self.answer));
        }
        let injected = self.answer.windows(9).any(|part| part == b"patchType");
        ensure!(injected, "the pod was not injected: {}", String::from_utf8_lossy(&self.answer));
        Ok(())
    }
}

/// How long the answer is, head included; `None` until the head is there.
fn length(answer: &[u8]) -> Option<usize> {
    let head = answer.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&answer[..head]).ok()?.to_ascii_lowercase();
    let body: usize = text.split_once("content-length: ")?.1.split("\r\n").next()?.parse().ok()?;
    Some(head + body)
}
