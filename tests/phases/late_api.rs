//! An operator that starts late, and an API that comes even later. They need a cluster of their own: the arrival of the API
//! wakes every engine there is.

use anyhow::{Result, ensure};
use kube::Api;
use lmcache_crds::Phase::{Pending, Ready, Reconciled, Rolling};
use lmcache_harness::{Harness, PhaseRecorder};

use crate::children::{Child, controller};
use crate::common::Bed;
use crate::kind::EngineKind;
use crate::scene::{NAME, SCENE_LABEL, assert_path, service_monitor_api};
use crate::watch::{self, PATIENCE};

every_kind! {
    an_engine_waits_for_the_operator_and_a_service_monitor_api_installed_later_is_noticed,
}

async fn an_engine_waits_for_the_operator_and_a_service_monitor_api_installed_later_is_noticed<K: EngineKind>()
-> Result<()> {
    let bed = Bed::start("late").await?;
    let harness = Harness::in_new_namespace(bed.cluster.client(), "late").await?.for_kind::<K>().with_timeout(PATIENCE);
    let namespace = harness.namespace();
    let recorder = PhaseRecorder::<K>::start_kind(harness.client(), namespace, NAME).await?;
    bed.cluster.add_node("late-1", [(SCENE_LABEL, namespace)]).await?;

    harness.apply_fixture(K::fixture("monitored").to_str().unwrap()).await?;
    let columns = bed.cluster.kubectl(&["get", &K::plural(&()), "-n", namespace, "--no-headers"]).await?;
    ensure!(columns.split_whitespace().nth(1) == Some("Pending"), "kubectl shows {columns:?}");

    let operator = bed.operator("manager", &[]).await?;
    let engine = harness.wait_ready(NAME).await?;
    let monitors: Api<kube::api::DynamicObject> =
        Api::namespaced_with(harness.client(), namespace, &Child::ServiceMonitor.resource());
    bed.cluster.apply_yaml(&service_monitor_api()?).await?;
    let monitor = watch::object(&monitors, &Child::ServiceMonitor.name(), "a ServiceMonitor", |_| true).await?;
    ensure!(controller(&monitor) == engine.meta().uid.as_deref(), "{monitor:?}");
    harness.wait_ready(NAME).await?;

    harness.delete_and_wait_collected(NAME).await?;
    let recording = recorder.finish().await?;
    recording.assert_obeys_the_rules();
    assert_path(&recording, &[Pending, Reconciled, Rolling, Ready]);
    drop(operator);
    bed.cluster.stop().await;
    Ok(())
}
