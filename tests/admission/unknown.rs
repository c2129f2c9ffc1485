//! Engines that no cache of the operator holds: one live read tells, also on a replica that does not lead.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use lmcache_crds::LMCacheEngine;
use lmcache_operator::admission::injection::Injector;
use serde_json::{Value, json};

use crate::common::{Bed, engine};
use crate::vllm::{args, create, is_injected, pod, skip_reason, until};
use crate::{lenient_bed, operator_by_url};

/// It does not lead, and watches no namespace that anything is in.
const FLAGS: [&str; 2] = ["--leader-elect", "--watch-namespaces=elsewhere"];
const DOCUMENT: &str = r#"{"kv_connector": "LMCacheMPConnector"}"#;

/// Somebody else leads, and will for an hour.
async fn lead_elsewhere(bed: &Bed) -> Result<()> {
    let now = Timestamp::now().to_string();
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "f517be84.lmcache.ai"},
        "spec": {"holderIdentity": "elsewhere", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now},
    }))?;
    Api::default_namespaced(bed.cluster.client()).create(&PostParams::default(), &lease).await?;
    Ok(())
}

/// An engine with its connection, as the leader would have made it.
async fn connected(bed: &Bed, name: &str, data: &Value) -> Result<()> {
    let client = bed.cluster.client();
    let made: LMCacheEngine = serde_json::from_str(&engine(name, &json!({"l1": {"sizeGB": 1}})))?;
    let made = Api::default_namespaced(client.clone()).create(&PostParams::default(), &made).await?;
    let owner = json!({"apiVersion": "lmcache.lmcache.ai/v1alpha1", "kind": "LMCacheEngine", "name": name,
        "uid": made.metadata.uid, "controller": true});
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": format!("{name}-connection"), "ownerReferences": [owner]}, "data": data,
    }))?;
    Api::default_namespaced(client).create(&PostParams::default(), &map).await?;
    Ok(())
}

/// How often the operator has read an object.
fn reads(bed: &Bed, resource: &str, name: &str) -> Result<usize> {
    let log = std::fs::read_to_string(bed.cluster.audit_log_path())?;
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_read = |event: &Value| {
        let about = &event["objectRef"];
        event["verb"] == "get" && about["resource"] == resource && about["name"] == name
    };
    Ok(events.filter(is_read).count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_no_cache_knows_is_read_once() {
    let bed = lenient_bed("unknown").await.unwrap();
    lead_elsewhere(&bed).await.unwrap();
    let operator = operator_by_url(&bed, "manager", &FLAGS).await.unwrap();
    let client = bed.cluster.client();

    connected(&bed, "fresh", &json!({"kv-transfer-config.json": DOCUMENT})).await.unwrap();
    let stored = create(&client, "default", &pod(Injector::LmCache, "fresh", "fresh"), false).await.unwrap();
    assert!(is_injected(&stored, Injector::LmCache) && args(&stored).contains(&DOCUMENT), "{stored:#}");
    let read = [("lmcacheengines", "fresh"), ("configmaps", "fresh-connection")]
        .map(|(resource, name)| reads(&bed, resource, name).unwrap());
    assert_eq!(read, [1, 1], "reads of the engine and of its connection");

    connected(&bed, "keyless", &json!({"other.json": DOCUMENT})).await.unwrap();
    connected(&bed, "blank", &json!({"kv-transfer-config.json": ""})).await.unwrap();
    for name in ["keyless", "blank"] {
        let pod = pod(Injector::LmCache, name, name).to_string();
        let (admitted, text) = bed.cluster.kubectl_says(&["apply", "-f", "-", "-o", "json"], &pod).await.unwrap();
        assert!(admitted && text.contains("Warning: lmcache injection skipped (config-key-missing)"), "{text}");
        assert!(text.contains(r#""lmcache.ai/lmcache-skip-reason": "config-key-missing""#), "{text}");
    }
    let stored = create(&client, "default", &pod(Injector::LmCache, "missing", "missing"), false).await.unwrap();
    assert_eq!(skip_reason(&stored, Injector::LmCache), Some("engine-not-found"), "{stored:#}");
    assert_eq!(reads(&bed, "lmcacheengines", "missing").unwrap(), 1);

    // Without the right to read nothing can be found out. The pod is admitted all the same.
    bed.cluster.kubectl(&["delete", "clusterrolebinding", "testbed-manager-role"]).await.unwrap();
    let blind = until("reading is refused", async || {
        let stored = create(&client, "default", &pod(Injector::LmCache, "tried", "fresh"), true).await?;
        Ok((!is_injected(&stored, Injector::LmCache)).then_some(stored))
    });
    let blind = blind.await.unwrap();
    assert_eq!(skip_reason(&blind, Injector::LmCache), Some("internal-error"), "{blind:#}");
    let pod = pod(Injector::LmCache, "blind", "fresh").to_string();
    let (admitted, text) = bed.cluster.kubectl_says(&["apply", "-f", "-"], &pod).await.unwrap();
    assert!(admitted && text.contains("Warning: lmcache injection skipped (internal-error)"), "{text}");
    assert!(text.contains("cannot read LMCacheEngine default/fresh"), "{text}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!operator.program.log().contains("Started the controllers"), "it leads:\n{}", operator.program.log());
    bed.cluster.stop().await;
}
