//! The end of a resource.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PropagationPolicy, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use lmcache_harness::instance_selector;

use crate::children::controller;
use crate::kind::Kind;
use crate::scene::{NAME, Scene, play};

/// How long after the end of everything something may still come back, in seconds.
const AFTERMATH: u32 = 3;

/// The kinds of a resource's objects, each with the version of the present.
async fn versions<K: Kind>(scene: &Scene<K>) -> Result<Vec<(ApiResource, String)>> {
    let kinds = K::CHILDREN.iter().map(|it| it.resource()).chain([ApiResource::erase::<Pod>(&())]);
    let kinds: BTreeMap<_, _> = kinds.map(|it| (it.kind.clone(), it)).collect();
    let read = kinds.into_values().map(|kind| async {
        let list = scene.objects(&kind).list_metadata(&ListParams::default().limit(1)).await?;
        let version = list.metadata.resource_version.context("a list has a version")?;
        Ok::<_, anyhow::Error>((kind, version))
    });
    try_join_all(read).await
}

/// What has been made since a version, a while into the future included.
async fn made_since<K: Kind>(scene: &Scene<K>, kind: &ApiResource, version: &str) -> Result<Vec<String>> {
    let api: Api<DynamicObject> = scene.objects(kind);
    let selection = WatchParams::default().labels(&instance_selector::<K>(NAME)).timeout(AFTERMATH);
    let mut events = api.watch(&selection, version).await?.boxed();
    let mut made = Vec::new();
    while let Some(event) = events.next().await {
        match event? {
            WatchEvent::Added(object) => made.push(format!("{} {}", kind.kind, object.name_any())),
            WatchEvent::Error(status) => anyhow::bail!("watching {}: {status:?}", kind.kind),
            _ => {}
        }
    }
    Ok(made)
}

pub async fn collects_everything_and_recreates_nothing<K: Kind>(policy: PropagationPolicy) -> Result<()> {
    play::<K>("deletion", 2, async |scene| {
        scene.ready_with("everything").await?;
        ensure!(scene.children().await?.len() == K::CHILDREN.len(), "every child is there");
        let versions = versions(scene).await?;
        scene.harness.delete_with(NAME, policy).await?;
        let children = scene.children().await?;
        ensure!(children.is_empty(), "{:?}", children.keys());
        let made = versions.iter().map(|(kind, version)| made_since(scene, kind, version));
        let made = try_join_all(made).await?.concat();
        ensure!(made.is_empty(), "made after the deletion had begun: {made:?}");
        Ok(())
    })
    .await?;
    Ok(())
}

pub async fn a_resource_deleted_and_created_again_at_once_ends_ready<K: Kind>() -> Result<()> {
    let recording = play::<K>("again", 2, async |scene| {
        let old = scene.ready_with("minimal").await?;
        let pods = scene.pods().await?;
        Api::<K>::namespaced(scene.client(), scene.namespace()).delete(NAME, &DeleteParams::background()).await?;
        let new = scene.apply("minimal").await?;
        ensure!(new.meta().uid != old.meta().uid, "it is another one");
        scene.healed().await?;
        for (child, object) in scene.children().await? {
            ensure!(controller(&object) == new.meta().uid.as_deref(), "{child:?} is of the old one: {object:?}");
        }
        let is_old = |it: &Pod| pods.values().any(|old| old.uid() == it.uid());
        ensure!(!scene.pods().await?.values().any(is_old), "a pod is of the old one");
        Ok(())
    });
    let recording = recording.await?;
    assert_eq!(recording.lives().len(), 2, "{}", recording.timeline());
    Ok(())
}
