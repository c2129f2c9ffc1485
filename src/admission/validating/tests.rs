#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rstest::rstest;

use super::flags::{COORDINATOR, ENGINE};
use super::*;
use crate::admission::review::GroupVersionKind;

const LMC: &str = "LMCacheEngine";
const CBE: &str = "CacheBlendEngine";
const LMCC: &str = "LMCacheCoordinator";
const PINNED: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// An object of the kind with these fields over those that it cannot do without.
fn object(kind: &str, fields: Value) -> Value {
    let image = json!({"repository": "r/i", "tag": "1"});
    let mut spec = match kind {
        LMCC => json!({"image": image}),
        LMC => json!({"image": image, "l1": {"sizeGB": 1}}),
        _ => json!({"image": image, "l1": {"sizeGB": 1}, "injection": {"payloadImage": image}}),
    };
    let Value::Object(fields) = fields else { panic!("{fields}") };
    spec.as_object_mut().unwrap().extend(fields);
    json!({
        "apiVersion": "lmcache.lmcache.ai/v1alpha1", "kind": kind,
        "metadata": {"name": "x", "namespace": "ai"}, "spec": spec,
    })
}

fn request(kind: &str, operation: Operation, object: Value, old_object: Value) -> AdmissionRequest {
    AdmissionRequest {
        uid: "u".to_owned(),
        kind: GroupVersionKind { group: GROUP.to_owned(), version: "v1alpha1".to_owned(), kind: kind.to_owned() },
        sub_resource: String::new(),
        name: "x".to_owned(),
        namespace: "ai".to_owned(),
        operation,
        user_info: super::super::review::UserInfo::default(),
        object,
        old_object,
        dry_run: false,
    }
}

fn create(kind: &str, fields: Value) -> Response {
    validate(&request(kind, Operation::Create, object(kind, fields), Value::Null), None)
}

fn update(kind: &str, before: Value, after: Value) -> Response {
    validate(&request(kind, Operation::Update, object(kind, after), object(kind, before)), None)
}

#[rstest]
#[case::good(LMC, json!({}), None)]
#[case::good_blend(CBE, json!({}), None)]
#[case::good_coordinator(LMCC, json!({}), None)]
#[case::bound(LMC, json!({"server": {"port": 80}}), Some("spec.server.port: Invalid value: 80: must be in [1024, 65535]"))]
#[case::clash(
    LMC, json!({"server": {"port": 8080}}), Some("spec.server.httpPort: Invalid value: 8080: must differ from spec.server.port")
)]
#[case::two(
    LMC,
    json!({"l1": {"sizeGB": 0}, "server": {"chunkSize": 0}}),
    Some("spec.l1.sizeGB: Invalid value: 0: must be greater than 0; spec.server.chunkSize: Invalid value: 0: must be >= 1")
)]
#[case::malformed(LMC, json!({"l1": {"sizeGB": "much"}}), Some(r#"spec.l1.sizeGB: Invalid value: "much": must be of type number"#))]
#[case::payload(CBE, json!({"injection": {}}), Some("spec.injection.payloadImage: Required value: must be specified for CacheBlend injection"))]
#[case::replicas(LMCC, json!({"replicas": -1}), Some("spec.replicas: Invalid value: -1: must be >= 0"))]
fn a_creation_is_refused_in_the_words_of_the_reconciler(
    #[case] kind: &str,
    #[case] fields: Value,
    #[case] expected: Option<&str>,
) {
    let response = create(kind, fields);
    assert_eq!((!response.allowed).then_some(response.message.as_str()), expected, "{response:?}");
    let labels = (response.outcome.as_str(), response.reason, response.code);
    let wanted = if expected.is_some() { ("denied", "invalid", 422) } else { ("allowed", "valid", 200) };
    assert_eq!(labels, wanted);
    assert_eq!(response.warnings, Vec::<String>::new());
}

#[rstest]
#[case::heals(json!({"server": {"port": 80}}), json!({}), None)]
#[case::elsewhere(json!({"server": {"port": 80}}), json!({"server": {"port": 80}, "logLevel": "DEBUG"}), None)]
#[case::other_bad_value(json!({"server": {"port": 80}}), json!({"server": {"port": 81}}), Some("spec.server.port"))]
#[case::adds_one(
    json!({"server": {"port": 80}}), json!({"server": {"port": 80, "maxWorkers": 0}}), Some("spec.server.maxWorkers")
)]
#[case::spoils(json!({}), json!({"l1": {"sizeGB": -1}}), Some("spec.l1.sizeGB"))]
#[case::was_malformed(json!({"gpuVendor": 5}), json!({"gpuVendor": 5, "logLevel": "DEBUG"}), None)]
#[case::gets_malformed(json!({}), json!({"gpuVendor": 5}), Some("spec.gpuVendor"))]
#[case::malformed_hides_nothing(json!({"gpuVendor": 5}), json!({"server": {"port": 80}}), Some("spec.server.port"))]
fn an_update_is_refused_for_what_it_adds(#[case] before: Value, #[case] after: Value, #[case] field: Option<&str>) {
    let response = update(LMC, before, after);
    assert_eq!(response.allowed, field.is_none(), "{response:?}");
    let Some(field) = field else { return };
    assert!(response.message.starts_with(field) && !response.message.contains("; "), "{response:?}");
}

#[test]
fn an_old_error_is_told_as_a_warning() {
    let response = update(LMC, json!({"server": {"port": 80}}), json!({"server": {"port": 80}, "logLevel": "DEBUG"}));
    assert_eq!((response.reason, response.warnings.len()), ("invalid-before", 1));
    assert!(response.warnings[0].ends_with("spec.server.port: Invalid value: 80: must be in [1024, 65535]"));
}

#[test]
fn an_entry_that_moves_in_its_list_is_no_new_error() {
    let volumes = |names: &[&str]| {
        let aesgcm = json!({"masterKeySecretRef": {"name": "k"}});
        let list: Vec<_> = names.iter().map(|name| json!({"name": name, "emptyDir": {}})).collect();
        json!({"volumes": list, "l2Backend": {"raw": {"type": "fs"}, "serde": {"aesgcm": aesgcm}}})
    };
    let key = "l2-master-key";
    assert!(!create(LMC, volumes(&[key])).allowed);
    assert!(update(LMC, volumes(&[key]), volumes(&["first", key])).allowed);
    assert!(!update(LMC, volumes(&[key]), volumes(&[key, key])).allowed, "a second one is new");
}

#[rstest]
#[case::deletion(LMC, Operation::Delete, "")]
#[case::status(LMC, Operation::Update, "status")]
#[case::other_kind("Other", Operation::Create, "")]
fn what_is_not_ours_to_judge_passes(#[case] kind: &str, #[case] operation: Operation, #[case] sub_resource: &str) {
    let object = object(LMC, json!({"l1": {"sizeGB": -1}}));
    let mut request = request(kind, operation, object, Value::Null);
    request.sub_resource = sub_resource.to_owned();
    let response = validate(&request, None);
    assert_eq!((response.allowed, response.reason), (true, "not-validated"));
    request.kind.group = String::new();
    assert!(validate(&request, None).allowed);
}

#[test]
fn an_object_that_is_going_loses_its_finalizers_whatever_is_wrong() {
    let (mut old, mut new) = (object(LMC, json!({})), object(LMC, json!({"l1": {"sizeGB": -1}})));
    for object in [&mut old, &mut new] {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    assert!(validate(&request(LMC, Operation::Update, new, old), None).allowed);
}

#[test]
fn a_name_that_is_still_to_be_made_is_judged_by_its_beginning() {
    let generated = |prefix: &str| {
        let mut object = object(LMC, json!({}));
        object["metadata"] = json!({"generateName": prefix, "namespace": "ai"});
        validate(&request(LMC, Operation::Create, object, Value::Null), None)
    };
    assert!(generated("cache-").allowed);
    assert!(!generated("1-").allowed);
}

const EVERY_NODE: &str = "spec.nodeSelector: has no default with gpuVendor amd, so that every node gets an instance, with a GPU or without; select the nodes that have one";
const OTHER_MEMORY: &str = "spec.volumeMounts: what is at /dev/shm is not the /dev/shm of the node, through which engine and vLLM exchange data; mount that one, or leave it to the operator";

#[rstest]
#[case::host_ipc(
    LMC, json!({"hostIPC": true}), &["spec.hostIPC: has no effect while isolatedIPC is true, as is the default with gpuVendor nvidia"]
)]
#[case::host_ipc_and_isolated(
    LMC, json!({"hostIPC": true, "isolatedIPC": true}), &["spec.hostIPC: has no effect while isolatedIPC is true"]
)]
#[case::host_ipc_alone(LMC, json!({"hostIPC": true, "isolatedIPC": false}), &[])]
#[case::host_ipc_on_amd(LMC, json!({"hostIPC": true, "gpuVendor": "amd", "nodeSelector": {}}), &[])]
#[case::host_ipc_of_a_kind_without_isolation(CBE, json!({"hostIPC": true}), &[])]
#[case::isolated_on_amd(
    LMC, json!({"gpuVendor": "amd", "isolatedIPC": true, "nodeSelector": {"amd.com/gpu": "true"}}),
    &["spec.isolatedIPC: is made for gpuVendor nvidia and does not work on amd; leave it unset"]
)]
#[case::amd_everywhere(LMC, json!({"gpuVendor": "amd"}), &[EVERY_NODE])]
#[case::cache_blend_on_amd_everywhere(CBE, json!({"gpuVendor": "amd"}), &[EVERY_NODE])]
#[case::amd_by_affinity(LMC, json!({"gpuVendor": "amd", "affinity": {}}), &[])]
#[case::memory_of_its_own(
    LMC,
    json!({"isolatedIPC": false, "volumes": [{"name": "shm", "emptyDir": {}}], "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}),
    &[OTHER_MEMORY]
)]
#[case::a_volume_in_the_place_of_ours(
    CBE, json!({"volumes": [{"name": "lmcache-dev-shm", "emptyDir": {}}]}), &[OTHER_MEMORY]
)]
#[case::memory_of_the_node(
    CBE,
    json!({"volumes": [{"name": "shm", "hostPath": {"path": "/dev/shm/"}}], "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}),
    &[]
)]
#[case::memory_that_nobody_shares(
    LMC,
    json!({"volumes": [{"name": "shm", "emptyDir": {}}], "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}),
    &[]
)]
#[case::flag(
    LMC, json!({"extraArgs": ["--verbose", "--port", "7000"]}),
    &["spec.extraArgs[1]: --port overrides spec.server.port, and everything else still follows the field; set the field"]
)]
#[case::flag_with_value(
    CBE, json!({"extraArgs": ["--chunk-size=512"]}),
    &["spec.extraArgs[0]: --chunk-size overrides spec.server.chunkSize, and everything else still follows the field; set the field"]
)]
#[case::flag_of_a_coordinator(
    LMCC, json!({"extraArgs": ["--port=1", "--http-port", "2"]}),
    &["spec.extraArgs[0]: --port overrides spec.port, and everything else still follows the field; set the field"]
)]
#[case::flag_that_only_begins_alike(LMC, json!({"extraArgs": ["--portable", "port"]}), &[])]
#[case::replicas(
    LMCC, json!({"replicas": 2}),
    &["spec.replicas is 2, and each replica keeps a registry of its own: an engine is known to one of them only; set spec.replicas to 1"]
)]
#[case::latest(
    LMC, json!({"image": {"tag": "latest"}}),
    &["spec.image: lmcache/vllm-openai:latest may differ from node to node and from day to day; set spec.image.tag or spec.image.digest"]
)]
#[case::no_tag(
    LMC, json!({"image": {"repository": "r/i"}}),
    &["spec.image: r/i:latest may differ from node to node and from day to day; set spec.image.tag or spec.image.digest"]
)]
#[case::digest(LMC, json!({"image": {"digest": PINNED, "tag": "latest"}}), &[])]
#[case::payload(
    LMC, json!({"injection": {"payloadImage": {"repository": "r/p"}}}),
    &["spec.injection.payloadImage: r/p:latest may differ from node to node and from day to day; \
       set spec.injection.payloadImage.tag or spec.injection.payloadImage.digest"]
)]
#[case::payload_unset(LMC, json!({"injection": {}}), &[])]
#[case::monitor_without_metrics(
    LMC, json!({"prometheus": {"enabled": false, "serviceMonitor": {"enabled": true}}}),
    &["spec.prometheus.serviceMonitor: finds nothing while spec.prometheus.enabled is false"]
)]
#[case::monitor(LMCC, json!({"prometheus": {"serviceMonitor": {"enabled": true}}}), &[])]
#[case::monitor_without_metrics_of_a_coordinator(
    LMCC, json!({"prometheus": {"enabled": false, "serviceMonitor": {"enabled": true}}}),
    &["spec.prometheus.serviceMonitor: finds nothing while spec.prometheus.enabled is false"]
)]
fn what_is_surely_not_meant_is_warned_of(#[case] kind: &str, #[case] fields: Value, #[case] expected: &[&str]) {
    let response = create(kind, fields);
    assert!(response.allowed, "{response:?}");
    assert_eq!(response.warnings, expected);
    assert!(response.warnings.iter().all(|text| text.len() <= 256), "the API server cuts longer ones");
}

#[rstest]
#[case::same(json!({}), json!({}), &[])]
#[case::chunks(
    json!({"server": {"chunkSize": 128}}), json!({}),
    &["spec.server.chunkSize is 128, blendChunkSize of the coordinator 256; they must be the same"]
)]
#[case::hash(
    json!({}), json!({"hashAlgorithm": "sha256_cbor"}),
    &["spec.server.hashAlgorithm is blake3, hashAlgorithm of the coordinator sha256_cbor; they must be the same"]
)]
#[tokio::test]
async fn an_engine_is_compared_with_its_coordinator(
    #[case] engine: Value,
    #[case] coordinator: Value,
    #[case] expected: &[&str],
) {
    let coordinator: LMCacheCoordinatorSpec = serde_json::from_value(coordinator).unwrap();
    let known: Coordinators = Arc::new(move |key| {
        assert_eq!(key, Key::new("ai", "co"));
        let coordinator = coordinator.clone();
        async move { Some(coordinator) }.boxed()
    });
    let mut object = object(LMC, engine);
    object["spec"]["coordinator"] = json!({"ref": {"name": "co"}});
    let request = request(LMC, Operation::Create, object, Value::Null);
    let response = Validator::new(known).handle(&request).await;
    assert_eq!(response.warnings, expected);
    let unknown: Coordinators = Arc::new(|_| async { None }.boxed());
    assert_eq!(Validator::new(unknown).handle(&request).await.warnings, Vec::<String>::new());
}

/// Flags without a field: what they are set to is no choice.
const FIXED: [&str; 4] = ["--host", "--http-host", "--engine-type", "--l1-align-bytes"];

#[test]
fn every_flag_that_is_rendered_has_its_field_in_the_table() {
    let everything = json!({
        "coordinator": {"url": "http://c:1", "advertiseIP": "10.0.0.1", "l2EventReporting": true},
        "l2Backend": {"raw": {"type": "fs"}},
    });
    let more = json!({
        "hashAlgorithm": "sha256_cbor", "blendChunkSize": 1, "blendProbeStride": 1, "enableBlendLookup": true,
    });
    let without_metrics = json!({"prometheus": {"enabled": false}});
    for (kind, fields, table) in [
        (LMC, everything.clone(), ENGINE),
        (LMC, without_metrics, ENGINE),
        (CBE, everything, ENGINE),
        (LMCC, more, COORDINATOR),
    ] {
        for flag in rendered_flags(object(kind, fields)) {
            let known =
                table.iter().any(|(known, _)| *known == flag) || (kind != LMCC && FIXED.contains(&flag.as_str()));
            assert!(known, "{kind}: {flag}");
        }
    }
}

fn rendered_flags(mut object: Value) -> Vec<String> {
    use crate::render::{Children, Options, Resolved};
    object["metadata"]["uid"] = json!("u");
    let kind = object["kind"].as_str().unwrap().to_owned();
    let (resolved, options) = (Resolved::default(), Options::default());
    let children: Children = match kind.as_str() {
        LMC => serde_json::from_value::<LMCacheEngine>(object).unwrap().children(&resolved, &options),
        CBE => serde_json::from_value::<CacheBlendEngine>(object).unwrap().children(&resolved, &options),
        _ => serde_json::from_value::<LMCacheCoordinator>(object).unwrap().children(&resolved, &options),
    };
    let args = children.wanted.iter().find_map(|child| child.object.pointer("/spec/template/spec/containers/0/args"));
    let args: Vec<String> = serde_json::from_value(args.unwrap().clone()).unwrap();
    args.into_iter().filter(|arg| arg.starts_with("--")).collect()
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9.-]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let name = prop_oneof![
            Just("spec"),
            Just("metadata"),
            Just("name"),
            Just("server"),
            Just("port"),
            Just("l1"),
            Just("sizeGB"),
            Just("coordinator"),
            Just("ref"),
            Just("extraArgs"),
            Just("volumes"),
            Just("injection"),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..5).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn no_object_makes_it_panic_and_what_is_unchanged_always_passes(
        object in any_json(), kind in prop_oneof![Just(LMC), Just(CBE), Just(LMCC)],
    ) {
        let created = request(kind, Operation::Create, object.clone(), Value::Null);
        let _ = (validate(&created, None), coordinator_of(&created));
        let unchanged = validate(&request(kind, Operation::Update, object.clone(), object), None);
        prop_assert!(unchanged.allowed, "{:?}", unchanged);
    }
}
