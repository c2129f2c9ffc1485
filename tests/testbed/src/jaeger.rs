//! A real Jaeger on loopback: takes traces over OTLP, keeps them in memory, and answers what it has.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::Value;

use crate::files::{private_file, private_folder};
use crate::{Program, binaries, ports};

const STARTUP: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);
/// How many traces a search gives, and how many are kept.
const MAX_TRACES: usize = 10_000;

/// PEM files of receivers that speak TLS.
#[derive(Clone, Debug)]
pub struct ReceiverTls {
    /// The certificate that they show; it has to name `127.0.0.1`.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority of clients; with it, a client without a certificate that it signed is refused.
    pub client_authority: Option<PathBuf>,
}

/// A running Jaeger. It is killed on drop.
pub struct Jaeger {
    program: Program,
    /// Scheme of its receivers.
    scheme: &'static str,
    grpc: u16,
    http: u16,
    query: u16,
    client: Client<HttpConnector, Empty<&'static [u8]>>,
}

impl Jaeger {
    /// Starts it on free ports, with its configuration and its log in `dir`; the binary is built the first time.
    pub async fn start(dir: &Path) -> Result<Self> {
        Self::start_with(dir, None).await
    }

    /// The same, with receivers that speak TLS and nothing else. Its API stays without.
    pub async fn start_with_tls(dir: &Path, tls: &ReceiverTls) -> Result<Self> {
        Self::start_with(dir, Some(tls)).await
    }

    async fn start_with(dir: &Path, tls: Option<&ReceiverTls>) -> Result<Self> {
        let binary = binaries::jaeger().await?;
        private_folder(dir)?;
        let [grpc, http, query, query_grpc] = ports::free::<4>()?;
        let file = dir.join("jaeger.yaml");
        private_file(&file, &configuration(&Ports { grpc, http, query, query_grpc }, tls))?;
        let args = ["--config".to_owned(), file.display().to_string()];
        // It would trace itself, to whoever listens on the customary port.
        let environment = [("OTEL_TRACES_SAMPLER", "always_off")];
        let program = Program::start_with("jaeger", &binary, &args, &environment, dir.join("jaeger.log"))?;
        let client = Client::builder(TokioExecutor::new()).build_http();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut jaeger = Jaeger { program, scheme, grpc, http, query, client };
        jaeger.ready().await?;
        Ok(jaeger)
    }

    /// URL for OTLP over gRPC.
    pub fn otlp_grpc(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.grpc)
    }

    /// URL for OTLP over HTTP.
    pub fn otlp_http(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.http)
    }

    /// URL of its API.
    pub fn api(&self) -> String {
        format!("http://127.0.0.1:{}", self.query)
    }

    /// Its process id.
    pub fn pid(&self) -> Option<u32> {
        self.program.pid()
    }

    /// Asks it to end, and kills it when it has not after `patience`.
    pub async fn stop(&mut self, patience: Duration) {
        self.program.stop(patience).await;
    }

    /// The spans of a trace (32 hexadecimal digits), in the order of their start; none when it is unknown.
    pub async fn trace(&self, trace_id: &str) -> Result<Vec<Span>> {
        let mut spans = self.spans(&format!("/api/v3/traces/{trace_id}")).await?;
        spans.sort_by_key(|span| (span.start, span.end));
        Ok(spans)
    }

    /// The spans of every trace in which a service has a span of this name.
    pub async fn find(&self, service: &str, name: &str) -> Result<Vec<Span>> {
        let (from, to) = ("2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z");
        self.spans(&format!(
            "/api/v3/traces?query.service_name={service}&query.operation_name={name}&query.start_time_min={from}\
             &query.start_time_max={to}&query.num_traces={MAX_TRACES}"
        ))
        .await
    }

    /// Polls a trace until `holds` is content with it. `what` names it in the error.
    pub async fn wait_for(
        &self,
        trace_id: &str,
        what: &str,
        patience: Duration,
        holds: impl Fn(&[Span]) -> bool,
    ) -> Result<Vec<Span>> {
        let deadline = Instant::now() + patience;
        loop {
            let spans = self.trace(trace_id).await?;
            if holds(&spans) {
                return Ok(spans);
            }
            ensure!(Instant::now() < deadline, "trace {trace_id} does not show {what}: {spans:#?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Polls a trace until a span of this name has arrived.
    pub async fn wait_for_span(&self, trace_id: &str, name: &str, patience: Duration) -> Result<Vec<Span>> {
        let arrived = |spans: &[Span]| spans.iter().any(|span| span.name == name);
        self.wait_for(trace_id, &format!("a span {name}"), patience, arrived).await
    }

    async fn ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + STARTUP;
        loop {
            if let Some(status) = self.program.exit_status() {
                bail!("Jaeger ended with {status}:\n{}", self.program.log());
            }
            if self.get("/api/services").await.is_ok() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "Jaeger does not answer:\n{}", self.program.log());
            tokio::time::sleep(POLL).await;
        }
    }

    async fn spans(&self, path: &str) -> Result<Vec<Span>> {
        let (status, body) = self.get(path).await?;
        // It says so when there is nothing of the kind.
        if status == StatusCode::NOT_FOUND {
            return Ok(Vec::new());
        }
        let text = String::from_utf8_lossy(&body);
        ensure!(status.is_success(), "{path}: {status}: {text}");
        let answer: Answer = serde_json::from_slice(&body).with_context(|| format!("{path}: {text}"))?;
        answer.result.resource_spans.into_iter().flat_map(ResourceSpans::spans).collect()
    }

    async fn get(&self, path: &str) -> Result<(StatusCode, Vec<u8>)> {
        let request = Request::get(format!("{}{path}", self.api())).body(Empty::new())?;
        let response = self.client.request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes().to_vec()))
    }
}

struct Ports {
    grpc: u16,
    http: u16,
    query: u16,
    query_grpc: u16,
}

fn configuration(ports: &Ports, tls: Option<&ReceiverTls>) -> String {
    let Ports { grpc, http, query, query_grpc } = ports;
    let tls = tls.map_or_else(String::new, receiver_tls);
    format!(
        "\
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {{receivers: [otlp], processors: [], exporters: [jaeger_storage_exporter]}}
  telemetry:
    metrics: {{level: none}}
    logs: {{level: warn}}
extensions:
  jaeger_storage:
    backends:
      memory: {{memory: {{max_traces: {max}}}}}
  jaeger_query:
    storage: {{traces: memory}}
    http: {{endpoint: \"127.0.0.1:{query}\"}}
    grpc: {{endpoint: \"127.0.0.1:{query_grpc}\"}}
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: \"127.0.0.1:{grpc}\"{tls}}}
      http: {{endpoint: \"127.0.0.1:{http}\"{tls}}}
exporters:
  jaeger_storage_exporter: {{trace_storage: memory}}
",
        max = MAX_TRACES + 1
    )
}

/// What follows the endpoint of a receiver.
fn receiver_tls(tls: &ReceiverTls) -> String {
    let file = |key: &str, path: &Path| format!("{key}: {:?}", path.display().to_string());
    let mut fields = vec![file("cert_file", &tls.certificate), file("key_file", &tls.key)];
    fields.extend(tls.client_authority.iter().map(|path| file("client_ca_file", path)));
    format!(", tls: {{{}}}", fields.join(", "))
}

/// A span as Jaeger has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its trace, 32 hexadecimal digits.
    pub trace_id: String,
    /// Its id, 16 hexadecimal digits.
    pub span_id: String,
    /// The span above it, or empty.
    pub parent_id: String,
    /// Its name.
    pub name: String,
    /// 1 internal, 2 server, 3 client.
    pub kind: i64,
    /// When it began, in nanoseconds since 1970.
    pub start: i128,
    /// When it ended.
    pub end: i128,
    /// Attributes of the span.
    pub attributes: HashMap<String, String>,
    /// Attributes of who made it.
    pub resource: HashMap<String, String>,
    /// What happened in it.
    pub events: Vec<SpanEvent>,
    /// Trace and id of each span that it is linked to.
    pub links: Vec<(String, String)>,
    /// What went wrong: `Some` when its status is an error.
    pub error: Option<String>,
}

impl Span {
    /// The value of an attribute, or nothing.
    pub fn attribute(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }

    /// When it began, in whole seconds.
    pub fn start_second(&self) -> i64 {
        i64::try_from(self.start / 1_000_000_000).unwrap_or_default()
    }

    /// When it ended, in whole seconds.
    pub fn end_second(&self) -> i64 {
        i64::try_from(self.end / 1_000_000_000).unwrap_or_default()
    }
}

/// An event of a span.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvent {
    /// Its name.
    pub name: String,
    /// When, in nanoseconds since 1970.
    pub time: i128,
    /// Its attributes.
    pub attributes: HashMap<String, String>,
}

// What follows is OTLP in JSON.

#[derive(Deserialize)]
struct Answer {
    result: TracesData,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TracesData {
    #[serde(default)]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans {
    #[serde(default)]
    resource: Attributes,
    #[serde(default)]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize)]
struct ScopeSpans {
    #[serde(default)]
    spans: Vec<Value>,
}

#[derive(Deserialize, Default)]
struct Attributes {
    #[serde(default)]
    attributes: Vec<Value>,
}

impl ResourceSpans {
    fn spans(self) -> Vec<Result<Span>> {
        let resource = attributes(&self.resource.attributes);
        let spans = self.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.map(|span| read(&span, &resource)).collect()
    }
}

fn read(span: &Value, resource: &HashMap<String, String>) -> Result<Span> {
    let text = |at: &Value| at.as_str().unwrap_or_default().to_owned();
    let list = |at: &Value| at.as_array().cloned().unwrap_or_default();
    let time = |at: &Value| text(at).parse::<i128>().with_context(|| format!("a time in {span}"));
    let events = list(&span["events"]);
    let events = events.iter().map(|event| {
        let attributes = attributes(&list(&event["attributes"]));
        Ok(SpanEvent { name: text(&event["name"]), time: time(&event["timeUnixNano"])?, attributes })
    });
    let links = list(&span["links"]);
    Ok(Span {
        trace_id: text(&span["traceId"]),
        span_id: text(&span["spanId"]),
        parent_id: text(&span["parentSpanId"]),
        name: text(&span["name"]),
        kind: span["kind"].as_i64().unwrap_or_default(),
        start: time(&span["startTimeUnixNano"])?,
        end: time(&span["endTimeUnixNano"])?,
        attributes: attributes(&list(&span["attributes"])),
        resource: resource.clone(),
        events: events.collect::<Result<_>>()?,
        links: links.iter().map(|link| (text(&link["traceId"]), text(&link["spanId"]))).collect(),
        error: (span["status"]["code"] == 2).then(|| text(&span["status"]["message"])),
    })
}

/// Values of every type as text.
fn attributes(pairs: &[Value]) -> HashMap<String, String> {
    let text = |value: &Value| {
        let inner = value.as_object().and_then(|typed| typed.values().next());
        inner.map_or_else(String::new, |inner| inner.as_str().map_or_else(|| inner.to_string(), str::to_owned))
    };
    pairs.iter().map(|pair| (pair["key"].as_str().unwrap_or_default().to_owned(), text(&pair["value"]))).collect()
}
