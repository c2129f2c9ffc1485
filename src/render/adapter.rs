//! The JSON object that configures the second level: `--l2-adapter`.

use lmcache_crds::{AesGcmSpec, L2BackendSpec, RawSpec, RespSpec};
use serde_json::{Map, Value, json};

use super::json;

/// Directory of the mounted master key.
pub const KEY_DIRECTORY: &str = "/etc/lmcache/keys";
/// Key of the Secret, and file in [`KEY_DIRECTORY`], that holds the master key.
pub const MASTER_KEY: &str = "master";

/// The adapter on one line; `None` when the spec names none, which validation refuses. Credentials never appear in it.
pub fn text(backend: &L2BackendSpec) -> Option<String> {
    let mut object = match (&backend.resp, &backend.raw) {
        (Some(resp), _) => resp_adapter(resp),
        (None, Some(raw)) => raw_adapter(raw),
        (None, None) => return None,
    };
    if let Some(aesgcm) = backend.serde.as_ref().and_then(|serde| serde.aesgcm.as_ref()) {
        object.insert("serde".to_owned(), encryption(aesgcm));
    }
    Some(json::compact(&Value::Object(object)))
}

fn resp_adapter(resp: &RespSpec) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("host".to_owned(), resp.host.as_str().into());
    if let Some(capacity) = resp.max_capacity_gb.filter(|capacity| *capacity > 0.0) {
        object.insert("max_capacity_gb".to_owned(), capacity.into());
    }
    object.insert("num_workers".to_owned(), resp.num_workers.unwrap_or(8).into());
    object.insert("port".to_owned(), resp.port.into());
    object.insert("type".to_owned(), "resp".into());
    object
}

/// `raw.type` is the type, whatever the configuration says (D24).
fn raw_adapter(raw: &RawSpec) -> Map<String, Value> {
    let mut object: Map<String, Value> =
        raw.config.iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect();
    object.insert("type".to_owned(), raw.type_.as_str().into());
    object
}

fn encryption(aesgcm: &AesGcmSpec) -> Value {
    json!({
        "aes_bits": aesgcm.aes_bits.unwrap_or(128),
        "key_provider": aesgcm.key_provider.unwrap_or_default().as_str(),
        "master_key_path": format!("{KEY_DIRECTORY}/{MASTER_KEY}"),
        "type": "aesgcm",
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const ENCRYPTED: &str = r#""serde":{"aes_bits":128,"key_provider":"hkdf","master_key_path":"/etc/lmcache/keys/master","type":"aesgcm"}"#;

    #[rstest]
    #[case(json!({"resp": {"host": "redis", "port": 6379}}), r#"{"host":"redis","num_workers":8,"port":6379,"type":"resp"}"#)]
    #[case(
        json!({"resp": {"host": "r", "port": 1, "numWorkers": 4, "maxCapacityGB": 50}}),
        r#"{"host":"r","max_capacity_gb":50,"num_workers":4,"port":1,"type":"resp"}"#
    )]
    #[case(
        json!({"resp": {"host": "r", "port": 1, "maxCapacityGB": 0}}),
        r#"{"host":"r","num_workers":8,"port":1,"type":"resp"}"#
    )]
    #[case(
        json!({"resp": {"host": "r", "port": 1, "maxCapacityGB": 1.5, "authSecretRef": {"name": "s"}}}),
        r#"{"host":"r","max_capacity_gb":1.5,"num_workers":8,"port":1,"type":"resp"}"#
    )]
    #[case(json!({"raw": {"type": "fs"}}), r#"{"type":"fs"}"#)]
    #[case(json!({"raw": {"type": "fs", "config": {"type": "mock", "a": 1}}}), r#"{"a":1,"type":"fs"}"#)]
    #[case(
        json!({"raw": {"type": "fs", "config": {"n": 9_007_199_254_740_993_i64, "tiny": 1e-7, "one": 1.0}}}),
        r#"{"n":9007199254740993,"one":1,"tiny":1e-7,"type":"fs"}"#
    )]
    fn adapters_are_compact_json_with_sorted_keys(#[case] backend: Value, #[case] expected: &str) {
        assert_eq!(text(&serde_json::from_value(backend).unwrap()).as_deref(), Some(expected));
    }

    #[test]
    fn encryption_is_part_of_the_adapter() {
        let serde = json!({"aesgcm": {"masterKeySecretRef": {"name": "k"}}});
        let backend = json!({"raw": {"type": "fs", "config": {"base_path": "/d"}}, "serde": serde});
        let expected = format!(r#"{{"base_path":"/d",{ENCRYPTED},"type":"fs"}}"#);
        assert_eq!(text(&serde_json::from_value(backend).unwrap()), Some(expected));
    }

    #[test]
    fn no_adapter_without_one_in_the_spec() {
        assert_eq!(text(&L2BackendSpec::default()), None);
    }
}
