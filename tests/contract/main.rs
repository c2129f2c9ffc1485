//! The custom resource definitions on a real API server: what they refuse, what they accept, how they read.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod accepted;
mod kubectl;
mod ratcheting;
mod refused;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ObjectMeta, PostParams};
use lmcache_crds::{CacheBlendEngine, LMCacheCoordinator, LMCacheEngine};
use lmcache_testbed::{Cluster, ClusterOptions};
use serde_json::Value;
use tokio::sync::OnceCell;

/// A control plane with our definitions and without an operator, shared by all tests.
async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let start = || async {
        let options = ClusterOptions { name: "contract".to_owned(), ..ClusterOptions::default() };
        let cluster = Cluster::start(options).await?;
        for crd in lmcache_crds::crds() {
            cluster.apply_yaml(&serde_json::to_string(&crd)?).await?;
        }
        // kubectl sees a new kind only when discovery has caught up with its definition.
        let deadline = Instant::now() + Duration::from_secs(30);
        for path in ["lmc.spec", "cbe.spec", "lmcc.spec"] {
            while let Err(error) = cluster.kubectl(&["explain", path]).await {
                ensure!(Instant::now() < deadline, "{error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        anyhow::Ok(cluster)
    };
    CLUSTER.get_or_try_init(start).await.unwrap()
}

const LMC: &str = "LMCacheEngine";
const CBE: &str = "CacheBlendEngine";
const LMCC: &str = "LMCacheCoordinator";

fn resource(kind: &str) -> ApiResource {
    match kind {
        LMC => ApiResource::erase::<LMCacheEngine>(&()),
        CBE => ApiResource::erase::<CacheBlendEngine>(&()),
        LMCC => ApiResource::erase::<LMCacheCoordinator>(&()),
        _ => panic!("there is no kind {kind}"),
    }
}

/// Resources as plain documents, so that nothing of ours comes between the test and the API server.
async fn api(kind: &str) -> Api<DynamicObject> {
    Api::default_namespaced_with(cluster().await.client(), &resource(kind))
}

fn object(kind: &str, name: &str, spec: &str) -> DynamicObject {
    let spec: Value = serde_norway::from_str(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
    let mut object = DynamicObject::new(name, &resource(kind));
    object.metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    object.data = serde_json::json!({"spec": spec});
    object
}

/// An engine with these fields. A `CacheBlendEngine` also gets the image to stage that it cannot do without.
fn engine(kind: &str, name: &str, spec: &str) -> DynamicObject {
    let mut object = object(kind, name, spec);
    if kind == CBE {
        object.data["spec"]["injection"] = serde_json::json!({"payloadImage": {"repository": "r/p"}});
    }
    object
}

/// What the API server would say to a creation.
async fn try_create(api: &Api<DynamicObject>, object: &DynamicObject) -> Result<DynamicObject, kube::Error> {
    api.create(&PostParams { dry_run: true, field_manager: None }, object).await
}

/// The fields and messages of a refusal; panics for any other answer.
fn refusal<T: std::fmt::Debug>(what: &str, answer: Result<T, kube::Error>) -> Vec<(String, String)> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 422 => {
            let causes = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
            causes.into_iter().map(|cause| (cause.field, cause.message)).collect()
        }
        other => panic!("{what} was not refused as invalid: {other:?}"),
    }
}

/// Whether a refusal names this field and says this text.
fn names(refusal: &[(String, String)], field: &str, text: &str) -> bool {
    refusal.iter().any(|(found, message)| found == field && message.contains(text))
}
