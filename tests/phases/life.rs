//! From creation to Ready.

use anyhow::{Result, ensure};
use k8s_openapi::api::events::v1::Event;

use lmcache_crds::Phase::{Pending, Ready, Reconciled, Rolling};
use lmcache_crds::{Endpoint, Phase, PhaseTransition};
use lmcache_harness::Recording;
use lmcache_states::Reason;
use lmcache_states::conditions::{
    ALL_INSTANCES_READY, APPLIED, AVAILABLE, CONFIG_VALID, DEPENDENCIES_READY, READY, RECONCILING, STALLED,
};

use crate::children::{Child, controller};
use crate::kind::{EngineKind, Kind};
use crate::scene::{NAME, Scene, assert_path, ensure_condition, play, ready_of};

pub async fn a_new_resource_walks_pending_reconciled_rolling_ready<K: Kind>() -> Result<()> {
    let mut events = Vec::new();
    let recording = play::<K>("walk", 2, async |scene| {
        let resource = scene.ready_with("minimal").await?;
        ensure_settled(&resource)?;
        ensure_endpoints(scene, &resource).await?;
        ensure_children(scene, &resource).await?;
        let get = ["get", &K::plural(&()), "-n", scene.namespace(), "--no-headers"];
        let columns = scene.cluster().await.kubectl(&get).await?;
        let columns: Vec<_> = columns.split_whitespace().collect();
        ensure!(columns[0].ends_with(NAME) && columns[1..4] == ["Ready", "2", "2"], "kubectl shows {columns:?}");
        ensure!(columns.last() == Some(&Reason::AllInstancesReady.as_str()), "kubectl shows {columns:?}");
        if let Some(endpoint) = resource.report().endpoint {
            ensure!(columns[4] == endpoint, "kubectl shows {columns:?}");
        }
        events = scene.events("an Event for each of three steps", |events| events.len() >= 3).await?;
        Ok(())
    });
    let recording = recording.await?;
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready]);
    let reasons: Vec<_> = recording.steps().into_iter().map(|step| step.reason).collect();
    assert_eq!(reasons, ["SpecApplied", "InstancesStarting", "AllInstancesReady"], "{}", recording.timeline());
    assert_pending_before_any_write(&recording);
    assert_each_told_once(&recording.steps(), &events);
    Ok(())
}

/// Everything that a Ready resource says.
fn ensure_settled<K: Kind>(resource: &K) -> Result<()> {
    let counts = &*ready_of::<K>(2, 2);
    ensure_condition(resource, CONFIG_VALID, "True", "Valid", &["Spec validation passed"])?;
    ensure_condition(resource, DEPENDENCIES_READY, "True", "AllFound", &[])?;
    ensure_condition(resource, APPLIED, "True", "AllApplied", &["generation 1"])?;
    ensure_condition(resource, AVAILABLE, "True", "AtLeastOneReady", &[counts])?;
    ensure_condition(resource, ALL_INSTANCES_READY, "True", "AllReady", &[counts])?;
    ensure_condition(resource, READY, "True", "AllInstancesReady", &[counts])?;
    let status = resource.report();
    let conditions = status.record.conditions;
    ensure!(!conditions.iter().any(|it| [RECONCILING, STALLED].contains(&it.type_.as_str())), "{conditions:?}");
    ensure!(conditions.iter().all(|it| it.observed_generation == Some(1)), "{conditions:?}");
    let counted = (status.desired, status.updated, status.ready, status.available);
    ensure!(counted == (2, 2, 2, 2), "desired, updated, ready, available: {counted:?}");
    Ok(())
}

/// One endpoint an instance, sorted.
async fn ensure_endpoints<K: Kind>(scene: &Scene<K>, resource: &K) -> Result<()> {
    let report = resource.report();
    let (endpoints, pods) = (report.endpoints, scene.pods().await?);
    let listed: Vec<_> = endpoints.iter().map(K::location).collect();
    ensure!(listed == pods.keys().collect::<Vec<_>>(), "{endpoints:?}\n{:?}", pods.keys());
    ensure!(listed.len() == usize::try_from(report.desired)?, "{endpoints:?}");
    let good = |it: &Endpoint| it.ready && (it.port, it.metrics_port) == (K::PORT, 9090) && !it.host_ip.is_empty();
    ensure!(endpoints.iter().all(good), "{endpoints:?}");
    Ok(())
}

/// What every resource of the kind has is there, is the resource's, and tells others how to connect.
async fn ensure_children<K: Kind>(scene: &Scene<K>, resource: &K) -> Result<()> {
    let children = scene.children().await?;
    let found: Vec<_> = children.keys().copied().collect();
    ensure!(found == K::ALWAYS, "{found:?}");
    for (child, object) in &children {
        ensure!(controller(object) == resource.meta().uid.as_deref(), "{child:?} is somebody else's: {object:?}");
    }
    if let Some(endpoint) = resource.report().endpoint {
        ensure!(endpoint == format!("http://{NAME}.{}.svc:{}", scene.namespace(), K::PORT), "{endpoint}");
    }
    if children.contains_key(&Child::Connection) {
        let connection = scene.harness.connection_config(NAME).await?;
        ensure!(connection["kv_role"].is_string() && connection["kv_connector"].is_string(), "{connection}");
    }
    Ok(())
}

/// The API server itself shows a new resource as Pending.
fn assert_pending_before_any_write<K: Kind>(recording: &Recording<K>) {
    let first = recording.objects.seen.first().unwrap();
    let status = first.object.report();
    assert_eq!(first.object.meta().generation, Some(1));
    assert_eq!(serde_json::to_value(&first.object).unwrap()["status"]["phase"], "Pending", "{}", recording.timeline());
    assert_eq!((status.record.observed_generation, status.record.phase), (None, Phase::Pending));
}

fn assert_each_told_once(steps: &[PhaseTransition], events: &[Event]) {
    let mut told: Vec<_> = events.iter().map(|it| (it.reason.clone().unwrap(), it.note.clone().unwrap())).collect();
    let note = |it: &PhaseTransition| format!("{} to {}: {}", it.from, it.to, it.message);
    let mut expected: Vec<_> = steps.iter().map(|it| (it.reason.clone(), note(it))).collect();
    told.sort();
    expected.sort();
    assert_eq!(told, expected);
    let by = |it: &Event| it.type_.as_deref() == Some("Normal") && it.reporting_controller.is_some();
    assert!(events.iter().all(by), "{events:?}");
}

pub async fn waits_reconciled_while_no_node_matches_and_gets_ready_when_one_joins<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("nowhere", 0, async |scene| {
        scene.apply("minimal").await?;
        let engine = scene.phase(Reconciled, Reason::NoMatchingNodes).await?;
        ensure_condition(&engine, READY, "False", "NoMatchingNodes", &["no node matches", "spec.nodeSelector"])?;
        ensure_condition(&engine, AVAILABLE, "False", "NoReadyInstances", &["0/0"])?;
        ensure_condition(&engine, APPLIED, "True", "AllApplied", &[])?;
        scene.add_node().await?;
        let engine = scene.harness.wait_ready(NAME).await?;
        ensure_endpoints(scene, &engine).await
    });
    assert_path(&recording.await?, &[Pending, Reconciled, Rolling, Ready]);
    Ok(())
}

pub async fn a_change_that_alters_no_child_still_moves_observed_generation<K: Kind>() -> Result<()> {
    let recording = play::<K>("no-child", 1, async |scene| {
        scene.ready_with("minimal").await?;
        let (children, pods) = (scene.children().await?, scene.pods().await?);
        let changed = scene.change(K::alters_no_child()).await?;
        ensure!(changed.meta().generation == Some(2), "{:?}", changed.meta());
        let resource = scene.harness.wait_ready(NAME).await?;
        ensure!(resource.record().is_some_and(|it| it.observed_generation == Some(2)), "{:?}", resource.record());
        ensure!(scene.children().await? == children, "a child was written");
        ensure!(scene.pods().await? == pods, "a pod was touched");
        Ok(())
    });
    let recording = recording.await?;
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready, Reconciled, Ready]);
    assert_eq!(recording.steps().last().unwrap().generation, 2, "{}", recording.timeline());
    Ok(())
}
