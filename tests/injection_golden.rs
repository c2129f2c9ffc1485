//! Injection against recorded pods: what the reference operator made of the same pods on a real API server, after the
//! edits of `meant.yaml`.
//!
//! Every field of the injected pod must stand in the recorded one with the same value, and every other recorded field
//! must be one that the API server fills in (the table in [`SERVER_DEFAULTS`]).
#![allow(clippy::unwrap_used)]

#[path = "parity/meant.rs"]
mod meant;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use lmcache_operator::admission::injection::{
    Connection, Cudagraph, Decision, EngineLookup, EngineView, Injector, OptIn, PayloadImage, Pd, decide, opt_in, patch,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use meant::Meant;

/// The namespace of the pods. The recorded documents name another one, and pass as they are.
const NAMESPACE: &str = "parity";

/// What the API server adds to a pod: a path (a star is any one step) and the value as JSON; a star as the value is any.
const SERVER_DEFAULTS: &[(&str, &str)] = &[
    ("/spec/dnsPolicy", r#""ClusterFirst""#),
    ("/spec/enableServiceLinks", "true"),
    ("/spec/preemptionPolicy", r#""PreemptLowerPriority""#),
    ("/spec/priority", "0"),
    ("/spec/restartPolicy", r#""Always""#),
    ("/spec/schedulerName", r#""default-scheduler""#),
    ("/spec/securityContext", "{}"),
    ("/spec/serviceAccount", r#""default""#),
    ("/spec/serviceAccountName", r#""default""#),
    ("/spec/terminationGracePeriodSeconds", "30"),
    ("/spec/tolerations", "*"),
    ("/spec/volumes", "[]"),
    ("/spec/*/*/imagePullPolicy", r#""Always""#),
    ("/spec/*/*/resources", "{}"),
    ("/spec/*/*/terminationMessagePath", r#""/dev/termination-log""#),
    ("/spec/*/*/terminationMessagePolicy", r#""File""#),
    ("/spec/*/*/volumeMounts", "[]"),
    ("/spec/*/*/env/*/valueFrom/fieldRef/apiVersion", r#""v1""#),
];

/// The loader of the meant differences looks here for its file.
mod case {
    pub fn fixtures() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parity")
    }
}

struct Case {
    name: String,
    engines: Vec<Value>,
    pod: Value,
    recorded: BTreeMap<String, Value>,
}

fn cases() -> Vec<Case> {
    let folder = case::fixtures().join("pods");
    let mut files: Vec<PathBuf> = fs::read_dir(folder.join("cases")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files.iter().map(|path| load(&folder, path)).collect()
}

fn load(folder: &Path, path: &Path) -> Case {
    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let text = fs::read_to_string(path).unwrap();
    let documents = serde_norway::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap());
    let (pods, engines): (Vec<_>, Vec<_>) = documents.partition(|document| document["kind"] == "Pod");
    let recorded = fs::read_to_string(folder.join(format!("golden/{name}.json"))).unwrap();
    let recorded = serde_json::from_str(&recorded).unwrap();
    Case { name, engines, pod: pods.into_iter().next().unwrap(), recorded }
}

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

/// The recorded pod with the meant edits, and without the token that the API server mounts.
fn expected(case: &Case, meant: &Meant) -> Value {
    let mut pod = meant.expected(&case.name, &case.recorded)["Pod/p"].clone();
    let is_token = |item: &Value| item["name"] == "kube-api-access";
    let spec = &mut pod["spec"];
    spec["volumes"].as_array_mut().unwrap().retain(|volume| !is_token(volume));
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container["volumeMounts"].as_array_mut().unwrap().retain(|mount| !is_token(mount));
        }
    }
    pod
}

fn compare(ours: &Value, recorded: &Value, path: &str, found: &mut Vec<(String, String)>) {
    match (ours, recorded) {
        (Value::Object(our_fields), Value::Object(their_fields)) => {
            for key in our_fields.keys().chain(their_fields.keys()).collect::<BTreeSet<_>>() {
                let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                match (our_fields.get(key), their_fields.get(key)) {
                    (Some(ours), Some(theirs)) => compare(ours, theirs, &path, found),
                    (Some(ours), None) => found.push((path, format!("ours is {ours}, nothing was recorded"))),
                    (None, Some(theirs)) if server_default(&path, theirs) => {}
                    (None, theirs) => found.push((path, format!("recorded {theirs:?}, ours has nothing"))),
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                compare(ours, theirs, &format!("{path}/{at}"), found);
            }
        }
        _ if ours == recorded => {}
        _ => found.push((path.to_owned(), format!("ours is {ours}, recorded {recorded}"))),
    }
}

fn server_default(path: &str, value: &Value) -> bool {
    SERVER_DEFAULTS.iter().any(|(pattern, default)| {
        let same_length = pattern.split('/').count() == path.split('/').count();
        let steps = pattern.split('/').zip(path.split('/')).all(|(pattern, step)| pattern == "*" || pattern == step);
        same_length && steps && (*default == "*" || serde_json::from_str::<Value>(default).unwrap() == *value)
    })
}

fn differences(case: &Case, ours: &Value, meant: &Meant) -> Vec<String> {
    let mut found = Vec::new();
    compare(ours, &expected(case, meant), "", &mut found);
    let unmeant = found.into_iter().filter(|(path, _)| !meant.ignores(&case.name, "Pod/p", path));
    unmeant.map(|(path, text)| format!("{} {path}: {text}", case.name)).collect()
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
