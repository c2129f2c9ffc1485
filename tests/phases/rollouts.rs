//! From one generation to the next.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::ResourceExt as _;
use lmcache_crds::Phase::{Degraded, Pending, Ready, Reconciled, Rolling};
use lmcache_states::Reason;
use lmcache_states::conditions::{ALL_INSTANCES_READY, AVAILABLE, STALLED};
use lmcache_testbed::annotation::{FAIL, HOLD, READY_AFTER};
use serde_json::json;

use crate::children::Child;
use crate::kind::EngineKind;
use crate::scene::{NAME, Scene, assert_available_since_ready, assert_path, ensure_condition, ensure_message, play};
use crate::watch;

every_kind! {
    a_rolling_update_over_three_nodes_is_never_ready_in_between_and_stays_available,
    a_spec_changed_in_mid_rollout_ends_ready_at_the_last_generation,
    an_update_that_fails_keeps_what_serves_and_heals,
    foreign_labels_annotations_and_rollout_restart_survive,
    a_restart_of_the_only_instance_is_a_rolling_update,
}

async fn a_rolling_update_over_three_nodes_is_never_ready_in_between_and_stays_available<K: EngineKind>() -> Result<()>
{
    let recording = play::<K>("rolling", 3, async |scene| {
        scene.ready_with("minimal").await?;
        let old = scene.pods().await?;
        scene.change(json!({"image": {"tag": "v2"}})).await?;
        let engine = scene.harness.wait_ready(NAME).await?;
        let new = scene.pods().await?;
        for (node, pod) in &new {
            let image = pod.spec.as_ref().and_then(|it| it.containers[0].image.clone()).unwrap_or_default();
            ensure!(pod.uid() != old[node].uid() && image.ends_with(":v2"), "{node} still runs {image}");
        }
        let endpoints = engine.engine_status().endpoints;
        ensure!(endpoints.iter().all(|it| it.pod_name == new[&it.node_name].name_any()), "{endpoints:?}");
        Ok(())
    });
    let recording = recording.await?;
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready, Reconciled, Rolling, Ready]);
    assert_available_since_ready(&recording);
    let rolling = &recording.steps()[4];
    assert_eq!(rolling.reason, Reason::RollingUpdate.as_str(), "{}", recording.timeline());
    for status in recording.lives().iter().flatten().filter(|it| it.record.phase == Rolling) {
        let all = status.record.conditions.iter().find(|it| it.type_ == ALL_INSTANCES_READY).unwrap();
        assert_eq!(all.status, "False", "status {}\n{}", status.version, recording.timeline());
    }
    Ok(())
}

async fn a_spec_changed_in_mid_rollout_ends_ready_at_the_last_generation<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("twice", 3, async |scene| {
        scene.ready_with("minimal").await?;
        scene.change(json!({"image": {"tag": "v2"}, "podAnnotations": {HOLD: "true"}})).await?;
        let rolling = scene.phase(Rolling, Reason::RollingUpdate).await?;
        ensure_message(&rolling, &["/3 instances updated", "waiting for"])?;
        scene.change(json!({"image": {"tag": "v3"}, "podAnnotations": {HOLD: null}})).await?;
        scene.harness.wait_ready(NAME).await?;
        for (node, pod) in scene.pods().await? {
            let image = pod.spec.and_then(|it| it.containers[0].image.clone()).unwrap_or_default();
            ensure!(image.ends_with(":v3"), "{node} still runs {image}");
        }
        Ok(())
    });
    let recording = recording.await?;
    let expected = [Pending, Reconciled, Rolling, Ready, Reconciled, Rolling, Reconciled, Rolling, Ready];
    assert_path(&recording, &expected);
    assert_available_since_ready(&recording);
    let generations: Vec<_> = recording.steps().iter().map(|it| it.generation).collect();
    assert_eq!(generations, [1, 1, 1, 2, 2, 3, 3, 3], "{}", recording.timeline());
    Ok(())
}

async fn an_update_that_fails_keeps_what_serves_and_heals<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("bad-image", 3, async |scene| {
        scene.ready_with("minimal").await?;
        scene.change(json!({"image": {"tag": "absent"}, "podAnnotations": {FAIL: "ImagePullBackOff"}})).await?;
        let engine = scene.degraded(Reason::ImagePullFailed).await?;
        ensure_condition(&engine, AVAILABLE, "True", "AtLeastOneReady", &["2/3 instances ready"])?;
        ensure!(!engine.engine_status().record.conditions.iter().any(|it| it.type_ == STALLED), "another tag heals it");
        let sick = engine.engine_status().endpoints.into_iter().find(|it| !it.ready).context("one is not ready")?;
        ensure_message(&engine, &[&sick.node_name, "container lmcache: ImagePullBackOff", ":absent"])?;
        scene.change(json!({"image": {"tag": "v3"}, "podAnnotations": {FAIL: null}})).await?;
        scene.healed().await?;
        Ok(())
    });
    let recording = recording.await?;
    assert_available_since_ready(&recording);
    assert!(recording.phases().contains(&Degraded), "{}", recording.timeline());
    Ok(())
}

/// Restarts the pods as a person would.
async fn restart<K: EngineKind>(scene: &Scene<K>) -> Result<K> {
    let (before, old) = (scene.harness.get(NAME).await?, scene.pods().await?);
    let restart = ["rollout", "restart", "daemonset/cache", "-n", scene.namespace()];
    scene.cluster().await.kubectl(&restart).await?;
    let engine = scene.ready_again(&before).await?;
    let new = scene.pods().await?;
    ensure!(new.iter().all(|(node, pod)| pod.uid() != old[node].uid()), "a pod was not restarted");
    Ok(engine)
}

async fn a_restart_of_the_only_instance_is_a_rolling_update<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("alone", 1, async |scene| {
        scene.ready_with("slow-to-end").await?;
        restart(scene).await?;
        Ok(())
    });
    let recording = recording.await?;
    assert!(!recording.phases().contains(&Degraded), "a restart is no loss\n{}", recording.timeline());
    let rolling = recording.steps().into_iter().rev().find(|it| it.to == Rolling).unwrap();
    assert_eq!(rolling.reason, Reason::RollingUpdate.as_str(), "{}", recording.timeline());
    Ok(())
}

async fn foreign_labels_annotations_and_rollout_restart_survive<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("restart", 3, async |scene| {
        scene.ready_with("slow-to-end").await?;
        let note = json!({"metadata": {"labels": {"team": "storage"}, "annotations": {"example.com/note": "mine"}}});
        for child in Child::ALWAYS {
            scene.meddle(child, &note).await?;
        }
        let engine = restart(scene).await?;
        // A change of the operator's own leaves them too.
        scene.change(json!({"image": {"tag": "v2"}, "podAnnotations": {READY_AFTER: "200ms"}})).await?;
        scene.ready_again(&engine).await?;
        for (child, object) in scene.children().await? {
            let mine = (object.labels().get("team"), object.annotations().get("example.com/note"));
            ensure!(mine == (Some(&"storage".to_owned()), Some(&"mine".to_owned())), "{child:?} lost them: {mine:?}");
        }
        let set = watch::object(&scene.api::<DaemonSet>(), NAME, "the DaemonSet", |_| true).await?;
        let template = set.spec.context("spec")?.template.metadata.context("metadata")?;
        ensure!(
            template.annotations.is_some_and(|it| it.contains_key("kubectl.kubernetes.io/restartedAt")),
            "the restart is gone"
        );
        Ok(())
    });
    let recording = recording.await?;
    assert_available_since_ready(&recording);
    assert!(!recording.phases().contains(&Degraded), "a restart is no loss\n{}", recording.timeline());
    Ok(())
}
