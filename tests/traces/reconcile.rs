//! The trace of a reconcile: what the operator has just done.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use lmcache_crds::LMCacheEngine;
use lmcache_testbed::jaeger::Span;
use serde_json::json;

use crate::{DELIVERY, NAME, Place, create, place, slow, trace};

#[tokio::test(flavor = "multi_thread")]
async fn a_reconcile_is_told_with_its_steps_its_children_and_its_requests() {
    let place = place().await;
    let suite = place.suite("reconcile").await.unwrap();
    let operator = place.traced(&suite).await.unwrap();
    create(&suite, &slow("1s", 0)).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    let links = links(place, &engine).await.unwrap();

    let mut triggers = Vec::new();
    for (trace_id, _) in &links {
        let spans = place.jaeger.trace(trace_id).await.unwrap();
        let root = spans.iter().find(|span| span.parent_id.is_empty()).unwrap();
        triggers.push(root.attribute("trigger").to_owned());
        ensure_tree(&spans, root, suite.namespace()).unwrap();
        ensure_requests(&spans).unwrap();
    }
    // The list of a watch that has just begun may hold it already.
    assert!(["edit", "start"].contains(&triggers[0].as_str()), "{triggers:?}");
    assert!(triggers[1..].contains(&"child".to_owned()), "{triggers:?}");
    let first = place.jaeger.trace(&links[0].0).await.unwrap();
    ensure_applied(&first).unwrap();
    ensure_logged(&operator.program.log(), &links).unwrap();

    suite.patch(NAME, json!({ "spec": slow("1s", 1) })).await.unwrap();
    let engine = suite.wait_ready(NAME).await.unwrap();
    let edited = self::links(place, &engine).await.unwrap();
    let spans = place.jaeger.trace(&edited[0].0).await.unwrap();
    let root = spans.iter().find(|span| span.parent_id.is_empty()).unwrap();
    assert_eq!(root.attribute("trigger"), "edit", "{root:#?}");
    suite.finish().await.unwrap();
}

/// The reconciles that a rollout leads to, each of which has arrived.
async fn links(place: &Place, engine: &LMCacheEngine) -> Result<Vec<(String, String)>> {
    let told = place.rollout(trace(engine)?).await?;
    let links = told.the("rollout")?.links.clone();
    for (trace_id, span_id) in &links {
        let arrived = |spans: &[Span]| spans.iter().any(|span| span.span_id == *span_id);
        place.jaeger.wait_for(trace_id, "the linked reconcile", DELIVERY, arrived).await?;
    }
    Ok(links)
}

fn by_id(spans: &[Span]) -> BTreeMap<&str, &Span> {
    spans.iter().map(|span| (span.span_id.as_str(), span)).collect()
}

fn ensure_tree(spans: &[Span], root: &Span, namespace: &str) -> Result<()> {
    ensure!(root.name == "reconcile" && root.kind == 1, "{root:#?}");
    for (key, value) in [("kind", "LMCacheEngine"), ("namespace", namespace), ("name", NAME), ("generation", "1")] {
        ensure!(root.attribute(key) == value, "{key}: {root:#?}");
    }
    let children: Vec<&str> =
        spans.iter().filter(|it| it.parent_id == root.span_id).map(|it| it.name.as_str()).collect();
    for name in ["validate", "resolve-dependencies", "observe", "evaluate-phase"] {
        ensure!(children.contains(&name), "no {name} under reconcile: {children:?}");
    }
    let ids = by_id(spans);
    for span in spans.iter().filter(|span| !span.parent_id.is_empty()) {
        let parent = ids.get(span.parent_id.as_str()).with_context(|| format!("no parent of {span:#?}"))?;
        ensure!(parent.start <= span.start && span.end <= parent.end, "{span:#?} is not within {parent:#?}");
    }
    Ok(())
}

/// Every request is a client span with HTTP semantic conventions, under the step that made it.
fn ensure_requests(spans: &[Span]) -> Result<()> {
    let ids = by_id(spans);
    for span in spans.iter().filter(|span| span.kind == 3) {
        let parent = ids[span.parent_id.as_str()];
        let fits = ["apply ", "write-status", "reconcile", "resolve-dependencies"];
        ensure!(fits.iter().any(|it| parent.name.starts_with(it)), "{span:#?} under {parent:#?}");
        let (method, template) = (span.attribute("http.request.method"), span.attribute("url.template"));
        ensure!(span.name == format!("{method} {template}"), "{span:#?}");
        ensure!(!template.ends_with(NAME) && template.contains("/namespaces/{namespace}/"), "{span:#?}");
        ensure!(span.attribute("server.address") == "127.0.0.1", "{span:#?}");
        ensure!(span.attribute("server.port").parse::<u16>().is_ok(), "{span:#?}");
        ensure!(span.attribute("url.full").starts_with("https://127.0.0.1:"), "{span:#?}");
        let code: u16 = span.attribute("http.response.status_code").parse()?;
        ensure!(span.error.is_some() == (code >= 400), "{span:#?}");
    }
    Ok(())
}

/// The first reconcile creates every child, each by a request of its own, and writes the status.
fn ensure_applied(spans: &[Span]) -> Result<()> {
    for kind in ["DaemonSet", "ConfigMap", "Service"] {
        let applies: Vec<&Span> = spans.iter().filter(|span| span.name == format!("apply {kind}")).collect();
        ensure!(!applies.is_empty(), "no apply {kind} in {spans:#?}");
        for apply in applies {
            ensure!(apply.attribute("outcome") == "created" && apply.attribute("child.kind") == kind, "{apply:#?}");
            let request = spans.iter().find(|span| span.parent_id == apply.span_id);
            ensure!(request.is_some_and(|it| it.attribute("http.request.method") == "PATCH"), "{request:#?}");
        }
    }
    let write = spans.iter().find(|span| span.name == "write-status").context("no write-status")?;
    let request = spans.iter().find(|span| span.parent_id == write.span_id).context("no request of write-status")?;
    ensure!(request.attribute("url.template").ends_with("/lmcacheengines/{name}/status"), "{request:#?}");
    Ok(())
}

/// Lines of a reconcile carry its trace.
fn ensure_logged(log: &str, links: &[(String, String)]) -> Result<()> {
    let moved: Vec<serde_json::Value> = log
        .lines()
        .filter(|line| line.contains("Moved from"))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    ensure!(!moved.is_empty(), "{log}");
    for line in moved {
        let known = links.iter().any(|(trace_id, _)| line["trace_id"] == json!(trace_id));
        ensure!(known && line["span_id"].as_str().is_some_and(|id| id.len() == 16), "{line} {links:?}");
        ensure!(line["trigger"].is_string() && line["name"] == NAME, "{line}");
    }
    Ok(())
}
