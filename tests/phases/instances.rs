//! Nodes that join and leave, instances that are lost.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use lmcache_crds::Phase::{Degraded, Pending, Ready, Reconciled, Rolling};
use lmcache_harness::{Judgement, Recording};
use lmcache_states::Reason;
use lmcache_states::conditions::{AVAILABLE, STALLED};
use lmcache_testbed::annotation::{HOLD, LOSE};

use crate::kind::{EngineKind, Kind};
use crate::scene::{
    NAME, assert_available_since_ready, assert_path, ensure_condition, ensure_message, none_ready, play, ready_of,
};

pub async fn a_joining_node_is_rolling_and_not_degraded<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("joining", 1, async |scene| {
        scene.apply("held").await?;
        scene.release(HOLD).await?;
        scene.harness.wait_ready(NAME).await?;
        let new = scene.add_node().await?;
        let engine = scene.phase(Rolling, Reason::NodesJoining).await?;
        ensure_message(&engine, &[&new])?;
        scene.release(HOLD).await?;
        scene.ready_again(&engine).await?;
        Ok(())
    });
    let recording = recording.await?;
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready, Rolling, Ready]);
    assert_available_since_ready(&recording);
    Ok(())
}

/// Once Ready, once Degraded, Ready again; by way of Rolling when the pods are seen before the counts of their workload.
#[track_caller]
fn assert_lost_and_healed<K: Kind>(recording: &Recording<K>) {
    let mut phases = recording.phases();
    if phases.ends_with(&[Degraded, Rolling, Ready]) {
        let returning = &recording.steps()[phases.len() - 3];
        assert_eq!(returning.reason, Reason::InstancesReturning.as_str(), "{}", recording.timeline());
        phases.remove(phases.len() - 2);
    }
    assert_eq!(phases, [Pending, Reconciled, Rolling, Ready, Degraded, Ready], "{}", recording.timeline());
}

pub async fn an_instance_that_is_no_longer_ready_is_degraded_and_named_and_heals<K: Kind>() -> Result<()> {
    let recording = play::<K>("lost", 2, async |scene| {
        scene.ready_with("minimal").await?;
        let (name, pod) = scene.pods().await?.pop_last().context("the second")?;
        scene.annotate(&pod, LOSE, Some("true")).await?;
        let resource = scene.degraded(Reason::InstanceLost).await?;
        let lost = format!("1 {} had been ready and is not", K::WORDING.singular());
        ensure_message(&resource, &[&lost, &name])?;
        let counts = &*ready_of::<K>(1, 2);
        let counted = |resource: &K| Judgement::from(resource.report().ready == 1);
        let resource = scene.harness.patiently().wait(NAME, "one ready instance", counted).await?;
        ensure_condition(&resource, AVAILABLE, "True", "AtLeastOneReady", &[counts])?;
        ensure_condition(&resource, "AllInstancesReady", "False", "NotAllReady", &[counts])?;
        let status = resource.report();
        ensure!(!status.record.conditions.iter().any(|it| it.type_ == STALLED), "it may come back by itself");
        let lost: Vec<_> = status.endpoints.iter().map(|it| (it.ready, it.lost_since.is_some())).collect();
        ensure!(lost == [(true, false), (false, true)], "{:?}", status.endpoints);
        scene.warned(Reason::InstanceLost, &name).await?;
        scene.release(LOSE).await?;
        scene.healed().await?;
        Ok(())
    });
    let recording = recording.await?;
    assert_lost_and_healed(&recording);
    assert_available_since_ready(&recording);
    Ok(())
}

pub async fn a_deleted_pod_is_a_lost_instance_until_its_successor_serves<K: Kind>() -> Result<()> {
    let recording = play::<K>("deleted", 1, async |scene| {
        scene.apply("held").await?;
        scene.release(HOLD).await?;
        scene.harness.wait_ready(NAME).await?;
        let old = scene.pods().await?.pop_first().context("the only one")?.1;
        scene.api::<Pod>().delete(&old.name_any(), &DeleteParams::default()).await?;
        let resource = scene.degraded(Reason::InstanceLost).await?;
        let successor = scene.pod("a successor", |pod| pod.uid() != old.uid()).await?;
        ensure_message(&resource, &[&K::location_of_pod(&successor)])?;
        // The counts are those of the workload's controller, which may report later than the pods change.
        let resource = scene.harness.patiently().wait_condition(NAME, AVAILABLE, "False").await?;
        ensure_condition(&resource, AVAILABLE, "False", none_ready::<K>(), &["0/1"])?;
        scene.release(HOLD).await?;
        scene.healed().await?;
        Ok(())
    });
    assert_lost_and_healed(&recording.await?);
    Ok(())
}

pub async fn a_node_that_leaves_is_no_loss<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("leaving", 2, async |scene| {
        scene.ready_with("minimal").await?;
        let [first, second] = &scene.nodes()[..] else { unreachable!("two nodes") };
        scene.remove_node(second).await?;
        let one = |engine: &K| Judgement::from(engine.report().desired == 1);
        let engine = scene.harness.wait(NAME, "one instance", one).await?;
        ensure_condition(&engine, AVAILABLE, "True", "AtLeastOneReady", &["1/1 instances ready"])?;
        let nodes: Vec<_> = engine.report().endpoints.into_iter().map(|it| it.node_name).collect();
        ensure!(nodes == [first.clone()], "{nodes:?}");
        scene.remove_node(first).await?;
        let engine = scene.phase(Reconciled, Reason::NoMatchingNodes).await?;
        ensure_condition(&engine, AVAILABLE, "False", "NoReadyInstances", &["0/0"])?;
        ensure!(engine.report().endpoints.is_empty(), "{:?}", engine.report().endpoints);
        Ok(())
    });
    assert_path(&recording.await?, &[Pending, Reconciled, Rolling, Ready, Reconciled]);
    Ok(())
}

pub async fn one_node_of_two_that_does_not_report_is_named_while_the_other_serves<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("silent", 2, async |scene| {
        scene.ready_with("minimal").await?;
        let node = &scene.nodes()[0];
        scene.cluster().await.set_node_ready(node, false).await?;
        let engine = scene.degraded(Reason::NodeNotReady).await?;
        ensure_message(&engine, &[node, "the node is not ready"])?;
        ensure_condition(&engine, AVAILABLE, "True", "AtLeastOneReady", &[])?;
        scene.cluster().await.set_node_ready(node, true).await?;
        scene.healed().await?;
        Ok(())
    });
    let recording = recording.await?;
    assert_available_since_ready(&recording);
    Ok(())
}
