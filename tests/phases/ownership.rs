//! Objects of a child's name that are somebody else's.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::ResourceExt as _;
use kube::api::{DynamicObject, PostParams};
use lmcache_crds::Phase::Pending;
use lmcache_harness::{INSTANCE_LABEL, MANAGED_BY_LABEL, MANAGER, NAME_LABEL};
use lmcache_states::Reason;
use lmcache_states::conditions::{APPLIED, READY};
use serde_json::json;

use crate::children::{Child, controller};
use crate::common::project;
use crate::kind::Kind;
use crate::scene::{NAME, Scene, ensure_condition, play};
use crate::watch;

/// Somebody's own object of a child's name.
async fn create_foreign<K: Kind>(scene: &Scene<K>, child: Child) -> Result<DynamicObject> {
    let fixture = match child {
        Child::DaemonSet => "daemonset",
        Child::Deployment => "deployment",
        Child::Service => "service",
        Child::MetricsService => "metrics-service",
        Child::Connection => "connection",
        Child::Credentials => "credentials",
        Child::ServiceMonitor => "service-monitor",
        Child::NetworkPolicy => "network-policy",
    };
    let text = std::fs::read_to_string(project().join(format!("tests/fixtures/foreign/{fixture}.yaml")))?;
    let api = scene.objects(&child.resource());
    let created = api.create(&PostParams::default(), &serde_norway::from_str(&text)?).await?;
    // The controller of a workload writes the status until there is nothing to do.
    let settled = |it: &DynamicObject| match child {
        Child::DaemonSet => it.data["status"]["observedGeneration"] == 1,
        Child::Deployment => {
            let conditions = it.data["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|it| it["reason"] == "NewReplicaSetAvailable")
        }
        _ => true,
    };
    if settled(&created) {
        return Ok(created);
    }
    watch::object(&api, &child.name(), "a status", settled).await?;
    Ok(api.get(&child.name()).await?)
}

pub async fn never_touched<K: Kind>(child: Child) -> Result<()> {
    let recording = play::<K>("foreign", 1, async |scene| {
        let before = create_foreign(scene, child).await?;
        let resource = scene.apply("everything").await?;
        ensure_conflict(
            scene,
            child,
            ["it exists, and nobody controls it", "or hand it over with the annotation lmcache.ai/adopt=true"],
        )
        .await?;
        let children = scene.every_child().await?;
        let uid = resource.meta().uid.as_deref();
        for (_, object) in children.iter().filter(|it| *it.0 != child) {
            ensure!(controller(object) == uid, "{object:?}");
        }
        ensure!(children[&child] == before, "it was changed: {:?}", children[&child]);

        scene.harness.delete_and_wait_collected(NAME).await?;
        let after = scene.child(child).await?.context("it did not survive the deletion")?;
        ensure!(after == before, "it was changed: {after:?}");

        let resource = scene.apply("everything").await?;
        ensure_conflict(
            scene,
            child,
            ["it exists, and nobody controls it", "or hand it over with the annotation lmcache.ai/adopt=true"],
        )
        .await?;
        scene.meddle(child, &json!({"metadata": {"annotations": {"lmcache.ai/adopt": "true"}}})).await?;
        let since = Instant::now();
        scene.harness.patiently().wait_reconciled(NAME).await?;
        println!("{child:?}: taken {:?} after it was handed over", since.elapsed());
        scene.healed().await?;
        let adopted = scene.child(child).await?.context("it is there")?;
        ensure!(controller(&adopted) == resource.meta().uid.as_deref(), "it was not taken: {adopted:?}");
        ensure!(adopted.uid() == before.uid(), "it was replaced");
        ensure!(adopted.labels().get("team").is_some_and(|it| it == "storage"), "its label is gone: {adopted:?}");
        Ok(())
    });
    assert_eq!(recording.await?.lives().len(), 2);
    Ok(())
}

async fn ensure_conflict<K: Kind>(scene: &Scene<K>, child: Child, says: [&str; 2]) -> Result<()> {
    let resource = scene.phase(Pending, Reason::Conflict).await?;
    let object = format!("{} {}/{}", child.resource().kind, scene.namespace(), child.name());
    let says = [object.as_str(), says[0], says[1]];
    ensure_condition(&resource, APPLIED, "False", "Conflict", &says)?;
    ensure_condition(&resource, READY, "False", "Conflict", &says)?;
    scene.warned(Reason::Conflict, &object).await
}

pub async fn an_unowned_object_with_our_selector_labels_is_adopted<K: Kind>() -> Result<()> {
    play::<K>("unowned", 1, async |scene| {
        let labels = json!({NAME_LABEL: K::APPLICATION, INSTANCE_LABEL: NAME, MANAGED_BY_LABEL: MANAGER});
        let metadata = json!({"name": NAME, "labels": labels, "annotations": {"mine": "kept"}});
        let orphan = json!({"metadata": metadata, "spec": {"ports": [{"name": "own", "port": 80}]}});
        let orphan: Service = serde_json::from_value(orphan)?;
        let orphan = scene.api().create(&PostParams::default(), &orphan).await?;
        let resource = scene.ready_with("minimal").await?;
        let adopted = scene.child(Child::Service).await?.context("it is there")?;
        ensure!(adopted.uid() == orphan.uid(), "it was replaced");
        ensure!(controller(&adopted) == resource.meta().uid.as_deref(), "{adopted:?}");
        ensure!(adopted.annotations().get("mine").is_some_and(|it| it == "kept"), "{adopted:?}");
        let ports = adopted.data["spec"]["ports"].as_array().cloned().unwrap_or_default();
        ensure!(ports.iter().any(|it| it["port"] == K::PORT), "the port is missing: {ports:?}");
        Ok(())
    })
    .await?;
    Ok(())
}

pub async fn an_object_that_somebody_else_controls_is_not_taken_even_if_handed_over<K: Kind>() -> Result<()> {
    play::<K>("controlled", 1, async |scene| {
        let somebody: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "somebody"}}))?;
        let somebody = scene.api().create(&PostParams::default(), &somebody).await?;
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "somebody", "uid": somebody.uid(), "controller": true});
        let before = create_foreign(scene, Child::Service).await?;
        let handed_over = json!({"metadata": {"ownerReferences": [reference], "annotations": {"lmcache.ai/adopt": "true"}}});
        let handed_over_before = scene.meddle(Child::Service, &handed_over).await?;
        ensure!(before.uid() == handed_over_before.uid(), "the same object");
        scene.apply("minimal").await?;
        ensure_conflict(scene, Child::Service, ["it exists, and it is controlled by ConfigMap somebody", "; delete or rename it"]).await?;
        let after = scene.child(Child::Service).await?.context("it is there")?;
        ensure!(after == handed_over_before, "it was changed: {after:?}");
        Ok(())
    })
    .await?;
    Ok(())
}
