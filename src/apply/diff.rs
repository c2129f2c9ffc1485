//! Whether a live object already agrees with what was rendered, so that no request is needed (D73).
//!
//! Two questions, both answered from the cache: does every rendered field stand on the live object with the
//! rendered value, and does the operator own no field any more that it no longer renders?

use serde_json::Value;

/// True when applying `rendered` would change nothing on `live`; `owned` is the operator's `fieldsV1`.
pub fn agrees(rendered: &Value, live: &Value, owned: &Value) -> bool {
    let Value::Object(fields) = rendered else { return false };
    let content = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    let metadata = fields.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let metadata = metadata.filter(|(name, _)| !matches!(name.as_str(), "name" | "namespace"));
    content.into_iter().all(|(name, wanted)| contains(&live[name], wanted, name))
        && metadata.into_iter().all(|(name, wanted)| contains(&live["metadata"][name], wanted, name))
        && owns_nothing_more(owned, rendered)
}

/// Every field of `rendered` stands in `live`; what else `live` has is the server's or somebody else's.
fn contains(live: &Value, rendered: &Value, key: &str) -> bool {
    match (live, rendered) {
        (Value::Object(live), Value::Object(rendered)) => {
            rendered.iter().all(|(key, wanted)| live.get(key).is_some_and(|found| contains(found, wanted, key)))
        }
        (Value::Array(live), Value::Array(rendered)) => match merge_keys(key, rendered) {
            Some(keys) => rendered
                .iter()
                .all(|wanted| live.iter().any(|found| same_item(found, wanted, keys) && contains(found, wanted, ""))),
            None => {
                live.len() == rendered.len()
                    && live.iter().zip(rendered).all(|(found, wanted)| contains(found, wanted, ""))
            }
        },
        (Value::Number(live), Value::Number(rendered)) => live == rendered || live.as_f64() == rendered.as_f64(),
        (live, rendered) => live == rendered,
    }
}

/// Lists that the API server merges by key; all others are atomic.
fn merge_keys(list: &str, items: &[Value]) -> Option<&'static [&'static str]> {
    let keys: &[&str] = match list {
        "containers" | "initContainers" | "volumes" | "env" | "imagePullSecrets" => &["name"],
        "volumeMounts" => &["mountPath"],
        "ports" if items.iter().any(|p| p.get("containerPort").is_some()) => &["containerPort", "protocol"],
        "ports" if items.iter().any(|p| p.get("port").is_some()) => &["port", "protocol"],
        "ownerReferences" => &["uid"],
        _ => return None,
    };
    Some(keys)
}

fn same_item(live: &Value, rendered: &Value, keys: &[&str]) -> bool {
    keys.iter().all(|key| match rendered.get(key) {
        Some(wanted) => live.get(key) == Some(wanted),
        // The API server fills in the protocol of a port.
        None => *key != "protocol" || live.get(key).is_none_or(|p| p == "TCP"),
    })
}

/// Walks `fieldsV1`: every field the operator owns is still rendered.
fn owns_nothing_more(owned: &Value, rendered: &Value) -> bool {
    let Value::Object(fields) = owned else { return true };
    fields.iter().all(|(path, below)| match path.split_once(':') {
        Some(("f", name)) => match rendered.get(name) {
            Some(value) => owns_nothing_more(below, value),
            None => false,
        },
        Some(("k", key)) => match item_by_key(rendered, key) {
            Some(item) => owns_nothing_more(below, item),
            None => false,
        },
        Some(("v", value)) => {
            let value: Value = serde_json::from_str(value).unwrap_or_default();
            rendered.as_array().is_some_and(|items| items.contains(&value))
        }
        _ => true,
    })
}

fn item_by_key<'a>(list: &'a Value, key: &str) -> Option<&'a Value> {
    let Ok(Value::Object(key)) = serde_json::from_str(key) else { return None };
    list.as_array()?.iter().find(|item| {
        key.iter().all(|(name, value)| match item.get(name) {
            Some(found) => found == value,
            None => name == "protocol" && value == "TCP",
        })
    })
}

#[cfg(test)]
mod tests {
    use super::agrees;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn service() -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x", "labels": {"a": "b"}},
               "spec": {"ports": [{"name": "server", "port": 5555, "targetPort": "server"}], "selector": {"a": "b"}}})
    }

    fn live() -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x", "labels": {"a": "b", "team": "t"}, "annotations": {"n": "1"}},
               "spec": {"ports": [{"name": "server", "port": 5555, "protocol": "TCP", "targetPort": "server"}],
                        "selector": {"a": "b"}, "clusterIP": "10.0.0.1", "type": "ClusterIP"}})
    }

    fn owned() -> Value {
        json!({"f:metadata": {"f:labels": {"f:a": {}}},
               "f:spec": {"f:ports": {"k:{\"port\":5555,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:targetPort": {}}},
                          "f:selector": {}}})
    }

    #[test]
    fn server_defaults_and_foreign_fields_do_not_count() {
        assert!(agrees(&service(), &live(), &owned()));
    }

    #[rstest]
    #[case::value("/spec/ports/0/targetPort", json!("http"))]
    #[case::selector("/spec/selector/a", json!("c"))]
    #[case::label("/metadata/labels/a", json!("c"))]
    #[case::port("/spec/ports/0/port", json!(1))]
    fn drift_of_a_rendered_field_is_seen(#[case] path: &str, #[case] value: Value) {
        let mut live = live();
        *live.pointer_mut(path).expect(path) = value;
        assert!(!agrees(&service(), &live, &owned()), "{live}");
    }

    #[test]
    fn a_field_that_is_no_longer_rendered_is_seen() {
        let mut rendered = service();
        rendered["metadata"]["labels"] = json!({});
        let mut owned = owned();
        owned["f:spec"]["f:type"] = json!({});
        assert!(!agrees(&service(), &live(), &owned), "spec.type is owned but not rendered");
        assert!(!agrees(&rendered, &live(), &self::owned()), "label a is owned but not rendered");
    }

    #[test]
    fn an_item_that_is_no_longer_rendered_is_seen() {
        let mut owned = owned();
        owned["f:spec"]["f:ports"]["k:{\"port\":8080,\"protocol\":\"TCP\"}"] = json!({".": {}, "f:port": {}});
        assert!(!agrees(&service(), &live(), &owned));
    }

    #[test]
    fn atomic_lists_are_compared_whole() {
        let rendered = json!({"spec": {"args": ["--port", "1"]}});
        assert!(!agrees(&rendered, &json!({"spec": {"args": ["--port", "1", "--more"]}}), &Value::Null));
        assert!(agrees(&rendered, &json!({"spec": {"args": ["--port", "1"]}}), &Value::Null));
    }
}
