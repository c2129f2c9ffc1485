//! What the renderers need of a resource, read once.

use std::collections::BTreeMap;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use lmcache_crds::EngineSpec;

use super::labels::Application;
use super::{Connector, Engine, Options, Resolved};

/// Whose children are rendered.
pub(super) struct Identity<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub owner: OwnerReference,
    pub application: Application,
}

impl<'a> Identity<'a> {
    pub fn of<K>(resource: &'a K, application: Application) -> Self
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let meta = resource.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        Identity {
            name,
            namespace: meta.namespace.as_deref().unwrap_or_default(),
            owner: OwnerReference {
                api_version: K::api_version(&()).into_owned(),
                kind: K::kind(&()).into_owned(),
                name: name.to_owned(),
                uid: meta.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            },
            application,
        }
    }

    /// Labels that select the resource's pods.
    pub fn selector_labels(&self) -> BTreeMap<String, String> {
        self.application.selector_labels(self.name)
    }

    /// Labels of every child.
    pub fn standard_labels(&self) -> BTreeMap<String, String> {
        self.application.standard_labels(self.name)
    }
}

/// One engine with everything that its children depend on.
pub(super) struct Context<'a> {
    pub identity: Identity<'a>,
    pub spec: &'a EngineSpec,
    pub isolated_ipc: bool,
    pub host_network: bool,
    pub init_containers: &'a [Container],
    pub connector: Connector,
    pub kind_args: Vec<String>,
    pub resolved: &'a Resolved,
    pub options: &'a Options,
}

impl<'a> Context<'a> {
    pub fn new<E: Engine>(engine: &'a E, resolved: &'a Resolved, options: &'a Options) -> Self {
        Context {
            identity: Identity::of(engine, Application::Engine),
            spec: engine.common(),
            isolated_ipc: engine.isolated_ipc(),
            host_network: engine.host_network(),
            init_containers: engine.init_containers(),
            connector: engine.connector(),
            kind_args: engine.extra_server_args(),
            resolved,
            options,
        }
    }

    /// Whether the pods share the IPC namespace of their node.
    pub fn host_ipc(&self) -> bool {
        self.spec.host_ipc.unwrap_or(false) && !self.isolated_ipc
    }

    /// URL of the coordinator: the one in the spec, or that of the coordinator the spec names. `None` without either.
    pub fn coordinator_url(&self) -> Option<&str> {
        let connection = self.spec.coordinator.as_ref()?;
        let written = connection.url.as_deref().filter(|url| !url.is_empty());
        written.or(self.resolved.coordinator_url.as_deref().filter(|url| !url.is_empty()))
    }

    /// IP address that instances announce, when the spec gives one.
    pub fn advertise_ip(&self) -> Option<&str> {
        self.spec.coordinator.as_ref()?.advertise_ip.as_deref().filter(|ip| !ip.is_empty())
    }
}
