//! What is accepted, and that it is read back as it was written.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use rstest::rstest;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::common::project;
use crate::{cluster, engines, object, try_create};

#[rstest]
#[case::minimal("{l1: {sizeGB: 0.5}}")]
#[case::noop("{l1: {sizeGB: 1}, eviction: {policy: noop, triggerWatermark: 1, evictionRatio: 1}}")]
#[case::empty_parents("{l1: {sizeGB: 1}, image: {}, server: {}, eviction: {}, prometheus: {}, pd: {}, probes: {}}")]
#[case::metrics_on_the_http_port("{l1: {sizeGB: 1}, prometheus: {port: 8080}}")]
#[case::metrics_off("{l1: {sizeGB: 1}, prometheus: {enabled: false, port: 5555}}")]
#[case::ports_on_the_edge("{l1: {sizeGB: 1}, server: {port: 1024, httpPort: 65535}, prometheus: {port: 1}}")]
#[case::old_payload_default(
    "{l1: {sizeGB: 1}, injection: {payloadImage: {repository: lmcache/vllm-openai, tag: latest}}}"
)]
#[case::capacity_zero("{l1: {sizeGB: 1}, l2Backend: {resp: {host: h, port: 65535, maxCapacityGB: 0}}}")]
#[case::empty_interval("{l1: {sizeGB: 1}, prometheus: {serviceMonitor: {interval: ''}}}")]
#[case::interval("{l1: {sizeGB: 1}, prometheus: {serviceMonitor: {interval: 1h30m5s10ms}}}")]
#[case::digest(
    "{l1: {sizeGB: 1}, image: {digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}}"
)]
#[case::key_volume_without_key("{l1: {sizeGB: 1}, volumes: [{name: l2-master-key}]}")]
#[case::nested_config("{l1: {sizeGB: 1}, l2Backend: {raw: {type: x, config: {a: {b: [1, {c: null}]}, d: 1.0, e: y}}}}")]
#[tokio::test]
async fn a_spec_is_accepted(#[case] spec: &str) {
    let api = engines(cluster().await.client());
    let answer = try_create(&api, &object("accepted", spec)).await;
    assert!(answer.is_ok(), "{spec}: {answer:?}");
}

#[rstest]
#[case::shortest("a")]
#[case::longest("a234567890123456789012345678901234567890123456789012345")]
#[tokio::test]
async fn a_name_is_accepted(#[case] name: &str) {
    let api = engines(cluster().await.client());
    let answer = try_create(&api, &object(name, "{l1: {sizeGB: 1}}")).await;
    assert!(answer.is_ok(), "{name}: {answer:?}");
}

#[tokio::test]
async fn every_spec_of_the_parity_cases_is_accepted() {
    let api = engines(cluster().await.client());
    let mut count = 0;
    for entry in project().join("tests/fixtures/parity/cases").read_dir().unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for document in serde_norway::Deserializer::from_str(&text) {
            let document = Value::deserialize(document).unwrap();
            if document["kind"] != "LMCacheEngine" {
                continue;
            }
            let answer = try_create(&api, &serde_json::from_value(document).unwrap()).await;
            assert!(answer.is_ok(), "{}: {answer:?}", path.display());
            count += 1;
        }
    }
    assert!(count >= 27, "only {count} specs were found");
}

/// A field that is left out and one that is written empty mean different things, so they are kept apart.
#[rstest]
#[case::selector_unset("{l1: {sizeGB: 1}}", "/spec/nodeSelector", None)]
#[case::selector_empty("{l1: {sizeGB: 1}, nodeSelector: {}}", "/spec/nodeSelector", Some(json!({})))]
#[case::runtime_unset("{l1: {sizeGB: 1}}", "/spec/runtimeClassName", None)]
#[case::runtime_empty("{l1: {sizeGB: 1}, runtimeClassName: ''}", "/spec/runtimeClassName", Some(json!("")))]
#[case::isolation_unset("{l1: {sizeGB: 1}}", "/spec/isolatedIPC", None)]
#[case::isolation_off("{l1: {sizeGB: 1}, isolatedIPC: false}", "/spec/isolatedIPC", Some(json!(false)))]
#[case::peers_unset("{l1: {sizeGB: 1}, networkPolicy: {enabled: true}}", "/spec/networkPolicy/from", None)]
#[case::peers_empty("{l1: {sizeGB: 1}, networkPolicy: {enabled: true, from: []}}", "/spec/networkPolicy/from", Some(json!([])))]
#[case::pd_unset("{l1: {sizeGB: 1}}", "/spec/pd", None)]
#[case::number("{l1: {sizeGB: 60.5}}", "/spec/l1/sizeGB", Some(json!(60.5)))]
#[case::raw_config("{l1: {sizeGB: 1}, l2Backend: {raw: {type: x, config: {z: {}, a: [], n: ''}}}}", "/spec/l2Backend/raw/config", Some(json!({"z": {}, "a": [], "n": ""})))]
#[tokio::test]
async fn unset_and_empty_are_kept_apart(#[case] spec: &str, #[case] pointer: &str, #[case] expected: Option<Value>) {
    let api = engines(cluster().await.client());
    let created = api.create(&PostParams::default(), &named(spec)).await.unwrap();
    let name = created.name_any();
    let read = api.get(&name).await.unwrap();
    // A change elsewhere must not fill it either.
    let patch = Patch::Merge(json!({"spec": {"logLevel": "DEBUG"}}));
    let patched = api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    for seen in [created, read, patched] {
        assert_eq!(seen.data.pointer(pointer).cloned(), expected, "{spec}: {:#}", seen.data);
    }
}

fn named(spec: &str) -> kube::api::DynamicObject {
    let mut object = object("unused", spec);
    object.metadata.name = None;
    object.metadata.generate_name = Some("kept-".to_owned());
    object
}
