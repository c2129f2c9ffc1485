//! The validating webhook, as the one who applies a resource sees it.

use rstest::rstest;
use serde_json::{Value, json};

use crate::common::engine;
use crate::{WRONG, invalid, shared};

async fn apply(flags: &[&str], object: &str) -> (bool, String) {
    let (bed, _) = shared().await;
    bed.cluster.kubectl_says(&[&["apply", "-f", "-"], flags].concat(), object).await.unwrap()
}

fn coordinator(name: &str, spec: &Value) -> String {
    engine(name, spec).replace("LMCacheEngine", "LMCacheCoordinator")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_resource_is_refused_with_its_field() {
    for flags in [&[][..], &["--dry-run=server"], &["--server-side"]] {
        let (accepted, text) = apply(flags, &invalid("wrong")).await;
        assert!(!accepted, "{flags:?}: {text}");
        let expected = format!("admission webhook \"vlmcache.lmcache.ai\" denied the request: {WRONG}");
        assert!(text.contains(&expected), "{flags:?}: want {expected:?} in\n{text}");
    }
    let (bed, _) = shared().await;
    let (found, text) = bed.cluster.kubectl_says(&["get", "lmc", "wrong"], "").await.unwrap();
    assert!(!found, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_of_every_kind_is_told_at_once() {
    let blend = engine("wrong", &json!({"l1": {"sizeGB": -1}, "injection": {}}));
    let blend = blend.replace("LMCacheEngine", "CacheBlendEngine");
    let (accepted, text) = apply(&[], &blend).await;
    assert!(!accepted, "{text}");
    let expected = "spec.l1.sizeGB: Invalid value: -1: must be greater than 0; \
                    spec.injection.payloadImage: Required value: must be specified for CacheBlend injection";
    assert!(text.contains(expected), "want {expected:?} in\n{text}");
    let (accepted, text) = apply(&[], &coordinator("wrong", &json!({"replicas": -1}))).await;
    assert!(!accepted && text.contains("spec.replicas: Invalid value: -1: must be >= 0"), "{text}");
}

#[rstest]
#[case::host_ipc("host-ipc", json!({"hostIPC": true}), "Warning: spec.hostIPC: has no effect while isolatedIPC is true")]
#[case::flag("flag", json!({"extraArgs": ["--port", "7000"]}), "Warning: spec.extraArgs[0]: --port overrides spec.server.port")]
#[case::latest("latest", json!({}), "Warning: spec.image: lmcache/vllm-openai:latest may differ from node to node")]
#[case::amd("amd", json!({"gpuVendor": "amd", "isolatedIPC": true}), "Warning: spec.isolatedIPC: is made for gpuVendor nvidia")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_surely_not_meant_is_stored_with_a_warning(
    #[case] name: &str,
    #[case] fields: Value,
    #[case] expected: &str,
) {
    let mut spec = json!({"l1": {"sizeGB": 1}});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let (accepted, text) = apply(&[], &engine(name, &spec)).await;
    assert!(accepted && text.contains(expected), "want {expected:?} in\n{text}");
    assert!(text.contains(&format!("lmcacheengine.lmcache.lmcache.ai/{name} created")), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_fine_is_stored_without_a_word() {
    let fine = json!({"l1": {"sizeGB": 1}, "image": {"tag": "v1"}});
    let (accepted, text) = apply(&[], &engine("fine", &fine)).await;
    assert!(accepted, "{text}");
    assert_eq!(text.trim(), "lmcacheengine.lmcache.lmcache.ai/fine created");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_differs_from_its_coordinator_is_warned_of() {
    let (accepted, text) = apply(&[], &coordinator("shared", &json!({"replicas": 2}))).await;
    assert!(accepted && text.contains("Warning: spec.replicas is 2, and each replica keeps a registry"), "{text}");
    let spec = json!({"l1": {"sizeGB": 1}, "server": {"chunkSize": 128}, "coordinator": {"ref": {"name": "shared"}}});
    let expected =
        "Warning: spec.server.chunkSize is 128, blendChunkSize of the coordinator 256; they must be the same";
    let mut text = String::new();
    // The operator hears of the coordinator a moment later.
    for _ in 0..50 {
        text = apply(&["--dry-run=server"], &engine("differs", &spec)).await.1;
        if text.contains(expected) {
            return;
        }
    }
    panic!("want {expected:?} in\n{text}");
}

/// The engine `old` was stored with an error before there was a webhook.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_error_keeps_nobody_from_changing_the_rest() {
    let (bed, _) = shared().await;
    let patch = async |patch: Value, flags: &[&str]| {
        let patch = patch.to_string();
        let args = [&["patch", "lmc", "old", "--type=merge", "-p", &patch], flags].concat();
        bed.cluster.kubectl_says(&args, "").await.unwrap()
    };
    let (accepted, text) = patch(json!({"spec": {"logLevel": "DEBUG"}}), &[]).await;
    let expected = format!("Warning: the resource was invalid before and still is: {WRONG}");
    assert!(accepted && text.contains(&expected), "{text}");
    let (accepted, text) = patch(json!({"spec": {"server": {"chunkSize": 0}}}), &[]).await;
    assert!(!accepted && text.contains("spec.server.chunkSize: Invalid value: 0") && !text.contains(WRONG), "{text}");
    let (accepted, text) = patch(json!({"spec": {"server": {"port": 81}}}), &[]).await;
    assert!(!accepted && text.contains("spec.server.port: Invalid value: 81"), "{text}");
    let (accepted, text) = patch(json!({"status": {"message": "from a test"}}), &["--subresource=status"]).await;
    assert!(accepted, "{text}");
    let (accepted, text) = patch(json!({"metadata": {"finalizers": ["test.lmcache.ai/held"]}}), &[]).await;
    assert!(accepted, "{text}");
    let delete = ["delete", "lmc", "old", "--wait=false"];
    assert!(bed.cluster.kubectl_says(&delete, "").await.unwrap().0);
    let (accepted, text) = patch(json!({"metadata": {"finalizers": null}}), &[]).await;
    assert!(accepted, "{text}");
}
