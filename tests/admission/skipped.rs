//! Pods that are not connected, or not as their annotations say: they are admitted, and say why in three places.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use lmcache_crds::LMCacheEngine;
use lmcache_harness::Harness;
use lmcache_operator::admission::injection::{Injector, SkipReason};
use serde_json::{Value, json};

use crate::common::{Bed, Operator, engine};
use crate::shared;
use crate::vllm::{args, connection, counter, create, is_injected, pod, pod_resource, pod_with, skip_reason, until};

/// A pod that is not connected as it asks for.
pub struct Row {
    /// Name of everything that is made for it.
    pub name: &'static str,
    /// Whose pod it is.
    pub injector: Injector,
    /// The engine that it names.
    pub engine: &'static str,
    /// Merge patch of the pod.
    pub change: Value,
    /// Whether it is injected all the same.
    pub injected: bool,
    /// The reason on the pod and in metrics; `None` for a warning only.
    pub reason: Option<SkipReason>,
    /// Part of the warning.
    pub hint: &'static str,
}

impl Row {
    fn skipped(name: &'static str, engine: &'static str, reason: SkipReason, hint: &'static str) -> Self {
        let (injector, change) = (Injector::LmCache, json!({}));
        Row { name, injector, engine, change, injected: false, reason: Some(reason), hint }
    }

    fn with(self, change: Value) -> Self {
        Row { change, ..self }
    }

    /// Of a container that has these fields beside its name and image.
    fn with_container(self, mut fields: Value) -> Self {
        json_patch::merge(&mut fields, &json!({"name": "vllm", "image": "vllm/vllm-openai"}));
        self.with(json!({"spec": {"containers": [fields]}}))
    }

    fn injected(self) -> Self {
        Row { injected: true, ..self }
    }

    fn of_cache_blend(self) -> Self {
        Row { injector: Injector::CacheBlend, ..self }
    }

    fn pod(&self) -> Value {
        pod_with(self.injector, self.name, self.engine, &self.change)
    }
}

/// Every row of the table in the documentation that real objects can bring about.
fn rows() -> Vec<Row> {
    use SkipReason as R;
    let shm = |volume: Value| {
        json!({"spec": {
            "volumes": [volume],
            "containers": [{"name": "vllm", "image": "v", "args": ["m1"], "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}],
        }})
    };
    let value_from = json!([{"name": "PYTHONPATH", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    let clash = json!([{"name": "lmcache-dev-shm", "emptyDir": {"sizeLimit": "1Gi"}}]);
    let own = json!(["m1", "--kv-transfer-config={\"kv_connector\":\"Other\"}"]);
    vec![
        Row::skipped("unnamed", "", R::NotOptedIn, "names no engine"),
        Row::skipped("malformed", "a/b/c", R::EngineNotFound, "which names no LMCacheEngine"),
        Row::skipped("missing", "missing", R::EngineNotFound, "there is no LMCacheEngine"),
        Row::skipped("other-kind", "plain", R::EngineNotFound, "there is no CacheBlendEngine").of_cache_blend(),
        Row::skipped("terminating", "leaving", R::EngineTerminating, "is being deleted"),
        Row::skipped("unshared", "__OTHER__/private", R::EngineNotShared, "lmcache.ai/share-with"),
        Row::skipped("not-owned", "taken", R::ConfigNotOwned, "ConfigMap"),
        Row::skipped("role", "pd", R::UnknownPdRole, "must be prefiller or decoder, not \"both\"")
            .with(json!({"metadata": {"annotations": {"lmcache.ai/pd-role": "both"}}})),
        Row::skipped("container", "plain", R::TargetContainerNotFound, "no container \"nope\"")
            .with(json!({"metadata": {"annotations": {"lmcache.ai/lmcache-container": "nope"}}})),
        Row::skipped("command", "plain", R::CommandOverride, "may not pass arguments on")
            .with_container(json!({"command": ["/bin/sh", "-c"], "args": ["exec vllm serve m1"]})),
        Row::skipped("no-payload", "blend-pd", R::PayloadImageUnset, "spec.injection.payloadImage").of_cache_blend(),
        Row::skipped("clash", "plain", R::NameConflict, "\"lmcache-dev-shm\" with other content")
            .with(json!({"spec": {"volumes": clash}})),
        Row::skipped("shm", "legacy", R::DevShmConflict, "which is another one")
            .with(shm(json!({"name": "shm", "emptyDir": {"medium": "Memory"}}))),
        Row::skipped("value-from", "staged", R::PythonpathValueFrom, "comes from valueFrom")
            .with_container(json!({"args": ["m1"], "env": value_from})),
        Row::skipped("connector", "plain", R::KvTransferConfigPresent, "has its own --kv-transfer-config")
            .with_container(json!({"args": own}))
            .injected(),
        Row {
            reason: None,
            ..Row::skipped("no-roles", "plain", R::UnknownPdRole, "has no spec.pd")
                .with(json!({"metadata": {"annotations": {"lmcache.ai/pd-role": "prefiller"}}}))
                .injected()
        },
    ]
}

/// The engines that the rows name.
async fn engines(bed: &Bed, namespace: &str, other: &str) -> Result<()> {
    let client = bed.cluster.client();
    let taken = json!({"metadata": {"name": "taken-connection"}, "data": {"kv-transfer-config.json": "{}"}});
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    maps.create(&PostParams::default(), &serde_json::from_value(taken)?).await?;
    let l1 = json!({"sizeGB": 1});
    let staged = json!({"payloadImage": {"repository": "r/p", "tag": "1"}});
    let suite: Harness = Harness::new(client.clone(), namespace);
    let mut leaving: Value = serde_json::from_str(&engine("leaving", &json!({"l1": l1})))?;
    leaving["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let mut blend: Value = serde_json::from_str(&engine("blend-pd", &json!({"l1": l1, "pd": {}})))?;
    blend["kind"] = json!("CacheBlendEngine");
    for fixture in [
        engine("plain", &json!({"l1": l1})),
        engine("pd", &json!({"l1": l1, "pd": {}})),
        engine("legacy", &json!({"l1": l1, "isolatedIPC": false})),
        engine("staged", &json!({"l1": l1, "injection": staged})),
        engine("taken", &json!({"l1": l1})),
        format!("{leaving:#}"),
    ] {
        suite.apply_fixture(&fixture).await?;
    }
    blend["metadata"]["namespace"] = json!(namespace);
    bed.cluster.apply_yaml(&blend.to_string()).await?;
    Harness::<LMCacheEngine>::new(client.clone(), other).apply_fixture(&engine("private", &json!({"l1": l1}))).await?;
    for name in ["plain", "pd", "legacy", "staged", "leaving", "blend-pd"] {
        connection(&client, namespace, name).await?;
    }
    connection(&client, other, "private").await?;
    let engines = Api::<LMCacheEngine>::namespaced(client.clone(), namespace);
    engines.delete("leaving", &DeleteParams::default()).await?;
    // The operator learns of it by its watch.
    let leaving = pod(Injector::LmCache, "tried", "leaving");
    until("the operator knows that an engine is being deleted", async || {
        Ok((!is_injected(&create(&client, namespace, &leaving, true).await?, Injector::LmCache)).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_not_injected_is_admitted_and_says_why() {
    let (bed, operator) = shared().await;
    let client = bed.cluster.client();
    let suite: Harness = Harness::in_new_namespace(client.clone(), "skipped").await.unwrap();
    let other: Harness = Harness::in_new_namespace(client.clone(), "other").await.unwrap();
    let namespace = suite.namespace();
    engines(bed, namespace, other.namespace()).await.unwrap();
    let mut failed = Vec::new();
    for row in rows() {
        if let Err(error) = check(bed, operator, namespace, other.namespace(), &row).await {
            failed.push(format!("{}: {error:#}", row.name));
        }
    }
    // Invalid engines cannot be created here, but one was there before.
    let invalid = Row::skipped("invalid", "old", SkipReason::EngineInvalid, "spec.server.port");
    if let Err(error) = check(bed, operator, "default", "", &invalid).await {
        failed.push(format!("invalid: {error:#}"));
    }
    assert!(failed.is_empty(), "{}\n{}", failed.join("\n"), operator.program.log());
    bed.cluster.kubectl(&["patch", "-n", namespace, "lmc/leaving", "--type=merge", "-p", NO_FINALIZER]).await.unwrap();
    suite.finish().await.unwrap();
    other.finish().await.unwrap();
}

const NO_FINALIZER: &str = r#"{"metadata": {"finalizers": null}}"#;

/// What is counted about a row.
async fn counted(operator: &Operator, row: &Row) -> Result<u64> {
    let outcome = if row.injected { "injected" } else { "skipped" };
    let reason = row.reason.map_or("", SkipReason::as_str);
    let labels = [("webhook", row.injector.as_str()), ("outcome", outcome), ("reason", reason)];
    counter(operator, "webhook_requests_total", &labels).await
}

async fn check(bed: &Bed, operator: &Operator, namespace: &str, other: &str, row: &Row) -> Result<()> {
    let before = counted(operator, row).await?;
    let pod: Value = serde_json::from_str(&row.pod().to_string().replace("__OTHER__", other))?;
    let (admitted, text) = bed.cluster.kubectl_says(&["apply", "-n", namespace, "-f", "-"], &pod.to_string()).await?;
    ensure!(admitted, "it was refused: {text}");
    let warning = text.lines().find(|line| line.starts_with("Warning: ") && line.contains(row.hint));
    let warning = warning.with_context(|| format!("no warning of {:?} in {text}", row.hint))?;
    let named = row.reason.is_none_or(|reason| warning.contains(reason.as_str()));
    ensure!(named, "no reason in {warning}");

    let pods = Api::<DynamicObject>::namespaced_with(bed.cluster.client(), namespace, &pod_resource());
    let stored = serde_json::to_value(pods.get(row.name).await?)?;
    stamped(row, &pod, &stored)?;
    let (set, owned) = replica_set(bed, namespace, row, &pod).await?;
    stamped(row, &pod, &owned)?;
    let reason = if row.reason.is_some() { "InjectionSkipped" } else { "InjectionWarning" };
    let event = events_about(bed, namespace, &set, 1).await?.remove(0);
    let note = event.note.unwrap_or_default();
    ensure!(event.reason.as_deref() == Some(reason), "the Event is {:?}: {note}", event.reason);
    ensure!(event.type_.as_deref() == Some("Warning") && note.contains(row.hint), "the Event says {note}");
    let after = counted(operator, row).await?;
    ensure!(after >= before + 2, "counted {before}, then {after}");
    println!("{:12} {warning}", row.name);
    Ok(())
}

/// Whether the stored pod has the reason, and nothing else where it was skipped.
fn stamped(row: &Row, pod: &Value, stored: &Value) -> Result<()> {
    let found = (is_injected(stored, row.injector), skip_reason(stored, row.injector));
    let wanted = (row.injected, row.reason.map(SkipReason::as_str));
    ensure!(found == wanted, "want {wanted:?}, stamped {found:?}");
    let volumes = |pod: &Value| {
        let own = |volume: &&Value| !volume["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
        pod["spec"]["volumes"].as_array().into_iter().flatten().filter(own).count()
    };
    let untouched = args(stored) == args(pod)
        && volumes(stored) == volumes(pod)
        && stored["spec"].get("initContainers").is_none()
        && stored["spec"]["containers"][0].get("env").map_or(0, |env| env.as_array().map_or(0, Vec::len))
            == pod["spec"]["containers"][0].get("env").map_or(0, |env| env.as_array().map_or(0, Vec::len));
    ensure!(row.injected || untouched, "it was changed: {stored:#}");
    Ok(())
}

/// A `ReplicaSet` of such a pod: its UID, and its pod.
async fn replica_set(bed: &Bed, namespace: &str, row: &Row, pod: &Value) -> Result<(String, Value)> {
    let mut template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
    template["metadata"]["labels"]["set"] = json!(row.name);
    let set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": row.name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"set": row.name}}, "template": template},
    }))?;
    let client = bed.cluster.client();
    let set = Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &set).await?;
    let pods = Api::<DynamicObject>::namespaced_with(client, namespace, &pod_resource());
    let labels = ListParams::default().labels(&format!("set={}", row.name));
    let found = until("the ReplicaSet has a pod", async || {
        let found = pods.list(&labels).await?.items;
        Ok(found.first().map(serde_json::to_value).transpose()?)
    });
    Ok((set.metadata.uid.unwrap_or_default(), found.await?))
}

/// Waits for so many Events of the injectors about an object.
async fn events_about(bed: &Bed, namespace: &str, uid: &str, count: usize) -> Result<Vec<Event>> {
    until("the owner has an Event", async || {
        let found = injection_events(bed, namespace, uid).await?;
        Ok((found.len() >= count).then_some(found))
    })
    .await
}

async fn injection_events(bed: &Bed, namespace: &str, uid: &str) -> Result<Vec<Event>> {
    let about = ListParams::default().fields(&format!("regarding.uid={uid}"));
    let mut events = Api::<Event>::namespaced(bed.cluster.client(), namespace).list(&about).await?.items;
    events.retain(|event| event.action.as_deref() == Some("Inject"));
    Ok(events)
}

/// A `ReplicaSet` without pods, to be named as an owner.
async fn owner(bed: &Bed, namespace: &str, name: &str) -> Result<(String, Value)> {
    let spec = json!({"containers": [{"name": "x", "image": "x"}]});
    let set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"set": name}},
            "template": {"metadata": {"labels": {"set": name}}, "spec": spec}},
    }))?;
    let set = Api::namespaced(bed.cluster.client(), namespace).create(&PostParams::default(), &set).await?;
    let uid = set.metadata.uid.unwrap_or_default();
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid, "controller": true});
    Ok((uid, owner))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_is_answered_the_same_and_leaves_no_event() {
    let (bed, _) = shared().await;
    let client = bed.cluster.client();
    let suite: Harness = Harness::in_new_namespace(client.clone(), "dry-run").await.unwrap();
    let namespace = suite.namespace();
    let (tried_uid, tried) = owner(bed, namespace, "tried").await.unwrap();
    let (made_uid, made) = owner(bed, namespace, "made").await.unwrap();
    let owned = |owner: &Value| {
        let mut pod = pod(Injector::LmCache, "vllm", "missing");
        pod["metadata"]["ownerReferences"] = json!([owner]);
        pod
    };
    let apply = ["apply", "--server-side", "-n", namespace, "-f", "-"];
    let dry = [apply.as_slice(), &["--dry-run=server", "-o", "json"]].concat();
    let (admitted, text) = bed.cluster.kubectl_says(&dry, &owned(&tried).to_string()).await.unwrap();
    assert!(admitted && text.contains("Warning: lmcache injection skipped (engine-not-found)"), "{text}");
    assert!(text.contains(r#""lmcache.ai/lmcache-skip-reason": "engine-not-found""#), "{text}");

    let stored = create(&client, namespace, &owned(&made), false).await.unwrap();
    assert_eq!(skip_reason(&stored, Injector::LmCache), Some("engine-not-found"), "{stored:#}");
    // Events are written one after the other.
    let events = events_about(bed, namespace, &made_uid, 1).await.unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let events = injection_events(bed, namespace, &tried_uid).await.unwrap();
    assert!(events.is_empty(), "a dry run left {events:?}");
    suite.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_of_another_namespace_serves_those_it_is_shared_with() {
    let (bed, _) = shared().await;
    let client = bed.cluster.client();
    let suite: Harness = Harness::in_new_namespace(client.clone(), "apart").await.unwrap();
    let other: Harness = Harness::in_new_namespace(client.clone(), "sharing").await.unwrap();
    let (namespace, others) = (suite.namespace(), other.namespace());
    for (name, share) in [("named", format!("x, {namespace}")), ("all", "*".to_owned()), ("others", "x".to_owned())] {
        let mut shared: Value = serde_json::from_str(&engine(name, &json!({"l1": {"sizeGB": 1}}))).unwrap();
        shared["metadata"]["annotations"] = json!({"lmcache.ai/share-with": share});
        other.apply_fixture(&format!("{shared:#}")).await.unwrap();
        let document = &connection(&client, others, name).await.unwrap()["kv-transfer-config.json"];
        let pod = pod(Injector::LmCache, name, &format!("{others}/{name}"));
        let stored = create(&client, namespace, &pod, false).await.unwrap();
        if name == "others" {
            assert_eq!(skip_reason(&stored, Injector::LmCache), Some("engine-not-shared"), "{stored:#}");
        } else {
            assert!(args(&stored).contains(&document.as_str()), "shared with {share}: {stored:#}");
        }
    }
    suite.finish().await.unwrap();
    other.finish().await.unwrap();
}
