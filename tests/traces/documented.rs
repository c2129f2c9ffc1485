//! What arrives in a trace viewer is what the page about it says: spans, their attributes, and their events.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use lmcache_crds::Phase;
use lmcache_testbed::annotation::{FAIL, fail};
use lmcache_testbed::jaeger::Span;
use serde_json::json;

use crate::rollout::annotate_pods;
use crate::{DELIVERY, NAME, Place, create, place, slow};

const PAGE: &str = include_str!("../../docs/observability.md");
const TAKEN: &str = "taken";

/// Keys of attributes by the name of a span or of an event.
type Told = BTreeMap<String, BTreeSet<String>>;

#[tokio::test(flavor = "multi_thread")]
async fn every_span_that_arrives_is_on_the_page_and_every_one_on_the_page_arrives() {
    let place = place().await;
    let suite = place.suite("page").await.unwrap();
    let _operator = place.traced(&suite).await.unwrap();
    // A request that fails: somebody else has a Service of the name.
    let services: Api<Service> = Api::namespaced(place.bed.cluster.client(), suite.namespace());
    let foreign = json!({"metadata": {"name": TAKEN}, "spec": {"ports": [{"port": 1}]}});
    services.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    suite.apply_fixture(&crate::common::engine(TAKEN, &slow("1s", 0))).await.unwrap();

    let failing = json!({"l1": {"sizeGB": 1}, "podAnnotations": {FAIL: fail::IMAGE_PULL_BACK_OFF}});
    create(&suite, &failing).await.unwrap();
    suite.patiently().wait_for_phase(NAME, Phase::Degraded).await.unwrap();
    annotate_pods(place, &suite, FAIL, None).await.unwrap();
    suite.patiently().wait_ready(NAME).await.unwrap();
    suite.patch(NAME, json!({"spec": {"podAnnotations": {FAIL: null}}})).await.unwrap();
    suite.patiently().wait_ready(NAME).await.unwrap();

    // Its engine has waited for the name, and says why.
    services.delete(TAKEN, &DeleteParams::default()).await.unwrap();
    suite.patiently().wait_ready(TAKEN).await.unwrap();

    let page = page().unwrap();
    let deadline = tokio::time::Instant::now() + DELIVERY;
    let arrived = loop {
        let arrived = arrived(place, suite.namespace()).await.unwrap();
        if arrived == page || tokio::time::Instant::now() > deadline {
            break arrived;
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    };
    for name in arrived.keys().chain(page.keys()) {
        assert_eq!(arrived.get(name), page.get(name), "{name}: what arrived, and what the page says");
    }
    suite.finish().await.unwrap();
}

/// What the table of the page says, and the sentence under it.
fn page() -> Result<Told> {
    let part = PAGE.split_once("<!-- spans: generated -->").and_then(|(_, rest)| rest.split_once("<!-- end -->"));
    let part = part.context("no spans on the page")?.0;
    let words = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut told = Told::new();
    for line in part.lines().filter(|line| line.contains('`')) {
        let cells: Vec<&str> = line.split('|').collect();
        let (name, attributes) = match cells.as_slice() {
            [_, _, name, attributes, ..] => (words(name), words(attributes)),
            // The sentence about events.
            _ => (words(line)[..1].to_vec(), words(line)[1..].to_vec()),
        };
        ensure!(name.len() == 1, "{line}");
        told.insert(name[0].clone(), attributes.into_iter().collect());
    }
    Ok(told)
}

/// What the resources of a namespace have led to.
async fn arrived(place: &Place, namespace: &str) -> Result<Told> {
    let mut told = Told::new();
    for root in ["reconcile", "rollout"] {
        let spans = place.jaeger.find("lmcache-operator", root).await?;
        let here = |span: &&Span| span.name == root && span.attribute("namespace") == namespace;
        let traces: BTreeSet<&str> = spans.iter().filter(here).map(|span| span.trace_id.as_str()).collect();
        for span in spans.iter().filter(|span| traces.contains(span.trace_id.as_str())) {
            // A viewer's own words begin with @, and what is logged within a span is named by its message.
            let own = span.attributes.keys().filter(|key| !key.starts_with('@'));
            told.entry(name(span)).or_default().extend(own.cloned());
            for event in span.events.iter().filter(|event| !event.attributes.contains_key("level")) {
                told.entry(event.name.clone()).or_default().extend(event.attributes.keys().cloned());
            }
        }
    }
    Ok(told)
}

fn name(span: &Span) -> String {
    match span.name.split_once(' ') {
        Some(_) if span.kind == 3 => "<METHOD> <path template>".to_owned(),
        Some(("apply", _)) => "apply <Kind>".to_owned(),
        _ => span.name.clone(),
    }
}
