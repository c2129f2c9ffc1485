//! What the engine kinds have in common, and the few things in which they differ.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Container;
use lmcache_crds::{CacheBlendEngine, EngineSpec, FieldError, LMCacheEngine};
use serde_json::{Value, json};

use crate::admission::injection::Injector;

/// An engine kind: a spec with the common part, and what is special about it.
pub trait Engine: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope> {
    /// Kind for logs and metric labels, such as `LMCacheEngine`.
    const KIND: &'static str;

    /// Plural for logs and metric labels, such as `lmcacheengines`.
    const PLURAL: &'static str;

    /// Who connects pods to this kind.
    const INJECTOR: Injector;

    /// The part of the spec that every engine kind has.
    fn common(&self) -> &EngineSpec;

    /// Whether engine and vLLM do without a shared `/dev/shm`; a kind without the field never does.
    fn isolated_ipc(&self) -> bool {
        false
    }

    /// Whether the pods use the network of their node; a kind without the field never does.
    fn host_network(&self) -> bool {
        false
    }

    /// Containers that run before the engine; a kind without the field has none.
    fn init_containers(&self) -> &[Container] {
        &[]
    }

    /// How vLLM connects to this kind.
    fn connector(&self) -> Connector;

    /// Flags of this kind, between the common ones and the user's `extraArgs`.
    fn extra_server_args(&self) -> Vec<String> {
        Vec::new()
    }

    /// Every error of the spec; empty when it is valid.
    fn validate(&self) -> Vec<FieldError>;
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
    const KIND: &'static str = "LMCacheEngine";
    const PLURAL: &'static str = "lmcacheengines";
    const INJECTOR: Injector = Injector::LmCache;

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

    fn validate(&self) -> Vec<FieldError> {
        lmcache_crds::validate(self.metadata.name.as_deref().unwrap_or_default(), &self.spec)
    }
}

impl Engine for CacheBlendEngine {
    const KIND: &'static str = "CacheBlendEngine";
    const PLURAL: &'static str = "cacheblendengines";
    const INJECTOR: Injector = Injector::CacheBlend;

    fn common(&self) -> &EngineSpec {
        &self.spec.common
    }

    fn connector(&self) -> Connector {
        let mut extra_config = vec![
            ("cb.check_layer", json!(self.spec.check_layer())),
            ("cb.recomp_ratio", json!(self.spec.recomp_ratio())),
        ];
        extra_config.extend(self.spec.partial_bucket().map(|bucket| ("cb.partial_bucket", json!(bucket))));
        Connector {
            name: "CBKVConnector",
            module: "lmcache_cacheblend.connector",
            extra_config,
            decoder: Decoder::TransferOnly,
        }
    }

    fn extra_server_args(&self) -> Vec<String> {
        ["--engine-type", "blend", "--l1-align-bytes", "16777216"].map(str::to_owned).to_vec()
    }

    fn validate(&self) -> Vec<FieldError> {
        lmcache_crds::validate_cache_blend(self.metadata.name.as_deref().unwrap_or_default(), &self.spec)
    }
}
