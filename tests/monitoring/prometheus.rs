//! A real Prometheus: its process, and its HTTP API.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use lmcache_testbed::Program;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::common::project;

/// How often everything is scraped and every rule evaluated.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Namespace of the operator, as its target is labelled.
pub const OPERATOR_NAMESPACE: &str = "lmcache-operator-system";

/// A Prometheus that scrapes an operator and a stand-in for kube-state-metrics.
pub struct Prometheus {
    program: Program,
    address: String,
}

/// Now, in seconds since the epoch.
pub fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |it| it.as_secs_f64())
}

/// A query's answer: series with their samples (seconds, value), those that are no number left out.
#[derive(Clone, Debug)]
pub struct Series {
    pub labels: serde_json::Map<String, Value>,
    pub samples: Vec<(f64, f64)>,
}

/// A sample that tells of the trace behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    pub trace_id: String,
    pub value: f64,
    /// Seconds since the epoch.
    pub time: f64,
}

impl Prometheus {
    /// Starts it with the project's rules; `folder` is for its data, configuration and log.
    pub async fn start(folder: &Path, operator: &str, pods: &str) -> Result<Self> {
        let config = folder.join("prometheus.yaml");
        std::fs::write(&config, configuration(operator, pods))?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.to_string();
        let args = [
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", folder.join("prometheus").display()),
            format!("--web.listen-address={address}"),
            // They come in the OpenMetrics format only, which Prometheus asks for by itself.
            "--enable-feature=exemplar-storage".to_owned(),
            "--log.level=warn".to_owned(),
        ];
        let binary = tools().await?.join("prometheus");
        let program = Program::start("prometheus", &binary, &args, folder.join("prometheus.log"))?;
        let prometheus = Prometheus { program, address };
        let deadline = Instant::now() + Duration::from_secs(30);
        while prometheus.get("/-/ready").await.is_err() {
            ensure!(Instant::now() < deadline, "Prometheus did not start:\n{}", prometheus.program.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(prometheus)
    }

    /// The value of an expression at this moment.
    pub async fn now(&self, expr: &str) -> Result<Vec<Series>> {
        self.query(&format!("/api/v1/query?query={}", encoded(expr))).await
    }

    /// The values of an expression between two moments, one for each interval.
    pub async fn over_time(&self, expr: &str, from: f64, to: f64) -> Result<Vec<Series>> {
        let step = INTERVAL.as_secs();
        self.query(&format!("/api/v1/query_range?query={}&start={from}&end={to}&step={step}", encoded(expr))).await
    }

    /// The exemplars between two moments of the series that an expression names, each once: a histogram repeats it in no bucket
    /// but its own.
    pub async fn exemplars(&self, expr: &str, from: f64, to: f64) -> Result<Vec<Exemplar>> {
        let answer =
            self.json(&format!("/api/v1/query_exemplars?query={}&start={from}&end={to}", encoded(expr))).await?;
        let series = answer.as_array().context("no list of series")?;
        series.iter().flat_map(|it| it["exemplars"].as_array().into_iter().flatten()).map(exemplar).collect()
    }

    /// Waits until an expression has a value.
    pub async fn until(&self, expr: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_mins(1);
        while self.now(expr).await?.is_empty() {
            ensure!(Instant::now() < deadline, "Prometheus never saw {expr}\n{}", self.program.log());
            tokio::time::sleep(INTERVAL / 4).await;
        }
        Ok(())
    }

    /// Waits until every target was scraped twice from now on.
    pub async fn two_scrapes(&self) -> Result<()> {
        self.until(&format!("min(timestamp(up)) > {}", seconds() + INTERVAL.as_secs_f64())).await
    }

    /// The rules as it has loaded and evaluated them.
    pub async fn rules(&self) -> Result<Vec<Value>> {
        let answer = self.json("/api/v1/rules").await?;
        let groups = answer["groups"].as_array().cloned().unwrap_or_default();
        Ok(groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect())
    }

    async fn query(&self, path: &str) -> Result<Vec<Series>> {
        let answer = self.json(path).await?;
        answer["result"].as_array().context("no vector, no matrix")?.iter().map(series).collect()
    }

    async fn json(&self, path: &str) -> Result<Value> {
        let answer: Value = serde_json::from_str(&self.get(path).await?)?;
        ensure!(answer["status"] == "success", "{answer}");
        Ok(answer["data"].clone())
    }

    async fn get(&self, path: &str) -> Result<String> {
        get(&self.address, path).await
    }
}

/// The body of an answer over plain HTTP.
pub async fn get(address: &str, path: &str) -> Result<String> {
    // HTTP/1.0, so that the answer is never cut in chunks.
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the head")?;
    ensure!(head.split_whitespace().nth(1) == Some("200"), "{}: {body}", head.lines().next().unwrap_or_default());
    Ok(body.to_owned())
}

/// Labels as the ServiceMonitor in deploy/monitoring gives them: those of the series win.
fn configuration(operator: &str, pods: &str) -> String {
    let rules = project().join("observability/rules/lmcache-operator.yaml");
    let seconds = INTERVAL.as_secs();
    serde_json::json!({
        "global": {"scrape_interval": format!("{seconds}s"), "evaluation_interval": format!("{seconds}s")},
        "rule_files": [rules],
        "scrape_configs": [
            {"job_name": "operator", "honor_labels": true,
                "static_configs": [{"targets": [operator], "labels": {"namespace": OPERATOR_NAMESPACE}}]},
            {"job_name": "kube-state-metrics", "honor_labels": true, "static_configs": [{"targets": [pods]}]},
        ],
    })
    .to_string()
}

fn series(value: &Value) -> Result<Series> {
    let labels = value["metric"].as_object().cloned().unwrap_or_default();
    let one = value["value"].as_array().map(|it| vec![Value::Array(it.clone())]);
    let samples = one.or_else(|| value["values"].as_array().cloned()).context("a series without samples")?;
    let sample = |pair: &Value| {
        let number = pair[1].as_str()?.parse().ok().filter(|it: &f64| it.is_finite())?;
        Some((pair[0].as_f64()?, number))
    };
    Ok(Series { labels, samples: samples.iter().filter_map(sample).collect() })
}

fn exemplar(value: &Value) -> Result<Exemplar> {
    let trace_id = value["labels"]["trace_id"].as_str().with_context(|| format!("no trace_id in {value}"))?.to_owned();
    let number = value["value"].as_str().and_then(|it| it.parse().ok()).or_else(|| value["value"].as_f64());
    let time = value["timestamp"].as_f64().context("no time")?;
    Ok(Exemplar { trace_id, value: number.with_context(|| format!("no number in {value}"))?, time })
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|it| if plain(it) { char::from(it).to_string() } else { format!("%{it:02X}") }).collect()
}

/// The folder with `prometheus` and `promtool`, downloaded the first time.
pub async fn tools() -> Result<&'static PathBuf> {
    static TOOLS: OnceCell<PathBuf> = OnceCell::const_new();
    TOOLS
        .get_or_try_init(|| async {
            let script = project().join("tests/monitoring/prometheus.sh");
            let output = Command::new(script).stdin(Stdio::null()).stderr(Stdio::inherit()).output().await?;
            ensure!(output.status.success(), "no Prometheus: the reason is above");
            Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
        })
        .await
}

/// Runs promtool and fails with what it says.
pub async fn promtool(args: &[&str], input: &str) -> Result<()> {
    let mut child = Command::new(tools().await?.join("promtool"))
        .args(args)
        .current_dir(project().join("observability/rules"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    // A tool that does not read its input closes it.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = child.wait_with_output().await?;
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat();
    if !output.status.success() || said.contains("FAILED") {
        bail!("promtool {} is not content:\n{said}", args.join(" "));
    }
    Ok(())
}
