//! Pods and engines for tests.

use serde_json::{Value, json};

use super::*;

/// The document of a pod without role.
pub const DOCUMENT: &str = "{\n  \"kv_role\": \"kv_both\"\n}";

/// A valid engine `c1` in namespace `ai` with all documents, isolated IPC for `LMCache`, a payload image for `CacheBlend`.
pub fn engine(injector: Injector) -> EngineView {
    let documents = [
        ("kv-transfer-config.json", DOCUMENT),
        ("kv-transfer-config-prefiller.json", "{prefiller}"),
        ("kv-transfer-config-decoder.json", "{decoder}"),
    ];
    let data = documents.into_iter().map(|(key, text)| (key.to_owned(), text.to_owned())).collect();
    EngineView {
        namespace: "ai".into(),
        name: "c1".into(),
        isolated_ipc: injector == Injector::LmCache,
        payload_image: (injector == Injector::CacheBlend).then(payload_image),
        connection: Some(Connection { controlled: true, data }),
        ..EngineView::default()
    }
}

pub fn payload_image() -> PayloadImage {
    PayloadImage { reference: "r/p:1".into(), pull_policy: "IfNotPresent".into() }
}

pub fn found(engine: EngineView) -> EngineLookup {
    EngineLookup::Found(Box::new(engine))
}

/// A pod that wants engine `c1`, with fields of its vLLM container and fields of its spec.
pub fn pod(injector: Injector, container: &Value, spec: &Value) -> Value {
    let mut vllm = json!({"name": "vllm", "image": "v"});
    merge(&mut vllm, container);
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {injector.names().engine: "c1"}},
        "spec": {"containers": [vllm]},
    });
    merge(&mut pod["spec"], spec);
    pod
}

fn merge(object: &mut Value, fields: &Value) {
    for (key, value) in fields.as_object().unwrap() {
        object[key] = value.clone();
    }
}

/// The same pod with one more annotation.
pub fn annotated(mut pod: Value, key: &str, text: &str) -> Value {
    pod["metadata"]["annotations"][key] = text.into();
    pod
}

/// The decision for a pod of namespace `ai`, and the pod that comes of it.
pub fn run(pod: &Value, injector: Injector, engine: &EngineLookup) -> (Decision, Value) {
    let decision = decide(pod, Some("ai"), injector, engine);
    let operations = patch(pod, &decision);
    println!("{decision:?}\n{operations}");
    let mut result = pod.clone();
    json_patch::patch(&mut result, &operations).unwrap();
    (decision, result)
}

/// The pod that comes of an injection; anything else fails the test.
pub fn injected(pod: &Value, injector: Injector, engine: EngineView) -> (Value, Vec<String>) {
    let (decision, result) = run(pod, injector, &found(engine));
    assert!(matches!(decision, Decision::Inject(_)), "{decision:?}");
    (result, decision.warnings())
}

/// The reason and the message of a skip; anything else fails the test, and so does a change besides the stamp.
pub fn skipped(pod: &Value, injector: Injector, engine: &EngineLookup) -> (SkipReason, String) {
    let (decision, mut result) = run(pod, injector, engine);
    let Decision::Skip(skip) = decision.clone() else { panic!("{decision:?}") };
    let stamp = result["metadata"]["annotations"].as_object_mut().unwrap().remove(injector.names().skip_reason);
    assert_eq!(stamp, Some(json!(skip.reason.as_str())));
    let mut before = pod.clone();
    if let Some(annotations) = before["metadata"]["annotations"].as_object_mut() {
        annotations.remove(injector.names().skip_reason);
    }
    assert_eq!(result, before);
    assert_eq!(decision.warnings().len(), 1);
    (skip.reason, skip.message)
}
