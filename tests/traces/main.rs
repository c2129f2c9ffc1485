//! Traces of reconciles and rollouts, as a real Jaeger has received them from the real operator.
//!
//! All tests share one control plane and one Jaeger (those of TLS two more); each starts its operators for its own namespace.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod collector;
mod documented;
mod life;
mod reconcile;
mod rollout;
mod tls;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use common::{Bed, Operator, engine};
use lmcache_crds::{LMCacheEngine, PhaseRecord, PhaseTransition, RolloutTrace};
use lmcache_harness::{Harness, PhaseObject};
use lmcache_testbed::annotation::READY_AFTER;
use lmcache_testbed::jaeger::{Jaeger, Span};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// How long a rollout may take while other tests share the machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long a span may take from its end to Jaeger's answer.
const DELIVERY: Duration = Duration::from_secs(30);
const NAME: &str = "cache";
/// Spans of reconciles wait for company; here nobody wants to wait for them.
const AT_ONCE: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "100");

/// The control plane, with two GPU nodes and no operator, and Jaeger.
struct Place {
    bed: Bed,
    jaeger: Jaeger,
}

async fn place() -> &'static Place {
    static PLACE: OnceCell<Place> = OnceCell::const_new();
    let start = || async {
        let bed = Bed::start("traces").await?;
        for node in ["gpu-1", "gpu-2"] {
            bed.cluster.add_gpu_node(node).await?;
        }
        let jaeger = Jaeger::start(&bed.cluster.state_dir().join("jaeger")).await?;
        anyhow::Ok(Place { bed, jaeger })
    };
    PLACE.get_or_try_init(start).await.unwrap()
}

impl Place {
    /// A namespace of the test's own.
    async fn suite(&self, prefix: &str) -> Result<Harness> {
        Ok(Harness::in_new_namespace(self.bed.cluster.client(), prefix).await?.with_timeout(PATIENCE))
    }

    /// Starts an operator for a namespace and waits until it works.
    async fn operator(&self, suite: &Harness, flags: &[&str], environment: &[(&str, &str)]) -> Result<Operator> {
        let (cluster, namespace) = (&self.bed.cluster, suite.namespace());
        let own = format!("--watch-namespaces={namespace}");
        let flags = [&[own.as_str()], flags].concat();
        let environment = [&[AT_ONCE], environment].concat();
        let kubeconfig = cluster.operator_kubeconfig_path();
        let operator = Operator::start_with(cluster.state_dir(), namespace, &kubeconfig, &flags, &environment)?;
        operator.wait_for_log("Started the controllers").await?;
        Ok(operator)
    }

    /// One that exports to Jaeger over HTTP, as its environment says.
    async fn traced(&self, suite: &Harness) -> Result<Operator> {
        self.operator(suite, &[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", &self.jaeger.otlp_http())]).await
    }

    /// The trace of a resource's present rollout, once its span `rollout` has arrived.
    async fn rollout(&self, trace: &RolloutTrace) -> Result<Rollout> {
        self.rollout_with(trace, "rollout").await
    }

    /// The same, once this span of it has arrived.
    async fn rollout_with(&self, trace: &RolloutTrace, name: &str) -> Result<Rollout> {
        Ok(Rollout { spans: self.jaeger.wait_for_span(&trace.trace_id, name, DELIVERY).await? })
    }
}

/// The spans of one trace.
struct Rollout {
    spans: Vec<Span>,
}

impl Rollout {
    /// The only span of this name.
    fn the(&self, name: &str) -> Result<&Span> {
        let found: Vec<&Span> = self.spans.iter().filter(|span| span.name == name).collect();
        ensure!(found.len() == 1, "{} spans {name} in {:#?}", found.len(), self.spans);
        Ok(found[0])
    }

    /// Names of the spans right under another, in the order of their start.
    fn under(&self, parent: &Span) -> Vec<&str> {
        self.spans.iter().filter(|it| it.parent_id == parent.span_id).map(|it| it.name.as_str()).collect()
    }

    /// The stays under a span follow each other without a gap, from its beginning to its end.
    fn ensure_gapless(&self, parent: &Span) -> Result<()> {
        let mut stays: Vec<&Span> =
            self.spans.iter().filter(|it| it.parent_id == parent.span_id && it.name != "recovery").collect();
        stays.sort_by_key(|it| (it.start, it.end));
        let mut at = parent.start_second();
        for stay in stays {
            ensure!(stay.start_second() == at, "{} does not begin at {at}: {:#?}", stay.name, self.spans);
            at = stay.end_second();
        }
        ensure!(at == parent.end_second(), "{} ends at {at}: {:#?}", parent.name, self.spans);
        Ok(())
    }
}

/// An engine whose instances get ready after this time.
fn slow(after: &str, rollout: usize) -> Value {
    json!({
        "l1": {"sizeGB": 1},
        "podAnnotations": {READY_AFTER: after},
        "env": [{"name": "ROLLOUT", "value": rollout.to_string()}],
    })
}

async fn create(suite: &Harness, spec: &Value) -> Result<LMCacheEngine> {
    suite.apply_fixture(&engine(NAME, spec)).await
}

fn record<K: PhaseObject>(object: &K) -> Result<&PhaseRecord> {
    object.record().context("it has no status")
}

fn trace<K: PhaseObject>(object: &K) -> Result<&RolloutTrace> {
    record(object)?.trace.as_ref().context("it has no status.trace")
}

/// The steps of a generation.
fn steps(record: &PhaseRecord, generation: i64) -> Vec<PhaseTransition> {
    record.phase_transitions.iter().filter(|step| step.generation == generation).cloned().collect()
}

/// A metric without labels, or with the given ones, from the operator's own endpoint.
async fn metric(operator: &Operator, series: &str) -> Result<f64> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let address = operator.address("Serving metrics server").await?;
    let mut stream = tokio::net::TcpStream::connect(&address).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    value.with_context(|| format!("no {series} in:\n{text}"))
}

/// Polls until a metric is above zero.
async fn counted(operator: &Operator, series: &str) -> Result<f64> {
    rises(operator, series, 0.0).await
}

/// Polls until a metric is above what it was before.
async fn rises(operator: &Operator, series: &str, before: f64) -> Result<f64> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let value = metric(operator, series).await?;
        if value > before {
            return Ok(value);
        }
        ensure!(tokio::time::Instant::now() < deadline, "{series} stays {before}:\n{}", operator.program.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
