//! Injection against recorded pods, without an API server.
#![allow(clippy::unwrap_used)]

#[path = "parity/meant.rs"]
mod meant;
#[path = "parity/pods.rs"]
mod pods;

use lmcache_operator::admission::injection::{
    Connection, Cudagraph, Decision, EngineLookup, EngineView, Injector, OptIn, PayloadImage, Pd, decide, opt_in, patch,
};
use serde_json::{Value, json};

use meant::Meant;
use pods::{Case, cases, differences};

/// The namespace of the pods. The recorded documents name another one, and pass as they are.
const NAMESPACE: &str = "parity";

/// The engine of a case, with the connection that was recorded beside the pod.
fn view(case: &Case, engine: &Value) -> EngineView {
    let spec = &engine["spec"];
    let name = engine["metadata"]["name"].as_str().unwrap();
    let isolates = engine["kind"] == "LMCacheEngine";
    let injection = &spec["injection"];
    let image = &injection["payloadImage"];
    let text = |value: &Value, default: &str| value.as_str().unwrap_or(default).to_owned();
    let config_map = &case.recorded[&format!("ConfigMap/{name}-connection")];
    assert_eq!(config_map["metadata"]["ownerReferences"][0]["name"], name, "{}", case.name);
    EngineView {
        namespace: NAMESPACE.into(),
        name: name.to_owned(),
        isolated_ipc: isolates && spec["isolatedIPC"].as_bool().unwrap_or(spec["gpuVendor"] != "amd"),
        host_ipc: spec["hostIPC"] == json!(true),
        pd: spec.get("pd").map(|pd| Pd {
            nixl_port: pd["nixlSideChannelPort"].as_i64().map_or(5558, |port| port.try_into().unwrap()),
        }),
        payload_image: image.is_object().then(|| PayloadImage {
            reference: format!("{}:{}", image["repository"].as_str().unwrap(), text(&image["tag"], "latest")),
            pull_policy: text(&image["pullPolicy"], "IfNotPresent"),
        }),
        pull_secrets: injection["imagePullSecrets"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|secret| text(&secret["name"], ""))
            .collect(),
        target_container: injection["targetContainer"].as_str().map(str::to_owned),
        cudagraph: match injection["cudagraph"].as_str() {
            Some("piecewise") => Cudagraph::Piecewise,
            Some("full_decode_only") => Cudagraph::FullDecodeOnly,
            _ => Cudagraph::Eager,
        },
        connection: Some(Connection {
            controlled: true,
            data: serde_json::from_value(config_map["data"].clone()).unwrap(),
        }),
        ..EngineView::default()
    }
}

/// Runs the injectors whose label the pod has, as the API server does.
fn injected(case: &Case) -> Value {
    let mut pod = case.pod.clone();
    for injector in Injector::ALL {
        let names = injector.names();
        if pod["metadata"]["labels"][names.label] != "true" {
            continue;
        }
        let engine = match opt_in(&pod, injector, Some(NAMESPACE)) {
            OptIn::Engine(wanted) => case.engines.iter().find(|engine| {
                engine["kind"] == names.kind
                    && engine["metadata"]["name"] == *wanted.name
                    && wanted.namespace == NAMESPACE
            }),
            _ => None,
        };
        let lookup = engine.map_or(EngineLookup::NotFound, |engine| EngineLookup::Found(Box::new(view(case, engine))));
        let decision = decide(&pod, Some(NAMESPACE), injector, &lookup);
        let operations = patch(&pod, &decision);
        json_patch::patch(&mut pod, &operations).unwrap();
        let again = decide(&pod, Some(NAMESPACE), injector, &lookup);
        assert!(patch(&pod, &again).is_empty(), "{}: {again:?}", case.name);
        if matches!(decision, Decision::Inject(_)) {
            assert_eq!(again, Decision::AlreadyInjected, "{}", case.name);
        }
    }
    pod
}

#[test]
fn every_pod_case_is_injected_as_recorded() {
    let (meant, cases) = (Meant::load().unwrap(), cases());
    let failures: Vec<String> = cases.iter().flat_map(|case| differences(case, &injected(case), &meant)).collect();
    println!("{} cases: {:?}", cases.len(), cases.iter().map(|case| &case.name).collect::<Vec<_>>());
    assert_eq!(cases.len(), 21);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_comparison_notices_every_way_to_differ() {
    let (meant, cases) = (Meant::load().unwrap(), cases());
    let case = cases.iter().find(|case| case.name == "pod-both-injectors").unwrap();
    let good = injected(case);
    let container = "/spec/containers/0";
    let edits: [(&str, &str, Value); 5] = [
        (&format!("{container}/args"), "1", json!("--kv-transfer")),
        (&format!("{container}/env"), "1", json!({"name": "PYTHONHASHSEED", "value": "1"})),
        ("/spec/initContainers/0/resources", "limits", json!({"memory": "1Gi"})),
        ("/spec", "hostIPC", json!(true)),
        ("/metadata/annotations", "lmcache.ai/lmcache-skip-reason", json!("other")),
    ];
    for (parent, key, value) in edits {
        let mut bad = good.clone();
        match bad.pointer_mut(parent).unwrap() {
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
            other => other[key] = value,
        }
        assert_eq!(differences(case, &bad, &meant).len(), 1, "{parent} {key}");
    }
}
