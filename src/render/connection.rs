//! The connection `ConfigMap`: documents for vLLM's `--kv-transfer-config`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Map, Value, json};

use super::context::Context;
use super::engine::Decoder;
use super::{Child, ChildKind, json, labels, names};

/// Document for a vLLM that serves alone.
pub const DOCUMENT: &str = "kv-transfer-config.json";
/// Document for a prefiller, only with `spec.pd`.
pub const PREFILLER_DOCUMENT: &str = "kv-transfer-config-prefiller.json";
/// Document for a decoder, only with `spec.pd`.
pub const DECODER_DOCUMENT: &str = "kv-transfer-config-decoder.json";

pub(super) fn config_map(context: &Context<'_>) -> Child {
    let name = names::connection(context.identity.name);
    let object = ConfigMap {
        metadata: labels::object_meta(&context.identity, name.clone()),
        data: Some(documents(context)),
        ..ConfigMap::default()
    };
    Child::new(ChildKind::ConfigMap, name, &object)
}

fn documents(context: &Context<'_>) -> BTreeMap<String, String> {
    let mut documents = BTreeMap::from([(DOCUMENT.to_owned(), json::indented(&cache_connector(context)))]);
    if context.spec.pd.is_some() {
        let decoder = match context.connector.decoder {
            Decoder::TransferAndCache => multi_connector(context, "kv_consumer"),
            Decoder::TransferOnly => nixl_connector(context, "kv_consumer"),
        };
        let prefiller = multi_connector(context, "kv_producer");
        documents.insert(PREFILLER_DOCUMENT.to_owned(), json::indented(&prefiller));
        documents.insert(DECODER_DOCUMENT.to_owned(), json::indented(&decoder));
    }
    documents
}

/// The cache connector plays both roles everywhere; only the transfer beside it has a side.
fn cache_connector(context: &Context<'_>) -> Value {
    let host = format!(
        "tcp://{}.{}.svc.{}",
        context.identity.name, context.identity.namespace, context.options.cluster_domain
    );
    let mut config: Map<String, Value> = Map::new();
    for (key, value) in &context.connector.extra_config {
        config.insert((*key).to_owned(), value.clone());
    }
    config.insert("lmcache.mp.host".to_owned(), host.into());
    config.insert("lmcache.mp.port".to_owned(), context.spec.server_port().to_string().into());
    if context.isolated_ipc {
        config.insert("lmcache.mp.isolated_ipc".to_owned(), true.into());
    }
    json!({
        "kv_connector": context.connector.name,
        "kv_connector_extra_config": config,
        "kv_connector_module_path": context.connector.module,
        "kv_role": "kv_both",
    })
}

fn multi_connector(context: &Context<'_>, role: &str) -> Value {
    json!({
        "kv_connector": "MultiConnector",
        "kv_connector_extra_config": {"connectors": [nixl_connector(context, role), cache_connector(context)]},
        "kv_role": role,
    })
}

fn nixl_connector(context: &Context<'_>, role: &str) -> Value {
    let pd = context.spec.pd.as_ref();
    let policy = pd.and_then(|pd| pd.nixl_load_failure_policy).unwrap_or_default();
    let mut connector = json!({
        "kv_connector": "NixlConnector",
        "kv_load_failure_policy": policy.as_str(),
        "kv_role": role,
    });
    if let Some(enforce) = pd.and_then(|pd| pd.enforce_handshake_compat) {
        connector["kv_connector_extra_config"] = json!({"enforce_handshake_compat": enforce});
    }
    connector
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::testing::{engine, spec, with_context};
    use super::super::{Options, Resolved, children};
    use super::*;

    fn rendered(fields: Value) -> BTreeMap<String, String> {
        with_context(&spec(fields), &Resolved::default(), |context| documents(&context))
    }

    const CACHE: &str = r#"{
  "kv_connector": "LMCacheMPConnector",
  "kv_connector_extra_config": {
    "lmcache.mp.host": "tcp://c1.ai.svc.cluster.local",
    "lmcache.mp.isolated_ipc": true,
    "lmcache.mp.port": "5555"
  },
  "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector",
  "kv_role": "kv_both"
}"#;

    const PREFILLER: &str = r#"{
  "kv_connector": "MultiConnector",
  "kv_connector_extra_config": {
    "connectors": [
      {
        "kv_connector": "NixlConnector",
        "kv_connector_extra_config": {
          "enforce_handshake_compat": false
        },
        "kv_load_failure_policy": "ignore",
        "kv_role": "kv_producer"
      },
      {
        "kv_connector": "LMCacheMPConnector",
        "kv_connector_extra_config": {
          "lmcache.mp.host": "tcp://c1.ai.svc.cluster.local",
          "lmcache.mp.isolated_ipc": true,
          "lmcache.mp.port": "5555"
        },
        "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector",
        "kv_role": "kv_both"
      }
    ]
  },
  "kv_role": "kv_producer"
}"#;

    #[test]
    fn without_disaggregation_there_is_one_document() {
        assert_eq!(rendered(json!({})), BTreeMap::from([(DOCUMENT.to_owned(), CACHE.to_owned())]));
    }

    #[test]
    fn isolated_ipc_is_absent_rather_than_false() {
        let expected = CACHE.replace("    \"lmcache.mp.isolated_ipc\": true,\n", "").replace("5555", "7000");
        assert_eq!(rendered(json!({"isolatedIPC": false, "server": {"port": 7000}}))[DOCUMENT], expected);
    }

    #[test]
    fn with_disaggregation_there_is_one_document_for_each_side_too() {
        let pd = json!({"nixlLoadFailurePolicy": "ignore", "enforceHandshakeCompat": false});
        let documents = rendered(json!({"pd": pd}));
        assert_eq!(documents.len(), 3);
        assert_eq!(documents[DOCUMENT], CACHE);
        assert_eq!(documents[PREFILLER_DOCUMENT], PREFILLER);
        assert_eq!(documents[DECODER_DOCUMENT], PREFILLER.replace("kv_producer", "kv_consumer"));
    }

    #[rstest]
    #[case(json!({}), "fail", None)]
    #[case(json!({"enforceHandshakeCompat": true}), "fail", Some(true))]
    #[case(json!({"nixlLoadFailurePolicy": "ignore"}), "ignore", None)]
    fn nixl_carries_the_settings_of_the_spec(#[case] pd: Value, #[case] policy: &str, #[case] enforce: Option<bool>) {
        let document: Value = serde_json::from_str(&rendered(json!({"pd": pd}))[PREFILLER_DOCUMENT]).unwrap();
        let nixl = &document["kv_connector_extra_config"]["connectors"][0];
        assert_eq!(nixl["kv_load_failure_policy"], policy);
        let expected = enforce.map(|enforce| json!({"enforce_handshake_compat": enforce}));
        assert_eq!(nixl.get("kv_connector_extra_config"), expected.as_ref());
    }

    #[test]
    fn another_kind_brings_its_connector_and_its_decoder() {
        let fields = spec(json!({"pd": {}, "isolatedIPC": false}));
        let documents = with_context(&fields, &Resolved::default(), |mut context| {
            context.connector.name = "CBKVConnector";
            context.connector.module = "lmcache_cacheblend.connector";
            context.connector.extra_config = vec![("cb.recomp_ratio", json!(0.15)), ("cb.check_layer", json!(1))];
            context.connector.decoder = Decoder::TransferOnly;
            documents(&context)
        });
        let bare = r#"{
  "kv_connector": "CBKVConnector",
  "kv_connector_extra_config": {
    "cb.check_layer": 1,
    "cb.recomp_ratio": 0.15,
    "lmcache.mp.host": "tcp://c1.ai.svc.cluster.local",
    "lmcache.mp.port": "5555"
  },
  "kv_connector_module_path": "lmcache_cacheblend.connector",
  "kv_role": "kv_both"
}"#;
        assert_eq!(documents[DOCUMENT], bare);
        let nixl = "{\n  \"kv_connector\": \"NixlConnector\",\n  \"kv_load_failure_policy\": \"fail\",\n  \"kv_role\": \"kv_consumer\"\n}";
        assert_eq!(documents[DECODER_DOCUMENT], nixl);
        assert!(documents[PREFILLER_DOCUMENT].contains("MultiConnector"), "{documents:?}");
    }

    #[test]
    fn the_cluster_domain_is_an_option() {
        let options = Options { cluster_domain: "corp.local".into() };
        let children = children(&engine(&spec(json!({}))), &Resolved::default(), &options);
        let text = children.get(ChildKind::ConfigMap, "c1-connection").unwrap().object["data"][DOCUMENT].to_string();
        assert!(text.contains("tcp://c1.ai.svc.corp.local"), "{text}");
    }
}
