//! The CRDs against the recorded facts of the existing operator's: equal, but for what is meant and listed here.

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;
use serde_json::{Value, json};

/// A meant difference: where, what, and why.
type Meant = (&'static str, &'static str, &'static str);

/// What differs in every kind.
const EVERYWHERE: &[Meant] = &[
    ("status.trace", "added", "observability.md"),
    ("categories", "value", "`kubectl get lmcache` lists all kinds"),
    ("printerColumns", "value", "docs/phases.md: REASON, and UPDATED and MESSAGE with -o wide"),
    ("crdAnnotations", "value", "not made by controller-gen"),
    // D17: bounds.
    ("spec.prometheus.port", "minimum", "D17"),
    ("spec.prometheus.port", "maximum", "D17"),
    ("spec.prometheus.serviceMonitor.interval", "pattern", "D17"),
    ("spec.prometheus.serviceMonitor.interval", "maxLength", "D17"),
    // D62: digests.
    ("spec.image.digest", "added", "D62"),
    // Fields of our own.
    ("spec.podSecurityContext", "added", "D60"),
    ("spec.progressDeadlineSeconds", "added", "docs/phases.md: progress deadline"),
    // Status: docs/phases.md, D74.
    ("status", "default", "docs/phases.md: Pending from the first moment, without a write"),
    ("status.phase", "enum", "docs/phases.md"),
    ("status.phase", "default", "docs/phases.md"),
    ("status.reason", "added", "docs/phases.md"),
    ("status.message", "added", "docs/phases.md"),
    ("status.phaseTransitions", "added", "docs/phases.md"),
    ("status.lastProgressTime", "added", "docs/phases.md"),
    ("status.endpointsTruncated", "added", "D74"),
];

/// What differs in engines.
const ENGINES: &[Meant] = &[
    // D15: the payload image has no default repository.
    ("spec.injection.payloadImage", "requiredChildren", "D15"),
    ("spec.injection.payloadImage.repository", "default", "D15"),
    ("spec.injection.payloadImage.repository", "required", "D15"),
    ("spec.injection.payloadImage.repository", "minLength", "D15"),
    // D17: bounds.
    ("spec.coordinator.heartbeatInterval", "minimum", "D17"),
    ("spec.coordinator.heartbeatInterval", "exclusiveMinimum", "D17"),
    ("spec.coordinator.l2EventFlushInterval", "minimum", "D17"),
    ("spec.coordinator.l2EventFlushInterval", "exclusiveMinimum", "D17"),
    ("spec.eviction.evictionRatio", "minimum", "D17"),
    ("spec.eviction.evictionRatio", "exclusiveMinimum", "D17"),
    ("spec.eviction.evictionRatio", "maximum", "D17"),
    ("spec.eviction.triggerWatermark", "minimum", "D17"),
    ("spec.eviction.triggerWatermark", "exclusiveMinimum", "D17"),
    ("spec.eviction.triggerWatermark", "maximum", "D17"),
    ("spec.l2Backend.resp.maxCapacityGB", "minimum", "D17"),
    ("spec.server.chunkSize", "minimum", "D17"),
    ("spec.server.maxWorkers", "minimum", "D17"),
    // D62: digests.
    ("spec.injection.payloadImage.digest", "added", "D62"),
    // Fields of our own.
    ("spec.networkPolicy", "added", "D84"),
    ("spec.probes", "added", "D82"),
    // Status: docs/phases.md, D81.
    ("status.desiredInstances", "default", "D81"),
    ("status.readyInstances", "default", "D81"),
    ("status.updatedInstances", "added", "docs/phases.md"),
    ("status.availableInstances", "added", "docs/phases.md"),
    ("status.cache", "added", "observability.md"),
    ("status.endpoints[].revision", "added", "docs/phases.md: instances of the current revision"),
    ("status.endpoints[].lostSince", "added", "docs/phases.md: lost instances"),
];

const CACHE_BLEND: &[Meant] = &[
    ("spec.blend.recompRatio", "minimum", "D17"),
    ("spec.blend.recompRatio", "exclusiveMinimum", "D17"),
    ("spec.blend.recompRatio", "maximum", "D17"),
];

const COORDINATOR: &[Meant] = &[
    // D17: bounds.
    ("spec.instanceTimeout", "minimum", "D17"),
    ("spec.instanceTimeout", "exclusiveMinimum", "D17"),
    ("spec.healthCheckInterval", "minimum", "D17"),
    ("spec.evictionCheckInterval", "minimum", "D17"),
    ("spec.evictionRatio", "minimum", "D17"),
    ("spec.evictionRatio", "maximum", "D17"),
    ("spec.triggerWatermark", "minimum", "D17"),
    ("spec.triggerWatermark", "exclusiveMinimum", "D17"),
    ("spec.triggerWatermark", "maximum", "D17"),
    // D76: what the server can do.
    ("spec.hashAlgorithm", "added", "D76"),
    ("spec.enableBlendLookup", "added", "D76"),
    // Status: docs/phases.md, D81.
    ("status.replicas", "default", "D81"),
    ("status.readyReplicas", "default", "D81"),
    ("status.updatedReplicas", "added", "docs/phases.md"),
    ("status.availableReplicas", "added", "docs/phases.md"),
    ("status.endpoints", "added", "docs/phases.md: instances of every kind"),
];

/// What is compared of a field, beside whether it exists.
const KEYS: &[&str] = &[
    "type",
    "format",
    "default",
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "minLength",
    "maxLength",
    "pattern",
    "nullable",
    "required",
    "requiredChildren",
    "itemRequired",
    "additionalProperties",
    "items",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
];

struct Difference {
    path: String,
    what: String,
    recorded: Value,
    ours: Value,
}

#[rstest]
#[case("LMCacheEngine", include_str!("facts/lmcacheengine.json"), &[ENGINES])]
#[case("CacheBlendEngine", include_str!("facts/cacheblendengine.json"), &[ENGINES, CACHE_BLEND])]
#[case("LMCacheCoordinator", include_str!("facts/lmcachecoordinator.json"), &[COORDINATOR])]
fn agrees_with_the_recorded_facts(#[case] kind: &str, #[case] facts: &str, #[case] meant: &[&[Meant]]) {
    let facts: Value = serde_json::from_str(facts).expect("the facts are JSON");
    let crd = lmcache_crds::crds().into_iter().find(|crd| crd.spec.names.kind == kind);
    let crd = serde_json::to_value(crd.expect("the CRD exists")).expect("a CRD is JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];

    let mut found = compare_names(&facts, &crd);
    found.extend(compare_fields(&facts, schema));
    found.extend(compare_embedded(&facts, schema));

    let meant = meant.iter().copied().flatten().chain(EVERYWHERE);
    let meant: BTreeSet<(&str, &str)> = meant.map(|(path, what, _)| (*path, *what)).collect();
    let seen: BTreeSet<(&str, &str)> = found.iter().map(|difference| (&*difference.path, &*difference.what)).collect();
    let unlisted: Vec<String> = found
        .iter()
        .filter(|difference| !meant.contains(&(&*difference.path, &*difference.what)))
        .map(|d| format!("{} {}: recorded {}, ours {}", d.path, d.what, d.recorded, d.ours))
        .collect();
    let gone: Vec<_> = meant.difference(&seen).collect();
    assert!(unlisted.is_empty(), "differences of {kind} that are not listed as meant: {unlisted:#?}");
    assert!(gone.is_empty(), "listed differences of {kind} that do not exist any more: {gone:#?}");
}

fn compare_names(facts: &Value, crd: &Value) -> Vec<Difference> {
    let spec = &crd["spec"];
    let version = &spec["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let or_empty = |value: &Value| if value.is_null() { json!([]) } else { value.clone() };
    let ours = [
        ("crdName", crd["metadata"]["name"].clone()),
        ("crdAnnotations", crd["metadata"]["annotations"].clone()),
        ("group", spec["group"].clone()),
        ("version", version["name"].clone()),
        ("kind", spec["names"]["kind"].clone()),
        ("plural", spec["names"]["plural"].clone()),
        ("singular", spec["names"]["singular"].clone()),
        ("shortNames", or_empty(&spec["names"]["shortNames"])),
        ("categories", or_empty(&spec["names"]["categories"])),
        ("scope", spec["scope"].clone()),
        ("served", version["served"].clone()),
        ("storage", version["storage"].clone()),
        ("conversion", spec["conversion"].clone()),
        ("preserveUnknownFields", spec["preserveUnknownFields"].clone()),
        ("printerColumns", version["additionalPrinterColumns"].clone()),
        ("subresources", version["subresources"].clone()),
        ("rootType", schema["type"].clone()),
        ("rootRequired", schema["required"].clone()),
    ];
    let differences = ours.into_iter().filter(|(name, ours)| facts[*name] != *ours);
    differences.map(|(name, ours)| difference(name, "value", &facts[name], &ours)).collect()
}

fn difference(path: &str, what: &str, recorded: &Value, ours: &Value) -> Difference {
    Difference { path: path.to_owned(), what: what.to_owned(), recorded: recorded.clone(), ours: ours.clone() }
}

fn compare_fields(facts: &Value, schema: &Value) -> Vec<Difference> {
    let recorded: BTreeMap<&str, &Value> =
        facts["fields"].as_array().expect("a list").iter().map(|field| (text(&field["path"]), field)).collect();
    let mut ours = BTreeMap::new();
    collect("", schema, &recorded, &mut ours);
    let mut differences = Vec::new();
    for (path, recorded) in &recorded {
        match ours.get(*path) {
            None => differences.push(difference(path, "missing", recorded, &Value::Null)),
            Some(ours) => compare_field(path, recorded, ours, &mut differences),
        }
    }
    for (path, field) in ours.iter().filter(|(path, _)| !recorded.contains_key(path.as_str())) {
        differences.push(difference(path, "added", &Value::Null, field));
    }
    differences
}

fn compare_field(path: &str, recorded: &Value, ours: &Value, differences: &mut Vec<Difference>) {
    for key in KEYS {
        if !same(&recorded[*key], &ours[*key]) {
            differences.push(difference(path, key, &recorded[*key], &ours[*key]));
        }
    }
}

/// Whether two values are the same to the API server: 5 is 5.0.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() < f64::EPSILON,
        _ => one == other,
    }
}

/// Our fields in the shape of the recorded ones. Below a core type only what is recorded; nothing below a field that is
/// new, since the field itself is listed.
fn collect(path: &str, schema: &Value, recorded: &BTreeMap<&str, &Value>, ours: &mut BTreeMap<String, Value>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let known = recorded.get(path.as_str());
        if known.is_none() && ours.keys().any(|above| is_core(recorded, above) && below(&path, above)) {
            continue;
        }
        ours.insert(path.clone(), facts_of(field, name, schema, known.copied()));
        if known.is_some() && field["type"] == "array" {
            collect(&format!("{path}[]"), &field["items"], recorded, ours);
        } else if known.is_some() {
            collect(&path, field, recorded, ours);
        }
    }
}

fn is_core(recorded: &BTreeMap<&str, &Value>, path: &str) -> bool {
    recorded.get(path).is_some_and(|field| field.get("k8sType").is_some())
}

fn below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[]"))
}

fn facts_of(field: &Value, name: &str, parent: &Value, known: Option<&Value>) -> Value {
    let mut facts = json!({});
    for key in KEYS.iter().filter(|key| !["required", "items"].contains(key)) {
        if let Some(value) = field.get(*key) {
            facts[*key] = value.clone();
        }
    }
    if known.is_some_and(|known| known.get("items").is_some()) {
        facts["items"] = json!({"type": field["items"]["type"]});
    }
    facts["required"] = json!(names(&parent["required"]).contains(&name));
    let is_core = known.is_some_and(|known| known.get("k8sType").is_some());
    let required = names(&field["required"]);
    if !required.is_empty() && !is_core {
        facts["requiredChildren"] = json!(required);
    }
    let required = names(&field["items"]["required"]);
    if !required.is_empty() && is_core {
        facts["itemRequired"] = json!(required);
    }
    facts
}

fn names(required: &Value) -> Vec<&str> {
    let mut names: Vec<_> = required.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    names.sort_unstable();
    names
}

fn compare_embedded(facts: &Value, schema: &Value) -> Vec<Difference> {
    let mut differences = Vec::new();
    for constraint in facts["embeddedConstraints"].as_array().expect("a list") {
        let path = text(&constraint["path"]);
        let Some(ours) = at(schema, path) else {
            differences.push(difference(path, "missing", constraint, &Value::Null));
            continue;
        };
        for (key, recorded) in constraint.as_object().into_iter().flatten().filter(|(key, _)| *key != "path") {
            if !same(recorded, &ours[key]) {
                differences.push(difference(path, key, recorded, &ours[key]));
            }
        }
    }
    differences
}

/// The schema at a path of the facts: `a.b[].c.*`.
fn at<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(schema, |schema, step| {
        let name = step.trim_end_matches("[]");
        let field = if name == "*" { schema.get("additionalProperties") } else { schema.pointer(&pointer(name)) }?;
        (0..step.matches("[]").count()).try_fold(field, |field, _| field.get("items"))
    })
}

fn pointer(name: &str) -> String {
    format!("/properties/{name}")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
