//! How long one admission takes to decide: a typical pod of 8 KiB, the decision and its operations.
#![allow(missing_docs, reason = "the macros of the benchmark make public items")]

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use lmcache_operator::admission::injection::{
    Connection, Decision, EngineLookup, EngineView, Injector, PayloadImage, decide, patch,
};
use serde_json::{Value, json};

/// What a typical pod is as JSON, in bytes.
const POD_BYTES: usize = 8 * 1024;

/// A vLLM pod as a Deployment makes it, after the API server's defaults, filled up to its size with environment.
fn pod(injector: Injector) -> Value {
    let probe = json!({"httpGet": {"path": "/health", "port": 8000, "scheme": "HTTP"}, "periodSeconds": 10,
        "failureThreshold": 3, "successThreshold": 1, "timeoutSeconds": 1});
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "vllm-5d4f8c7b9-",
            "labels": {"app": "vllm", "pod-template-hash": "5d4f8c7b9", injector.names().label: "true"},
            "annotations": {injector.names().engine: "c1", "prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "vllm-5d4f8c7b9", "controller": true}],
        },
        "spec": {
            "containers": [{
                "name": "vllm",
                "image": "vllm/vllm-openai:v0.11.0",
                "args": ["meta-llama/Llama-3.1-8B-Instruct", "--port", "8000", "--tensor-parallel-size", "2",
                    "--max-model-len", "32768", "--gpu-memory-utilization=0.9", "--pipeline_parallel_size=2"],
                "env": [],
                "ports": [{"containerPort": 8000, "protocol": "TCP"}],
                "resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": "8", "memory": "64Gi"}},
                "readinessProbe": probe,
                "livenessProbe": probe,
                "volumeMounts": [
                    {"name": "models", "mountPath": "/root/.cache/huggingface"},
                    {"name": "kube-api-access-x2x4q", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true},
                ],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "volumes": [
                {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
                {"name": "kube-api-access-x2x4q", "projected": {"defaultMode": 420}},
            ],
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
        },
    });
    for number in 0.. {
        let room = POD_BYTES.saturating_sub(pod.to_string().len());
        if room == 0 {
            break;
        }
        let entry = json!({"name": format!("SETTING_{number}"), "value": "x".repeat(room.min(100))});
        if let Some(env) = pod["spec"]["containers"][0]["env"].as_array_mut() {
            env.push(entry);
        }
    }
    pod
}

fn engine() -> EngineLookup {
    let document = "{\n  \"kv_connector\": \"LMCacheMPConnector\"\n}".repeat(8);
    let data = BTreeMap::from([("kv-transfer-config.json".to_owned(), document)]);
    EngineLookup::Found(Box::new(EngineView {
        namespace: "ai".into(),
        name: "c1".into(),
        payload_image: Some(PayloadImage {
            reference: "registry.example/payload:1".into(),
            pull_policy: "IfNotPresent".into(),
        }),
        pull_secrets: vec!["registry".into()],
        connection: Some(Connection { controlled: true, data }),
        ..EngineView::default()
    }))
}

fn injection_decision(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("injection_decision");
    let engine = engine();
    for injector in Injector::ALL {
        let pod = pod(injector);
        let decision = decide(&pod, Some("ai"), injector, &engine);
        assert!(matches!(decision, Decision::Inject(_)), "{decision:?}");
        group.bench_function(injector.as_str(), |bencher| {
            bencher.iter(|| {
                let pod = black_box(&pod);
                patch(pod, &decide(pod, Some("ai"), injector, black_box(&engine)))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, injection_decision);
criterion_main!(benches);
