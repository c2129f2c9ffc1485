//! What only a coordinator does: its spec says how many replicas run.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use lmcache_crds::LMCacheCoordinator;
use lmcache_crds::Phase::{Degraded, Pending, Ready, Reconciled, Rolling};
use lmcache_states::Reason;
use lmcache_states::conditions::{AVAILABLE, READY, RECONCILING, STALLED};
use lmcache_testbed::annotation::HOLD;
use serde_json::{Value, json};

use crate::children::Child;
use crate::kind::Kind as _;
use crate::scene::{
    NAME, Scene, assert_available_since_ready, assert_path, condition, ensure_condition, ensure_message, play,
};
use crate::watch;

type Coordinator = Scene<LMCacheCoordinator>;

/// What `kubectl get` shows, without the age.
async fn columns(scene: &Coordinator) -> Result<Vec<String>> {
    let get = ["get", "lmcc", NAME, "-n", scene.namespace(), "--no-headers"];
    let line = scene.cluster().await.kubectl(&get).await?;
    let mut columns: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    ensure!(columns.len() == 7, "kubectl shows {line}");
    columns.remove(5);
    Ok(columns)
}

async fn strategy(scene: &Coordinator) -> Result<Value> {
    let deployment = scene.child(Child::Deployment).await?.context("there is a Deployment")?;
    Ok(deployment.data["spec"]["strategy"]["type"].clone())
}

pub async fn zero_replicas_rest_in_reconciled_and_come_back() -> Result<()> {
    let recording = play::<LMCacheCoordinator>("zero", 1, async |scene| {
        scene.ready_with("minimal").await?;
        scene.change(json!({"replicas": 0})).await?;
        let resting = scene.phase(Reconciled, Reason::ScaledToZero).await?;
        ensure_condition(&resting, READY, "False", "ScaledToZero", &["spec.replicas is 0", "as the spec asks"])?;
        ensure_condition(&resting, AVAILABLE, "False", "NoReadyReplicas", &["0/0 replicas ready"])?;
        let record = resting.report().record;
        let unwanted = [RECONCILING, STALLED].map(|type_| condition(&record, type_));
        ensure!(unwanted == [None, None], "{unwanted:?}");
        ensure!(record.observed_generation == Some(2), "{record:?}");
        watch::until(&scene.api::<Pod>(), watch::everything(), "no pod", <[_]>::is_empty).await?;
        let url = format!("http://{NAME}.{}.svc:9300", scene.namespace());
        let shown = columns(scene).await?;
        ensure!(shown == [NAME, "Reconciled", "0", "0", &url, "ScaledToZero"], "kubectl shows {shown:?}");
        ensure!(scene.child(Child::Service).await?.is_some(), "its Service stays");

        scene.change(json!({"replicas": 1})).await?;
        scene.harness.wait_ready(NAME).await?;
        let shown = columns(scene).await?;
        ensure!(shown == [NAME, "Ready", "1", "1", &url, "AllInstancesReady"], "kubectl shows {shown:?}");
        Ok(())
    });
    let recording = recording.await?;
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready, Reconciled, Rolling, Ready]);
    let back = &recording.steps()[4];
    assert_eq!((back.to, back.reason.as_str()), (Rolling, Reason::ScalingUp.as_str()), "{}", recording.timeline());
    Ok(())
}

pub async fn scaling_up_is_rolling_and_says_so_and_scaling_down_is_no_loss() -> Result<()> {
    let recording = play::<LMCacheCoordinator>("scaling", 1, async |scene| {
        scene.apply("held").await?;
        scene.release(HOLD).await?;
        scene.harness.wait_ready(NAME).await?;
        scene.change(json!({"replicas": 3})).await?;
        let rolling = scene.phase(Rolling, Reason::ScalingUp).await?;
        ensure_message(&rolling, &["/3 replicas updated, 1/3 ready", "waiting for cache-"])?;
        ensure_condition(&rolling, AVAILABLE, "True", "AtLeastOneReady", &["1/3 replicas ready"])?;
        let three = |pods: &[Pod]| pods.len() == 3;
        watch::until(&scene.api(), watch::everything(), "three pods", three).await?;
        scene.release(HOLD).await?;
        scene.harness.wait_ready(NAME).await?;
        let shown = columns(scene).await?;
        ensure!(shown[1..4] == ["Ready", "3", "3"], "kubectl shows {shown:?}");

        scene.change(json!({"replicas": 1})).await?;
        scene.harness.wait_ready(NAME).await?;
        Ok(())
    });
    let recording = recording.await?;
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready, Reconciled, Rolling, Ready, Reconciled, Ready]);
    assert_available_since_ready(&recording);
    Ok(())
}

pub async fn with_two_replicas_the_registry_is_not_consistent_and_with_one_it_is() -> Result<()> {
    let recording = play::<LMCacheCoordinator>("registry", 1, async |scene| {
        let one = scene.ready_with("minimal").await?;
        ensure_condition(&one, "RegistryConsistent", "True", "OneRegistry", &[])?;
        ensure!(strategy(scene).await? == "Recreate", "{}", strategy(scene).await?);
        let first = scene.pods().await?;

        scene.change(json!({"replicas": 2})).await?;
        let two = scene.harness.wait_ready(NAME).await?;
        let says = ["spec.replicas is 2", "registry of its own", "set spec.replicas to 1"];
        ensure_condition(&two, "RegistryConsistent", "False", "SeveralReplicas", &says)?;
        ensure!(strategy(scene).await? == "RollingUpdate", "{}", strategy(scene).await?);
        let kept = scene.pods().await?;
        ensure!(first.iter().all(|(name, pod)| kept[name].uid() == pod.uid()), "the first was restarted");

        scene.change(json!({"replicas": 1})).await?;
        let one = scene.harness.wait_ready(NAME).await?;
        ensure_condition(&one, "RegistryConsistent", "True", "OneRegistry", &[])?;
        ensure!(strategy(scene).await? == "Recreate", "{}", strategy(scene).await?);
        Ok(())
    });
    assert_available_since_ready(&recording.await?);
    Ok(())
}

pub async fn a_rollout_of_the_only_replica_ends_the_old_one_first_and_is_no_loss() -> Result<()> {
    let recording = play::<LMCacheCoordinator>("recreate", 1, async |scene| {
        scene.ready_with("slow-to-end").await?;
        scene.change(json!({"image": {"tag": "v2"}})).await?;
        scene.harness.wait_ready(NAME).await?;
        Ok(())
    });
    let recording = recording.await?;
    assert!(!recording.phases().contains(&Degraded), "{}", recording.timeline());
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready, Reconciled, Rolling, Ready]);
    let most = recording.pods.seen.iter().map(|it| recording.pods.at_version(it.version).count()).max();
    assert_eq!(most, Some(1), "two at a time\n{}", recording.timeline());
    Ok(())
}
