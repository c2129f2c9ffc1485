//! The CRD manifests: schemas derived from the types, completed with what schemars and `k8s-openapi` do not know.

mod columns;
mod embedded;
mod reference;
mod rules;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::CustomResourceExt;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{CacheBlendEngine, LMCacheCoordinator, LMCacheEngine};
use rules::Rule;

pub use reference::reference_markdown;

/// Key that remembers the core type of an embedded schema while the reference is written. No schema leaves with it.
const CORE_TYPE: &str = "x-core-type";

/// A kind with what its types cannot say.
trait Kind: CustomResourceExt + JsonSchema {
    /// What `kubectl get` counts.
    const COUNTS: columns::Counts;
    /// Rules that the API server checks in CEL.
    fn rules() -> Vec<Rule>;
}

impl Kind for LMCacheEngine {
    const COUNTS: columns::Counts = columns::INSTANCES;
    fn rules() -> Vec<Rule> {
        rules::engine()
    }
}

impl Kind for CacheBlendEngine {
    const COUNTS: columns::Counts = columns::INSTANCES;
    fn rules() -> Vec<Rule> {
        [rules::engine(), rules::cache_blend()].concat()
    }
}

impl Kind for LMCacheCoordinator {
    const COUNTS: columns::Counts = columns::REPLICAS;
    fn rules() -> Vec<Rule> {
        vec![rules::name()]
    }
}

/// The kinds in the order of the manifests: name, definition, and the schema as it is before core types are forgotten.
type Definition = (&'static str, fn() -> CustomResourceDefinition, fn() -> Value);
const KINDS: [Definition; 3] = [
    ("LMCacheEngine", definition::<LMCacheEngine>, schema::<LMCacheEngine>),
    ("CacheBlendEngine", definition::<CacheBlendEngine>, schema::<CacheBlendEngine>),
    ("LMCacheCoordinator", definition::<LMCacheCoordinator>, schema::<LMCacheCoordinator>),
];

/// Every custom resource definition of the operator, ready to be applied.
///
/// Use this and not `LMCacheEngine::crd()`, which lacks the rules, the limits of core types, the default status and the
/// columns of `kubectl get`.
pub fn crds() -> Vec<CustomResourceDefinition> {
    KINDS.iter().map(|(_, definition, _)| definition()).collect()
}

/// The definition of one kind, if it is ours.
pub(crate) fn crd_of(kind: &str) -> Option<CustomResourceDefinition> {
    KINDS.iter().find(|(name, ..)| *name == kind).map(|(_, definition, _)| definition())
}

fn definition<K: Kind>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    let mut schema = schema::<K>();
    forget_core_types(&mut schema);
    let schema: Option<JSONSchemaProps> = serde_json::from_value(schema).ok();
    for version in &mut crd.spec.versions {
        version.schema = Some(CustomResourceValidation { open_api_v3_schema: schema.clone() });
        version.additional_printer_columns = Some(columns::columns(&K::COUNTS));
    }
    crd
}

/// The whole schema of a kind.
fn schema<K: Kind>() -> Value {
    let mut schema = structural::<K>();
    rules::add(&mut schema, K::rules());
    schema["properties"]["status"]["default"] = json!({"phase": "Pending"});
    schema
}

/// The structural schema of a custom resource: definitions inlined, enums flat, nothing nullable.
fn structural<K: JsonSchema>() -> Value {
    let (mut schema, mut definitions) = raw::<K>();
    embedded::complete(&mut definitions);
    inline(&mut schema, &definitions);
    if let Some(object) = schema.as_object_mut() {
        object.remove("title");
    }
    add_type_meta(&mut schema);
    schema
}

fn raw<K: JsonSchema>() -> (Value, Map<String, Value>) {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None);
    let mut schema = settings.into_generator().into_root_schema_for::<K>().to_value();
    let definitions = schema.as_object_mut().and_then(|schema| schema.remove("$defs"));
    match definitions {
        Some(Value::Object(definitions)) => (schema, definitions),
        _ => (schema, Map::new()),
    }
}

#[cfg(test)]
fn definitions() -> Map<String, Value> {
    raw::<LMCacheEngine>().1
}

/// Replaces references by what they refer to; what stands beside a reference wins over it.
fn inline(schema: &mut Value, definitions: &Map<String, Value>) {
    match schema {
        Value::Object(object) => {
            unwrap_optional(object);
            resolve_reference(object, definitions);
            flatten_enum(object);
            tidy(object);
            object.iter_mut().filter(|(key, _)| !is_data(key)).for_each(|(_, value)| inline(value, definitions));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| inline(item, definitions)),
        _ => {}
    }
}

/// Whether the value under this keyword is data of the user's kind and no schema.
fn is_data(keyword: &str) -> bool {
    matches!(keyword, "default" | "enum" | "required" | "x-kubernetes-list-map-keys")
}

/// `anyOf: [X, null]` is X, and `type: [T, null]` is T: an explicit null is pruned like an absent field.
fn unwrap_optional(object: &mut Map<String, Value>) {
    let is_null = |schema: &Value| schema["type"] == "null";
    let optional = object.get("anyOf").and_then(Value::as_array).and_then(|branches| match branches.as_slice() {
        [branch, null] if is_null(null) => branch.as_object().cloned(),
        _ => None,
    });
    if let Some(branch) = optional {
        object.remove("anyOf");
        merge_below(object, branch);
    }
    let only_type = object.get("type").and_then(Value::as_array).and_then(|types| match types.as_slice() {
        [only, null] if null == "null" => Some(only.clone()),
        _ => None,
    });
    if let Some(only) = only_type {
        object.insert("type".to_owned(), only);
    }
}

fn resolve_reference(object: &mut Map<String, Value>, definitions: &Map<String, Value>) {
    let Some(Value::String(reference)) = object.remove("$ref") else { return };
    let name = reference.trim_start_matches("#/$defs/");
    if let Some(Value::Object(target)) = definitions.get(name) {
        merge_below(object, target.clone());
        unwrap_optional(object);
    }
    if let Some(core) = name.strip_prefix("io.k8s.") {
        object.insert(CORE_TYPE.to_owned(), json!(core));
    }
}

fn merge_below(object: &mut Map<String, Value>, below: Map<String, Value>) {
    for (key, value) in below {
        object.entry(key).or_insert(value);
    }
}

/// `oneOf` documented constants is an enum.
fn flatten_enum(object: &mut Map<String, Value>) {
    let constants = object.get("oneOf").and_then(Value::as_array).and_then(|branches| {
        branches.iter().map(|branch| branch.get("const").cloned()).collect::<Option<Vec<Value>>>()
    });
    if let Some(constants) = constants {
        object.remove("oneOf");
        object.insert("type".to_owned(), json!("string"));
        object.insert("enum".to_owned(), Value::Array(constants));
    }
    if let Some(constant) = object.remove("const") {
        object.insert("enum".to_owned(), json!([constant]));
    }
}

/// Small repairs: lines of a description are one paragraph, a number is a number, any JSON is kept.
fn tidy(object: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = object.get_mut("description") {
        let paragraphs = text.split("\n\n").map(|paragraph| paragraph.replace('\n', " "));
        *text = paragraphs.collect::<Vec<_>>().join("\n\n");
    }
    if object.get("format").is_some_and(|format| format == "double") {
        object.remove("format");
    }
    if object.get("additionalProperties") == Some(&Value::Bool(true)) {
        let anything = json!({"x-kubernetes-preserve-unknown-fields": true});
        object.insert("additionalProperties".to_owned(), anything);
    }
}

/// What every object has, as `kubectl explain` shows it.
fn add_type_meta(schema: &mut Value) {
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({
        "type": "string",
        "description": "API group and version of this object: lmcache.lmcache.ai/v1alpha1."
    });
    properties["kind"] = json!({"type": "string", "description": "Kind of this object."});
    properties["metadata"] = json!({"type": "object", "properties": {"name": {"type": "string"}}});
}

fn forget_core_types(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove(CORE_TYPE);
            object.values_mut().for_each(forget_core_types);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_core_types),
        _ => {}
    }
}
