//! Several resources in one namespace: an engine and its coordinator, and names that clash.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use lmcache_crds::Phase::{self, Degraded, Pending, Ready, Reconciled, Rolling};
use lmcache_crds::{CacheBlendEngine, LMCacheCoordinator, LMCacheEngine, PhaseRecord};
use lmcache_harness::{Harness, Judgement, PhaseRecorder, Recording, instance_selector};
use lmcache_states::Reason;
use lmcache_states::conditions::{APPLIED, AVAILABLE, DEPENDENCIES_READY};
use serde_json::{Value, json};

use crate::common::children;
use crate::kind::{EngineKind, Kind};
use crate::scene::{Scene, assert_available_since_ready, assert_path, ensure_condition, ensure_message};

/// Far below any interval of polling or retrying: who is faster has been woken.
const BY_WATCH: Duration = Duration::from_secs(5);
/// The longest pause between two attempts, and some time for the attempt.
const BY_RETRY: Duration = Duration::from_secs(70);

/// One resource of several, recorded from before its creation on.
struct Player<K: Kind> {
    harness: Harness<K>,
    name: &'static str,
    recorder: PhaseRecorder<K>,
}

impl<K: Kind> Player<K> {
    async fn enter(stage: &Scene<LMCacheEngine>, name: &'static str) -> Result<Self> {
        let recorder = PhaseRecorder::start_kind(stage.client(), stage.namespace(), name).await?;
        Ok(Self { harness: stage.harness.for_kind().patiently(), name, recorder })
    }

    /// Creates it: the fixture `minimal` with this in its spec.
    async fn create(&self, spec: Value) -> Result<K> {
        let mut object: Value = serde_norway::from_str(&K::fixture("minimal", 1)?)?;
        object["metadata"]["name"] = self.name.into();
        json_patch::merge(&mut object, &json!({ "spec": spec }));
        self.harness.apply_fixture(&format!("{object:#}")).await
    }

    async fn change(&self, spec: Value) -> Result<K> {
        self.harness.patch(self.name, json!({ "spec": spec })).await
    }

    async fn ready(&self) -> Result<K> {
        self.harness.wait_ready(self.name).await
    }

    async fn phase(&self, phase: Phase, reason: Reason) -> Result<K> {
        let is = |it: &PhaseRecord| it.phase == phase && it.reason.as_deref() == Some(reason.as_str());
        let judge = |resource: &K| Judgement::from(resource.record().is_some_and(is));
        self.harness.wait(self.name, &format!("phase {phase}, reason {reason}"), judge).await
    }

    /// Waits until it is Ready again after a rolling update.
    async fn rolled_since(&self, before: &K) -> Result<K> {
        let known = before.report().record.phase_transitions.len();
        let judge = |resource: &K| {
            let record = resource.report().record;
            let new = record.phase_transitions.iter().skip(known);
            let rolled = new.into_iter().any(|it| it.to == Rolling && it.reason == Reason::RollingUpdate.as_str());
            Judgement::from(rolled && record.phase == Ready)
        };
        self.harness.wait(self.name, "Ready again after a rolling update", judge).await
    }

    async fn delete(&self) -> Result<()> {
        let api: Api<K> = Api::namespaced(self.harness.client(), self.harness.namespace());
        api.delete(self.name, &DeleteParams::background()).await?;
        Ok(())
    }

    /// Its children, as the API server has them but for what decides nothing.
    async fn children(&self) -> Result<Value> {
        let uid = self.harness.get(self.name).await?.meta().uid.clone().context("it has a UID")?;
        let found = children::of(&self.harness.client(), self.harness.namespace(), &uid).await?;
        Ok(serde_json::to_value(found)?)
    }

    /// Its pods, by name and UID.
    async fn pods(&self) -> Result<Vec<(String, Option<String>)>> {
        let api: Api<Pod> = Api::namespaced(self.harness.client(), self.harness.namespace());
        let pods = api.list(&ListParams::default().labels(&instance_selector::<K>(self.name))).await?;
        Ok(pods.items.iter().map(|pod| (pod.name_any(), pod.uid())).collect())
    }

    async fn leave(self) -> Result<Recording<K>> {
        self.harness.delete_and_wait_collected(self.name).await?;
        let recording = self.recorder.finish().await?;
        recording.assert_obeys_the_rules();
        Ok(recording)
    }
}

/// The URL in the arguments of an engine's instances.
async fn coordinator_url(stage: &Scene<LMCacheEngine>, engine: &str) -> Result<Option<String>> {
    let set = stage.api::<DaemonSet>().get(engine).await?;
    let pod = set.spec.and_then(|it| it.template.spec).context("a template")?;
    let args = pod.containers.into_iter().next().and_then(|it| it.args).unwrap_or_default();
    Ok(args.windows(2).find(|it| it[0] == "--coordinator-url").map(|it| it[1].clone()))
}

fn refers_to(coordinator: &str) -> Value {
    json!({"coordinator": {"ref": {"name": coordinator}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_follows_its_coordinator() -> Result<()> {
    Box::pin(follows_its_coordinator::<LMCacheEngine>()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_blend_engine_follows_its_coordinator() -> Result<()> {
    Box::pin(follows_its_coordinator::<CacheBlendEngine>()).await
}

async fn follows_its_coordinator<E: EngineKind>() -> Result<()> {
    let stage = Scene::<LMCacheEngine>::set("follows", 1).await?;
    let engine = Player::<E>::enter(&stage, "engine").await?;
    let registry = Player::<LMCacheCoordinator>::enter(&stage, "registry").await?;

    engine.create(refers_to("registry")).await?;
    let waiting = engine.phase(Pending, Reason::CoordinatorNotFound).await?;
    let named = format!("LMCacheCoordinator {}/registry does not exist", stage.namespace());
    ensure_condition(&waiting, DEPENDENCIES_READY, "False", "CoordinatorNotFound", &[&named])?;
    ensure_condition(&waiting, APPLIED, "False", "CoordinatorNotFound", &[&named])?;
    ensure!(engine.children().await? == json!({}), "{}", engine.children().await?);

    registry.create(json!({})).await?;
    let since = Instant::now();
    engine.harness.wait_reconciled("engine").await?;
    println!("{}: applied {:?} after the coordinator was there", E::kind(&()), since.elapsed());
    ensure!(since.elapsed() < BY_WATCH, "it took {:?}: nobody was woken", since.elapsed());
    let url = |port: u16| Some(format!("http://registry.{}.svc:{port}", stage.namespace()));
    ensure!(coordinator_url(&stage, "engine").await? == url(9300), "{:?}", coordinator_url(&stage, "engine").await?);
    let before = engine.ready().await?;
    registry.ready().await?;

    let old = engine.pods().await?;
    registry.change(json!({"port": 9400})).await?;
    let rolled = engine.rolled_since(&before).await?;
    ensure!(rolled.meta().generation == Some(1), "the spec is as it was");
    ensure!(coordinator_url(&stage, "engine").await? == url(9400), "{:?}", coordinator_url(&stage, "engine").await?);
    registry.ready().await?;
    let (children, pods) = (engine.children().await?, engine.pods().await?);
    ensure!(pods.iter().all(|it| !old.contains(it)), "a pod still reports to the old port: {pods:?}");

    registry.delete().await?;
    let degraded = engine.phase(Degraded, Reason::CoordinatorNotFound).await?;
    ensure_message(&degraded, &[&named])?;
    ensure_condition(&degraded, DEPENDENCIES_READY, "False", "CoordinatorNotFound", &[&named])?;
    ensure_condition(&degraded, AVAILABLE, "True", "AtLeastOneReady", &["1/1 instances ready"])?;
    ensure!(engine.children().await? == children, "a child was written");

    registry.harness.delete_and_wait_collected("registry").await?;
    registry.create(json!({"port": 9400})).await?;
    engine.ready().await?;
    ensure!(engine.pods().await? == pods, "a pod was touched");

    let recording = engine.leave().await?;
    let path = [Pending, Reconciled, Rolling, Ready, Reconciled, Rolling, Ready, Degraded, Ready];
    // Whether the DaemonSet's controller was still to report when the operator looked is a matter of luck.
    let skipping = [Pending, Reconciled, Rolling, Ready, Rolling, Ready, Degraded, Ready];
    assert!(recording.phases() == path || recording.phases() == skipping, "{}", recording.timeline());
    registry.leave().await?;
    stage.strike().await
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_differ_from_the_coordinators_are_told_and_touch_nothing() -> Result<()> {
    let stage = Scene::<LMCacheEngine>::set("compatible", 1).await?;
    let engine = Player::<LMCacheEngine>::enter(&stage, "engine").await?;
    let registry = Player::<LMCacheCoordinator>::enter(&stage, "registry").await?;
    registry.create(json!({"blendChunkSize": 128})).await?;
    engine.create(refers_to("registry")).await?;

    let compatible = |status: &'static str| engine.harness.wait_condition("engine", "CoordinatorCompatible", status);
    engine.ready().await?;
    let differs = compatible("False").await?;
    let says = ["spec.server.chunkSize is 256", "blendChunkSize of the coordinator 128", "must be the same"];
    ensure_condition(&differs, "CoordinatorCompatible", "False", "SettingsDiffer", &says)?;
    ensure!(differs.report().record.phase == Ready, "it serves all the same: {differs:?}");
    let (children, pods) = (engine.children().await?, engine.pods().await?);

    registry.change(json!({"blendChunkSize": 256})).await?;
    let agrees = compatible("True").await?;
    ensure_condition(&agrees, "CoordinatorCompatible", "True", "SettingsAgree", &[])?;
    registry.change(json!({"hashAlgorithm": "sha256_cbor"})).await?;
    let differs = compatible("False").await?;
    let says = ["spec.server.hashAlgorithm is blake3", "hashAlgorithm of the coordinator sha256_cbor"];
    ensure_condition(&differs, "CoordinatorCompatible", "False", "SettingsDiffer", &says)?;
    registry.change(json!({"hashAlgorithm": "blake3"})).await?;
    compatible("True").await?;
    ensure!(engine.children().await? == children, "a child was written");
    ensure!(engine.pods().await? == pods, "a pod was touched");

    let recording = engine.leave().await?;
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready]);
    registry.leave().await?;
    stage.strike().await
}

/// Demands that a resource says which objects of which owner are in its way.
async fn ensure_in_the_way<K: Kind>(player: &Player<K>, objects: &[&str], owner: &str) -> Result<K> {
    let resource = player.phase(Pending, Reason::Conflict).await?;
    let named = objects.iter().map(|it| {
        let (kind, name) = it.split_once(' ').unwrap_or_default();
        format!("{kind} {}/{name}: it exists, and it is controlled by {owner}", player.harness.namespace())
    });
    let named: Vec<_> = named.collect();
    ensure_condition(&resource, APPLIED, "False", "Conflict", &named.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(resource)
}

/// The second waits for what the first has, the first notices nothing, and when it is deleted the second takes over.
async fn first_come_first_served<A: Kind, B: Kind>(
    stage: Scene<LMCacheEngine>,
    (first, second): (&'static str, &'static str),
    shared: &[&str],
) -> Result<()> {
    let (first, second) = (Player::<A>::enter(&stage, first).await?, Player::<B>::enter(&stage, second).await?);
    first.create(json!({})).await?;
    first.ready().await?;
    let before = (first.children().await?, first.pods().await?);
    let versions = versions(&stage, shared).await?;

    second.create(json!({})).await?;
    ensure_in_the_way(&second, shared, &format!("{} {}", A::kind(&()), first.name)).await?;
    ensure!((first.children().await?, first.pods().await?) == before, "something of the first was changed");
    ensure!(self::versions(&stage, shared).await? == versions, "something of the first was written to");
    ensure!(first.ready().await?.meta().generation == Some(1), "the first is as it was");

    let since = Instant::now();
    // What has the labels of the first is about to be the second's: it cannot be waited for that it goes.
    first.delete().await?;
    second.ready().await?;
    println!("{} took over from {} in {:?}", B::kind(&()), A::kind(&()), since.elapsed());
    ensure!(since.elapsed() < BY_RETRY, "it took {:?}", since.elapsed());
    let recording = first.recorder.finish().await?;
    recording.assert_obeys_the_rules();
    assert_available_since_ready(&recording);
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready]);
    let recording = second.leave().await?;
    let phases = recording.phases();
    // Its pods may have come up while something was in the way: then nothing is left to roll.
    assert!(phases.starts_with(&[Pending, Reconciled]), "{}", recording.timeline());
    assert!(phases.ends_with(&[Ready]) && !phases.contains(&Degraded), "{}", recording.timeline());
    stage.strike().await
}

/// UIDs and versions of the Services among these objects: a write that changes nothing would show here.
async fn versions(stage: &Scene<LMCacheEngine>, objects: &[&str]) -> Result<Vec<(Option<String>, Option<String>)>> {
    let mut found = Vec::new();
    for name in objects.iter().filter_map(|it| it.strip_prefix("Service ")) {
        let service = stage.api::<Service>().get(name).await?;
        found.push((service.uid(), service.resource_version()));
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_of_a_coordinators_name_waits_for_its_service() -> Result<()> {
    let stage = Scene::<LMCacheEngine>::set("x-and-x", 1).await?;
    first_come_first_served::<LMCacheCoordinator, LMCacheEngine>(stage, ("x", "x"), &["Service x"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_of_an_engines_name_waits_for_its_service() -> Result<()> {
    let stage = Scene::<LMCacheEngine>::set("x-or-x", 1).await?;
    first_come_first_served::<CacheBlendEngine, LMCacheCoordinator>(stage, ("x", "x"), &["Service x"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_called_like_the_metrics_service_of_another_waits_for_it() -> Result<()> {
    let stage = Scene::<LMCacheEngine>::set("x-metrics", 1).await?;
    first_come_first_served::<LMCacheEngine, LMCacheEngine>(stage, ("x", "x-metrics"), &["Service x-metrics"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_engine_kinds_of_one_name_the_first_keeps_everything() -> Result<()> {
    let stage = Scene::<LMCacheEngine>::set("both-x", 1).await?;
    let shared = ["DaemonSet x", "Service x", "Service x-metrics", "ConfigMap x-connection"];
    first_come_first_served::<CacheBlendEngine, LMCacheEngine>(stage, ("x", "x"), &shared).await
}
