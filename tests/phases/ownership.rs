//! Objects of a child's name that are somebody else's.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, PostParams};
use lmcache_crds::Phase::Pending;
use lmcache_states::Reason;
use lmcache_states::conditions::{APPLIED, READY};
use serde_json::json;

use crate::children::{Child, controller};
use crate::common::project;
use crate::kind::EngineKind;
use crate::scene::{NAME, Scene, ensure_condition, play};
use crate::watch;

every_kind! {
    a_foreign_daemon_set_of_our_name_is_never_touched => never_touched(Child::DaemonSet, "daemonset"),
    a_foreign_service_of_our_name_is_never_touched => never_touched(Child::Service, "service"),
    a_foreign_metrics_service_of_our_name_is_never_touched => never_touched(Child::MetricsService, "metrics-service"),
    a_foreign_config_map_of_our_name_is_never_touched => never_touched(Child::Connection, "connection"),
    a_foreign_secret_of_our_name_is_never_touched => never_touched(Child::Credentials, "credentials"),
    a_foreign_service_monitor_of_our_name_is_never_touched => never_touched(Child::ServiceMonitor, "service-monitor"),
    a_foreign_network_policy_of_our_name_is_never_touched => never_touched(Child::NetworkPolicy, "network-policy"),
    an_unowned_object_with_our_selector_labels_is_adopted => unowned_with_our_labels(),
    an_object_that_somebody_else_controls_is_not_taken_even_if_handed_over => controlled_by_somebody_else(),
}

async fn create_foreign<K: EngineKind>(scene: &Scene<K>, child: Child, fixture: &str) -> Result<DynamicObject> {
    let text = std::fs::read_to_string(project().join(format!("tests/fixtures/foreign/{fixture}.yaml")))?;
    let api = scene.objects(&child.resource());
    let created = api.create(&PostParams::default(), &serde_norway::from_str(&text)?).await?;
    if child != Child::DaemonSet {
        return Ok(created);
    }
    // Its controller writes the status once.
    watch::object(&api, &child.name(), "a status", |it| it.data["status"]["observedGeneration"] == 1).await?;
    Ok(api.get(&child.name()).await?)
}

async fn never_touched<K: EngineKind>(child: Child, fixture: &str) -> Result<()> {
    let recording = play::<K>("foreign", 1, async |scene| {
        let before = create_foreign(scene, child, fixture).await?;
        let engine = scene.apply("everything").await?;
        ensure_conflict(
            scene,
            child,
            ["it exists, and nobody controls it", "or hand it over with the annotation lmcache.ai/adopt=true"],
        )
        .await?;
        let children = scene.children().await?;
        ensure!(children.len() == Child::ALL.len(), "not every other child was applied: {:?}", children.keys());
        let uid = engine.meta().uid.as_deref();
        for (_, object) in children.iter().filter(|it| *it.0 != child) {
            ensure!(controller(object) == uid, "{object:?}");
        }
        ensure!(children[&child] == before, "it was changed: {:?}", children[&child]);

        scene.harness.delete_and_wait_collected(NAME).await?;
        let after = scene.child(child).await?.context("it did not survive the engine's deletion")?;
        ensure!(after == before, "it was changed: {after:?}");

        let engine = scene.apply("everything").await?;
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
        ensure!(controller(&adopted) == engine.meta().uid.as_deref(), "it was not taken: {adopted:?}");
        ensure!(adopted.uid() == before.uid(), "it was replaced");
        ensure!(adopted.labels().get("team").is_some_and(|it| it == "storage"), "its label is gone: {adopted:?}");
        Ok(())
    });
    assert_eq!(recording.await?.lives().len(), 2);
    Ok(())
}

async fn ensure_conflict<K: EngineKind>(scene: &Scene<K>, child: Child, says: [&str; 2]) -> Result<()> {
    let engine = scene.phase(Pending, Reason::Conflict).await?;
    let object = format!("{} {}/{}", child.resource().kind, scene.namespace(), child.name());
    let says = [object.as_str(), says[0], says[1]];
    ensure_condition(&engine, APPLIED, "False", "Conflict", &says)?;
    ensure_condition(&engine, READY, "False", "Conflict", &says)?;
    scene.warned(Reason::Conflict, &object).await
}

async fn unowned_with_our_labels<K: EngineKind>() -> Result<()> {
    play::<K>("unowned", 1, async |scene| {
        let labels = json!({"app.kubernetes.io/name": "lmcache", "app.kubernetes.io/instance": NAME,
            "app.kubernetes.io/managed-by": "lmcache-operator"});
        let orphan =
            json!({"metadata": {"name": Child::Connection.name(), "labels": labels}, "data": {"mine": "kept"}});
        let orphan: ConfigMap = serde_json::from_value(orphan)?;
        let orphan = scene.api().create(&PostParams::default(), &orphan).await?;
        let engine = scene.ready_with("minimal").await?;
        let adopted = scene.child(Child::Connection).await?.context("it is there")?;
        ensure!(adopted.uid() == orphan.uid(), "it was replaced");
        ensure!(controller(&adopted) == engine.meta().uid.as_deref(), "{adopted:?}");
        ensure!(adopted.data["data"]["mine"] == "kept", "{adopted:?}");
        scene.harness.connection_config(NAME).await?;
        Ok(())
    })
    .await?;
    Ok(())
}

async fn controlled_by_somebody_else<K: EngineKind>() -> Result<()> {
    play::<K>("controlled", 1, async |scene| {
        let somebody: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "somebody"}}))?;
        let somebody = scene.api().create(&PostParams::default(), &somebody).await?;
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "somebody", "uid": somebody.uid(), "controller": true});
        let before = create_foreign(scene, Child::Service, "service").await?;
        let handed_over = json!({"metadata": {"ownerReferences": [reference], "annotations": {"lmcache.ai/adopt": "true"}}});
        let before_the_engine = scene.meddle(Child::Service, &handed_over).await?;
        ensure!(before.uid() == before_the_engine.uid(), "the same object");
        scene.apply("minimal").await?;
        ensure_conflict(scene, Child::Service, ["it exists, and it is controlled by ConfigMap somebody", "; delete or rename it"]).await?;
        let after = scene.child(Child::Service).await?.context("it is there")?;
        ensure!(after == before_the_engine, "it was changed: {after:?}");
        Ok(())
    })
    .await?;
    Ok(())
}
