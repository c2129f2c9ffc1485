//! What the operator does not do: ask without need, and tell secrets.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use lmcache_testbed::Cluster;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::children::Child;
use crate::kind::{EngineKind, Kind};
use crate::scene::{NAME, play};
use crate::watch::PATIENCE;

/// For how long nothing may be asked.
const SILENCE: Duration = Duration::from_secs(6);

/// The operator's requests about one namespace, watches aside: verb, resource, name.
fn requests(cluster: &Cluster, namespace: &str) -> Result<Vec<String>> {
    let log = std::fs::read_to_string(cluster.audit_log_path())?;
    // The last line may be half written.
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let about = entries.filter(|it| it["objectRef"]["namespace"] == namespace && it["verb"] != "watch");
    Ok(about.map(|it| format!("{} {} {}", it["verb"], it["objectRef"]["resource"], it["objectRef"]["name"])).collect())
}

pub async fn a_settled_resource_causes_no_request<K: Kind>() -> Result<()> {
    play::<K>("quiet", 2, async |scene| {
        scene.ready_with("everything").await?;
        let cluster = scene.cluster().await;
        let deadline = Instant::now() + PATIENCE;
        // Counts and Events may still be on their way; then nothing is left to be asked.
        loop {
            let before = requests(cluster, scene.namespace())?;
            ensure!(!before.is_empty(), "the audit log knows of no request");
            sleep(SILENCE).await;
            let after = requests(cluster, scene.namespace())?;
            if after == before {
                break;
            }
            ensure!(Instant::now() < deadline, "it is never quiet: {:?}", &after[before.len()..]);
        }
        let all = requests(cluster, scene.namespace())?;
        println!("{} requests for one {} with every child and two instances: {all:#?}", all.len(), K::kind(&()));
        Ok(())
    })
    .await?;
    Ok(())
}

fn random_password() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("secret-{:016x}{:016x}", random(), random())
}

pub async fn no_secret_value_is_in_log_status_or_events<K: EngineKind>() -> Result<()> {
    play::<K>("secrecy", 1, async |scene| {
        let passwords = [random_password(), random_password()];
        let fixture = scene.fixture("everything")?.replace("hunter2", &passwords[0]);
        scene.harness.apply_fixture(&fixture).await?;
        let engine = scene.healed().await?;
        let patch = Patch::Merge(json!({"stringData": {"password": passwords[1]}}));
        scene.api::<Secret>().patch("store-credentials", &PatchParams::default(), &patch).await?;
        scene.ready_again(&engine).await?;
        // A conflict on the mirror itself: what is said of it must not quote it.
        scene.meddle(Child::Credentials, &json!({"data": {"password": "d3Jvbmc="}})).await?;
        let mirror = scene.objects(&Child::Credentials.resource());
        let encoded = passwords
            .each_ref()
            .map(|it| serde_json::to_value(ByteString(it.clone().into_bytes())).unwrap().as_str().unwrap().to_owned());
        let repaired = |it: &kube::api::DynamicObject| it.data["data"]["password"] == encoded[1].as_str();
        crate::watch::object(&mirror, &Child::Credentials.name(), "the mirror to be repaired", repaired).await?;
        let engine = scene.healed().await?;

        let mut places = vec![
            ("the operator's log".to_owned(), scene.operator().await.program.log()),
            ("the engine".to_owned(), serde_json::to_string(&engine)?),
        ];
        let events = scene.api::<Event>().list(&ListParams::default()).await?;
        ensure!(!events.items.is_empty(), "there are Events");
        places.push(("Events".to_owned(), serde_json::to_string(&events.items)?));
        for (child, object) in scene.children().await?.into_iter().filter(|it| it.0 != Child::Credentials) {
            places.push((format!("{child:?}"), serde_json::to_string(&object)?));
        }
        let connection = scene.harness.connection_config(NAME).await?;
        places.push(("the connection document".to_owned(), connection.to_string()));
        for (place, text) in &places {
            for value in passwords.iter().chain(&encoded) {
                ensure!(!text.contains(value.as_str()), "{place} holds a password");
            }
        }
        let log = &places.first().context("the log")?.1;
        ensure!(log.contains(scene.namespace()), "the log speaks of this engine");
        Ok(())
    })
    .await?;
    Ok(())
}
