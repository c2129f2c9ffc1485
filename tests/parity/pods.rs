//! Pods that were recorded: what the reference operator made of them on a real API server, after the edits of
//! `meant.yaml`, and how another pod is compared with that.
//!
//! Every field of the pod must stand in the recorded one with the same value, and every other recorded field must be one
//! that the API server fills in (the table in [`SERVER_DEFAULTS`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;

use crate::meant::{Meant, fixtures};

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

/// A pod, the engines beside it, and everything that was recorded.
pub struct Case {
    pub name: String,
    pub engines: Vec<Value>,
    pub pod: Value,
    pub recorded: BTreeMap<String, Value>,
}

/// Every case of the fixtures.
pub fn cases() -> Vec<Case> {
    let folder = fixtures().join("pods");
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

/// Where a pod differs from the recorded one, unless that is meant.
pub fn differences(case: &Case, ours: &Value, meant: &Meant) -> Vec<String> {
    let mut found = Vec::new();
    compare(ours, &expected(case, meant), "", &mut found);
    let unmeant = found.into_iter().filter(|(path, _)| !meant.ignores(&case.name, "Pod/p", path));
    unmeant.map(|(path, text)| format!("{} {path}: {text}", case.name)).collect()
}
