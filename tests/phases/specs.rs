//! Specs that the schema lets pass and the validation does not.

use anyhow::{Result, ensure};

use lmcache_crds::Phase::{Degraded, Pending, Ready, Reconciled, Rolling};
use lmcache_states::Reason;
use lmcache_states::conditions::{APPLIED, AVAILABLE, CONFIG_VALID, DEPENDENCIES_READY, READY, STALLED};

use crate::kind::Kind;
use crate::scene::{assert_available_since_ready, assert_path, ensure_condition, play, ready_of};

pub async fn an_invalid_first_spec_is_pending_without_children_and_lists_all_errors<K: Kind>() -> Result<()> {
    let recording = play::<K>("invalid", 1, async |scene| {
        scene.apply("invalid").await?;
        let resource = scene.phase(Pending, Reason::InvalidSpec).await?;
        ensure_condition(&resource, CONFIG_VALID, "False", "ValidationFailed", &K::ERRORS)?;
        ensure_condition(&resource, READY, "False", "InvalidSpec", &K::ERRORS)?;
        ensure_condition(&resource, APPLIED, "False", "InvalidSpec", &[])?;
        ensure_condition(&resource, DEPENDENCIES_READY, "Unknown", "InvalidSpec", &[])?;
        scene.warned(Reason::InvalidSpec, K::ERRORS[0]).await?;
        let children = scene.children().await?;
        ensure!(children.is_empty(), "{:?}", children.keys());
        scene.change(K::corrected()).await?;
        scene.healed().await?;
        Ok(())
    });
    assert_path(&recording.await?, &[Pending, Reconciled, Rolling, Ready]);
    Ok(())
}

pub async fn an_invalid_new_spec_leaves_children_untouched_is_degraded_and_heals<K: Kind>() -> Result<()> {
    let recording = play::<K>("invalidated", 2, async |scene| {
        scene.ready_with("minimal").await?;
        let (children, pods) = (scene.children().await?, scene.pods().await?);
        let changed = scene.apply("invalid").await?;
        ensure!(changed.meta().generation == Some(2), "{:?}", changed.meta());
        let resource = scene.degraded(Reason::InvalidSpec).await?;
        ensure_condition(&resource, CONFIG_VALID, "False", "ValidationFailed", &K::ERRORS)?;
        ensure_condition(&resource, STALLED, "True", "InvalidSpec", &K::ERRORS)?;
        ensure_condition(&resource, AVAILABLE, "True", "AtLeastOneReady", &[&ready_of::<K>(2, 2)])?;
        scene.warned(Reason::InvalidSpec, K::ERRORS[1]).await?;
        ensure!(scene.children().await? == children, "a child was written");
        ensure!(scene.pods().await? == pods, "a pod was touched");
        scene.change(K::as_before()).await?;
        scene.healed().await?;
        Ok(())
    });
    let recording = recording.await?;
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready, Degraded, Reconciled, Ready]);
    assert_available_since_ready(&recording);
    Ok(())
}
