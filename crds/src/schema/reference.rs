//! The reference of the API as a page, from the text that `kubectl explain` prints.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;

use super::{CORE_TYPE, KINDS};

const INTRODUCTION: &str = "\
# API reference

Group `lmcache.lmcache.ai`, version `v1alpha1`. The same text is shown by `kubectl explain lmc.spec`, `cbe.spec` and
`lmcc.spec`; `kubectl get lmcache` lists all three kinds.

A *default* in the table is stored in the object as soon as its parent is written: with `server: {}` all fields of
`server` are stored, without `server` none is, and the operator uses the same values. *Required* means within its parent.
Types such as `core.v1.Affinity` are those of Kubernetes itself.
";

/// The page `docs/api.md`: one table per object of every kind, in the order of their paths.
pub fn reference_markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (name, _, schema) in KINDS {
        kind(&mut page, name, &schema());
    }
    page
}

fn kind(page: &mut String, kind: &str, schema: &Value) {
    let _ = write!(page, "\n## {kind}\n\n{}\n", escaped(description(schema)));
    rules(page, schema);
    for part in ["spec", "status"] {
        object(page, part, &schema["properties"][part]);
    }
}

/// One object: its description, its fields, its rules; then the objects below it.
fn object(page: &mut String, path: &str, schema: &Value) {
    let _ = write!(page, "\n### {path}\n\n{}\n\n", escaped(description(schema)));
    page.push_str("| Field | Type | Default | Limits | Meaning |\n|---|---|---|---|---|\n");
    let fields = fields(schema);
    for (name, field) in &fields {
        let required = schema["required"].as_array().is_some_and(|names| names.iter().any(|other| other == name));
        let limits = limits(field, required);
        let meaning = cell(description(field));
        let default = field.get("default").map_or_else(String::new, |value| format!("`{value}`"));
        let _ = writeln!(page, "| `{name}` | {} | {default} | {limits} | {meaning} |", type_name(field));
    }
    rules(page, schema);
    for (name, field) in &fields {
        if own_object(field) {
            object(page, &format!("{path}.{name}"), field);
        } else if own_object(&field["items"]) {
            object(page, &format!("{path}.{name}[]"), &field["items"]);
        }
    }
}

fn fields(schema: &Value) -> BTreeMap<&str, &Value> {
    let properties = schema["properties"].as_object();
    properties.into_iter().flatten().map(|(name, field)| (name.as_str(), field)).collect()
}

fn own_object(schema: &Value) -> bool {
    schema.get("properties").is_some() && schema.get(CORE_TYPE).is_none()
}

fn description(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

fn escaped(text: &str) -> String {
    text.replace('<', "&lt;")
}

fn cell(text: &str) -> String {
    escaped(text).replace('|', "\\|").replace("\n\n", "<br>")
}

fn type_name(schema: &Value) -> String {
    if let Some(core) = schema[CORE_TYPE].as_str() {
        return core.trim_start_matches("api.").trim_start_matches("apimachinery.pkg.apis.").to_owned();
    }
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", type_name(&schema["items"])),
        Some("object") if schema.get("additionalProperties").is_some() => {
            format!("map of {}", type_name(&schema["additionalProperties"]))
        }
        Some("integer") => schema["format"].as_str().unwrap_or("integer").to_owned(),
        Some(name) => name.to_owned(),
        None => "any JSON".to_owned(),
    }
}

fn limits(schema: &Value, required: bool) -> String {
    let mut limits = Vec::new();
    if required {
        limits.push("required".to_owned());
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<_> = values.iter().map(|value| format!("`{}`", plain(value))).collect();
        limits.push(values.join(", "));
    }
    if let Some(minimum) = schema.get("minimum") {
        let relation = if schema["exclusiveMinimum"] == true { ">" } else { "≥" };
        limits.push(format!("{relation} {minimum}"));
    }
    if let Some(maximum) = schema.get("maximum") {
        limits.push(format!("≤ {maximum}"));
    }
    if schema["minLength"] == 1 {
        limits.push("not empty".to_owned());
    }
    if let Some(length) = schema.get("maxLength") {
        limits.push(format!("at most {length} characters"));
    }
    limits.join("; ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What the API server refuses beyond the limits of single fields.
fn rules(page: &mut String, schema: &Value) {
    let rules: Vec<_> = schema["x-kubernetes-validations"].as_array().into_iter().flatten().collect();
    if rules.is_empty() {
        return;
    }
    page.push_str("\nRules:\n\n");
    for rule in rules {
        let message = escaped(rule["message"].as_str().unwrap_or_default());
        let _ = match rule["fieldPath"].as_str() {
            Some(field) => writeln!(page, "- `{}`: {message}", field.trim_start_matches('.')),
            None => writeln!(page, "- {message}"),
        };
    }
}
