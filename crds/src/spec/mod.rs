//! What users write: the fields that `LMCacheEngine` and its sibling kinds share, group by group.
//!
//! Every optional field is an `Option`, so that unset and empty stay apart and a decoded object is written back as it
//! was read. The doc comments are the descriptions of the schema: `kubectl explain lmc.spec` prints them.
#![allow(clippy::doc_markdown, reason = "the text is printed by kubectl explain, where backticks are noise")]
#![allow(rustdoc::bare_urls, rustdoc::invalid_html_tags, reason = "plain text, for the same reader")]

mod blend;
mod connection;
mod image;
mod injection;
mod l2;
mod memory;
mod network_policy;
mod pd;
mod prometheus;
mod server;
mod workload;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use blend::BlendSpec;
pub use connection::CoordinatorConnection;
pub use image::{ImageSpec, PayloadImageSpec, PullPolicy};
pub use injection::{CacheBlendInjectionSpec, CudagraphMode, InjectionSpec};
pub use l2::{
    AesGcmSpec, AuthSecretRef, KeyProvider, L2BackendSpec, PrefetchPolicy, RawSpec, RespSpec, SerdeSpec, StorePolicy,
};
pub use memory::{EvictionPolicy, EvictionSpec, L1Spec};
pub use network_policy::NetworkPolicySpec;
pub use pd::{LoadFailurePolicy, PdSpec};
pub use prometheus::{PrometheusSpec, ServiceMonitorSpec};
pub use server::{HashAlgorithm, ProbesSpec, ReadinessProbe, ServerSpec};
pub use workload::{LogLevel, WorkloadSpec};

/// Maker of the GPUs on the nodes that run the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GpuVendor {
    /// NVIDIA: runtime class `nvidia`, NVIDIA environment, isolated IPC.
    #[default]
    Nvidia,
    /// AMD: no runtime class, shared `/dev/shm`.
    Amd,
}

impl GpuVendor {
    /// The name as it stands in `gpuVendor`.
    pub const fn as_str(self) -> &'static str {
        match self {
            GpuVendor::Nvidia => "nvidia",
            GpuVendor::Amd => "amd",
        }
    }
}

/// Fields that every engine kind has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineSpec {
    /// What the pods of every kind have.
    #[serde(flatten)]
    pub workload: WorkloadSpec,

    /// Maker of the GPUs: nvidia or amd. Default nvidia. Decides the runtime class, the NVIDIA environment variables,
    /// the default nodeSelector and, for an LMCacheEngine, whether isolated IPC is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "nvidia"))]
    pub gpu_vendor: Option<GpuVendor>,

    /// RuntimeClass of the engine pods, for any vendor. Unset: nvidia with gpuVendor nvidia, none with amd. An empty
    /// string: no runtime class at all. It never adds CDI annotations; write those into podAnnotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,

    /// Ports and hashing of the cache server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerSpec>,

    /// First level of the cache: pinned memory of the node. Required.
    pub l1: L1Spec,

    /// When and how much the first level evicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<EvictionSpec>,

    /// Second level of the cache behind the node's memory: a RESP store (Redis, Valkey) or any adapter of the server.
    /// Default none. Exactly one of resp and raw must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_backend: Option<L2BackendSpec>,

    /// Coordinator that this engine registers with. Default none. Exactly one of ref and url must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<CoordinatorConnection>,

    /// Whether the engine pods share the IPC namespace of the node. Default false. Ignored by an LMCacheEngine while
    /// isolated IPC is on (with gpuVendor nvidia it is, unless isolatedIPC: false is written).
    #[serde(rename = "hostIPC", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub host_ipc: Option<bool>,

    /// Whether the engine container runs privileged. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub privileged: Option<bool>,

    /// Disaggregated prefill and decode: connection documents for prefillers and decoders that also use NIXL. Default
    /// off; {} turns it on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pd: Option<PdSpec>,

    /// Who may reach the engine over the network. Default: no NetworkPolicy is made, and every pod of the cluster may.
    /// Mind that the HTTP frontend (server.httpPort) has administrative routes without authentication, and that it
    /// listens on all addresses of the pod so that Prometheus and the lookup Service reach it: without a policy, whoever
    /// reaches the pod reaches those routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicySpec>,

    /// How the kubelet finds out whether an instance can serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<ProbesSpec>,
}
