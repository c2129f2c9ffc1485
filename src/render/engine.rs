//! What the engine kinds have in common, and the few things in which they differ.

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Container;
use lmcache_crds::{EngineSpec, EngineStatus, FieldError, LMCacheEngine};
use serde_json::Value;

/// An engine kind: a spec with the common part, and what is special about it.
pub trait Engine: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> {
    /// Kind for logs and metric labels, such as `LMCacheEngine`.
    fn kind_label() -> &'static str;

    /// Plural for logs and metric labels, such as `lmcacheengines`.
    fn resource_label() -> &'static str;

    /// The part of the spec that every engine kind has.
    fn common(&self) -> &EngineSpec;

    /// Whether engine and vLLM do without a shared `/dev/shm`.
    fn isolated_ipc(&self) -> bool;

    /// Whether the pods use the network of their node.
    fn host_network(&self) -> bool;

    /// Containers that run before the engine.
    fn init_containers(&self) -> &[Container];

    /// How vLLM connects to this kind.
    fn connector(&self) -> Connector;

    /// Flags of this kind, between the common ones and the user's `extraArgs`.
    fn extra_server_args(&self) -> Vec<String>;

    /// What was last published.
    fn status(&self) -> Option<&EngineStatus>;

    /// Every error of the spec; empty when it is valid.
    fn validate(&self) -> Vec<FieldError>;

    /// How long a rollout may stand still.
    fn progress_deadline(&self) -> Duration;
}

/// The vLLM connector of an engine kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Connector {
    /// `kv_connector`: name of its class.
    pub name: &'static str,
    /// `kv_connector_module_path`: Python module that holds the class.
    pub module: &'static str,
    /// Entries of `kv_connector_extra_config` beside host, port and isolated IPC.
    pub extra_config: Vec<(&'static str, Value)>,
    /// What a decoder uses when prefill and decode are disaggregated.
    pub decoder: Decoder,
}

/// Connector of a decoder with disaggregated prefill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoder {
    /// NIXL for the transfer and the cache connector behind it.
    TransferAndCache,
    /// NIXL alone.
    TransferOnly,
}

impl Engine for LMCacheEngine {
    fn kind_label() -> &'static str {
        "LMCacheEngine"
    }

    fn resource_label() -> &'static str {
        "lmcacheengines"
    }

    fn common(&self) -> &EngineSpec {
        &self.spec.common
    }

    fn isolated_ipc(&self) -> bool {
        self.spec.isolated_ipc()
    }

    fn host_network(&self) -> bool {
        self.spec.host_network()
    }

    fn init_containers(&self) -> &[Container] {
        self.spec.init_containers.as_deref().unwrap_or_default()
    }

    fn connector(&self) -> Connector {
        Connector {
            name: "LMCacheMPConnector",
            module: "lmcache.integration.vllm.lmcache_mp_connector",
            extra_config: Vec::new(),
            decoder: Decoder::TransferAndCache,
        }
    }

    fn extra_server_args(&self) -> Vec<String> {
        Vec::new()
    }

    fn status(&self) -> Option<&EngineStatus> {
        self.status.as_ref()
    }

    fn validate(&self) -> Vec<FieldError> {
        lmcache_crds::validate(self.metadata.name.as_deref().unwrap_or_default(), &self.spec)
    }

    fn progress_deadline(&self) -> Duration {
        self.spec.common.progress_deadline()
    }
}
