//! The pod that is measured with.

use serde_json::{Value, json};

/// The engine that the pod names.
pub const ENGINE: &str = "cache";
/// What a typical pod is as JSON, in bytes.
const POD_BYTES: usize = 8 * 1024;

/// A small pod that nobody places, for many of them.
pub fn small(name: &str, asks: bool) -> Value {
    let label = if asks { "true" } else { "false" };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"lmcache.ai/lmcache-inject": label},
            "annotations": {"lmcache.ai/lmcache-engine": ENGINE},
        },
        "spec": {
            "schedulerName": "none",
            "containers": [{"name": "vllm", "image": "vllm/vllm-openai", "args": ["m1"]}],
        },
    })
}

/// A vLLM pod as a Deployment makes it, after the API server's defaults, filled up to its size with environment.
pub fn typical() -> Value {
    let probe = json!({"httpGet": {"path": "/health", "port": 8000, "scheme": "HTTP"}, "periodSeconds": 10,
        "failureThreshold": 3, "successThreshold": 1, "timeoutSeconds": 1});
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "vllm-5d4f8c7b9-",
            "labels": {"app": "vllm", "pod-template-hash": "5d4f8c7b9", "lmcache.ai/lmcache-inject": "true"},
            "annotations": {"lmcache.ai/lmcache-engine": ENGINE, "prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "vllm-5d4f8c7b9", "controller": true}],
        },
        "spec": {
            "containers": [{
                "name": "vllm",
                "image": "vllm/vllm-openai:v0.11.0",
                "args": ["meta-llama/Llama-3.1-8B-Instruct", "--port", "8000", "--tensor-parallel-size", "2"],
                "env": [],
                "ports": [{"containerPort": 8000, "protocol": "TCP"}],
                "resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"cpu": "8", "memory": "64Gi"}},
                "readinessProbe": probe,
                "livenessProbe": probe,
                "volumeMounts": [{"name": "models", "mountPath": "/root/.cache/huggingface"}],
            }],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
            "restartPolicy": "Always",
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

/// The question of an API server about a pod.
pub fn review(pod: &Value, namespace: &str) -> String {
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let user = json!({"username": "system:serviceaccount:kube-system:replicaset-controller",
        "groups": ["system:serviceaccounts", "system:authenticated"]});
    let request = json!({
        "uid": "0b4c9a0e-6c3e-4a0c-9f5b-2b8f6f0f1f11", "kind": kind, "resource": resource, "requestKind": kind,
        "requestResource": resource, "namespace": namespace, "operation": "CREATE", "userInfo": user, "object": pod,
        "oldObject": null, "dryRun": false, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    });
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).to_string()
}
