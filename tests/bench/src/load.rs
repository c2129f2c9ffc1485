//! Eight plain clients that create objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use lmcache_testbed::Cluster;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::bed::NAMESPACE;

const CLIENTS: usize = 8;

/// An object of namespace [`NAMESPACE`], and what kind of resource it is.
pub struct Object {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// The whole object.
    pub body: Value,
}

/// Creates all objects, each with one POST, beginning with the first.
pub async fn create_all(cluster: &Cluster, objects: Vec<Object>) -> Result<()> {
    let (objects, next) = (Arc::new(objects), Arc::new(AtomicUsize::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, objects, next) = (cluster.client(), Arc::clone(&objects), Arc::clone(&next));
        clients.spawn(async move {
            while let Some(object) = objects.get(next.fetch_add(1, Ordering::Relaxed)) {
                let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &object.resource);
                let body: DynamicObject = serde_json::from_value(object.body.clone())?;
                let what = || format!("cannot create {} {:?}", object.resource.kind, body.metadata.name);
                api.create(&PostParams::default(), &body).await.with_context(what)?;
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(result) = clients.join_next().await {
        result??;
    }
    Ok(())
}
