//! Objects that were stored before a rule existed stay usable: what is not at fault can be changed, and so can the status.
//!
//! They are stored under a copy of our definition in another group, without its rules, which then gets them.

use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::common::stored;
use crate::{CBE, LMC, LMCC, cluster, names, object, refusal, try_create};

const GROUP: &str = "stored.lmcache.test";

/// An object with a fault: a change of the faulty field that leaves it faulty, the field a refusal names, a change that heals.
struct Fault {
    kind: &'static str,
    name: &'static str,
    spec: &'static str,
    worse: &'static str,
    field: &'static str,
    healed: &'static str,
}

const FAULTS: &[Fault] = &[
    Fault {
        kind: LMC,
        name: "port",
        spec: "{l1: {sizeGB: 1}, server: {port: 80}}",
        worse: "{server: {port: 81}}",
        field: "spec.server.port",
        healed: "{server: {port: 6555}}",
    },
    Fault {
        kind: LMC,
        name: "size",
        spec: "{l1: {sizeGB: 0}}",
        worse: "{l1: {sizeGB: -1}}",
        field: "spec.l1.sizeGB",
        healed: "{l1: {sizeGB: 1}}",
    },
    Fault {
        kind: LMC,
        name: "vendor",
        spec: "{l1: {sizeGB: 1}, gpuVendor: intel}",
        worse: "{gpuVendor: arm}",
        field: "spec.gpuVendor",
        healed: "{gpuVendor: amd}",
    },
    Fault {
        kind: LMC,
        name: "interval",
        spec: "{l1: {sizeGB: 1}, prometheus: {serviceMonitor: {interval: often}}}",
        worse: "{prometheus: {serviceMonitor: {interval: seldom}}}",
        field: "spec.prometheus.serviceMonitor.interval",
        healed: "{prometheus: {serviceMonitor: {interval: 15s}}}",
    },
    Fault {
        kind: LMC,
        name: "payload",
        spec: "{l1: {sizeGB: 1}, injection: {payloadImage: {tag: v1}}}",
        worse: "{injection: {payloadImage: {tag: v2}}}",
        field: "spec.injection.payloadImage.repository",
        healed: "{injection: {payloadImage: {repository: r}}}",
    },
    Fault {
        kind: LMC,
        name: "adapters",
        spec: "{l1: {sizeGB: 1}, l2Backend: {resp: {host: h, port: 1}, raw: {type: fs}}}",
        worse: "{l2Backend: {raw: {type: mock}}}",
        field: "spec.l2Backend",
        healed: "{l2Backend: {raw: null}}",
    },
    Fault {
        kind: LMC,
        name: "coordinator",
        spec: "{l1: {sizeGB: 1}, coordinator: {ref: {name: c}, url: u}}",
        worse: "{coordinator: {url: v}}",
        field: "spec.coordinator",
        healed: "{coordinator: {url: null}}",
    },
    Fault {
        kind: LMC,
        name: "http-port",
        spec: "{l1: {sizeGB: 1}, server: {port: 6000, httpPort: 6000}}",
        worse: "{server: {port: 7000, httpPort: 7000}}",
        field: "spec.server.httpPort",
        healed: "{server: {httpPort: 6001}}",
    },
    Fault {
        kind: LMC,
        name: "metrics-port",
        spec: "{l1: {sizeGB: 1}, server: {port: 6000}, prometheus: {port: 6000}}",
        worse: "{server: {port: 7000}, prometheus: {port: 7000}}",
        field: "spec",
        healed: "{prometheus: {port: 6001}}",
    },
    Fault {
        kind: CBE,
        name: "chunk-size",
        spec: "{l1: {sizeGB: 1}, pd: {}, server: {chunkSize: 128}}",
        worse: "{server: {chunkSize: 64}}",
        field: "spec.server.chunkSize",
        healed: "{server: {chunkSize: 256}}",
    },
    Fault {
        kind: CBE,
        name: "no-payload",
        spec: "{l1: {sizeGB: 1}}",
        worse: "{injection: {payloadImage: {repository: lmcache/vllm-openai}}}",
        field: "spec",
        healed: "{injection: {payloadImage: {repository: r}}}",
    },
    // As older releases stored it unasked (D15).
    Fault {
        kind: CBE,
        name: "old-payload-default",
        spec: "{l1: {sizeGB: 1}, injection: {payloadImage: {repository: lmcache/vllm-openai, tag: latest}}}",
        worse: "{injection: null}",
        field: "spec",
        healed: "{pd: {}}",
    },
    Fault {
        kind: CBE,
        name: "recomp-ratio",
        spec: "{l1: {sizeGB: 1}, pd: {}, blend: {recompRatio: 2}}",
        worse: "{blend: {recompRatio: 3}}",
        field: "spec.blend.recompRatio",
        healed: "{blend: {recompRatio: 1}}",
    },
    Fault {
        kind: CBE,
        name: "http-port",
        spec: "{l1: {sizeGB: 1}, pd: {}, server: {port: 6000, httpPort: 6000}}",
        worse: "{server: {port: 7000, httpPort: 7000}}",
        field: "spec.server.httpPort",
        healed: "{server: {httpPort: 6001}}",
    },
    Fault {
        kind: LMCC,
        name: "port",
        spec: "{port: 0}",
        worse: "{port: -1}",
        field: "spec.port",
        healed: "{port: 9300}",
    },
    Fault {
        kind: LMCC,
        name: "watermark",
        spec: "{triggerWatermark: 0}",
        worse: "{triggerWatermark: 1.5}",
        field: "spec.triggerWatermark",
        healed: "{triggerWatermark: 0.5}",
    },
    Fault {
        kind: LMCC,
        name: "interval",
        spec: "{prometheus: {serviceMonitor: {interval: often}}}",
        worse: "{prometheus: {serviceMonitor: {interval: seldom}}}",
        field: "spec.prometheus.serviceMonitor.interval",
        healed: "{prometheus: {serviceMonitor: {interval: 15s}}}",
    },
];

/// A kind, the least that a resource of it holds, a spec that is refused, and changes that have nothing to do with a fault.
struct Rules {
    kind: &'static str,
    least: &'static str,
    invalid: &'static str,
    others: &'static [&'static str],
}

const RULES: &[Rules] = &[
    Rules {
        kind: LMC,
        least: "{l1: {sizeGB: 1}}",
        invalid: "{l1: {sizeGB: 0}}",
        others: &[
            "{logLevel: DEBUG}",
            "{server: {chunkSize: 512}}",
            "{nodeSelector: {a: b}}",
            "{prometheus: {enabled: true}}",
        ],
    },
    Rules {
        kind: CBE,
        least: "{l1: {sizeGB: 1}, pd: {}}",
        invalid: "{l1: {sizeGB: 0}, pd: {}}",
        others: &[
            "{logLevel: DEBUG}",
            "{server: {maxWorkers: 2}}",
            "{blend: {checkLayer: 2}}",
            "{prometheus: {enabled: true}}",
        ],
    },
    Rules {
        kind: LMCC,
        least: "{}",
        invalid: "{port: 0}",
        others: &["{logLevel: DEBUG}", "{replicas: 0}", "{nodeSelector: {a: b}}", "{prometheus: {enabled: true}}"],
    },
];

#[tokio::test]
async fn a_stored_fault_stays_changeable_in_everything_else() {
    for rules in RULES {
        let api = store(rules).await;
        for fault in FAULTS.iter().filter(|fault| fault.kind == rules.kind) {
            check(&api, fault, rules.others).await;
        }
        // A name cannot be changed, so an object with a name that is refused today must stay usable as a whole.
        for other in rules.others {
            let answer = api.patch("my.cache", &PatchParams::default(), &patch(other)).await;
            assert!(answer.is_ok(), "{}: an odd name is in the way of {other}: {answer:?}", rules.kind);
        }
        let status = Patch::Merge(json!({"status": {"phase": "Degraded"}}));
        api.patch_status("my.cache", &PatchParams::default(), &status).await.unwrap();
    }
}

async fn check(api: &Api<DynamicObject>, fault: &Fault, others: &[&str]) {
    let Fault { kind, name, spec, worse, field, healed } = fault;
    let params = PatchParams::default();
    for other in others {
        let answer = api.patch(name, &params, &patch(other)).await;
        assert!(answer.is_ok(), "{kind} {name}: {spec} could not be changed by {other}: {answer:?}");
    }
    let status = Patch::Merge(json!({"status": {"phase": "Degraded", "reason": "InvalidSpec"}}));
    let answer = api.patch_status(name, &params, &status).await;
    assert!(answer.is_ok(), "{kind} {name}: the status could not be written: {answer:?}");
    let refusal = refusal(worse, api.patch(name, &params, &patch(worse)).await);
    assert!(names(&refusal, field, ""), "{kind} {name}: {worse}: want {field}, got {refusal:#?}");
    let answer = api.patch(name, &params, &patch(healed)).await;
    assert!(answer.is_ok(), "{kind} {name}: {spec} could not be healed by {healed}: {answer:?}");
}

fn patch(spec: &str) -> Patch<Value> {
    let spec: Value = serde_norway::from_str(spec).unwrap();
    Patch::Merge(json!({"spec": spec}))
}

/// Stores every faulty object of a kind and puts the rules in force.
async fn store(rules: &Rules) -> Api<DynamicObject> {
    let cluster = cluster().await;
    let definition = stored::in_group(&stored::definition(rules.kind), GROUP);
    let loose = serde_json::to_string(&stored::without_rules(&definition)).unwrap();
    cluster.apply_yaml(&loose).await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1alpha1", rules.kind));
    let api: Api<DynamicObject> = Api::default_namespaced_with(cluster.client(), &kind);
    let in_group = |name: &str, spec: &str| {
        let mut object = object(rules.kind, name, spec);
        object.types = Some(kube::api::TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() });
        object
    };
    let faults = FAULTS.iter().filter(|fault| fault.kind == rules.kind);
    for object in faults.map(|fault| in_group(fault.name, fault.spec)).chain([in_group("my.cache", rules.least)]) {
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    cluster.apply_yaml(&serde_json::to_string(&definition).unwrap()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while try_create(&api, &in_group("invalid", rules.invalid)).await.is_ok() {
        assert!(Instant::now() < deadline, "{}: the rules are not in force", rules.kind);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    api
}
