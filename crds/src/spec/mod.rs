//! What users write: the fields that `LMCacheEngine` and its sibling kinds share, group by group.
//!
//! Every optional field is an `Option`, so that unset and empty stay apart and a decoded object is written back as it
//! was read. The doc comments are the descriptions of the schema: `kubectl explain lmc.spec` prints them.
#![allow(clippy::doc_markdown, reason = "the text is printed by kubectl explain, where backticks are noise")]
#![allow(rustdoc::bare_urls, rustdoc::invalid_html_tags, reason = "plain text, for the same reader")]

mod coordinator;
mod image;
mod injection;
mod l2;
mod memory;
mod network_policy;
mod pd;
mod prometheus;
mod server;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, LocalObjectReference, ResourceRequirements, Toleration, Volume, VolumeMount,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use coordinator::CoordinatorConnection;
pub use image::{ImageSpec, PayloadImageSpec, PullPolicy};
pub use injection::InjectionSpec;
pub use l2::{
    AesGcmSpec, AuthSecretRef, KeyProvider, L2BackendSpec, PrefetchPolicy, RawSpec, RespSpec, SerdeSpec, StorePolicy,
};
pub use memory::{EvictionPolicy, EvictionSpec, L1Spec};
pub use network_policy::NetworkPolicySpec;
pub use pd::{LoadFailurePolicy, PdSpec};
pub use prometheus::{PrometheusSpec, ServiceMonitorSpec};
pub use server::{HashAlgorithm, ProbesSpec, ReadinessProbe, ServerSpec};

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

/// How much the server logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum LogLevel {
    /// Everything, for a developer.
    Debug,
    /// What happens.
    #[default]
    Info,
    /// What may be wrong.
    Warning,
    /// What is wrong.
    Error,
}

impl LogLevel {
    /// The name as the server's `LMCACHE_LOG_LEVEL` takes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            LogLevel::Debug => "DEBUG",
            LogLevel::Info => "INFO",
            LogLevel::Warning => "WARNING",
            LogLevel::Error => "ERROR",
        }
    }
}

/// Fields that every engine kind has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineSpec {
    /// Maker of the GPUs: nvidia or amd. Default nvidia. Decides the runtime class, the NVIDIA environment variables,
    /// the default nodeSelector and whether isolated IPC is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "nvidia"))]
    pub gpu_vendor: Option<GpuVendor>,

    /// RuntimeClass of the engine pods, for any vendor. Unset: nvidia with gpuVendor nvidia, none with amd. An empty
    /// string: no runtime class at all. It never adds CDI annotations; write those into podAnnotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,

    /// Image of the cache server. Default lmcache/vllm-openai:latest; pin a tag or a digest in production.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,

    /// Secrets with registry credentials for the engine pods, in the engine's namespace. Default none. The pods that
    /// are injected have injection.imagePullSecrets instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,

    /// Ports and hashing of the cache server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerSpec>,

    /// First level of the cache: pinned memory of the node. Required.
    pub l1: L1Spec,

    /// When and how much the first level evicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<EvictionSpec>,

    /// Metrics of the cache server and how Prometheus finds them. Default on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusSpec>,

    /// Second level of the cache behind the node's memory: a RESP store (Redis, Valkey) or any adapter of the server.
    /// Default none. Exactly one of resp and raw must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2_backend: Option<L2BackendSpec>,

    /// Coordinator that this engine registers with. Default none. Exactly one of ref and url must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<CoordinatorConnection>,

    /// How vLLM pods that opt in by label are connected to this engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection: Option<InjectionSpec>,

    /// Resources of the engine container, used whole: nothing is merged, and {} means no requests and no limits.
    /// Unset: request 4 CPUs and ceil(l1.sizeGB + 5) Gi of memory, limit 1.5 times that memory rounded up, no CPU limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_overrides: Option<ResourceRequirements>,

    /// How much the server logs: DEBUG, INFO, WARNING or ERROR (environment variable LMCACHE_LOG_LEVEL). Default INFO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "INFO"))]
    pub log_level: Option<LogLevel>,

    /// Labels that a node must have to run an instance. Unset: nvidia.com/gpu.present: "true" with gpuVendor nvidia,
    /// every node with amd. A map given here is used whole; {} means every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// Scheduling rules of the engine pods, passed through. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// Taints that the engine pods tolerate, passed through. Default none beyond those of every DaemonSet pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,

    /// Environment of the engine container, after the operator's own. An entry of the same name replaces the
    /// operator's. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,

    /// Volumes of the engine pods, before the operator's own. Default none. The name l2-master-key is taken while
    /// l2Backend.serde.aesgcm is set; a volume named lmcache-dev-shm replaces the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<Volume>>,

    /// Mounts of the engine container, before the operator's own. Default none. The path /etc/lmcache/keys is taken
    /// while l2Backend.serde.aesgcm is set; a mount at /dev/shm replaces the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<VolumeMount>>,

    /// Annotations of the engine pods. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_annotations: Option<BTreeMap<String, String>>,

    /// Labels of the engine pods. Default none. app.kubernetes.io/name, instance and managed-by belong to the operator
    /// and are not overridden; app.kubernetes.io/component may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_labels: Option<BTreeMap<String, String>>,

    /// ServiceAccount of the engine pods. Default: the namespace's default account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// PriorityClass of the engine pods. Default: the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,

    /// Whether the engine pods share the IPC namespace of the node. Default false. Ignored while isolated IPC is on
    /// (with gpuVendor nvidia it is, unless isolatedIPC: false is written).
    #[serde(rename = "hostIPC", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub host_ipc: Option<bool>,

    /// Whether the engine container runs privileged. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub privileged: Option<bool>,

    /// Arguments appended to the server's command line, one token each. Default none. They come last and so win over
    /// the operator's; a flag that has a field of its own belongs into that field, since probes, ports and Services
    /// follow the field only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_args: Option<Vec<String>>,

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

    /// Seconds without progress (an instance updated or ready) after which a rollout is reported as Degraded, reason
    /// ProgressDeadlineExceeded. At least 1. Unset: 600, or the whole startup probe window plus 120 where that is longer
    /// (5 s + 5 s x max(30, l1.sizeGB / 5)). Nothing is rolled back or deleted when it passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub progress_deadline_seconds: Option<i32>,
}
