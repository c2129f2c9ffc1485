//! Rendering against recorded objects: what the reference operator made of the same resources on a real API server,
//! after the edits of `meant.yaml`.
//!
//! Every rendered field must stand in the recorded object with the same value, and every recorded field that is not
//! rendered must be one that the API server fills in (the table in [`SERVER_DEFAULTS`]).
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use k8s_openapi::ByteString;
use lmcache_crds::{LMCacheCoordinator, LMCacheEngine};
use lmcache_operator::render::{ChildKind, Children, Credentials, Options, Resolved, children};
use serde::Deserialize;
use serde_json::{Value, json};

/// What the API server, or the recording, adds: a path (a star is any one step) and the value as JSON; a star as the
/// value is any.
const SERVER_DEFAULTS: &[(&str, &str)] = &[
    ("/metadata/annotations", "{}"),
    ("/spec/template/metadata/annotations", "{}"),
    ("/type", r#""Opaque""#),
    ("/spec/clusterIP", r#""<allocated>""#),
    ("/spec/internalTrafficPolicy", r#""Cluster""#),
    ("/spec/ipFamilies", r#"["IPv4"]"#),
    ("/spec/ipFamilyPolicy", r#""SingleStack""#),
    ("/spec/sessionAffinity", r#""None""#),
    ("/spec/type", r#""ClusterIP""#),
    ("/spec/revisionHistoryLimit", "10"),
    ("/spec/updateStrategy", r#"{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1},"type":"RollingUpdate"}"#),
    ("/spec/template/spec/dnsPolicy", r#""ClusterFirst""#),
    ("/spec/template/spec/restartPolicy", r#""Always""#),
    ("/spec/template/spec/schedulerName", r#""default-scheduler""#),
    ("/spec/template/spec/securityContext", "{}"),
    ("/spec/template/spec/serviceAccount", "*"),
    ("/spec/template/spec/terminationGracePeriodSeconds", "30"),
    ("/spec/template/spec/volumes/*/hostPath/type", r#""""#),
    ("/spec/template/spec/initContainers/*/imagePullPolicy", r#""Always""#),
    ("/spec/template/spec/*/*/resources", "{}"),
    ("/spec/template/spec/*/*/terminationMessagePath", r#""/dev/termination-log""#),
    ("/spec/template/spec/*/*/terminationMessagePolicy", r#""File""#),
    ("/spec/template/spec/containers/*/*/failureThreshold", "3"),
    ("/spec/template/spec/containers/*/*/successThreshold", "1"),
    ("/spec/template/spec/containers/*/*/timeoutSeconds", "1"),
    ("/spec/template/spec/containers/*/env/*/valueFrom/fieldRef/apiVersion", r#""v1""#),
];

/// One meant difference.
#[derive(Deserialize)]
struct Rule {
    #[serde(default = "any")]
    case: String,
    object: String,
    op: String,
    #[serde(default)]
    flag: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    port: String,
    #[serde(default)]
    path: String,
}

fn any() -> String {
    "*".to_owned()
}

/// A case: its name, the engine in its last version, and the credentials it refers to.
struct Case {
    name: String,
    engine: LMCacheEngine,
    credentials: Option<Credentials>,
    coordinator_url: Option<String>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parity")
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    serde_norway::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap()).collect()
}

fn rules() -> Vec<Rule> {
    let mut rules = documents(&fixtures().join("meant.yaml")).remove(0);
    // These are about Deployments, which no engine has.
    rules.as_array_mut().unwrap().retain(|rule| rule["op"] != "set");
    serde_json::from_value(rules).unwrap()
}

static SCHEMA: LazyLock<Value> = LazyLock::new(engine_schema);

fn cases() -> Vec<Case> {
    let mut files: Vec<PathBuf> = fs::read_dir(fixtures().join("cases")).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files.iter().filter_map(|path| case(path)).collect()
}

/// `None` for cases of other kinds than `LMCacheEngine`.
fn case(path: &Path) -> Option<Case> {
    let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
    let documents = documents(path);
    let mut object = documents.iter().rfind(|document| document["kind"] == "LMCacheEngine")?.clone();
    fill_defaults(&mut object, &SCHEMA);
    object["metadata"]["namespace"] = "__NAMESPACE__".into();
    object["metadata"]["uid"] = "u-1".into();
    let engine: LMCacheEngine = serde_json::from_value(object).unwrap();
    let source = engine.spec.common.auth_secret_ref().map(|source| source.name.clone());
    let secret = documents.iter().find(|document| {
        document["kind"] == "Secret" && Some(document["metadata"]["name"].as_str().unwrap()) == source.as_deref()
    });
    let credentials = secret.and_then(|secret| {
        let data = secret["stringData"].as_object().unwrap().iter();
        let data: BTreeMap<String, ByteString> =
            data.map(|(key, value)| (key.clone(), ByteString(value.as_str().unwrap().into()))).collect();
        Credentials::from_secret_data(&data)
    });
    let coordinator = documents.iter().find(|document| document["kind"] == "LMCacheCoordinator");
    let coordinator_url = coordinator.map(|coordinator| {
        let coordinator: LMCacheCoordinator = serde_json::from_value(coordinator.clone()).unwrap();
        coordinator.spec.url(&coordinator.metadata.name.unwrap(), "__NAMESPACE__")
    });
    Some(Case { name, engine, credentials, coordinator_url })
}

fn engine_schema() -> Value {
    let crds = lmcache_crds::crds();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == "LMCacheEngine").unwrap();
    let schema = crd.spec.versions[0].schema.as_ref().unwrap();
    serde_json::to_value(schema.open_api_v3_schema.as_ref().unwrap()).unwrap()
}

/// Fills in schema defaults as the API server does: only below parents that are there.
fn fill_defaults(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                if let (false, Some(default)) = (fields.contains_key(name), property.get("default")) {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(field) = fields.get_mut(name) {
                    fill_defaults(field, property);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_defaults(item, &schema["items"])),
        _ => {}
    }
}

fn rendered(case: &Case) -> Children {
    let resolved = Resolved {
        credentials: case.credentials.clone(),
        service_monitor_api: true,
        coordinator_url: case.coordinator_url.clone(),
    };
    children(&case.engine, &resolved, &Options::default())
}

/// The recorded objects with the meant edits.
fn expected(case: &str, rules: &[Rule]) -> BTreeMap<String, Value> {
    let text = fs::read_to_string(fixtures().join("golden").join(format!("{case}.json"))).unwrap();
    let mut objects: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
    objects.retain(|_, object| object["metadata"]["ownerReferences"][0]["kind"] == "LMCacheEngine");
    for rule in rules.iter().filter(|rule| matches(&rule.case, case)) {
        for (_, object) in objects.iter_mut().filter(|(name, _)| matches(&rule.object, name)) {
            edit(object, rule);
        }
    }
    objects
}

/// Whether a name matches a pattern with at most one star, at its end.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

fn edit(object: &mut Value, rule: &Rule) {
    if rule.op == "target-port" {
        let ports = object["spec"]["ports"].as_array_mut().unwrap();
        ports
            .iter_mut()
            .filter(|port| port["name"] == *rule.port)
            .for_each(|port| port["targetPort"] = rule.to.clone().into());
        return;
    }
    let Some(args) = object.pointer_mut("/spec/template/spec/containers/0/args").and_then(Value::as_array_mut) else {
        return;
    };
    let Some(at) = args.iter().position(|arg| *arg == *rule.flag) else { return };
    match rule.op.as_str() {
        "insert-after" => {
            args.splice(at + 2..at + 2, rule.args.iter().map(|arg| json!(arg)));
        }
        "rename" => args[at] = json!(rule.to),
        "value" => args[at + 1] = json!(rule.to),
        "ignore" => {}
        other => panic!("unknown op {other}"),
    }
}

/// Every difference between the rendered objects and the expected ones, one line each.
fn differences(children: &Children, expected: &BTreeMap<String, Value>, ignored: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let names: BTreeSet<String> =
        children.wanted.iter().map(|child| format!("{}/{}", child.kind, child.name)).collect();
    let recorded: BTreeSet<String> = expected.keys().cloned().collect();
    found.extend(names.symmetric_difference(&recorded).map(|name| format!("{name} is on one side only")));
    for child in &children.wanted {
        let name = format!("{}/{}", child.kind, child.name);
        let Some(recorded) = expected.get(&name) else { continue };
        let mut object = child.object.clone();
        // The recording leaves out what differs from run to run.
        assert_eq!(object["metadata"]["namespace"], "__NAMESPACE__", "{name}");
        object["metadata"].as_object_mut().unwrap().remove("namespace");
        object["metadata"]["ownerReferences"][0].as_object_mut().unwrap().remove("uid");
        let mut inner = Vec::new();
        compare(&object, recorded, "", &mut inner);
        inner.retain(|(path, _)| !ignored.contains(path));
        found.extend(inner.into_iter().map(|(path, text)| format!("{name} {path}: {text}")));
    }
    found
}

fn compare(rendered: &Value, recorded: &Value, path: &str, found: &mut Vec<(String, String)>) {
    match (rendered, recorded) {
        (Value::Object(ours), Value::Object(theirs)) => {
            for key in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
                let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                match (ours.get(key), theirs.get(key)) {
                    (Some(ours), Some(theirs)) => compare(ours, theirs, &path, found),
                    (Some(ours), None) => found.push((path, format!("rendered {ours}, not recorded"))),
                    (None, Some(theirs)) if server_default(&path, theirs) => {}
                    (None, theirs) => found.push((path, format!("recorded {theirs:?}, not rendered"))),
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (at, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                compare(ours, theirs, &format!("{path}/{at}"), found);
            }
        }
        _ if rendered == recorded => {}
        _ => found.push((path.to_owned(), format!("rendered {rendered}, recorded {recorded}"))),
    }
}

fn server_default(path: &str, value: &Value) -> bool {
    SERVER_DEFAULTS.iter().any(|(pattern, default)| {
        let same_length = pattern.split('/').count() == path.split('/').count();
        let steps = pattern.split('/').zip(path.split('/')).all(|(pattern, step)| pattern == "*" || pattern == step);
        same_length && steps && (*default == "*" || serde_json::from_str::<Value>(default).unwrap() == *value)
    })
}

fn ignored(rules: &[Rule]) -> Vec<String> {
    rules.iter().filter(|rule| rule.op == "ignore").map(|rule| rule.path.clone()).collect()
}

#[test]
fn every_engine_case_renders_the_recorded_objects() {
    let (rules, cases) = (rules(), cases());
    let ignored = ignored(&rules);
    let mut failures = Vec::new();
    for case in &cases {
        let found = differences(&rendered(case), &expected(&case.name, &rules), &ignored);
        failures.extend(found.into_iter().map(|text| format!("{}: {text}", case.name)));
    }
    println!("{} cases: {:?}", cases.len(), cases.iter().map(|case| &case.name).collect::<Vec<_>>());
    assert!(cases.len() >= 24, "only {} cases", cases.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_case_is_a_valid_spec() {
    for case in cases() {
        let errors = lmcache_crds::validate("c1", &case.engine.spec);
        assert!(errors.is_empty(), "{}: {errors:?}", case.name);
    }
}

#[test]
fn what_a_step_turned_off_is_unwanted() {
    let unwanted = |name: &str| {
        let cases = cases();
        rendered(cases.iter().find(|case| case.name == name).unwrap()).unwanted
    };
    let auth = unwanted("step-auth-off");
    assert!(auth.contains(&(ChildKind::Secret, "c1-resp-auth".to_owned())), "{auth:?}");
    let monitor = unwanted("step-monitor-off");
    assert!(monitor.contains(&(ChildKind::ServiceMonitor, "c1".to_owned())), "{monitor:?}");
}

#[test]
fn the_comparison_notices_every_way_to_differ() {
    let rules = rules();
    let cases = cases();
    let case = cases.iter().find(|case| case.name == "lmc-minimal").unwrap();
    let (good, expected) = (rendered(case), expected(&case.name, &rules));
    let daemon_set = good.wanted.iter().position(|child| child.kind == ChildKind::DaemonSet).unwrap();
    let spec = "/spec/template/spec";
    let edits: [(&str, Value); 4] = [
        (&format!("{spec}/containers/0/args/1"), json!("127.0.0.1")),
        (&format!("{spec}/containers/0/env"), json!([])),
        (&format!("{spec}/nodeSelector"), json!({})),
        (&format!("{spec}/containers/0/securityContext"), json!({"privileged": false, "runAsUser": 0})),
    ];
    for (pointer, value) in edits {
        let mut bad = good.clone();
        *bad.wanted[daemon_set].object.pointer_mut(pointer).unwrap() = value;
        assert_eq!(differences(&bad, &expected, &ignored(&rules)).len(), 1, "{pointer}");
    }
    let mut bad = good.clone();
    bad.wanted.remove(daemon_set);
    assert_eq!(differences(&bad, &expected, &ignored(&rules)).len(), 1);
}
