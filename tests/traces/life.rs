//! Operators that come and go in the middle of a rollout.

use std::time::Duration;

use lmcache_crds::{Phase, RolloutOutcome};
use lmcache_testbed::annotation::HOLD;
use serde_json::json;

use crate::rollout::annotate_pods;
use crate::{DELIVERY, NAME, create, place, record, slow, trace};

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_is_killed_in_the_middle_goes_on_with_the_same_trace() {
    let place = place().await;
    let suite = place.suite("killed").await.unwrap();
    let mut operator = place.traced(&suite).await.unwrap();
    create(&suite, &json!({"l1": {"sizeGB": 1}, "podAnnotations": {HOLD: "true"}})).await.unwrap();
    let engine = suite.wait_for_phase(NAME, Phase::Rolling).await.unwrap();
    let before = trace(&engine).unwrap().clone();
    place.rollout_with(&before, "Reconciled").await.unwrap();
    operator.program.kill();
    let mut operator = place.traced(&suite).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    // And once more, when nothing has happened.
    operator.program.kill();
    annotate_pods(place, &suite, HOLD, None).await.unwrap();
    let _operator = place.traced(&suite).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    let after = trace(&engine).unwrap();
    assert_eq!(
        (&after.trace_id, &after.span_id, &after.start_time),
        (&before.trace_id, &before.span_id, &before.start_time)
    );
    assert_eq!(after.outcome, Some(RolloutOutcome::Ready));
    let told = place.rollout(after).await.unwrap();
    let root = told.the("rollout").unwrap();
    assert_eq!(told.under(root), ["Pending", "Reconciled", "Rolling"], "{:#?}", told.spans);
    told.ensure_gapless(root).unwrap();
    assert_eq!(root.start_second(), before.start_time.0.as_second(), "{root:#?}");
    assert_eq!(told.spans.len(), 4, "{:#?}", told.spans);
    suite.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_leader_goes_on_with_the_same_trace() {
    let place = place().await;
    let suite = place.suite("led").await.unwrap();
    let endpoint = place.jaeger.otlp_http();
    let namespace = format!("--leader-election-namespace={}", suite.namespace());
    let flags = ["--leader-elect", &namespace];
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str())];
    place.bed.cluster.grant_operator(&lease_role()).await.unwrap();
    let mut first = place.operator(&suite, &flags, &environment).await.unwrap();
    create(&suite, &json!({"l1": {"sizeGB": 1}, "podAnnotations": {HOLD: "true"}})).await.unwrap();
    let engine = suite.wait_for_phase(NAME, Phase::Rolling).await.unwrap();
    let before = trace(&engine).unwrap().clone();
    // It releases the lease, and sends what it has.
    let took = first.program.stop(Duration::from_secs(20)).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    let told = place.rollout_with(&before, "Reconciled").await.unwrap();
    assert!(told.the("rollout").is_err(), "it is still under way: {:#?}", told.spans);
    let _second = place.operator(&suite, &flags, &environment).await.unwrap();
    annotate_pods(place, &suite, HOLD, None).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    let after = trace(&engine).unwrap();
    assert_eq!(after.trace_id, before.trace_id);
    let told = place.rollout(after).await.unwrap();
    let root = told.the("rollout").unwrap();
    assert_eq!(told.under(root), ["Pending", "Reconciled", "Rolling"], "{:#?}", told.spans);
    suite.finish().await.unwrap();
}

fn lease_role() -> String {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "leases"},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "verbs": ["get", "list", "watch", "create", "update", "patch"]}]})
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_engines_are_not_written_to_when_tracing_is_switched_on_or_off() {
    let place = place().await;
    let suite = place.suite("switched").await.unwrap();
    let mut operator = place.operator(&suite, &[], &[]).await.unwrap();
    create(&suite, &slow("0s", 0)).await.unwrap();
    let untraced = suite.wait_ready(NAME).await.unwrap();
    assert_eq!(record(&untraced).unwrap().trace, None);
    operator.program.stop(DELIVERY).await;
    let mut operator = place.traced(&suite).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let still = suite.get(NAME).await.unwrap();
    assert_eq!(still.metadata.resource_version, untraced.metadata.resource_version, "{still:#?}");
    suite.patch(NAME, json!({ "spec": slow("0s", 1) })).await.unwrap();
    let traced = suite.wait_ready(NAME).await.unwrap();
    assert_eq!(trace(&traced).unwrap().generation, 2);
    operator.program.stop(DELIVERY).await;
    let mut operator = place.operator(&suite, &[], &[]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let still = suite.get(NAME).await.unwrap();
    assert_eq!(trace(&still).unwrap(), trace(&traced).unwrap(), "a trace of this generation stays");
    suite.patch(NAME, json!({ "spec": slow("0s", 2) })).await.unwrap();
    let gone = suite.wait_ready(NAME).await.unwrap();
    assert_eq!(record(&gone).unwrap().trace, None);
    operator.program.stop(DELIVERY).await;
    suite.finish().await.unwrap();
}
