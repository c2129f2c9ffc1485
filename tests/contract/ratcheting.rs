//! Objects that were stored before a rule existed stay usable: what is not at fault can be changed, and so can the status.
//!
//! They are stored under a copy of our definition in another group, without its rules, which then gets them.

use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::common::stored;
use crate::{cluster, names, object, refusal, try_create};

const GROUP: &str = "stored.lmcache.test";

/// An object with a fault: a change of the faulty field that leaves it faulty, the field a refusal names, a change that heals.
struct Fault {
    name: &'static str,
    spec: &'static str,
    worse: &'static str,
    field: &'static str,
    healed: &'static str,
}

const FAULTS: [Fault; 9] = [
    Fault {
        name: "port",
        spec: "{l1: {sizeGB: 1}, server: {port: 80}}",
        worse: "{server: {port: 81}}",
        field: "spec.server.port",
        healed: "{server: {port: 6555}}",
    },
    Fault {
        name: "size",
        spec: "{l1: {sizeGB: 0}}",
        worse: "{l1: {sizeGB: -1}}",
        field: "spec.l1.sizeGB",
        healed: "{l1: {sizeGB: 1}}",
    },
    Fault {
        name: "vendor",
        spec: "{l1: {sizeGB: 1}, gpuVendor: intel}",
        worse: "{gpuVendor: arm}",
        field: "spec.gpuVendor",
        healed: "{gpuVendor: amd}",
    },
    Fault {
        name: "interval",
        spec: "{l1: {sizeGB: 1}, prometheus: {serviceMonitor: {interval: often}}}",
        worse: "{prometheus: {serviceMonitor: {interval: seldom}}}",
        field: "spec.prometheus.serviceMonitor.interval",
        healed: "{prometheus: {serviceMonitor: {interval: 15s}}}",
    },
    Fault {
        name: "payload",
        spec: "{l1: {sizeGB: 1}, injection: {payloadImage: {tag: v1}}}",
        worse: "{injection: {payloadImage: {tag: v2}}}",
        field: "spec.injection.payloadImage.repository",
        healed: "{injection: {payloadImage: {repository: r}}}",
    },
    Fault {
        name: "adapters",
        spec: "{l1: {sizeGB: 1}, l2Backend: {resp: {host: h, port: 1}, raw: {type: fs}}}",
        worse: "{l2Backend: {raw: {type: mock}}}",
        field: "spec.l2Backend",
        healed: "{l2Backend: {raw: null}}",
    },
    Fault {
        name: "coordinator",
        spec: "{l1: {sizeGB: 1}, coordinator: {ref: {name: c}, url: u}}",
        worse: "{coordinator: {url: v}}",
        field: "spec.coordinator",
        healed: "{coordinator: {url: null}}",
    },
    Fault {
        name: "http-port",
        spec: "{l1: {sizeGB: 1}, server: {port: 6000, httpPort: 6000}}",
        worse: "{server: {port: 7000, httpPort: 7000}}",
        field: "spec.server.httpPort",
        healed: "{server: {httpPort: 6001}}",
    },
    Fault {
        name: "metrics-port",
        spec: "{l1: {sizeGB: 1}, server: {port: 6000}, prometheus: {port: 6000}}",
        worse: "{server: {port: 7000}, prometheus: {port: 7000}}",
        field: "spec",
        healed: "{prometheus: {port: 6001}}",
    },
];

#[tokio::test]
async fn a_stored_fault_stays_changeable_in_everything_else() {
    let api = store().await;
    for fault in &FAULTS {
        check(&api, fault).await;
    }
    // A name cannot be changed, so an object with a name that is refused today must stay usable as a whole.
    let patch = patch("{server: {port: 6555}}");
    api.patch("my.cache", &PatchParams::default(), &patch).await.unwrap();
    let status = Patch::Merge(json!({"status": {"phase": "Degraded"}}));
    api.patch_status("my.cache", &PatchParams::default(), &status).await.unwrap();
}

async fn check(api: &Api<DynamicObject>, fault: &Fault) {
    let Fault { name, spec, worse, field, healed } = fault;
    let params = PatchParams::default();
    for other in
        ["{logLevel: DEBUG}", "{server: {chunkSize: 512}}", "{nodeSelector: {a: b}}", "{prometheus: {enabled: true}}"]
    {
        let answer = api.patch(name, &params, &patch(other)).await;
        assert!(answer.is_ok(), "{name}: {spec} could not be changed by {other}: {answer:?}");
    }
    let status = Patch::Merge(json!({"status": {"phase": "Degraded", "reason": "InvalidSpec"}}));
    let answer = api.patch_status(name, &params, &status).await;
    assert!(answer.is_ok(), "{name}: the status could not be written: {answer:?}");
    let refusal = refusal(worse, api.patch(name, &params, &patch(worse)).await);
    assert!(names(&refusal, field, ""), "{name}: {worse}: want {field}, got {refusal:#?}");
    let answer = api.patch(name, &params, &patch(healed)).await;
    assert!(answer.is_ok(), "{name}: {spec} could not be healed by {healed}: {answer:?}");
}

fn patch(spec: &str) -> Patch<Value> {
    let spec: Value = serde_norway::from_str(spec).unwrap();
    Patch::Merge(json!({"spec": spec}))
}

/// Stores every faulty object and puts the rules in force.
async fn store() -> Api<DynamicObject> {
    let cluster = cluster().await;
    let definition = stored::in_group(&stored::definition("LMCacheEngine"), GROUP);
    let loose = serde_json::to_string(&stored::without_rules(&definition)).unwrap();
    cluster.apply_yaml(&loose).await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1alpha1", "LMCacheEngine"));
    let api: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &kind);
    let in_group = |name: &str, spec: &str| {
        let mut object = object(name, spec);
        object.types = Some(kube::api::TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() });
        object
    };
    let odd_name = in_group("my.cache", "{l1: {sizeGB: 1}}");
    for object in FAULTS.iter().map(|fault| in_group(fault.name, fault.spec)).chain([odd_name]) {
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    cluster.apply_yaml(&serde_json::to_string(&definition).unwrap()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while try_create(&api, &in_group("invalid", "{l1: {sizeGB: 0}}")).await.is_ok() {
        assert!(Instant::now() < deadline, "the rules are not in force");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    api
}
