//! What a spec that cannot be decoded got wrong, by the schema: the decoder itself names no field.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use super::field_error::{BadValue, FieldError, Findings};

/// Every value in a spec that has a type or a word that the kind's schema does not know, and every field that is missing.
///
/// For objects that were stored under another schema; what the API server accepts today has none. Empty for an unknown
/// kind, and when the types are right.
pub fn malformed(kind: &str, spec: &Value) -> Vec<FieldError> {
    let mut findings = Findings::default();
    if let Some(crd) = crate::schema::crd_of(kind) {
        let schemas = crd.spec.versions.iter().filter_map(|it| it.schema.as_ref()?.open_api_v3_schema.as_ref());
        for schema in schemas.filter_map(|root| root.properties.as_ref()?.get("spec")) {
            look(&mut findings, schema, spec, "spec");
        }
    }
    findings.into_errors()
}

fn look(findings: &mut Findings, schema: &JSONSchemaProps, value: &Value, path: &str) {
    if let Some(wanted) = contradicted_type(schema, value) {
        findings.invalid(path, printed(value), format!("must be of type {wanted}"));
        return;
    }
    let words: Vec<_> = schema.enum_.iter().flatten().map(|word| &word.0).collect();
    if !words.is_empty() && !words.contains(&value) {
        let words: Vec<_> = words.into_iter().map(ToString::to_string).collect();
        findings.invalid(path, printed(value), format!("supported values: {}", words.join(", ")));
    }
    match value {
        Value::Object(fields) => {
            for name in schema.required.iter().flatten().filter(|name| fields.get(*name).is_none_or(Value::is_null)) {
                findings.required(&format!("{path}.{name}"), "must be set");
            }
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                if let Some(schema) = of_field(schema, name) {
                    look(findings, schema, value, &format!("{path}.{name}"));
                }
            }
        }
        Value::Array(items) => {
            if let Some(JSONSchemaPropsOrArray::Schema(schema)) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    look(findings, schema, item, &format!("{path}[{index}]"));
                }
            }
        }
        _ => {}
    }
}

fn of_field<'a>(schema: &'a JSONSchemaProps, name: &str) -> Option<&'a JSONSchemaProps> {
    let named = schema.properties.as_ref().and_then(|properties| properties.get(name));
    named.or(match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(schema)) => Some(schema),
        _ => None,
    })
}

/// The type that the schema wants, when the value has another one.
fn contradicted_type<'a>(schema: &'a JSONSchemaProps, value: &Value) -> Option<&'a str> {
    if schema.x_kubernetes_int_or_string == Some(true) {
        return (!value.is_i64() && !value.is_string()).then_some("integer or string");
    }
    let wanted = schema.type_.as_deref()?;
    let fits = match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" if schema.format.as_deref() == Some("int32") => {
            value.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
        }
        "integer" => value.is_i64(),
        _ => true,
    };
    (!fits).then_some(wanted)
}

/// Objects and lists are not printed: they may be long.
fn printed(value: &Value) -> BadValue {
    match value {
        Value::Number(number) => BadValue::Number(number.as_f64().unwrap_or_default()),
        Value::String(text) => BadValue::Text(text.clone()),
        Value::Bool(_) => BadValue::Text(value.to_string()),
        _ => BadValue::Text(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::number(json!({"l1": {"sizeGB": 1}, "gpuVendor": 5}), &["spec.gpuVendor: Invalid value: 5: must be of type string"])]
    #[case::word(
        json!({"l1": {"sizeGB": 1}, "logLevel": "LOUD"}),
        &[r#"spec.logLevel: Invalid value: "LOUD": supported values: "DEBUG", "INFO", "WARNING", "ERROR""#],
    )]
    #[case::text(json!({"l1": "large"}), &[r#"spec.l1: Invalid value: "large": must be of type object"#])]
    #[case::list(json!({"l1": {"sizeGB": []}}), &[r#"spec.l1.sizeGB: Invalid value: "": must be of type number"#])]
    #[case::item(
        json!({"l1": {"sizeGB": 1}, "env": [{"name": "a"}, {"name": true}]}),
        &[r#"spec.env[1].name: Invalid value: "true": must be of type string"#],
    )]
    #[case::map(json!({"l1": {"sizeGB": 1}, "podLabels": {"a": 1}}), &["spec.podLabels.a: Invalid value: 1: must be of type string"])]
    #[case::too_large(
        json!({"l1": {"sizeGB": 1}, "server": {"port": 3_000_000_000_u32}}),
        &["spec.server.port: Invalid value: 3000000000: must be of type integer"],
    )]
    #[case::missing(json!({}), &["spec.l1: Required value: must be set"])]
    #[case::two(
        json!({"l1": {}, "hostIPC": "yes"}),
        &[r#"spec.hostIPC: Invalid value: "yes": must be of type boolean"#, "spec.l1.sizeGB: Required value: must be set"],
    )]
    #[case::nothing_at_all(Value::Null, &[r#"spec: Invalid value: "": must be of type object"#])]
    #[case::good(json!({"l1": {"sizeGB": 1}, "gpuVendor": null, "l2Backend": {"raw": {"type": "x", "config": {"a": [1]}}}}), &[])]
    #[case::quantity(json!({"l1": {"sizeGB": 1}, "resourceOverrides": {"limits": {"cpu": 1, "memory": "1Gi"}}}), &[])]
    fn names_the_field(#[case] spec: Value, #[case] expected: &[&str]) {
        let found: Vec<_> = malformed("LMCacheEngine", &spec).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{spec}");
    }

    #[rstest]
    #[case(
        "CacheBlendEngine",
        json!({"l1": {"sizeGB": 1}, "blend": {"checkLayer": "one"}, "injection": {"cudagraph": "none"}}),
        &[
            r#"spec.blend.checkLayer: Invalid value: "one": must be of type integer"#,
            r#"spec.injection.cudagraph: Invalid value: "none": supported values: "eager", "piecewise", "full_decode_only""#,
        ],
    )]
    #[case(
        "LMCacheCoordinator",
        json!({"replicas": 1.5, "hashAlgorithm": "md5", "image": {"tag": 1}}),
        &[
            r#"spec.hashAlgorithm: Invalid value: "md5": supported values: "builtin", "sha256_cbor", "blake3""#,
            "spec.image.tag: Invalid value: 1: must be of type string",
            "spec.replicas: Invalid value: 1.5: must be of type integer",
        ],
    )]
    fn names_the_field_of_every_kind(#[case] kind: &str, #[case] spec: Value, #[case] expected: &[&str]) {
        let found: Vec<_> = malformed(kind, &spec).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{kind}: {spec}");
    }

    #[test]
    fn knows_nothing_of_other_kinds() {
        assert_eq!(malformed("Pod", &json!({"l1": 5})), Vec::new());
    }
}
