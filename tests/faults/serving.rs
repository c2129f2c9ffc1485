//! `/healthz`, `/readyz` and `/metrics`.

use std::time::Duration;

use crate::common::engine;
use crate::http::{get, get_secure};
use crate::{bed, operator_for, spec, suite};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_and_metrics_answer() {
    let bed = bed().await;
    let suite = suite(bed.cluster.client(), "serving").await;
    let operator = operator_for(bed, suite.namespace(), &[]).await.unwrap();
    suite.apply_fixture(&engine("measured", &spec(0))).await.unwrap();
    suite.wait_ready("measured").await.unwrap();

    let health = operator.address("Serving health probes").await.unwrap();
    assert_eq!(get(&health, "/healthz").await.unwrap().0, 200);
    let (code, answer) = get(&health, "/readyz").await.unwrap();
    assert!(code == 200 && answer.ends_with("ok"), "{answer}");
    let metrics = operator.address("Serving metrics server").await.unwrap();
    let engine = format!(r#"kind="LMCacheEngine",namespace="{}",name="measured""#, suite.namespace());
    let lines = [
        format!(r#"lmcache_operator_engine_phase{{{engine},phase="Ready"}} 1"#),
        format!(r#"lmcache_operator_engine_phase{{{engine},phase="Rolling"}} 0"#),
        format!(r#"lmcache_operator_engine_instances{{{engine},state="desired"}} 3"#),
    ];
    let shows_all = |text: &str| lines.iter().all(|line| text.lines().any(|it| it == line));
    // A status that was written is seen by others before the operator has counted it.
    let text = until(&metrics, "an engine that is Ready", shows_all).await;
    for name in ["phase_transitions_total", "reconcile_duration_seconds_bucket", "applies_total", "build_info"] {
        assert!(text.contains(&format!("lmcache_operator_{name}{{")), "{name} is not in\n{text}");
    }

    // What is deleted takes its series with it.
    suite.delete_and_wait_collected("measured").await.unwrap();
    until(&metrics, "no series of a deleted engine", |text| !text.contains(r#"name="measured""#)).await;
    suite.finish().await.unwrap();
}

/// The metrics, once they show what they should.
async fn until(address: &str, what: &str, shows: impl Fn(&str) -> bool) -> String {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(15);
    loop {
        let (code, text) = get(address, "/metrics").await.unwrap();
        assert_eq!(code, 200, "{text}");
        if shows(&text) {
            return text;
        }
        assert!(tokio::time::Instant::now() < deadline, "the metrics do not show {what}:\n{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secure_metrics_ask_who_scrapes() {
    let bed = bed().await;
    let suite = suite(bed.cluster.client(), "scrape").await;
    let operator = operator_for(bed, suite.namespace(), &["--metrics-secure=true"]).await.unwrap();
    let address = operator.address("Serving metrics server").await.unwrap();
    let reader = std::fs::read_to_string(crate::project().join("deploy/base/metrics_reader_role.yaml")).unwrap();
    bed.cluster.apply_yaml(&reader).await.unwrap();
    let namespace = suite.namespace();
    let (mut tokens, kubectl) = (Vec::new(), async |args: &[&str]| bed.cluster.kubectl(args).await.unwrap());
    for account in ["nobody", "prometheus"] {
        kubectl(&["create", "serviceaccount", account, "-n", namespace]).await;
        tokens.push(kubectl(&["create", "token", account, "-n", namespace]).await.trim().to_owned());
    }
    let subject = format!("--serviceaccount={namespace}:prometheus");
    let binding = format!("{namespace}-scraper");
    kubectl(&["create", "clusterrolebinding", &binding, "--clusterrole=metrics-reader", &subject]).await;

    for (what, token, expected) in [
        ("no token", None, 401),
        ("a token of nobody's", Some("not-a-token"), 401),
        ("a token without the right", Some(tokens[0].as_str()), 403),
        ("a token with it", Some(tokens[1].as_str()), 200),
    ] {
        let (code, answer) = get_secure(&address, "/metrics", token).await.unwrap();
        assert_eq!(code, expected, "{what}: {answer}\n{}", operator.program.log());
        assert_eq!(answer.contains("lmcache_operator_"), expected == 200, "{what}: {answer}");
    }
    let plain = get(&address, "/metrics").await;
    assert!(!plain.is_ok_and(|(code, _)| code == 200), "metrics are served without TLS");
    let log = operator.program.log();
    assert!(tokens.iter().all(|token| !log.contains(token.as_str())), "a token is in the log");
    suite.finish().await.unwrap();
}
