//! `LMCacheEngine`: one cache server on every GPU node.
#![allow(clippy::doc_markdown, reason = "the text is printed by kubectl explain, where backticks are noise")]

use k8s_openapi::api::core::v1::Container;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    EngineStatus,
    spec::{EngineSpec, InjectionSpec},
};

/// A fleet of cache servers, one on every node that nodeSelector selects, and how vLLM finds them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "lmcache.lmcache.ai",
    version = "v1alpha1",
    kind = "LMCacheEngine",
    plural = "lmcacheengines",
    singular = "lmcacheengine",
    shortname = "lmc",
    category = "lmcache",
    namespaced,
    status = "EngineStatus",
    derive = "PartialEq",
    doc = "LMCacheEngine runs an LMCache server on every selected GPU node and publishes how vLLM connects to them."
)]
#[serde(rename_all = "camelCase")]
pub struct LMCacheEngineSpec {
    /// What every engine kind has.
    #[serde(flatten)]
    pub common: EngineSpec,

    /// How vLLM pods that opt in by label are connected to this engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection: Option<InjectionSpec>,

    /// Whether the engine pods use the network of the node. Default false. When true, the pods' DNS policy is
    /// ClusterFirstWithHostNet, and the ports must be free on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub host_network: Option<bool>,

    /// Whether engine and vLLM exchange data without a shared /dev/shm. Unset: true with gpuVendor nvidia, false with
    /// amd. A written value wins with any vendor. While it is true, hostIPC is ignored.
    #[serde(rename = "isolatedIPC", default, skip_serializing_if = "Option::is_none")]
    pub isolated_ipc: Option<bool>,

    /// Containers that run to their end before the engine starts, copied as they are. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_containers: Option<Vec<Container>>,
}
