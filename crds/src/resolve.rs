//! What a spec means: every optional field resolved to the value that is used, with the fallbacks of the renderer.
//!
//! All of it is right before and after [`EngineSpec::with_defaults`].

use std::{borrow::Cow, time::Duration};

use crate::{
    LMCacheEngineSpec, NVIDIA_NODE_LABEL,
    spec::{
        AesGcmSpec, AuthSecretRef, EngineSpec, EvictionPolicy, GpuVendor, HashAlgorithm, PayloadImageSpec,
        ReadinessProbe, RespSpec, WorkloadSpec,
    },
};
use std::collections::BTreeMap;

/// Image of the cache server where `image.repository` is unset.
pub const DEFAULT_REPOSITORY: &str = "lmcache/vllm-openai";
/// Tag where `image.tag` is unset.
pub const DEFAULT_TAG: &str = "latest";
/// Cache port where `server.port` is unset.
pub const DEFAULT_SERVER_PORT: i32 = 5555;
/// HTTP port where `server.httpPort` is unset.
pub const DEFAULT_HTTP_PORT: i32 = 8080;
/// Port of the metrics Service where `prometheus.port` is unset.
pub const DEFAULT_METRICS_PORT: i32 = 9090;
/// Delay and period of the startup probe, in seconds.
pub const STARTUP_PROBE_SECONDS: i32 = 5;

/// Port of a coordinator where `port` is unset.
pub const DEFAULT_COORDINATOR_PORT: i32 = 9300;
/// Chunk size in tokens where `server.chunkSize` of an engine or `blendChunkSize` of a coordinator is unset.
pub const DEFAULT_CHUNK_SIZE: i32 = 256;

const MIN_STARTUP_FAILURES: i32 = 30;
const GB_PER_STARTUP_FAILURE: f64 = 5.0;
pub(crate) const MIN_PROGRESS_DEADLINE: Duration = Duration::from_mins(10);
const STARTUP_GRACE: Duration = Duration::from_mins(2);

impl EngineSpec {
    /// `gpuVendor`, by default NVIDIA.
    pub fn gpu_vendor(&self) -> GpuVendor {
        self.gpu_vendor.unwrap_or_default()
    }

    /// Runtime class of the pods: the written one, none for an empty string; unset `nvidia` for NVIDIA and none for AMD.
    pub fn runtime_class_name(&self) -> Option<&str> {
        match self.runtime_class_name.as_deref() {
            Some("") => None,
            Some(name) => Some(name),
            None => (self.gpu_vendor() == GpuVendor::Nvidia).then_some("nvidia"),
        }
    }

    /// Node labels that an instance needs: the written map, even if empty; unset the NVIDIA label for NVIDIA, none for AMD.
    pub fn node_selector(&self) -> Cow<'_, BTreeMap<String, String>> {
        match &self.workload.node_selector {
            Some(labels) => Cow::Borrowed(labels),
            None if self.gpu_vendor() == GpuVendor::Nvidia => {
                let (key, value) = NVIDIA_NODE_LABEL;
                Cow::Owned(BTreeMap::from([(key.to_owned(), value.to_owned())]))
            }
            None => Cow::Owned(BTreeMap::new()),
        }
    }

    /// `server.port`, by default 5555.
    pub fn server_port(&self) -> i32 {
        self.server.as_ref().and_then(|server| server.port).unwrap_or(DEFAULT_SERVER_PORT)
    }

    /// `server.httpPort`, by default 8080.
    pub fn http_port(&self) -> i32 {
        self.server.as_ref().and_then(|server| server.http_port).unwrap_or(DEFAULT_HTTP_PORT)
    }

    /// `server.chunkSize` in tokens, by default 256.
    pub fn chunk_size(&self) -> i32 {
        self.server.as_ref().and_then(|server| server.chunk_size).unwrap_or(DEFAULT_CHUNK_SIZE)
    }

    /// `server.maxWorkers`, by default 1.
    pub fn max_workers(&self) -> i32 {
        self.server.as_ref().and_then(|server| server.max_workers).unwrap_or(1)
    }

    /// `server.hashAlgorithm`, by default `blake3`.
    pub fn hash_algorithm(&self) -> HashAlgorithm {
        self.server.as_ref().and_then(|server| server.hash_algorithm).unwrap_or_default()
    }

    /// `eviction.policy`, by default `LRU`.
    pub fn eviction_policy(&self) -> EvictionPolicy {
        self.eviction.as_ref().and_then(|eviction| eviction.policy).unwrap_or_default()
    }

    /// `eviction.triggerWatermark`, a share, by default 0.8.
    pub fn trigger_watermark(&self) -> f64 {
        self.eviction.as_ref().and_then(|eviction| eviction.trigger_watermark).unwrap_or(0.8)
    }

    /// `eviction.evictionRatio`, a share, by default 0.2.
    pub fn eviction_ratio(&self) -> f64 {
        self.eviction.as_ref().and_then(|eviction| eviction.eviction_ratio).unwrap_or(0.2)
    }

    /// Whether the server publishes metrics: unless `prometheus.enabled` is false.
    pub fn prometheus_enabled(&self) -> bool {
        self.workload.prometheus.as_ref().and_then(|prometheus| prometheus.enabled).unwrap_or(true)
    }

    /// `privileged`, by default false.
    pub fn privileged(&self) -> bool {
        self.privileged.unwrap_or(false)
    }

    /// The RESP store of the second level, if that is the adapter.
    pub fn resp(&self) -> Option<&RespSpec> {
        self.l2_backend.as_ref()?.resp.as_ref()
    }

    /// Secret with the credentials of the RESP store, if any.
    pub fn auth_secret_ref(&self) -> Option<&AuthSecretRef> {
        self.resp()?.auth_secret_ref.as_ref()
    }

    /// Encryption of the second level, if any.
    pub fn aesgcm(&self) -> Option<&AesGcmSpec> {
        self.l2_backend.as_ref()?.serde.as_ref()?.aesgcm.as_ref()
    }

    /// Whether a `NetworkPolicy` is wanted.
    pub fn network_policy_enabled(&self) -> bool {
        self.network_policy.as_ref().and_then(|policy| policy.enabled).unwrap_or(false)
    }

    /// What the readiness probe asks, by default the TCP port (D82).
    pub fn readiness_probe(&self) -> ReadinessProbe {
        self.probes.as_ref().and_then(|probes| probes.readiness).unwrap_or_default()
    }

    /// How often the startup probe may fail: one for every 5 GB of `l1.sizeGB`, at least 30.
    pub fn startup_failure_threshold(&self) -> i32 {
        #[allow(clippy::cast_possible_truncation, reason = "truncation is the rule, and the cast saturates")]
        let failures = (self.l1.size_gb / GB_PER_STARTUP_FAILURE) as i32;
        failures.max(MIN_STARTUP_FAILURES)
    }

    /// How long an instance may take to start before the kubelet kills it: the startup probe's delay and all its periods.
    pub fn startup_window(&self) -> Duration {
        let period = u64::from(STARTUP_PROBE_SECONDS.unsigned_abs());
        Duration::from_secs(period + period * u64::from(self.startup_failure_threshold().unsigned_abs()))
    }

    /// How long a rollout may stand still before it is reported: `progressDeadlineSeconds` (at least 1 s), unset 600 s or
    /// the whole startup window plus 120 s, whichever is longer.
    pub fn progress_deadline(&self) -> Duration {
        let unset = || MIN_PROGRESS_DEADLINE.max(self.startup_window() + STARTUP_GRACE);
        written_deadline(&self.workload).unwrap_or_else(unset)
    }
}

impl LMCacheEngineSpec {
    /// Whether engine and vLLM work without a shared `/dev/shm`: the written value, unset true for NVIDIA and false for AMD.
    pub fn isolated_ipc(&self) -> bool {
        self.isolated_ipc.unwrap_or_else(|| self.common.gpu_vendor() == GpuVendor::Nvidia)
    }

    /// Whether the pods share the IPC namespace of the node: if `hostIPC` and not isolated.
    pub fn host_ipc(&self) -> bool {
        self.common.host_ipc.unwrap_or(false) && !self.isolated_ipc()
    }

    /// The image to stage into injected pods, if there is a usable one (see [`PayloadImageSpec::is_unset`]).
    pub fn payload_image(&self) -> Option<&PayloadImageSpec> {
        self.injection.as_ref()?.payload_image()
    }

    /// `hostNetwork`, by default false.
    pub fn host_network(&self) -> bool {
        self.host_network.unwrap_or(false)
    }
}

/// `progressDeadlineSeconds` if it is written, at least 1 s.
pub(crate) fn written_deadline(workload: &WorkloadSpec) -> Option<Duration> {
    workload.progress_deadline_seconds.map(|seconds| Duration::from_secs(u64::from(seconds.max(1).unsigned_abs())))
}

/// The string, unless it is unset or empty.
pub(crate) fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}
