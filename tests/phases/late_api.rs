//! An operator that starts late, and an API that comes even later. They need a cluster of their own: the arrival of the API
//! wakes every resource there is. The kinds share it, each in a namespace of its own.

use anyhow::{Result, ensure};
use kube::api::DynamicObject;
use kube::{Api, Client};
use lmcache_crds::Phase::{Pending, Ready, Reconciled, Rolling};
use lmcache_crds::{CacheBlendEngine, LMCacheCoordinator, LMCacheEngine};
use lmcache_harness::{Harness, PhaseRecorder};

use crate::children::{Child, controller};
use crate::common::Bed;
use crate::kind::Kind;
use crate::scene::{NAME, SCENE_LABEL, assert_path, service_monitor_api};
use crate::watch::{self, PATIENCE};

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_waits_for_the_operator_and_a_service_monitor_api_installed_later_is_noticed() -> Result<()> {
    let bed = Bed::start("late").await?;
    let engine = Late::<LMCacheEngine>::created(&bed).await?;
    let blend = Late::<CacheBlendEngine>::created(&bed).await?;
    let coordinator = Late::<LMCacheCoordinator>::created(&bed).await?;
    let operator = bed.operator("manager", &[]).await?;
    tokio::try_join!(engine.ready(), blend.ready(), coordinator.ready())?;
    bed.cluster.apply_yaml(&service_monitor_api()?).await?;
    tokio::try_join!(engine.monitored(), blend.monitored(), coordinator.monitored())?;
    drop(operator);
    bed.cluster.stop().await;
    Ok(())
}

/// A resource that asks for a `ServiceMonitor`, created before there is an operator.
struct Late<K: Kind> {
    harness: Harness<K>,
    recorder: PhaseRecorder<K>,
}

impl<K: Kind> Late<K> {
    async fn created(bed: &Bed) -> Result<Self> {
        let client: Client = bed.cluster.client();
        let harness = Harness::in_new_namespace(client.clone(), "late").await?.for_kind::<K>().with_timeout(PATIENCE);
        let namespace = harness.namespace().to_owned();
        let recorder = PhaseRecorder::start_kind(client, &namespace, NAME).await?;
        bed.cluster.add_node(&namespace, [(SCENE_LABEL, namespace.as_str())]).await?;
        harness.apply_fixture(&K::fixture("monitored", 1)?).await?;
        let columns = bed.cluster.kubectl(&["get", &K::plural(&()), "-n", &namespace, "--no-headers"]).await?;
        ensure!(columns.split_whitespace().nth(1) == Some("Pending"), "kubectl shows {columns:?}");
        Ok(Self { harness, recorder })
    }

    async fn ready(&self) -> Result<()> {
        self.harness.wait_ready(NAME).await?;
        Ok(())
    }

    async fn monitored(self) -> Result<()> {
        let Self { harness, recorder } = self;
        let monitors: Api<DynamicObject> =
            Api::namespaced_with(harness.client(), harness.namespace(), &Child::ServiceMonitor.resource());
        let monitor = watch::object(&monitors, &Child::ServiceMonitor.name(), "a ServiceMonitor", |_| true).await?;
        let resource = harness.wait_ready(NAME).await?;
        ensure!(controller(&monitor) == resource.meta().uid.as_deref(), "{monitor:?}");
        let recording = recorder.finish().await?;
        recording.assert_obeys_the_rules();
        assert_path(&recording, &[Pending, Reconciled, Rolling, Ready]);
        harness.finish().await
    }
}
