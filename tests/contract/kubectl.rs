//! How resources read in kubectl.

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{CBE, LMC, LMCC, api, cluster, engine, object};

/// Every field says what it is, with unit, default and limits.
#[rstest]
#[case::resource("lmcacheengine", &["LMCacheEngine runs an LMCache server on every selected GPU node", "spec\t<Object>"])]
#[case::short_name("lmc.spec", &["gpuVendor", "progressDeadlineSeconds", "-required-"])]
#[case::server("lmcacheengine.spec.server", &["TCP port of the cache protocol", "1024 to 65535", "Default 5555", "Tokens in one cache chunk"])]
#[case::size("lmc.spec.l1.sizeGB", &["FIELD: sizeGB <number>", "DESCRIPTION:"])]
#[case::cache_blend("cacheblendengine", &["CacheBlendEngine runs a CacheBlend server on every selected GPU node"])]
#[case::blend("cbe.spec.blend", &["checkLayer", "Default 1", "Default 0.15"])]
#[case::coordinator("lmcachecoordinator", &["LMCacheCoordinator runs the registry"])]
#[case::coordinator_spec("lmcc.spec", &["blendChunkSize", "flag --chunk-size", "1 to 65535. Default 9300"])]
#[case::coordinator_status("lmcc.status", &["readyReplicas", "URL that engines register at"])]
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
    for path in [
        "lmc",
        "lmc.spec",
        "lmc.spec.server",
        "lmc.spec.l2Backend",
        "lmc.spec.l2Backend.resp",
        "lmc.status",
        "cbe",
        "cbe.spec",
        "cbe.spec.blend",
        "cbe.spec.injection",
        "lmcc",
        "lmcc.spec",
        "lmcc.status",
    ] {
        let text = cluster().await.kubectl(&["explain", path]).await.unwrap();
        let bare = text.matches("<no description>").count();
        assert_eq!(bare, 0, "{path}:\n{text}");
    }
}

/// How a kind is called, what a resource of it holds, a status, and how kubectl shows it.
struct Columns {
    kind: &'static str,
    resources: [&'static str; 3],
    object: fn() -> DynamicObject,
    status: Value,
    header: &'static str,
    row: &'static str,
    /// Names and values of the columns between REASON and MESSAGE.
    wide: (&'static str, &'static str),
}

fn engine_columns(kind: &'static str, resources: [&'static str; 3], object: fn() -> DynamicObject) -> Columns {
    Columns {
        kind,
        resources,
        object,
        status: json!({
            "desiredInstances": 3, "updatedInstances": 3, "readyInstances": 2, "availableInstances": 2,
            "cache": {"hitTokens": 5, "requestedTokens": 8, "hitRate": "62.5%", "sampledAt": "2026-01-01T00:00:00Z"},
        }),
        header: "NAME PHASE READY DESIRED AGE REASON",
        row: "columns Degraded 2 3",
        wide: ("UPDATED HIT-RATE", "3 62.5%"),
    }
}

fn coordinator_columns() -> Columns {
    Columns {
        kind: LMCC,
        resources: ["lmcachecoordinators", "lmcachecoordinator", "lmcc"],
        object: || object(LMCC, "columns", "{}"),
        status: json!({
            "replicas": 3, "updatedReplicas": 3, "readyReplicas": 2, "availableReplicas": 2, "endpoint": "http://c.n.svc:9300",
        }),
        header: "NAME PHASE READY REPLICAS ENDPOINT AGE REASON",
        row: "columns Degraded 2 3 http://c.n.svc:9300",
        wide: ("UPDATED", "3"),
    }
}

#[rstest]
#[case::lmcache(engine_columns(LMC, ["lmcacheengines", "lmcacheengine", "lmc"], || engine(LMC, "columns", "{l1: {sizeGB: 1}}")))]
#[case::cache_blend(engine_columns(CBE, ["cacheblendengines", "cacheblendengine", "cbe"], || engine(CBE, "columns", "{l1: {sizeGB: 1}}")))]
#[case::coordinator(coordinator_columns())]
#[tokio::test]
async fn a_new_resource_shows_pending_without_an_operator(#[case] columns: Columns) {
    let api = api(columns.kind).await;
    api.create(&PostParams::default(), &(columns.object)()).await.unwrap();
    for resource in columns.resources {
        let (header, row) = table(resource, &[]).await;
        assert_eq!(header, columns.header, "kubectl get {resource}");
        assert!(row.starts_with("columns Pending "), "kubectl get {resource}: {row}");
    }
    let all = cluster().await.kubectl(&["get", "lmcache", "-o", "name"]).await.unwrap();
    let name = format!("{}.lmcache.lmcache.ai/columns", columns.resources[1]);
    assert!(all.lines().any(|line| line == name), "kubectl get lmcache does not show {name}:\n{all}");

    let mut status = columns.status;
    status["phase"] = "Degraded".into();
    status["reason"] = "InstanceLost".into();
    status["message"] = "node gpu-1: the pod is not ready".into();
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status("columns", &PatchParams::default(), &patch).await.unwrap();
    let (header, row) = table(columns.resources[2], &["-o", "wide"]).await;
    assert_eq!(header, format!("{} {} MESSAGE", columns.header, columns.wide.0));
    let end = format!(" InstanceLost {} node gpu-1: the pod is not ready", columns.wide.1);
    assert!(row.starts_with(columns.row) && row.ends_with(&end), "want {:?} and {end:?}: {row:?}", columns.row);
    api.delete("columns", &DeleteParams::default()).await.unwrap();
}

/// Header and row of the resource `columns`, with one space between words.
async fn table(resource: &str, flags: &[&str]) -> (String, String) {
    let text = cluster().await.kubectl(&[&["get", resource], flags].concat()).await.unwrap();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let header = text.lines().next().map(words).unwrap_or_default();
    let row = text.lines().map(words).find(|line| line.starts_with("columns "));
    (header, row.unwrap_or_else(|| panic!("no row:\n{text}")))
}
