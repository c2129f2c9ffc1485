//! The trace of a rollout: names, attributes, parents, links and times.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use lmcache_crds::{LMCacheEngine, Phase, RolloutOutcome, RolloutTrace};
use lmcache_harness::Harness;
use lmcache_testbed::annotation::{FAIL, HOLD, fail};
use lmcache_testbed::jaeger::Span;
use rstest::rstest;
use serde_json::json;

use crate::{NAME, Place, create, place, record, slow, steps, trace};

const PATH: [&str; 3] = ["Pending", "Reconciled", "Rolling"];

#[rstest]
#[case::grpc("grpc")]
#[case::http("http/protobuf")]
#[tokio::test(flavor = "multi_thread")]
async fn a_first_rollout_and_an_update_are_told_over_either_protocol(#[case] protocol: &str) {
    let place = place().await;
    let suite = place.suite("first").await.unwrap();
    let endpoint = if protocol == "grpc" { place.jaeger.otlp_grpc() } else { place.jaeger.otlp_http() };
    let pod = [("POD_NAME", "manager-1"), ("POD_NAMESPACE", "lmcache-system"), ("NODE_NAME", "node-7")];
    let flags = [format!("--otlp-endpoint={endpoint}"), format!("--otlp-protocol={protocol}")];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let operator = place.operator(&suite, &flags, &pod).await.unwrap();

    create(&suite, &slow("2s", 0)).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    let first = ensure_told(place, &suite, &engine).await.unwrap();
    let created = engine.metadata.creation_timestamp.clone().unwrap().0.as_second();
    assert_eq!(first.start_second(), created, "it begins when the engine was created: {first:#?}");
    ensure_resource(&first).unwrap();

    suite.patch(NAME, json!({ "spec": slow("1s", 1) })).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    let second = ensure_told(place, &suite, &engine).await;
    let second = second.unwrap_or_else(|error| panic!("{error:?}\n{}", operator.program.log()));
    assert_ne!(first.trace_id, second.trace_id);
    assert!(second.start_second() >= first.end_second(), "{first:#?} {second:#?}");
    let log = operator.program.log();
    assert!(!log.contains("Failed to export"), "{log}");
    suite.finish().await.unwrap();
}

/// The rollout of the present generation, from `status` to Jaeger and back.
async fn ensure_told(place: &Place, suite: &Harness, engine: &LMCacheEngine) -> Result<Span> {
    let (record, trace) = (record(engine)?, trace(engine)?);
    ensure!(trace.outcome == Some(RolloutOutcome::Ready), "{trace:?}");
    ensure!(Some(trace.generation) == engine.metadata.generation, "{trace:?}");
    let told = place.rollout(trace).await?;
    let root = told.the("rollout")?;
    let steps = steps(record, trace.generation);
    let last = steps.last().context("no steps")?;
    ensure!(root.span_id == trace.span_id && root.parent_id.is_empty(), "{trace:?} {root:#?}");
    ensure!(root.start_second() == trace.start_time.0.as_second(), "{trace:?} {root:#?}");
    ensure!(root.end_second() == last.time.0.as_second(), "{last:?} {root:#?}");
    ensure!(root.kind == 1 && root.error.is_none(), "{root:#?}");
    let generation = trace.generation.to_string();
    for (key, value) in [
        ("kind", "LMCacheEngine"),
        ("namespace", suite.namespace()),
        ("name", NAME),
        ("generation", generation.as_str()),
        ("outcome", "Ready"),
    ] {
        ensure!(root.attribute(key) == value, "{key}: {root:#?}");
    }
    // A phase is left by every step; the first one may have begun before this generation.
    let left: Vec<&str> = steps.iter().map(|step| step.from.as_str()).collect();
    ensure!(told.under(root) == left, "{left:?} {:?}", told.under(root));
    told.ensure_gapless(root)?;
    for (stay, step) in told.spans.iter().filter(|it| it.parent_id == root.span_id).zip(&steps) {
        ensure!(stay.end_second() == step.time.0.as_second(), "{step:?} {stay:#?}");
        ensure!(stay.attribute("phase") == step.from.as_str(), "{step:?} {stay:#?}");
        ensure_event(stay, step)?;
    }
    ensure!(root.events.len() == steps.len(), "{steps:#?} {root:#?}");
    steps.iter().try_for_each(|step| ensure_event(root, step))?;
    ensure_links(place, root).await?;
    Ok(root.clone())
}

fn ensure_event(span: &Span, step: &lmcache_crds::PhaseTransition) -> Result<()> {
    let is = |event: &&lmcache_testbed::jaeger::SpanEvent| {
        let of = |key: &str| event.attributes.get(key).map(String::as_str);
        event.name == "phase.transition"
            && event.time == i128::from(step.time.0.as_second()) * 1_000_000_000
            && of("from") == Some(step.from.as_str())
            && of("to") == Some(step.to.as_str())
            && of("reason") == Some(&step.reason)
            && of("message") == Some(&step.message)
    };
    ensure!(span.events.iter().any(|event| is(&event)), "no {step:?} in {span:#?}");
    Ok(())
}

/// The rollout leads to the reconciles, and each of them back to it.
async fn ensure_links(place: &Place, root: &Span) -> Result<()> {
    ensure!(!root.links.is_empty(), "{root:#?}");
    for (trace_id, span_id) in &root.links {
        let has = |spans: &[Span]| spans.iter().any(|span| span.span_id == *span_id);
        let spans = place.jaeger.wait_for(trace_id, "the linked reconcile", crate::DELIVERY, has).await?;
        let reconcile = spans.iter().find(|span| span.span_id == *span_id).context("the reconcile")?;
        ensure!(reconcile.name == "reconcile" && reconcile.parent_id.is_empty(), "{reconcile:#?}");
        let back = (root.trace_id.clone(), root.span_id.clone());
        ensure!(reconcile.links.contains(&back), "{back:?} {reconcile:#?}");
    }
    Ok(())
}

fn ensure_resource(span: &Span) -> Result<()> {
    for (key, value) in [
        ("service.name", "lmcache-operator"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", "lmcache-system.manager-1.manager"),
        ("k8s.pod.name", "manager-1"),
        ("k8s.namespace.name", "lmcache-system"),
        ("k8s.node.name", "node-7"),
    ] {
        ensure!(span.resource.get(key).map(String::as_str) == Some(value), "{key}: {:#?}", span.resource);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_degraded_rollout_ends_with_its_verdict_and_its_recovery_follows() {
    let place = place().await;
    let suite = place.suite("healed").await.unwrap();
    let _operator = place.traced(&suite).await.unwrap();
    let spec = json!({"l1": {"sizeGB": 1}, "podAnnotations": {FAIL: fail::IMAGE_PULL_BACK_OFF}});
    create(&suite, &spec).await.unwrap();
    let engine = suite.patiently().wait_for_phase(NAME, Phase::Degraded).await.unwrap();
    let begun = trace(&engine).unwrap().clone();
    assert_eq!(begun.outcome, Some(RolloutOutcome::Degraded));
    let told = place.rollout(&begun).await.unwrap();
    let root = told.the("rollout").unwrap();
    assert_eq!(root.attribute("outcome"), "Degraded");
    let error = root.error.clone().unwrap_or_default();
    assert!(error.contains("Image"), "{root:#?}");

    annotate_pods(place, &suite, FAIL, None).await.unwrap();
    let engine = suite.patiently().wait_ready(NAME).await.unwrap();
    let ended = trace(&engine).unwrap();
    assert_eq!((&ended.trace_id, ended.outcome), (&begun.trace_id, Some(RolloutOutcome::Recovered)));
    let told = place.rollout_with(ended, "recovery").await.unwrap();
    let (root, recovery) = (told.the("rollout").unwrap(), told.the("recovery").unwrap());
    assert_eq!(recovery.parent_id, root.span_id, "{recovery:#?}");
    assert_eq!((recovery.start_second(), recovery.attribute("outcome")), (root.end_second(), "Recovered"));
    told.ensure_gapless(root).unwrap();
    told.ensure_gapless(recovery).unwrap();
    let last = record(&engine).unwrap().phase_transitions.last().unwrap().time.0.as_second();
    assert_eq!(recovery.end_second(), last, "{recovery:#?}");
    assert_eq!(told.under(recovery)[0], "Degraded", "{:#?}", told.spans);
    suite.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_superseded_rollout_ends_where_the_next_begins() {
    let place = place().await;
    let suite = place.suite("superseded").await.unwrap();
    let _operator = place.traced(&suite).await.unwrap();
    create(&suite, &json!({"l1": {"sizeGB": 1}, "podAnnotations": {HOLD: "true"}})).await.unwrap();
    let engine = suite.wait_for_phase(NAME, Phase::Rolling).await.unwrap();
    let first = trace(&engine).unwrap().clone();
    assert_eq!((first.generation, first.outcome, &first.end_time), (1, None, &None));
    suite.patch(NAME, json!({"spec": {"podAnnotations": {HOLD: null}}})).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    let second = trace(&engine).unwrap();
    assert_eq!(second.generation, 2);
    let told = place.rollout(&first).await.unwrap();
    let root = told.the("rollout").unwrap();
    assert_eq!(root.attribute("outcome"), "Superseded", "{root:#?}");
    assert_eq!(root.end_second(), second.start_time.0.as_second(), "{root:#?} {second:?}");
    assert_eq!(told.under(root), PATH, "{:#?}", told.spans);
    told.ensure_gapless(root).unwrap();
    let next = place.rollout(second).await.unwrap();
    next.ensure_gapless(next.the("rollout").unwrap()).unwrap();
    suite.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_resource_ends_its_rollout() {
    let place = place().await;
    let suite = place.suite("deleted").await.unwrap();
    let _operator = place.traced(&suite).await.unwrap();
    create(&suite, &json!({"l1": {"sizeGB": 1}, "podAnnotations": {HOLD: "true"}})).await.unwrap();
    let engine = suite.wait_for_phase(NAME, Phase::Rolling).await.unwrap();
    suite.delete_and_wait_collected(NAME).await.unwrap();
    let told = place.rollout(trace(&engine).unwrap()).await.unwrap();
    let root = told.the("rollout").unwrap();
    assert_eq!((root.attribute("outcome"), told.under(root)), ("Deleted", PATH.to_vec()), "{:#?}", told.spans);
    suite.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_joins_the_trace_that_its_annotation_names() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const CALLER: &str = "b7ad6b7169203331";
    let place = place().await;
    let suite = place.suite("joined").await.unwrap();
    let operator = place.traced(&suite).await.unwrap();
    let annotated = |traceparent: &str| {
        json!({
            "apiVersion": "lmcache.lmcache.ai/v1alpha1",
            "kind": "LMCacheEngine",
            "metadata": {"name": NAME, "annotations": {"lmcache.ai/traceparent": traceparent}},
            "spec": {"l1": {"sizeGB": 1}},
        })
    };
    let annotated = |traceparent: &str| format!("{:#}", annotated(traceparent));
    let _: LMCacheEngine = suite.apply_fixture(&annotated(&format!("00-{TRACE}-{CALLER}-01"))).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    let joined = trace(&engine).unwrap();
    assert_eq!((joined.trace_id.as_str(), joined.parent_span_id.as_deref()), (TRACE, Some(CALLER)));
    let told = place.rollout(joined).await.unwrap();
    assert_eq!(told.the("rollout").unwrap().parent_id, CALLER);

    // The one who began the trace does not keep it: then neither do we.
    let dropped = json!({"metadata": {"annotations": {"lmcache.ai/traceparent": format!("00-{TRACE}-{CALLER}-00")}},
        "spec": {"l1": {"sizeGB": 2}}});
    suite.patch(NAME, dropped).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    assert_eq!(record(&engine).unwrap().trace, None);

    let broken = json!({"metadata": {"annotations": {"lmcache.ai/traceparent": "nonsense"}},
        "spec": {"l1": {"sizeGB": 3}}});
    suite.patch(NAME, broken).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    let own = trace(&engine).unwrap();
    assert_eq!(own.parent_span_id, None);
    assert_ne!(own.trace_id, TRACE);
    operator.wait_for_log("Ignored annotation lmcache.ai/traceparent").await.unwrap();
    suite.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_has_its_trace() {
    let place = place().await;
    let suite = place.suite("kinds").await.unwrap();
    let _operator = place.traced(&suite).await.unwrap();
    let mut ids = BTreeSet::new();
    for (kind, spec) in [
        ("LMCacheEngine", json!({"l1": {"sizeGB": 1}})),
        ("CacheBlendEngine", json!({"l1": {"sizeGB": 1}, "injection": {"payloadImage": {"repository": "r/p"}}})),
        ("LMCacheCoordinator", json!({})),
    ] {
        let trace = ready_trace(&suite, kind, spec).await.unwrap();
        let told = place.rollout(&trace).await.unwrap();
        let root = told.the("rollout").unwrap();
        assert_eq!((root.attribute("kind"), root.attribute("name")), (kind, kind.to_lowercase().as_str()), "{root:#?}");
        told.ensure_gapless(root).unwrap();
        assert!(ids.insert(trace.trace_id.clone()), "{trace:?}");
    }
    suite.finish().await.unwrap();
}

/// Creates a resource of any kind and waits until it is Ready.
async fn ready_trace(suite: &Harness, kind: &str, spec: serde_json::Value) -> Result<RolloutTrace> {
    let version = GroupVersionKind::gvk("lmcache.lmcache.ai", "v1alpha1", kind);
    let api: Api<DynamicObject> =
        Api::namespaced_with(suite.client(), suite.namespace(), &ApiResource::from_gvk(&version));
    let name = kind.to_lowercase();
    let object = json!({"apiVersion": "lmcache.lmcache.ai/v1alpha1", "kind": kind, "metadata": {"name": name},
        "spec": spec});
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let deadline = tokio::time::Instant::now() + crate::PATIENCE;
    loop {
        let status = api.get(&name).await?.data["status"].take();
        if status["phase"] == "Ready" {
            return Ok(serde_json::from_value(status["trace"].clone())?);
        }
        ensure!(tokio::time::Instant::now() < deadline, "{kind} is not Ready: {status:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Sets or removes an annotation of every pod.
pub async fn annotate_pods(place: &Place, suite: &Harness, key: &str, value: Option<&str>) -> Result<()> {
    let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::namespaced(suite.client(), suite.namespace());
    for pod in pods.list(&kube::api::ListParams::default()).await?.items {
        let name = pod.metadata.name.unwrap_or_default();
        place.bed.cluster.annotate_pod(suite.namespace(), &name, key, value).await?;
    }
    Ok(())
}
