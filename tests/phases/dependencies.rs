//! What an engine refers to: it waits for it, notices its changes, and respects whose it is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use lmcache_crds::Phase::{Degraded, Pending, Ready, Reconciled, Rolling};
use lmcache_harness::Harness;
use lmcache_states::Reason;
use lmcache_states::conditions::{APPLIED, AVAILABLE, DEPENDENCIES_READY};
use serde_json::json;

use crate::children::Child;
use crate::kind::EngineKind;
use crate::scene::{
    NAME, Scene, assert_available_since_ready, assert_path, condition, ensure_condition, ensure_message, play,
};
use crate::watch;

/// The Secret of the fixture `credentials`.
const SOURCE: &str = "store-credentials";
/// Far below any interval of polling or retrying: who is faster has been woken.
const BY_WATCH: Duration = Duration::from_secs(5);

fn secret(name: &str, entries: &[(&str, &str)]) -> Secret {
    let data: BTreeMap<_, _> = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Secret { metadata, string_data: Some(data), ..Secret::default() }
}

/// The mirror, as text.
async fn mirror<K: EngineKind>(scene: &Scene<K>) -> Result<BTreeMap<String, String>> {
    let mirror = scene.api::<Secret>().get(&Child::Credentials.name()).await?;
    let data = mirror.data.context("the mirror has data")?;
    data.into_iter().map(|(key, value)| Ok((key, String::from_utf8(value.0)?))).collect()
}

/// Waits until the children are applied, and says how long that took.
async fn applied_after<K: EngineKind>(scene: &Scene<K>, since: Instant) -> Result<()> {
    scene.harness.patiently().wait_reconciled(NAME).await?;
    let took = since.elapsed();
    println!("{}: the children were applied {took:?} after the dependency was there", scene.namespace());
    ensure!(took < BY_WATCH, "it took {took:?}: nobody was woken");
    Ok(())
}

pub async fn waits_for_a_missing_credentials_secret_names_it_and_goes_on_within_a_second<K: EngineKind>() -> Result<()>
{
    let recording = play::<K>("no-secret", 1, async |scene| {
        scene.apply("credentials").await?;
        let engine = scene.phase(Pending, Reason::SecretNotFound).await?;
        let named = format!("Secret {}/{SOURCE} does not exist", scene.namespace());
        ensure_message(&engine, &[&named])?;
        ensure_condition(&engine, DEPENDENCIES_READY, "False", "SecretNotFound", &[&named])?;
        ensure_condition(&engine, APPLIED, "False", "SecretNotFound", &[&named])?;
        scene.warned(Reason::SecretNotFound, &named).await?;
        let children = scene.children().await?;
        ensure!(children.is_empty(), "{:?}", children.keys());
        let source = secret(SOURCE, &[("password", "hunter2"), ("username", "cache"), ("other", "not ours")]);
        scene.api().create(&PostParams::default(), &source).await?;
        applied_after(scene, Instant::now()).await?;
        let copied = mirror(scene).await?;
        ensure!(
            copied == [("password".into(), "hunter2".into()), ("username".into(), "cache".into())].into(),
            "{copied:?}"
        );
        scene.healed().await?;
        Ok(())
    });
    assert_path(&recording.await?, &[Pending, Reconciled, Rolling, Ready]);
    Ok(())
}

pub async fn waits_for_a_missing_password_and_goes_on_when_it_is_there<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("no-password", 1, async |scene| {
        scene.api().create(&PostParams::default(), &secret(SOURCE, &[("username", "cache"), ("password", "")])).await?;
        scene.apply("credentials").await?;
        let engine = scene.phase(Pending, Reason::SecretKeyMissing).await?;
        ensure_message(&engine, &[&format!("Secret {}/{SOURCE} has no key password", scene.namespace())])?;
        let patch = Patch::Merge(json!({"stringData": {"password": "hunter2"}}));
        scene.api::<Secret>().patch(SOURCE, &PatchParams::default(), &patch).await?;
        applied_after(scene, Instant::now()).await?;
        scene.healed().await?;
        Ok(())
    });
    assert_path(&recording.await?, &[Pending, Reconciled, Rolling, Ready]);
    Ok(())
}

pub async fn keeps_serving_when_the_credentials_secret_is_deleted<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("secret-gone", 1, async |scene| {
        let source = secret(SOURCE, &[("password", "hunter2")]);
        scene.api().create(&PostParams::default(), &source).await?;
        scene.ready_with("credentials").await?;
        let (children, pods) = (scene.children().await?, scene.pods().await?);
        scene.api::<Secret>().delete(SOURCE, &DeleteParams::default()).await?;
        let engine = scene.degraded(Reason::SecretNotFound).await?;
        ensure_condition(&engine, AVAILABLE, "True", "AtLeastOneReady", &[])?;
        ensure_condition(&engine, DEPENDENCIES_READY, "False", "SecretNotFound", &[SOURCE])?;
        ensure!(scene.children().await? == children, "a child was written");
        scene.api().create(&PostParams::default(), &source).await?;
        scene.healed().await?;
        ensure!(scene.pods().await? == pods, "a pod was touched");
        Ok(())
    });
    let recording = recording.await?;
    assert_available_since_ready(&recording);
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready, Degraded, Ready]);
    Ok(())
}

pub async fn a_rotation_of_the_credentials_rolls_the_engine<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("rotation", 2, async |scene| {
        scene.api().create(&PostParams::default(), &secret(SOURCE, &[("password", "old")])).await?;
        let engine = scene.ready_with("credentials").await?;
        let old = scene.pods().await?;
        let patch = Patch::Merge(json!({"stringData": {"password": "new"}}));
        scene.api::<Secret>().patch(SOURCE, &PatchParams::default(), &patch).await?;
        let rolled = |set: &DaemonSet| set.metadata.generation == Some(2);
        watch::object(&scene.api::<DaemonSet>(), NAME, "a new pod template", rolled).await?;
        let engine = scene.ready_again(&engine).await?;
        ensure!(engine.meta().generation == Some(1), "the spec is as it was");
        ensure!(mirror(scene).await?["password"] == "new", "the mirror is old");
        let new = scene.pods().await?;
        ensure!(new.iter().all(|(node, pod)| pod.uid() != old[node].uid()), "a pod still has the old password");
        Ok(())
    });
    let recording = recording.await?;
    assert_available_since_ready(&recording);
    assert!(!recording.phases().contains(&Degraded), "{}", recording.timeline());
    let rolling = recording.steps().into_iter().rev().find(|it| it.to == Rolling).unwrap();
    assert_eq!(rolling.reason, Reason::RollingUpdate.as_str(), "{}", recording.timeline());
    Ok(())
}

pub async fn a_secret_of_another_namespace_needs_consent<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("consent", 1, async |scene| {
        let vault = Harness::in_new_namespace(scene.client(), "vault").await?;
        let sources: Api<Secret> = Api::namespaced(scene.client(), vault.namespace());
        sources.create(&PostParams::default(), &secret(SOURCE, &[("password", "hunter2")])).await?;
        let source = json!({"name": SOURCE, "namespace": vault.namespace()});
        scene.api().create(&PostParams::default(), &secret(SOURCE, &[("password", "decoy")])).await?;
        let fixture = scene
            .fixture("credentials")?
            .replace(&format!("authSecretRef: {{name: {SOURCE}}}"), &format!("authSecretRef: {source}"));
        scene.harness.apply_fixture(&fixture).await?;
        let engine = scene.phase(Pending, Reason::SecretNotShared).await?;
        let fix = format!("lmcache.ai/share-with={}", scene.namespace());
        ensure_message(&engine, &[&format!("Secret {}/{SOURCE}", vault.namespace()), &fix])?;
        ensure_condition(&engine, DEPENDENCIES_READY, "False", "SecretNotShared", &[&fix])?;
        ensure!(scene.child(Child::Credentials).await?.is_none(), "the Secret was copied");
        let share =
            json!({"metadata": {"annotations": {"lmcache.ai/share-with": format!("other, {}", scene.namespace())}}});
        sources.patch(SOURCE, &PatchParams::default(), &Patch::Merge(share)).await?;
        applied_after(scene, Instant::now()).await?;
        ensure!(mirror(scene).await?["password"] == "hunter2", "it is the wrong Secret");
        let engine = scene.healed().await?;
        // Consent can be withdrawn.
        let withdraw = json!({"metadata": {"annotations": {"lmcache.ai/share-with": null}}});
        sources.patch(SOURCE, &PatchParams::default(), &Patch::Merge(withdraw)).await?;
        let degraded = scene.degraded(Reason::SecretNotShared).await?;
        ensure!(
            condition(degraded.record().context("status")?, AVAILABLE).is_some_and(|it| it.status == "True"),
            "it serves"
        );
        let share = json!({"metadata": {"annotations": {"lmcache.ai/share-with": "*"}}});
        sources.patch(SOURCE, &PatchParams::default(), &Patch::Merge(share)).await?;
        scene.ready_again(&engine).await?;
        vault.finish().await
    });
    assert_path(&recording.await?, &[Pending, Reconciled, Rolling, Ready, Degraded, Ready]);
    Ok(())
}
