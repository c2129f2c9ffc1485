//! Children that somebody changes or deletes behind the operator's back.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use lmcache_harness::Judgement;
use serde_json::{Value, json};

use crate::children::{Child, content, controller};
use crate::kind::Kind;
use crate::scene::{NAME, play};
use crate::watch;

/// What is done to which child.
fn meddling<K: Kind>() -> Vec<(&'static str, Child, Value)> {
    let other = "someone-else";
    let container = |change: Value| json!({"spec": {"template": {"spec": {"containers": [change]}}}});
    let all = vec![
        ("selector", Child::Service, json!({"spec": {"selector": {"app.kubernetes.io/instance": other}}})),
        ("port", Child::Service, json!({"spec": {"ports": [{"port": K::PORT, "targetPort": "elsewhere"}]}})),
        ("port", Child::MetricsService, json!({"spec": {"ports": [{"port": 9090, "targetPort": 9090}]}})),
        ("document", Child::Connection, json!({"data": {"kv-transfer-config.json": "{}"}})),
        ("missing document", Child::Connection, json!({"data": {"kv-transfer-config.json": null}})),
        ("password", Child::Credentials, json!({"data": {"password": "d3Jvbmc="}})),
        ("interval", Child::ServiceMonitor, json!({"spec": {"endpoints": [{"port": "metrics", "interval": "1s"}]}})),
        ("opening", Child::NetworkPolicy, json!({"spec": {"ingress": [{}]}})),
        ("label", Child::Service, json!({"metadata": {"labels": {"app.kubernetes.io/component": other}}})),
        (
            "label that selects",
            Child::MetricsService,
            json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": other}}}),
        ),
        ("label that selects", K::WORKLOAD, json!({"metadata": {"labels": {"app.kubernetes.io/instance": null}}})),
        ("owner", Child::Service, json!({"metadata": {"ownerReferences": null}})),
        ("number", Child::Deployment, json!({"spec": {"replicas": 3}})),
        (
            "strategy",
            Child::Deployment,
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "RollingUpdate"}}}),
        ),
        ("args", K::WORKLOAD, container(json!({"name": K::CONTAINER, "args": ["--other"]}))),
        ("image", K::WORKLOAD, container(json!({"name": K::CONTAINER, "image": "registry.example/other:1"}))),
    ];
    let all = all.into_iter().filter(|it| K::CHILDREN.contains(&it.1));
    // Only an engine says which of its instances answer.
    let policy = ("traffic policy", Child::Service, json!({"spec": {"internalTrafficPolicy": "Cluster"}}));
    all.chain((K::WORKLOAD == Child::DaemonSet).then_some(policy)).collect()
}

pub async fn drift_in_a_rendered_field_is_repaired<K: Kind>() -> Result<()> {
    play::<K>("drift", 1, async |scene| {
        scene.ready_with("everything").await?;
        let good = scene.children().await?;
        for (what, child, patch) in meddling::<K>() {
            let good = content(&good[&child]);
            let bad = scene.meddle(child, &patch).await?;
            ensure!(content(&bad) != good, "{what} of {child:?}: the change changes nothing");
            let repaired = |it: &kube::api::DynamicObject| content(it) == good;
            let what = format!("{what} of {child:?} to be as rendered: {good}");
            watch::object(&scene.objects(&child.resource()), &child.name(), &what, repaired).await?;
        }
        // The workload's drift has rolled its pods.
        scene
            .pod("the rendered image", |pod| {
                let image = pod.spec.as_ref().and_then(|it| it.containers[0].image.as_deref());
                image.is_some_and(|it| it.starts_with("lmcache/vllm-openai"))
            })
            .await?;
        scene.healed().await?;
        Ok(())
    })
    .await?;
    Ok(())
}

pub async fn a_deleted_child_is_made_again<K: Kind>() -> Result<()> {
    play::<K>("vanished", 1, async |scene| {
        let resource = scene.ready_with("everything").await?;
        let before = scene.children().await?;
        let old = scene.pods().await?;
        try_join_all(before.keys().map(|child| async {
            let api = scene.objects(&child.resource());
            api.delete(&child.name(), &DeleteParams::background()).await.context("cannot delete")
        }))
        .await?;
        for (child, old) in &before {
            let new = |it: &kube::api::DynamicObject| it.uid() != old.uid();
            let api = scene.objects(&child.resource());
            let made = watch::object(&api, &child.name(), &format!("a new {child:?}"), new).await?;
            ensure!(controller(&made) == resource.meta().uid.as_deref(), "{made:?}");
        }
        let new = scene.pod("a new pod", |pod| old.values().all(|it| it.uid() != pod.uid())).await?;
        let serves = |resource: &K| {
            let status = resource.report();
            let by_new = status.endpoints.iter().any(|it| it.pod_name == new.name_any() && it.ready);
            Judgement::from(by_new && status.record.phase == lmcache_crds::Phase::Ready)
        };
        scene.harness.patiently().wait(NAME, "Ready with the new pod", serves).await?;
        Ok(())
    })
    .await?;
    Ok(())
}
