//! Deletion, and waiting until the garbage collector has taken everything.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PropagationPolicy};
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _, discovery};

use crate::harness::Harness;
use crate::kind::{PhaseObject, instance_selector};
use crate::wait::{passing, within};

impl<K: PhaseObject> Harness<K> {
    /// Deletes the resource in the background and waits until it and its children are gone. That it is gone already is fine.
    pub async fn delete_and_wait_collected(&self, name: &str) -> Result<()> {
        self.delete_with(name, PropagationPolicy::Background).await
    }

    /// As [`delete_and_wait_collected`](Self::delete_and_wait_collected), with the propagation policy of your choice.
    ///
    /// Children are objects with the labels of this instance, pods included; the error lists what is left.
    pub async fn delete_with(&self, name: &str, policy: PropagationPolicy) -> Result<()> {
        let (client, namespace) = (self.client(), self.namespace());
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        match Api::<K>::namespaced(client.clone(), namespace).delete(name, &params).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).with_context(|| format!("cannot delete {namespace}/{name}")),
        }
        let own = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let children = watcher::Config::default().labels(&instance_selector::<K>(name));
        let kinds = std::iter::once((resource::<K>(), own));
        for (kind, config) in kinds.chain(child_kinds(&client).await.into_iter().map(|it| (it, children.clone()))) {
            gone(&client, namespace, &kind, config, self.timeout()).await?;
        }
        Ok(())
    }
}

fn resource<T: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<T>(&())
}

async fn child_kinds(client: &Client) -> Vec<ApiResource> {
    let mut kinds = vec![
        resource::<DaemonSet>(),
        resource::<Deployment>(),
        resource::<Service>(),
        resource::<ConfigMap>(),
        resource::<Secret>(),
        resource::<NetworkPolicy>(),
        resource::<Pod>(),
    ];
    let monitor = GroupVersionKind::gvk("monitoring.coreos.com", "v1", "ServiceMonitor");
    if let Ok((monitor, _)) = discovery::pinned_kind(client, &monitor).await {
        kinds.push(monitor);
    }
    kinds
}

/// Waits until nothing is left of a selection.
async fn gone(
    client: &Client,
    namespace: &str,
    kind: &ApiResource,
    config: watcher::Config,
    timeout: Duration,
) -> Result<()> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, kind);
    let mut left = BTreeSet::new();
    let watch = async {
        let mut events = watcher(api, config).default_backoff().boxed();
        // Only a complete picture can be empty.
        let mut complete = false;
        while !(complete && left.is_empty()) {
            let event = events.next().await.context("the watch ended")?;
            match passing(event)? {
                Some(Event::Apply(object) | Event::InitApply(object)) => {
                    left.insert(object.name_any());
                }
                Some(Event::Delete(object)) => {
                    left.remove(&object.name_any());
                }
                Some(Event::Init) => {
                    left.clear();
                    complete = false;
                }
                Some(Event::InitDone) => complete = true,
                None => {}
            }
        }
        Ok(())
    };
    within(timeout, watch).await.with_context(|| format!("not collected: {} {left:?}", kind.kind))
}
