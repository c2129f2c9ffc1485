//! Specs that the schema lets pass and the validation does not.

use anyhow::{Result, ensure};

use lmcache_crds::Phase::{Degraded, Pending, Ready, Reconciled, Rolling};
use lmcache_states::Reason;
use lmcache_states::conditions::{APPLIED, AVAILABLE, CONFIG_VALID, DEPENDENCIES_READY, READY, STALLED};
use serde_json::{Value, json};

use crate::kind::EngineKind;
use crate::scene::{assert_available_since_ready, assert_path, ensure_condition, play};

every_kind! {
    an_invalid_first_spec_is_pending_without_children_and_lists_all_errors,
    an_invalid_new_spec_leaves_children_untouched_is_degraded_and_heals,
}

/// Everything that is wrong with the fixture `invalid`.
const ERRORS: [&str; 2] = [
    "spec.l2Backend.serde: Invalid value: \"\": cannot be combined with a raw adapter that sets a 'serde' config key",
    "spec.l2Backend.raw.config: Invalid value: \"\": must not hold a 'type' key: use spec.l2Backend.raw.type",
];

/// The same second level without what is wrong.
fn corrected() -> Value {
    json!({"l2Backend": {"raw": {"config": {"type": null, "serde": null}}}})
}

async fn an_invalid_first_spec_is_pending_without_children_and_lists_all_errors<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("invalid", 1, async |scene| {
        scene.apply("invalid").await?;
        let engine = scene.phase(Pending, Reason::InvalidSpec).await?;
        ensure_condition(&engine, CONFIG_VALID, "False", "ValidationFailed", &ERRORS)?;
        ensure_condition(&engine, READY, "False", "InvalidSpec", &ERRORS)?;
        ensure_condition(&engine, APPLIED, "False", "InvalidSpec", &[])?;
        ensure_condition(&engine, DEPENDENCIES_READY, "Unknown", "InvalidSpec", &[])?;
        scene.warned(Reason::InvalidSpec, ERRORS[0]).await?;
        let children = scene.children().await?;
        ensure!(children.is_empty(), "{:?}", children.keys());
        scene.change(corrected()).await?;
        scene.healed().await?;
        Ok(())
    });
    assert_path(&recording.await?, &[Pending, Reconciled, Rolling, Ready]);
    Ok(())
}

async fn an_invalid_new_spec_leaves_children_untouched_is_degraded_and_heals<K: EngineKind>() -> Result<()> {
    let recording = play::<K>("invalidated", 2, async |scene| {
        scene.ready_with("minimal").await?;
        let (children, pods) = (scene.children().await?, scene.pods().await?);
        let changed = scene.apply("invalid").await?;
        ensure!(changed.meta().generation == Some(2), "{:?}", changed.meta());
        let engine = scene.degraded(Reason::InvalidSpec).await?;
        ensure_condition(&engine, CONFIG_VALID, "False", "ValidationFailed", &ERRORS)?;
        ensure_condition(&engine, STALLED, "True", "InvalidSpec", &ERRORS)?;
        ensure_condition(&engine, AVAILABLE, "True", "AtLeastOneReady", &["2/2 instances ready"])?;
        scene.warned(Reason::InvalidSpec, ERRORS[1]).await?;
        ensure!(scene.children().await? == children, "a child was written");
        ensure!(scene.pods().await? == pods, "a pod was touched");
        scene.change(json!({"l2Backend": null})).await?;
        scene.healed().await?;
        Ok(())
    });
    let recording = recording.await?;
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready, Degraded, Reconciled, Ready]);
    assert_available_since_ready(&recording);
    Ok(())
}
