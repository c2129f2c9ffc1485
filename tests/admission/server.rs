//! The server of a running operator, and clients that are large, wrong, slow or many.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::certificates::PREFIX;
use crate::client::{bundle, connect, post};
use crate::common::Operator;
use crate::http::get;
use crate::{Bed, WRONG, invalid, lenient_bed, operator_by_url, shared, until_refused};

/// As many as a test may open, next to those that the rest of the machine needs.
const IDLE: usize = 10_000;

async fn ask(bed: &Bed, operator: &Operator, path: &str, content_type: &str, body: &[u8]) -> Result<(u16, String)> {
    let address = operator.address("Serving webhooks").await?;
    let bundle = bundle(&bed.cluster.client(), PREFIX).await?;
    post(connect(&address, "127.0.0.1", &bundle).await?, path, content_type, body).await
}

fn review(annotation: usize) -> Vec<u8> {
    let mut engine: Value = serde_json::from_str(&invalid("x")).unwrap();
    engine["metadata"]["annotations"] = json!({"large": "x".repeat(annotation)});
    let kind = json!({"group": "lmcache.lmcache.ai", "version": "v1alpha1", "kind": "LMCacheEngine"});
    let request = json!({"uid": "u", "kind": kind, "operation": "CREATE", "namespace": "default", "object": engine});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string().into_bytes()
}

#[rstest]
#[case::small("/validate", "application/json", review(1), 200, WRONG)]
#[case::one_mebibyte("/validate", "application/json", review(1 << 20), 200, WRONG)]
#[case::too_large("/validate", "application/json", review(5 << 20), 413, "larger than")]
#[case::malformed("/validate", "application/json", b"{\"apiVersion\": ".to_vec(), 400, "not JSON")]
#[case::other_kind("/validate", "application/json", b"{\"kind\": \"Pod\"}".to_vec(), 400, "want admission.k8s.io/v1")]
#[case::content_type("/validate", "application/yaml", review(1), 415, "want content type application/json")]
#[case::unknown_path("/elsewhere", "application/json", review(1), 404, "no webhook is served on this path")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_gets_a_clear_answer(
    #[case] path: &str,
    #[case] content_type: &str,
    #[case] body: Vec<u8>,
    #[case] code: u16,
    #[case] hint: &str,
) {
    let (bed, operator) = shared().await;
    let (found, answer) = ask(bed, operator, path, content_type, &body).await.unwrap();
    assert_eq!(found, code, "{answer}");
    assert!(answer.contains(hint), "want {hint:?} in\n{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_the_end_of_the_certificate_are_shown_as_metrics() {
    let (bed, operator) = shared().await;
    let body = review(1);
    ask(bed, operator, "/validate", "application/json", &body).await.unwrap();
    let metrics = operator.address("Serving metrics server").await.unwrap();
    let (_, text) = get(&metrics, "/metrics").await.unwrap();
    let labels = r#"{webhook="validating",outcome="denied",reason="invalid"}"#;
    for name in ["webhook_requests_total", "webhook_duration_seconds_count"] {
        assert!(text.contains(&format!("lmcache_operator_{name}{labels}")), "{name} is not in\n{text}");
    }
    let expiry = "lmcache_operator_webhook_certificate_expiry_timestamp_seconds ";
    let expiry = text.lines().find_map(|line| line.strip_prefix(expiry)).unwrap_or_else(|| panic!("{text}"));
    let left = expiry.parse::<f64>().unwrap() - std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((89.0..=90.0).contains(&(left / 86_400.0)), "{left} s are left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_is_given_up_and_bothers_nobody() {
    let (bed, operator) = shared().await;
    let address = operator.address("Serving webhooks").await.unwrap();
    let bundle = bundle(&bed.cluster.client(), PREFIX).await.unwrap();
    let mut slow = connect(&address, "127.0.0.1", &bundle).await.unwrap();
    let begun = Instant::now();
    let drips = async {
        for byte in b"POST /validate HTTP/1.1\r\nHost: h\r\n" {
            slow.write_all(&[*byte]).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        anyhow::Ok(())
    };
    let broken = tokio::time::timeout(Duration::from_secs(30), drips).await.expect("it is still listened to");
    assert!(broken.is_err(), "it was listened to for {:?}", begun.elapsed());
    println!("a slow client was given up after {:?}", begun.elapsed());
    until_refused(bed, operator).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_cost_little_and_bother_nobody() {
    let bed = lenient_bed("idle").await.unwrap();
    let operator = operator_by_url(&bed, "manager", &[]).await.unwrap();
    let address = operator.address("Serving webhooks").await.unwrap();
    let before = resident(&operator).unwrap();
    let mut idle = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        idle.push(TcpStream::connect(&address).await.unwrap());
    }
    let took = until_refused(&bed, &operator).await.unwrap();
    let during = resident(&operator).unwrap();
    println!("{IDLE} idle connections: from {before} KiB to {during} KiB, the next answer after {took:?}");
    assert!(during < before + 32 * 1024, "from {before} KiB to {during} KiB");
    assert!(took < Duration::from_secs(2), "the next answer came after {took:?}");
    let (found, answer) = ask(&bed, &operator, "/validate", "application/json", &review(1)).await.unwrap();
    assert_eq!(found, 200, "{answer}");
    let mut closed = 0;
    for stream in &mut idle {
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_secs(15), stream.read(&mut byte)).await;
        closed += usize::from(matches!(read, Ok(Ok(0) | Err(_))));
    }
    assert_eq!(closed, IDLE, "some idle connections stay");
    bed.cluster.stop().await;
}

/// Memory of the operator in KiB.
fn resident(operator: &Operator) -> Result<usize> {
    let pid = operator.program.pid().context("it does not run")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse()?)
}
