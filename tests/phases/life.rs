//! From creation to Ready.

use anyhow::{Result, ensure};
use k8s_openapi::api::events::v1::Event;

use lmcache_crds::Phase::{Pending, Ready, Reconciled, Rolling};
use lmcache_crds::{Phase, PhaseTransition};
use lmcache_harness::Recording;
use lmcache_states::Reason;
use lmcache_states::conditions::{
    ALL_INSTANCES_READY, APPLIED, AVAILABLE, CONFIG_VALID, DEPENDENCIES_READY, READY, RECONCILING, STALLED,
};
use serde_json::json;

use crate::children::{Child, controller};
use crate::kind::EngineKind;
use crate::scene::{NAME, Scene, assert_path, ensure_condition, play};

every_kind! {
    a_new_engine_walks_pending_reconciled_rolling_ready,
    waits_reconciled_while_no_node_matches_and_gets_ready_when_one_joins,
    a_change_that_alters_no_child_still_moves_observed_generation,
}

async fn a_new_engine_walks_pending_reconciled_rolling_ready<K: EngineKind>() -> Result<()> {
    let mut events = Vec::new();
    let recording = play::<K>("walk", 2, async |scene| {
        let engine = scene.ready_with("minimal").await?;
        ensure_settled(&engine, "2/2 instances ready")?;
        ensure_endpoints(scene, &engine)?;
        ensure_children(scene, &engine).await?;
        let get = ["get", &K::plural(&()), "-n", scene.namespace(), "--no-headers"];
        let columns = scene.cluster().await.kubectl(&get).await?;
        let columns: Vec<_> = columns.split_whitespace().collect();
        ensure!(columns[0].ends_with(NAME) && columns[1..4] == ["Ready", "2", "2"], "kubectl shows {columns:?}");
        ensure!(columns[5] == Reason::AllInstancesReady.as_str(), "kubectl shows {columns:?}");
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

/// Everything that a Ready engine says.
fn ensure_settled<K: EngineKind>(engine: &K, counts: &str) -> Result<()> {
    ensure_condition(engine, CONFIG_VALID, "True", "Valid", &["Spec validation passed"])?;
    ensure_condition(engine, DEPENDENCIES_READY, "True", "AllFound", &[])?;
    ensure_condition(engine, APPLIED, "True", "AllApplied", &["generation 1"])?;
    ensure_condition(engine, AVAILABLE, "True", "AtLeastOneReady", &[counts])?;
    ensure_condition(engine, ALL_INSTANCES_READY, "True", "AllReady", &[counts])?;
    ensure_condition(engine, READY, "True", "AllInstancesReady", &[counts])?;
    let status = engine.engine_status();
    let conditions = status.record.conditions;
    ensure!(!conditions.iter().any(|it| [RECONCILING, STALLED].contains(&it.type_.as_str())), "{conditions:?}");
    ensure!(conditions.iter().all(|it| it.observed_generation == Some(1)), "{conditions:?}");
    let counted =
        (status.desired_instances, status.updated_instances, status.ready_instances, status.available_instances);
    ensure!(counted == (2, 2, 2, 2), "desired, updated, ready, available: {counted:?}");
    Ok(())
}

/// One endpoint a node, sorted.
fn ensure_endpoints<K: EngineKind>(scene: &Scene<K>, engine: &K) -> Result<()> {
    let endpoints = engine.engine_status().endpoints;
    let nodes: Vec<_> = endpoints.iter().map(|it| it.node_name.clone()).collect();
    ensure!(nodes == scene.nodes(), "{endpoints:?}");
    let good =
        endpoints.iter().all(|it| it.ready && it.port == 5555 && it.metrics_port == 9090 && !it.host_ip.is_empty());
    ensure!(good, "{endpoints:?}");
    Ok(())
}

/// What every engine has is there, is the engine's, and tells vLLM how to connect.
async fn ensure_children<K: EngineKind>(scene: &Scene<K>, engine: &K) -> Result<()> {
    let children = scene.children().await?;
    let found: Vec<_> = children.keys().copied().collect();
    ensure!(found == Child::ALWAYS, "{found:?}");
    for (child, object) in &children {
        ensure!(controller(object) == engine.meta().uid.as_deref(), "{child:?} is not owned by the engine: {object:?}");
    }
    let connection = scene.harness.connection_config(NAME).await?;
    ensure!(connection["kv_role"].is_string() && connection["kv_connector"].is_string(), "{connection}");
    Ok(())
}

/// The API server itself shows a new engine as Pending.
fn assert_pending_before_any_write<K: EngineKind>(recording: &Recording<K>) {
    let first = recording.objects.seen.first().unwrap();
    let status = first.object.engine_status();
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

async fn waits_reconciled_while_no_node_matches_and_gets_ready_when_one_joins<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("nowhere", 0, async |scene| {
        scene.apply("minimal").await?;
        let engine = scene.phase(Reconciled, Reason::NoMatchingNodes).await?;
        ensure_condition(&engine, READY, "False", "NoMatchingNodes", &["no node matches", "spec.nodeSelector"])?;
        ensure_condition(&engine, AVAILABLE, "False", "NoReadyInstances", &["0/0"])?;
        ensure_condition(&engine, APPLIED, "True", "AllApplied", &[])?;
        scene.add_node().await?;
        let engine = scene.harness.wait_ready(NAME).await?;
        ensure_endpoints(scene, &engine)
    });
    assert_path(&recording.await?, &[Pending, Reconciled, Rolling, Ready]);
    Ok(())
}

async fn a_change_that_alters_no_child_still_moves_observed_generation<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("no-child", 1, async |scene| {
        scene.ready_with("minimal").await?;
        let (children, pods) = (scene.children().await?, scene.pods().await?);
        let changed =
            scene.change(json!({"progressDeadlineSeconds": 900, "injection": {"targetContainer": "vllm"}})).await?;
        ensure!(changed.meta().generation == Some(2), "{:?}", changed.meta());
        let engine = scene.harness.wait_ready(NAME).await?;
        ensure!(engine.record().is_some_and(|it| it.observed_generation == Some(2)), "{:?}", engine.record());
        ensure!(scene.children().await? == children, "a child was written");
        ensure!(scene.pods().await? == pods, "a pod was touched");
        Ok(())
    });
    let recording = recording.await?;
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready, Reconciled, Ready]);
    assert_eq!(recording.steps().last().unwrap().generation, 2, "{}", recording.timeline());
    Ok(())
}
