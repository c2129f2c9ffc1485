//! What is accepted, and that it is read back as it was written.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use rstest::rstest;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::common::project;
use crate::{CBE, LMC, LMCC, api, engine, object, try_create};

#[rstest]
#[case::minimal("{l1: {sizeGB: 0.5}}")]
#[case::noop("{l1: {sizeGB: 1}, eviction: {policy: noop, triggerWatermark: 1, evictionRatio: 1}}")]
#[case::empty_parents("{l1: {sizeGB: 1}, image: {}, server: {}, eviction: {}, prometheus: {}, pd: {}, probes: {}}")]
#[case::metrics_on_the_http_port("{l1: {sizeGB: 1}, prometheus: {port: 8080}}")]
#[case::metrics_off("{l1: {sizeGB: 1}, prometheus: {enabled: false, port: 5555}}")]
#[case::ports_on_the_edge("{l1: {sizeGB: 1}, server: {port: 1024, httpPort: 65535}, prometheus: {port: 1}}")]
#[case::capacity_zero("{l1: {sizeGB: 1}, l2Backend: {resp: {host: h, port: 65535, maxCapacityGB: 0}}}")]
#[case::empty_interval("{l1: {sizeGB: 1}, prometheus: {serviceMonitor: {interval: ''}}}")]
#[case::interval("{l1: {sizeGB: 1}, prometheus: {serviceMonitor: {interval: 1h30m5s10ms}}}")]
#[case::digest(
    "{l1: {sizeGB: 1}, image: {digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}}"
)]
#[case::key_volume_without_key("{l1: {sizeGB: 1}, volumes: [{name: l2-master-key}]}")]
#[case::nested_config("{l1: {sizeGB: 1}, l2Backend: {raw: {type: x, config: {a: {b: [1, {c: null}]}, d: 1.0, e: y}}}}")]
#[tokio::test]
async fn an_engine_is_accepted(#[case] spec: &str, #[values(LMC, CBE)] kind: &str) {
    check(kind, &engine(kind, "accepted", spec)).await;
}

#[rstest]
#[case::old_payload_default(
    LMC,
    "{l1: {sizeGB: 1}, injection: {payloadImage: {repository: lmcache/vllm-openai, tag: latest}}}"
)]
#[case::lmcache_only(LMC, "{l1: {sizeGB: 1}, isolatedIPC: false, hostNetwork: true, initContainers: [{name: a}]}")]
#[case::blend_defaults(CBE, "{l1: {sizeGB: 1}, blend: {}, server: {}, injection: {payloadImage: {repository: r}}}")]
#[case::blend_edges(
    CBE,
    "{l1: {sizeGB: 1}, blend: {checkLayer: 0, recompRatio: 1, partialBucket: 1}, injection: {payloadImage: {repository: r}}}"
)]
// D16: decoders need no image to stage.
#[case::decoder_only(CBE, "{l1: {sizeGB: 1}, pd: {}}")]
#[case::decoder_only_with_old_payload_default(
    CBE,
    "{l1: {sizeGB: 1}, pd: {}, injection: {payloadImage: {repository: lmcache/vllm-openai}}}"
)]
#[case::coordinator(LMCC, "{}")]
#[case::nothing_to_run(LMCC, "{replicas: 0, prometheus: {}}")]
#[case::loops_off(LMCC, "{healthCheckInterval: 0, evictionCheckInterval: 0, evictionRatio: 0, triggerWatermark: 1}")]
#[case::edges(LMCC, "{port: 65535, evictionRatio: 1, blendChunkSize: 1, blendProbeStride: 1, instanceTimeout: 0.1}")]
#[case::metrics_port_is_port(LMCC, "{port: 9090, prometheus: {port: 9090}}")]
#[case::blend_lookup(LMCC, "{hashAlgorithm: sha256_cbor, enableBlendLookup: true}")]
#[tokio::test]
async fn a_spec_is_accepted(#[case] kind: &str, #[case] spec: &str) {
    check(kind, &object(kind, "accepted", spec)).await;
}

async fn check(kind: &str, object: &DynamicObject) {
    let answer = try_create(&api(kind).await, object).await;
    assert!(answer.is_ok(), "{kind} {}: {answer:?}", object.data);
}

#[rstest]
#[case::shortest("a")]
#[case::longest("a234567890123456789012345678901234567890123456789012345")]
#[tokio::test]
async fn a_name_is_accepted(#[case] name: &str, #[values(LMC, CBE, LMCC)] kind: &str) {
    let object = if kind == LMCC { object(kind, name, "{}") } else { engine(kind, name, "{l1: {sizeGB: 1}}") };
    check(kind, &object).await;
}

#[tokio::test]
async fn every_spec_of_the_parity_cases_is_accepted() {
    let mut count = 0;
    for entry in project().join("tests/fixtures/parity/cases").read_dir().unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for document in serde_norway::Deserializer::from_str(&text) {
            let document = Value::deserialize(document).unwrap();
            let kind = document["kind"].as_str().unwrap_or_default().to_owned();
            if [LMC, CBE, LMCC].contains(&&*kind) {
                check(&kind, &serde_json::from_value(document).unwrap()).await;
                count += 1;
            }
        }
    }
    assert!(count >= 27, "only {count} specs were found");
}

#[tokio::test]
async fn every_sample_is_accepted() {
    let mut kinds = Vec::new();
    for entry in project().join("deploy/samples").read_dir().unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let sample: DynamicObject = serde_norway::from_str(&text).unwrap();
        let kind = sample.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
        check(&kind, &sample).await;
        kinds.push(kind);
    }
    kinds.sort();
    assert_eq!(kinds, [CBE, LMCC, LMC]);
}

/// A field that is left out and one that is written empty mean different things, so they are kept apart.
#[rstest]
#[case::selector_unset(LMC, "{l1: {sizeGB: 1}}", "/spec/nodeSelector", None)]
#[case::selector_empty(LMC, "{l1: {sizeGB: 1}, nodeSelector: {}}", "/spec/nodeSelector", Some(json!({})))]
#[case::runtime_unset(LMC, "{l1: {sizeGB: 1}}", "/spec/runtimeClassName", None)]
#[case::runtime_empty(LMC, "{l1: {sizeGB: 1}, runtimeClassName: ''}", "/spec/runtimeClassName", Some(json!("")))]
#[case::isolation_unset(LMC, "{l1: {sizeGB: 1}}", "/spec/isolatedIPC", None)]
#[case::isolation_off(LMC, "{l1: {sizeGB: 1}, isolatedIPC: false}", "/spec/isolatedIPC", Some(json!(false)))]
#[case::peers_unset(LMC, "{l1: {sizeGB: 1}, networkPolicy: {enabled: true}}", "/spec/networkPolicy/from", None)]
#[case::peers_empty(LMC, "{l1: {sizeGB: 1}, networkPolicy: {enabled: true, from: []}}", "/spec/networkPolicy/from", Some(json!([])))]
#[case::pd_unset(LMC, "{l1: {sizeGB: 1}}", "/spec/pd", None)]
#[case::number(LMC, "{l1: {sizeGB: 60.5}}", "/spec/l1/sizeGB", Some(json!(60.5)))]
#[case::blend_unset(CBE, "{l1: {sizeGB: 1}, pd: {}}", "/spec/blend", None)]
#[case::chunk_size_unset(CBE, "{l1: {sizeGB: 1}, pd: {}}", "/spec/server", None)]
#[case::chunk_size_default(CBE, "{l1: {sizeGB: 1}, pd: {}, server: {}}", "/spec/server/chunkSize", Some(json!(256)))]
#[case::blend_default(CBE, "{l1: {sizeGB: 1}, pd: {}, blend: {}}", "/spec/blend", Some(json!({"checkLayer": 1, "recompRatio": 0.15})))]
#[case::metrics_unset(LMCC, "{}", "/spec/prometheus", None)]
#[case::metrics_default(LMCC, "{prometheus: {}}", "/spec/prometheus", Some(json!({"enabled": true, "port": 9090})))]
#[case::no_replicas(LMCC, "{replicas: 0}", "/spec/replicas", Some(json!(0)))]
#[case::replicas_default(LMCC, "{}", "/spec/replicas", Some(json!(1)))]
#[case::chunk_size_of_blend_unset(LMCC, "{}", "/spec/blendChunkSize", None)]
#[case::no_nodes_chosen(LMCC, "{nodeSelector: {}}", "/spec/nodeSelector", Some(json!({})))]
#[case::raw_config(LMC, "{l1: {sizeGB: 1}, l2Backend: {raw: {type: x, config: {z: {}, a: [], n: ''}}}}", "/spec/l2Backend/raw/config", Some(json!({"z": {}, "a": [], "n": ""})))]
#[tokio::test]
async fn unset_and_empty_are_kept_apart(
    #[case] kind: &str,
    #[case] spec: &str,
    #[case] pointer: &str,
    #[case] expected: Option<Value>,
) {
    let api = api(kind).await;
    let created = api.create(&PostParams::default(), &named(kind, spec)).await.unwrap();
    let name = created.name_any();
    let read = api.get(&name).await.unwrap();
    // A change elsewhere must not fill it either.
    let patch = Patch::Merge(json!({"spec": {"logLevel": "DEBUG"}}));
    let patched = api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    for seen in [created, read, patched] {
        assert_eq!(seen.data.pointer(pointer).cloned(), expected, "{kind} {spec}: {:#}", seen.data);
    }
}

fn named(kind: &str, spec: &str) -> DynamicObject {
    let mut object = object(kind, "unused", spec);
    object.metadata.name = None;
    object.metadata.generate_name = Some("kept-".to_owned());
    object
}
