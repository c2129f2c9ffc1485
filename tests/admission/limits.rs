//! Pods that are large, and pods that are none.

use lmcache_harness::Harness;
use lmcache_operator::admission::injection::Injector;
use lmcache_operator::admission::registration::{CACHE_BLEND_PATH, LM_CACHE_PATH};
use rstest::rstest;
use serde_json::{Value, json};

use crate::common::engine;
use crate::shared;
use crate::vllm::{ask, connection, create, is_injected, pod, pod_with, review};

const MEBIBYTE: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_one_mebibyte_is_injected() {
    let (bed, _) = shared().await;
    let client = bed.cluster.client();
    let suite: Harness = Harness::in_new_namespace(client.clone(), "large").await.unwrap();
    suite.apply_fixture(&engine("cache", &json!({"l1": {"sizeGB": 1}}))).await.unwrap();
    connection(&client, suite.namespace(), "cache").await.unwrap();
    let containers = json!([{"name": "vllm", "image": "v", "args": ["m1", "x".repeat(MEBIBYTE)]}]);
    let large = pod_with(Injector::LmCache, "large", "cache", &json!({"spec": {"containers": containers}}));
    let stored = create(&client, suite.namespace(), &large, false).await.unwrap();
    assert!(is_injected(&stored, Injector::LmCache), "{:#}", stored["metadata"]);
    suite.finish().await.unwrap();
}

/// What is no pod passes as it is, with a warning.
#[rstest]
#[case::nothing(json!(null))]
#[case::a_list(json!([1, 2]))]
#[case::no_metadata(json!({"metadata": "x", "spec": {}}))]
#[case::no_annotations(json!({"metadata": {"annotations": [1]}}))]
#[case::no_containers(spec(&json!({"containers": []})))]
#[case::a_spec_that_is_a_text(spec(&json!("x")))]
#[case::containers_that_are_a_text(spec(&json!({"containers": "x"})))]
#[case::arguments_that_are_numbers(spec(&json!({"containers": [{"name": "vllm", "args": [1]}]})))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_shaped_like_no_pod_is_let_through(#[case] object: Value) {
    let (bed, operator) = shared().await;
    for path in [LM_CACHE_PATH, CACHE_BLEND_PATH] {
        let (code, body) = ask(bed, operator, path, review("default", &object).as_bytes()).await.unwrap();
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        assert!(code == 200 && answer["response"]["allowed"] == true, "{code} {body}");
        let warnings = answer["response"]["warnings"].as_array().map_or(0, Vec::len);
        assert_eq!(warnings, 1, "{path} {body}");
    }
}

fn spec(spec: &Value) -> Value {
    let mut pod = pod(Injector::LmCache, "odd", "missing");
    pod["spec"] = spec.clone();
    pod
}

#[rstest]
#[case::cut_off(&review("default", &json!({}))[..90])]
#[case::empty("")]
#[case::of_another_kind(r#"{"apiVersion": "v1", "kind": "Pod"}"#)]
#[case::no_request(r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_question_is_refused_as_such(#[case] body: &str) {
    let (bed, operator) = shared().await;
    for path in [LM_CACHE_PATH, CACHE_BLEND_PATH] {
        let (code, answer) = ask(bed, operator, path, body.as_bytes()).await.unwrap();
        assert_eq!(code, 400, "{answer}");
    }
}
