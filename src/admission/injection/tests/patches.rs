//! Operations are as few and as small as they can be.

use rstest::rstest;
use serde_json::{Value, json};

use super::super::testing::*;
use super::super::*;

use Injector::LmCache;

fn operations(pod: &Value, engine: &EngineLookup) -> Value {
    serde_json::to_value(patch(pod, &decide(pod, Some("ai"), LmCache, engine))).unwrap()
}

#[rstest]
#[case(json!({"spec": {}}),
    json!([{"op": "add", "path": "/metadata", "value": {"annotations": {"lmcache.ai/lmcache-skip-reason": "not-opted-in"}}}]))]
#[case(json!({"metadata": null, "spec": {}}),
    json!([{"op": "add", "path": "/metadata", "value": {"annotations": {"lmcache.ai/lmcache-skip-reason": "not-opted-in"}}}]))]
#[case(json!({"metadata": {"name": "p"}, "spec": {}}),
    json!([{"op": "add", "path": "/metadata/annotations", "value": {"lmcache.ai/lmcache-skip-reason": "not-opted-in"}}]))]
#[case(json!({"metadata": {"annotations": {"a": "b"}}, "spec": {}}),
    json!([{"op": "add", "path": "/metadata/annotations/lmcache.ai~1lmcache-skip-reason", "value": "not-opted-in"}]))]
#[case(json!({"metadata": {"annotations": {"lmcache.ai/lmcache-skip-reason": "engine-not-found"}}, "spec": {}}),
    json!([{"op": "replace", "path": "/metadata/annotations/lmcache.ai~1lmcache-skip-reason", "value": "not-opted-in"}]))]
#[case(json!({"metadata": {"annotations": {"lmcache.ai/lmcache-skip-reason": "not-opted-in"}}, "spec": {}}), json!([]))]
fn a_stamp_creates_the_parents_that_are_missing(#[case] pod: Value, #[case] expected: Value) {
    assert_eq!(operations(&pod, &EngineLookup::NotFound), expected);
}

#[test]
fn lists_that_are_missing_are_added_whole() {
    let pod = pod(LmCache, &json!({"env": null}), &json!({"volumes": null}));
    let container = "/spec/containers/0";
    let note = "/metadata/annotations/lmcache.ai~1";
    assert_eq!(
        operations(&pod, &found(engine(LmCache))),
        json!([
            {"op": "add", "path": "/spec/volumes", "value": [{"name": "lmcache-dev-shm", "emptyDir": {"medium": "Memory"}}]},
            {"op": "add", "path": format!("{container}/volumeMounts"), "value": [{"name": "lmcache-dev-shm", "mountPath": "/dev/shm"}]},
            {"op": "add", "path": format!("{container}/env"), "value": [{"name": "PYTHONHASHSEED", "value": "0"}]},
            {"op": "add", "path": format!("{container}/args"), "value": ["--kv-transfer-config", DOCUMENT]},
            {"op": "add", "path": format!("{note}lmcache-injected"), "value": "true"},
            {"op": "add", "path": format!("{note}injected-config-hash"), "value": config_hash(DOCUMENT)},
        ])
    );
}

#[test]
fn lists_that_are_there_are_added_to_and_their_items_are_edited_in_place() {
    let container = json!({
        "args": ["m1", "-pp", "--port", "1", "-pp", "4", "--x"],
        "env": [{"name": "PYTHONPATH", "value": "/a"}],
        "volumeMounts": [{"name": "a", "mountPath": "/a"}],
    });
    let spec = json!({"volumes": [{"name": "a"}], "initContainers": [{"name": "i"}], "hostIPC": false});
    let pod = pod(Injector::CacheBlend, &container, &spec);
    let mut engine = engine(Injector::CacheBlend);
    engine.host_ipc = true;
    let decision = decide(&pod, Some("ai"), Injector::CacheBlend, &found(engine));
    let operations = serde_json::to_value(patch(&pod, &decision)).unwrap();
    let places: Vec<String> = operations
        .as_array()
        .unwrap()
        .iter()
        .map(|it| format!("{} {}", it["op"].as_str().unwrap(), it["path"].as_str().unwrap()))
        .collect();
    let args = "add /spec/containers/0/args/-";
    assert_eq!(
        places,
        [
            "replace /spec/hostIPC",
            "add /spec/volumes/-",
            "add /spec/initContainers/-",
            "add /spec/containers/0/volumeMounts/-",
            "replace /spec/containers/0/env/0/value",
            "add /spec/containers/0/env/-",
            "replace /spec/containers/0/args/5",
            args,
            args,
            args,
            args,
            "add /metadata/annotations/lmcache.ai~1cacheblend-injected",
            "add /metadata/annotations/lmcache.ai~1injected-config-hash",
        ]
    );
}

#[test]
fn an_injected_pod_needs_no_operation() {
    let pod = annotated(pod(LmCache, &json!({}), &json!({})), LmCache.names().injected, "true");
    assert_eq!(operations(&pod, &found(engine(LmCache))), json!([]));
}
