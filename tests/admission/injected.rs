//! Pods that are connected to their engine, as they are stored.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use lmcache_harness::Harness;
use lmcache_operator::admission::injection::{CONFIG_HASH, Injector, config_hash};
use lmcache_operator::admission::registration::{CACHE_BLEND_PATH, LM_CACHE_PATH};
use serde_json::{Value, json};

use crate::common::{Bed, Operator, children, engine};
use crate::meant::Meant;
use crate::pods::{Case, cases, differences};
use crate::vllm::{
    args, ask, connection, create, is_injected, note, pod, pod_resource, pod_with, review, skip_reason, until,
    until_injected,
};
use crate::{lenient_bed, shared, start_with_webhooks};

/// How soon after its start an operator without cert-manager must inject.
const SOON: Duration = Duration::from_secs(10);
const AT_ONCE: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_connected_soon_after_the_operator_starts() {
    let bed = lenient_bed("soon").await.unwrap();
    bed.cluster.apply_yaml(&engine("cache", &json!({"l1": {"sizeGB": 1}}))).await.unwrap();
    let (begun, flags) = (Instant::now(), ["--webhook-url=https://127.0.0.1:0", "--webhook-certs=self-managed"]);
    let operator = start_with_webhooks(&bed, "manager", &flags).unwrap();
    until_injected(&bed, &operator, "cache").await.unwrap();
    println!("a pod is injected {:?} after the operator's start", begun.elapsed());
    assert!(begun.elapsed() < SOON, "{:?}\n{}", begun.elapsed(), operator.program.log());

    let template = pod(Injector::LmCache, "vllm", "cache");
    let found = pod_of_deployment(&bed, &template).await.unwrap();
    let document = &connection(&bed.cluster.client(), "default", "cache").await.unwrap()["kv-transfer-config.json"];
    assert_eq!(args(&found), ["m1", "--kv-transfer-config", document], "{found:#}");
    let container = &found["spec"]["containers"][0];
    assert_eq!(container["env"], json!([{"name": "PYTHONHASHSEED", "value": "0"}]), "{found:#}");
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(mounts.contains(&json!({"name": "lmcache-dev-shm", "mountPath": "/dev/shm"})), "{found:#}");
    let volumes = found["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.contains(&json!({"name": "lmcache-dev-shm", "emptyDir": {"medium": "Memory"}})), "{found:#}");
    assert!(is_injected(&found, Injector::LmCache), "{found:#}");
    assert_eq!(note(&found, CONFIG_HASH), Some(config_hash(document).as_str()), "{found:#}");
    assert_eq!(skip_reason(&found, Injector::LmCache), None, "{found:#}");
    bed.cluster.stop().await;
}

/// The pod that a Deployment makes of a template, as it is stored.
async fn pod_of_deployment(bed: &Bed, template: &Value) -> Result<Value> {
    let mut template = json!({"metadata": template["metadata"], "spec": template["spec"]});
    template["metadata"]["labels"]["app"] = json!("vllm");
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "vllm"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "vllm"}}, "template": template},
    }))?;
    let client = bed.cluster.client();
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &deployment).await?;
    let pods = Api::<DynamicObject>::namespaced_with(client, "default", &pod_resource());
    until("the Deployment has a pod", async || {
        let found = pods.list(&ListParams::default().labels("app=vllm")).await?.items;
        Ok(found.first().map(serde_json::to_value).transpose()?)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_recorded_pod_is_stored_as_recorded() {
    let (bed, _) = shared().await;
    let (cases, meant) = (cases(), Meant::load().unwrap());
    let count = cases.len();
    let running = cases.into_iter().map(|case| {
        let meant = &meant;
        async move { (stored(bed, &case).await.map(|pod| differences(&case, &pod, meant)), case.name) }
    });
    let results: Vec<_> = futures::stream::iter(running).buffer_unordered(AT_ONCE).collect().await;
    let mut failed = Vec::new();
    for (result, name) in results {
        match result {
            Ok(differences) if differences.is_empty() => println!("equal {name}"),
            Ok(differences) => failed.extend(differences),
            Err(error) => failed.push(format!("{name} failed: {error:?}")),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(count, 21);
}

/// The pod of a case as the API server stored it, without what no injector decides.
async fn stored(bed: &Bed, case: &Case) -> Result<Value> {
    let client = bed.cluster.client();
    let suite: Harness = Harness::in_new_namespace(client.clone(), "pods").await?;
    let namespace = suite.namespace();
    for engine in &case.engines {
        let mut engine = engine.clone();
        engine["metadata"]["namespace"] = json!(namespace);
        bed.cluster.apply_yaml(&engine.to_string()).await?;
    }
    for engine in &case.engines {
        let name = engine["metadata"]["name"].as_str().unwrap_or_default();
        connection(&client, namespace, name).await?;
    }
    let pod = create(&client, namespace, &case.pod, false).await?;
    let mut pod = children::normalise(&pod, namespace)?;
    without_token(&mut pod);
    suite.finish().await?;
    Ok(pod)
}

/// The token that the API server mounts has a random name.
fn without_token(pod: &mut Value) {
    let is_token = |item: &Value| item["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
    let spec = &mut pod["spec"];
    let containers = ["containers", "initContainers"].map(|list| spec[list].take());
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.retain(|volume| !is_token(volume));
    }
    for (list, mut containers) in ["containers", "initContainers"].into_iter().zip(containers) {
        for container in containers.as_array_mut().into_iter().flatten() {
            if let Some(mounts) = container["volumeMounts"].as_array_mut() {
                mounts.retain(|mount| !is_token(mount));
            }
        }
        if containers.is_null() {
            spec.as_object_mut().map(|spec| spec.remove(list));
        } else {
            spec[list] = containers;
        }
    }
}

/// Fields of a pod that no injector reads or writes.
fn rich() -> Value {
    json!({
        "metadata": {"annotations": {"example.com/with_all.kinds-of": "a/b"}, "finalizers": ["example.com/hold"]},
        "spec": {
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["h"]}],
            "readinessGates": [{"conditionType": "example.com/ready"}],
            "schedulingGates": [{"name": "example.com/gate"}],
            "os": {"name": "linux"},
            "hostUsers": false,
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
            "containers": [{
                "name": "vllm", "image": "vllm/vllm-openai", "args": ["m1"],
                "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
                "resources": {"claims": [{"name": "gpu"}]},
            }],
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_no_injector_knows_stay_and_a_second_pass_changes_nothing() {
    let (bed, operator) = shared().await;
    let client = bed.cluster.client();
    let suite: Harness = Harness::in_new_namespace(client.clone(), "rich").await.unwrap();
    let namespace = suite.namespace();
    suite.apply_fixture(&engine("cache", &json!({"l1": {"sizeGB": 1}}))).await.unwrap();
    connection(&client, namespace, "cache").await.unwrap();
    let asking = pod_with(Injector::LmCache, "asking", "cache", &rich());
    let mut silent = asking.clone();
    silent["metadata"]["labels"] = json!({});
    let silent = create(&client, namespace, &silent, true).await.unwrap();
    let injected = create(&client, namespace, &asking, false).await.unwrap();
    assert!(is_injected(&injected, Injector::LmCache), "{injected:#}");
    let stays: Vec<_> =
        children::differences(&normal(&silent, namespace), &normal(&injected, namespace)).into_iter().collect();
    let ours = [
        "/metadata/labels/lmcache.ai~1lmcache-inject",
        "/metadata/annotations/lmcache.ai~1injected-config-hash",
        "/metadata/annotations/lmcache.ai~1lmcache-injected",
        "/spec/volumes",
        "/spec/containers/0/args",
        "/spec/containers/0/env",
        "/spec/containers/0/volumeMounts",
    ];
    let foreign: Vec<_> = stays.iter().filter(|(path, ..)| !ours.contains(&path.as_str())).collect();
    assert!(foreign.is_empty() && stays.len() == ours.len(), "{stays:#?}");

    // What this API server would not store: the raw answer of the webhook.
    let mut unknown = asking.clone();
    unknown["spec"]["fieldOfTomorrow"] = json!({"deep": [1, null, "x"]});
    unknown["spec"]["containers"][0]["fieldOfTomorrow"] = json!(true);
    let operations = operations(bed, operator, namespace, LM_CACHE_PATH, &unknown).await.unwrap();
    let mut changed = unknown.clone();
    let patch: json_patch::Patch = serde_json::from_value(operations.clone()).unwrap();
    json_patch::patch(&mut changed, &patch).unwrap();
    assert_eq!(changed["spec"]["fieldOfTomorrow"], unknown["spec"]["fieldOfTomorrow"], "{operations:#}");
    assert_eq!(changed["spec"]["containers"][0]["fieldOfTomorrow"], true, "{operations:#}");
    assert!(is_injected(&changed, Injector::LmCache), "{operations:#}");

    for once in [&injected, &changed] {
        let again = self::operations(bed, operator, namespace, LM_CACHE_PATH, once).await.unwrap();
        assert_eq!(again, Value::Null, "a second pass changes the pod");
    }
    suite.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_injectors_work_on_one_pod_and_a_second_pass_changes_nothing() {
    let (bed, operator) = shared().await;
    let case = cases().into_iter().find(|case| case.name == "pod-both-injectors").unwrap();
    let client = bed.cluster.client();
    let suite: Harness = Harness::in_new_namespace(client.clone(), "both").await.unwrap();
    let namespace = suite.namespace();
    for engine in &case.engines {
        let mut engine = engine.clone();
        engine["metadata"]["namespace"] = json!(namespace);
        bed.cluster.apply_yaml(&engine.to_string()).await.unwrap();
        connection(&client, namespace, engine["metadata"]["name"].as_str().unwrap()).await.unwrap();
    }
    let stored = create(&client, namespace, &case.pod, false).await.unwrap();
    assert!(Injector::ALL.iter().all(|injector| is_injected(&stored, *injector)), "{stored:#}");
    // One connector is enough, and the first has it.
    assert_eq!(args(&stored).iter().filter(|arg| **arg == "--kv-transfer-config").count(), 1, "{stored:#}");
    assert_eq!(skip_reason(&stored, Injector::CacheBlend), None, "{stored:#}");
    assert_eq!(skip_reason(&stored, Injector::LmCache), Some("kv-transfer-config-present"), "{stored:#}");
    for path in [CACHE_BLEND_PATH, LM_CACHE_PATH] {
        let again = operations(bed, operator, namespace, path, &stored).await.unwrap();
        assert_eq!(again, Value::Null, "{path} changes the pod again");
    }
    // The same without the stamps: what is there already is found.
    let mut bare = stored.clone();
    for injector in Injector::ALL {
        bare["metadata"]["annotations"].as_object_mut().unwrap().remove(injector.names().injected);
    }
    for path in [CACHE_BLEND_PATH, LM_CACHE_PATH] {
        let again = operations(bed, operator, namespace, path, &bare).await.unwrap();
        let foreign = |it: &&Value| !it["path"].as_str().is_some_and(|path| path.starts_with("/metadata/annotations"));
        let foreign: Vec<_> = again.as_array().unwrap().iter().filter(foreign).collect();
        assert!(foreign.is_empty(), "{path} without its stamp: {foreign:#?}");
    }
    suite.finish().await.unwrap();
}

fn normal(pod: &Value, namespace: &str) -> Value {
    let mut pod = children::normalise(pod, namespace).unwrap();
    without_token(&mut pod);
    pod
}

/// What the operator answers an API server that asks about this pod: a list of operations, or null.
async fn operations(bed: &Bed, operator: &Operator, namespace: &str, path: &str, pod: &Value) -> Result<Value> {
    let (code, body) = ask(bed, operator, path, review(namespace, pod).as_bytes()).await?;
    anyhow::ensure!(code == 200, "{body}");
    let answer: Value = serde_json::from_str(&body)?;
    let patch: Option<k8s_openapi::ByteString> = serde_json::from_value(answer["response"]["patch"].clone())?;
    Ok(patch.map(|patch| serde_json::from_slice(&patch.0)).transpose()?.unwrap_or_default())
}
