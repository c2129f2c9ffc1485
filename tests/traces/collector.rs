//! No collector, a dead one, a slow one.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rstest::rstest;
use tokio::net::TcpListener;

use crate::common::Operator;
use crate::{NAME, PATIENCE, counted, create, metric, place, record, slow};

pub const FAILURES: &str = "lmcache_operator_trace_export_failures_total";
pub const EXPORTED: &str = "lmcache_operator_trace_spans_exported_total";
const FAILED: &str = "lmcache_operator_trace_spans_dropped_total{reason=\"export_failed\"}";
const FULL: &str = "lmcache_operator_trace_spans_dropped_total{reason=\"queue_full\"}";

/// Names of the process's threads.
fn threads(operator: &Operator) -> Result<Vec<String>> {
    let pid = operator.program.pid().context("it runs")?;
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))?;
    tasks.map(|task| Ok(std::fs::read_to_string(task?.path().join("comm"))?.trim().to_owned())).collect()
}

/// Remote ports of the process's TCP connections.
fn peers(operator: &Operator) -> Result<BTreeSet<u16>> {
    let pid = operator.program.pid().context("it runs")?;
    let files =
        std::fs::read_dir(format!("/proc/{pid}/fd"))?.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let sockets: BTreeSet<String> = files.map(|file| file.to_string_lossy().into_owned()).collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp"))?;
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let own = rows.filter(|row| row.get(9).is_some_and(|inode| sockets.contains(&format!("socket:[{inode}]"))));
    let ports = own.filter_map(|row| u16::from_str_radix(row.get(2)?.rsplit(':').next()?, 16).ok());
    Ok(ports.filter(|port| *port != 0).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_endpoint_nothing_is_connected_started_or_written() {
    let place = place().await;
    let suite = place.suite("off").await.unwrap();
    // Where an exporter that nobody asked for would be held; or somebody else listens there already.
    let _customary = [TcpListener::bind("127.0.0.1:4317").await, TcpListener::bind("127.0.0.1:4318").await];
    let operator = place.operator(&suite, &["--otlp-protocol=grpc"], &[]).await.unwrap();
    create(&suite, &slow("0s", 0)).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    assert_eq!(record(&engine).unwrap().trace, None);
    assert!(!threads(&operator).unwrap().contains(&"traces".to_owned()), "{:?}", threads(&operator));
    let peers = peers(&operator).unwrap();
    assert!(!peers.is_empty() && !peers.iter().any(|port| [4317, 4318].contains(port)), "{peers:?}");
    assert!(!operator.program.log().contains("trace_id"), "{}", operator.program.log());
    suite.finish().await.unwrap();
}

#[rstest]
#[case::grpc("grpc")]
#[case::http("http/protobuf")]
#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_collector_is_counted_and_holds_nothing_up(#[case] protocol: &str) {
    let place = place().await;
    let suite = place.suite("unreachable").await.unwrap();
    // Nobody listens on a port that was just given back.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
    let mut operator = place.operator(&suite, &[], &environment).await.unwrap();
    assert!(threads(&operator).unwrap().contains(&"traces".to_owned()));
    for rollout in 0..2 {
        create(&suite, &slow("0s", rollout)).await.unwrap();
        suite.wait_ready(NAME).await.unwrap();
    }
    counted(&operator, FAILURES).await.unwrap();
    assert!(counted(&operator, FAILED).await.unwrap() >= 1.0);
    assert!(metric(&operator, EXPORTED).await.unwrap() == 0.0);
    let told = operator.program.log().matches("Failed to export traces").count();
    assert_eq!(told, 1, "it is told once:\n{}", operator.program.log());
    let took = operator.program.stop(Duration::from_secs(20)).await;
    assert!(took < Duration::from_secs(8), "it ended after {took:?}");
    suite.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_never_answers_costs_a_bounded_queue() {
    let place = place().await;
    let suite = place.suite("mute").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let mute = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok(connection) = listener.accept().await {
            held.push(connection);
        }
    });
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_BSP_MAX_QUEUE_SIZE", "8")];
    let mut operator = place.operator(&suite, &[], &environment).await.unwrap();
    for rollout in 0..3 {
        create(&suite, &slow("0s", rollout)).await.unwrap();
        tokio::time::timeout(PATIENCE, suite.wait_ready(NAME)).await.unwrap().unwrap();
    }
    counted(&operator, FULL).await.unwrap();
    let took = operator.program.stop(Duration::from_secs(20)).await;
    assert!(took < Duration::from_secs(8), "it ended after {took:?}");
    mute.abort();
    suite.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stopping_operator_has_queued_is_sent_first() {
    let place = place().await;
    let suite = place.suite("flushed").await.unwrap();
    let endpoint = place.jaeger.otlp_http();
    // Spans of reconciles would wait for a minute.
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "60000")];
    let mut operator = place.operator(&suite, &[], &environment).await.unwrap();
    create(&suite, &slow("0s", 0)).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    operator.program.stop(Duration::from_secs(20)).await;
    let told = place.rollout(crate::trace(&engine).unwrap()).await.unwrap();
    let root = told.the("rollout").unwrap();
    for (trace_id, span_id) in &root.links {
        let spans = place.jaeger.trace(trace_id).await.unwrap();
        assert!(spans.iter().any(|span| span.span_id == *span_id), "{trace_id}: {spans:#?}");
    }
    suite.finish().await.unwrap();
}
