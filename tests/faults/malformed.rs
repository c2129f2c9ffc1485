//! Stored objects that cannot be decoded.

use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use lmcache_crds::LMCacheEngine;
use lmcache_harness::Harness;
use serde_json::{Value, json};

use crate::common::{Bed, engine, stored};
use crate::{PATIENCE, add_nodes, assert_calm, spec, suite};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_object_stalls_nobody_else_and_heals() {
    let bed = Bed::start("malformed").await.unwrap();
    add_nodes(&bed).await.unwrap();
    let suite = suite(bed.cluster.client(), "malformed").await;
    let mut operator = bed.operator("manager", &[]).await.unwrap();
    suite.apply_fixture(&engine("served", &spec(0))).await.unwrap();
    suite.wait_ready("served").await.unwrap();

    // As an older release with a looser definition, or a restored backup, would have left it.
    let ours = stored::definition("LMCacheEngine");
    define(&bed, &serde_json::to_string(&stored::with_any_spec(&ours)).unwrap()).await;
    let objects = raw(&suite);
    store(&objects, "number", json!({"l1": {"sizeGB": 1}, "gpuVendor": 5})).await;
    store(&objects, "word", json!({"l1": {"sizeGB": 1}, "logLevel": "LOUD"})).await;
    store(&objects, "nothing", json!({"l1": "large"})).await;
    store(&objects, "served", json!({"l1": {"sizeGB": 1}, "gpuVendor": 5})).await;
    define(&bed, &serde_json::to_string(&ours).unwrap()).await;
    until_refused(&objects).await;

    for (name, text) in [
        ("number", "spec.gpuVendor: Invalid value: 5: must be of type string"),
        ("word", r#"spec.logLevel: Invalid value: "LOUD""#),
        ("nothing", "spec.l1: Invalid value"),
        ("served", "spec.gpuVendor: Invalid value: 5"),
    ] {
        says_invalid(&objects, name, text, &operator.program.log()).await;
    }
    let served = objects.get("served").await.unwrap();
    assert_eq!(served.data["status"]["phase"], "Degraded", "{:#}", served.data);
    assert_eq!(served.data["status"]["readyInstances"], 3, "its instances go on: {:#}", served.data);

    // Nobody else is stalled, before a restart and after it.
    suite.apply_fixture(&engine("other", &spec(0))).await.unwrap();
    suite.wait_ready("other").await.unwrap();
    assert_calm(&mut operator);
    operator.program.kill();
    let mut operator = bed.operator("again", &[]).await.unwrap();
    suite.patch("other", json!({"spec": spec(1)})).await.unwrap();
    suite.wait_ready("other").await.unwrap();

    for (name, heal) in [
        ("number", json!({"gpuVendor": "nvidia"})),
        ("word", json!({"logLevel": "DEBUG"})),
        ("nothing", json!({"l1": {"sizeGB": 1}})),
        ("served", json!({"gpuVendor": "nvidia"})),
    ] {
        let patch = Patch::Merge(json!({"spec": heal}));
        objects.patch(name, &PatchParams::default(), &patch).await.unwrap();
        suite.wait_ready(name).await.unwrap();
        suite.wait_condition(name, "ConfigValid", "True").await.unwrap();
    }
    assert_calm(&mut operator);
    suite.finish().await.unwrap();
    bed.cluster.stop().await;
}

fn raw(suite: &Harness) -> Api<DynamicObject> {
    Api::namespaced_with(suite.client(), suite.namespace(), &ApiResource::erase::<LMCacheEngine>(&()))
}

async fn define(bed: &Bed, definition: &str) {
    bed.cluster.apply_yaml(definition).await.unwrap();
}

/// Stores what our definition would refuse; the looser one comes into force a moment after it was applied.
async fn store(objects: &Api<DynamicObject>, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": "lmcache.lmcache.ai/v1alpha1",
        "kind": "LMCacheEngine",
        "metadata": {"name": name},
        "spec": spec,
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let params = PatchParams::apply("backup").force();
        match objects.patch(name, &params, &Patch::Apply(&object)).await {
            Ok(_) => return,
            Err(error) => assert!(Instant::now() < deadline, "{name}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until the strict definition is in force.
async fn until_refused(objects: &Api<DynamicObject>) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let patch = Patch::Merge(json!({"spec": {"gpuVendor": 6}}));
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    while objects.patch("number", &params, &patch).await.is_ok() {
        assert!(Instant::now() < deadline, "our definition is not in force");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn says_invalid(objects: &Api<DynamicObject>, name: &str, text: &str, log: &str) {
    let invalid = |object: Option<&DynamicObject>| {
        let status = object.map(|it| (it.data["status"].clone(), it.metadata.generation));
        status.is_some_and(|(status, generation)| {
            let condition = |it: &Value| {
                it["type"] == "ConfigValid"
                    && it["status"] == "False"
                    && it["message"].as_str().is_some_and(|message| message.contains(text))
            };
            status["observedGeneration"].as_i64() == generation
                && status["conditions"].as_array().is_some_and(|it| it.iter().any(condition))
        })
    };
    let waiting = await_condition(objects.clone(), name, invalid);
    if tokio::time::timeout(PATIENCE / 2, waiting).await.is_err() {
        let object = objects.get(name).await.unwrap();
        panic!("{name} does not say what is wrong: {:#}\n{log}", object.data);
    }
}
