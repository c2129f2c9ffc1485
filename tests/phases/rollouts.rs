//! From one generation to the next.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use lmcache_crds::Phase::{Degraded, Pending, Ready, Reconciled, Rolling};
use lmcache_crds::{Phase, Report};
use lmcache_states::Reason;
use lmcache_states::conditions::{ALL_INSTANCES_READY, AVAILABLE, STALLED};
use lmcache_testbed::annotation::{FAIL, HOLD, READY_AFTER};
use serde_json::json;

use crate::kind::Kind;
use crate::scene::{
    NAME, Scene, assert_available_since_ready, assert_path, ensure_condition, ensure_message, play, ready_of,
};

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|it| it.containers[0].image.as_deref()).unwrap_or_default()
}

/// Demands that no pod is one of those before.
fn ensure_replaced(old: &BTreeMap<String, Pod>, new: &BTreeMap<String, Pod>) -> Result<()> {
    let uids = |pods: &BTreeMap<String, Pod>| pods.values().map(ResourceExt::uid).collect::<BTreeSet<_>>();
    ensure!(!new.is_empty() && uids(old).is_disjoint(&uids(new)), "{:?} are still there: {:?}", uids(old), uids(new));
    Ok(())
}

pub async fn a_rolling_update_of_three_is_never_ready_in_between_and_stays_available<K: Kind>() -> Result<()> {
    let recording = play::<K>("rolling", 3, async |scene| {
        scene.ready_with("minimal").await?;
        let old = scene.pods().await?;
        scene.change(json!({"image": {"tag": "v2"}})).await?;
        let resource = scene.harness.wait_ready(NAME).await?;
        let new = scene.pods().await?;
        ensure_replaced(&old, &new)?;
        ensure!(new.len() == 3 && new.values().all(|it| image(it).ends_with(":v2")), "{new:?}");
        let endpoints = resource.report().endpoints;
        ensure!(endpoints.len() == 3, "{endpoints:?}");
        ensure!(endpoints.iter().all(|it| it.pod_name == new[K::location(it)].name_any()), "{endpoints:?}");
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

pub async fn a_spec_changed_in_mid_rollout_ends_ready_at_the_last_generation<K: Kind>() -> Result<()> {
    let recording = play::<K>("twice", 3, async |scene| {
        scene.ready_with("minimal").await?;
        scene.change(json!({"image": {"tag": "v2"}, "podAnnotations": {HOLD: "true"}})).await?;
        let rolling = scene.phase(Rolling, Reason::RollingUpdate).await?;
        ensure_message(&rolling, &[&format!("/3 {} updated", K::WORDING.plural()), "waiting for"])?;
        scene.change(json!({"image": {"tag": "v3"}, "podAnnotations": {HOLD: null}})).await?;
        scene.harness.wait_ready(NAME).await?;
        let pods = scene.pods().await?;
        ensure!(pods.len() == 3 && pods.values().all(|it| image(it).ends_with(":v3")), "{pods:?}");
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

pub async fn an_update_that_fails_keeps_what_serves_and_heals<K: Kind>() -> Result<()> {
    let recording = play::<K>("bad-image", 3, async |scene| {
        scene.ready_with("minimal").await?;
        scene.change(json!({"image": {"tag": "absent"}, "podAnnotations": {FAIL: "ImagePullBackOff"}})).await?;
        let resource = scene.degraded(Reason::ImagePullFailed).await?;
        let kept = ready_of::<K>(K::KEPT_OF_THREE, 3);
        ensure_condition(&resource, AVAILABLE, "True", "AtLeastOneReady", &[&kept])?;
        let Report { record, endpoints, .. } = resource.report();
        ensure!(!record.conditions.iter().any(|it| it.type_ == STALLED), "another tag heals it");
        let sick = endpoints.iter().find(|it| !it.ready).context("one is not ready")?;
        let trouble = format!("container {}: ImagePullBackOff", K::CONTAINER);
        ensure_message(&resource, &[K::location(sick), &trouble, ":absent"])?;
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
async fn restart<K: Kind>(scene: &Scene<K>) -> Result<K> {
    let (before, old) = (scene.harness.get(NAME).await?, scene.pods().await?);
    let restart = ["rollout", "restart", &K::workload(), "-n", scene.namespace()];
    scene.cluster().await.kubectl(&restart).await?;
    let resource = scene.ready_again(&before).await?;
    ensure_replaced(&old, &scene.pods().await?)?;
    Ok(resource)
}

pub async fn a_restart_of_the_only_instance_is_a_rolling_update<K: Kind>() -> Result<()> {
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

pub async fn foreign_labels_annotations_and_rollout_restart_survive<K: Kind>() -> Result<()> {
    let recording = play::<K>("restart", 3, async |scene| {
        scene.ready_with("slow-to-end").await?;
        let note = json!({"metadata": {"labels": {"team": "storage"}, "annotations": {"example.com/note": "mine"}}});
        for child in K::ALWAYS {
            scene.meddle(*child, &note).await?;
        }
        let resource = restart(scene).await?;
        // A change of the operator's own leaves them too.
        scene.change(json!({"image": {"tag": "v2"}, "podAnnotations": {READY_AFTER: "200ms"}})).await?;
        scene.ready_again(&resource).await?;
        for (child, object) in scene.children().await? {
            let mine = (object.labels().get("team"), object.annotations().get("example.com/note"));
            ensure!(mine == (Some(&"storage".to_owned()), Some(&"mine".to_owned())), "{child:?} lost them: {mine:?}");
        }
        let workload = scene.child(K::WORKLOAD).await?.context("the workload is there")?;
        let notes = &workload.data["spec"]["template"]["metadata"]["annotations"];
        ensure!(notes["kubectl.kubernetes.io/restartedAt"].is_string(), "the restart is gone: {notes}");
        Ok(())
    });
    let recording = recording.await?;
    assert_available_since_ready(&recording);
    assert!(!recording.phases().contains(&Degraded), "a restart is no loss\n{}", recording.timeline());
    Ok(())
}

/// How often the pod template changes.
const ROLLOUTS: usize = 20;

pub async fn twenty_rollouts_never_claim_ready_too_early<K: Kind>() -> Result<()> {
    let recording = play::<K>("honesty", 2, async |scene| {
        scene.ready_with("minimal").await?;
        for rollout in 1..=ROLLOUTS {
            // Instances that take a moment to get ready, so that claiming too early is possible at all.
            let env = json!([{"name": "ROLLOUT", "value": rollout.to_string()}]);
            scene.change(json!({"env": env, "podAnnotations": {READY_AFTER: "100ms"}})).await?;
            scene.harness.wait_ready(NAME).await?;
        }
        Ok(())
    });
    let recording = recording.await?;
    assert_eq!(recording.unverified(), 0, "{}", recording.timeline());
    let lives = recording.lives();
    let claims = lives.iter().flatten().filter(|it| it.record.phase == Phase::Ready);
    let ready: BTreeSet<_> = claims.filter_map(|it| it.record.observed_generation).collect();
    assert_eq!(ready.len(), ROLLOUTS + 1, "generations that were Ready: {ready:?}\n{}", recording.timeline());
    Ok(())
}
