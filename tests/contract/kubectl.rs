//! How engines read in kubectl.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::json;

use crate::{cluster, engines, object};

/// Every field says what it is, with unit, default and limits.
#[rstest]
#[case::resource("lmcacheengine", &["LMCacheEngine runs an LMCache server on every selected GPU node", "spec\t<Object>"])]
#[case::short_name("lmc.spec", &["gpuVendor", "progressDeadlineSeconds", "-required-"])]
#[case::server("lmcacheengine.spec.server", &["TCP port of the cache protocol", "1024 to 65535", "Default 5555", "Tokens in one cache chunk"])]
#[case::size("lmc.spec.l1.sizeGB", &["FIELD: sizeGB <number>", "DESCRIPTION:"])]
#[case::status("lmc.status", &["phaseTransitions", "observedGeneration", "Where the resource stands"])]
#[tokio::test]
async fn explain_is_the_manual(#[case] path: &str, #[case] expected: &[&str]) {
    let text = cluster().await.kubectl(&["explain", path]).await.unwrap();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in expected {
        assert!(text.contains(expected) || words.contains(expected), "{path} does not say {expected:?}:\n{text}");
    }
}

/// Nothing in the manual is left without a word.
#[tokio::test]
async fn every_field_has_a_description() {
    for path in ["lmc", "lmc.spec", "lmc.spec.server", "lmc.spec.l2Backend", "lmc.spec.l2Backend.resp", "lmc.status"] {
        let text = cluster().await.kubectl(&["explain", path]).await.unwrap();
        let bare = text.matches("<no description>").count();
        assert_eq!(bare, 0, "{path}:\n{text}");
    }
}

#[tokio::test]
async fn a_new_engine_shows_pending_without_an_operator() {
    let (cluster, name) = (cluster().await, "columns");
    let api = engines(cluster.client());
    api.create(&PostParams::default(), &object(name, "{l1: {sizeGB: 1}}")).await.unwrap();

    for resource in ["lmcacheengines", "lmcacheengine", "lmc"] {
        let (header, row) = table(resource, &[]).await;
        assert_eq!(header, ["NAME", "PHASE", "READY", "DESIRED", "AGE", "REASON"], "kubectl get {resource}");
        assert_eq!(row[..2], [name, "Pending"], "kubectl get {resource}");
    }
    let (header, row) = table("lmcache", &[]).await;
    assert_eq!(header.first().map(String::as_str), Some("NAME"), "the category");
    assert!(row[0].ends_with(name) && row[1] == "Pending", "kubectl get lmcache: {row:?}");

    let status = json!({
        "phase": "Degraded", "reason": "InstanceLost", "message": "node gpu-1: the pod is not ready",
        "desiredInstances": 3, "updatedInstances": 3, "readyInstances": 2, "availableInstances": 2,
    });
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    let (header, row) = table("lmc", &["-o", "wide"]).await;
    assert_eq!(header, ["NAME", "PHASE", "READY", "DESIRED", "AGE", "REASON", "UPDATED", "MESSAGE"]);
    assert_eq!(row[..4], [name, "Degraded", "2", "3"]);
    assert_eq!(row[5..].join(" "), "InstanceLost 3 node gpu-1: the pod is not ready");
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Header and row of the engine `columns`.
async fn table(resource: &str, flags: &[&str]) -> (Vec<String>, Vec<String>) {
    let text = cluster().await.kubectl(&[&["get", resource], flags].concat()).await.unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let header = text.lines().next().map(words).unwrap_or_default();
    let row = text.lines().find(|line| words(line).first().is_some_and(|name| name.ends_with("columns")));
    (header, row.map_or_else(|| panic!("no row:\n{text}"), words))
}
