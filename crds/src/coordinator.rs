//! `LMCacheCoordinator`: the registry that engines report to.
#![allow(clippy::doc_markdown, reason = "the text is printed by kubectl explain, where backticks are noise")]
#![allow(rustdoc::bare_urls, reason = "plain text, for the same reader")]

use std::time::Duration;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    CoordinatorStatus,
    resolve::{DEFAULT_CHUNK_SIZE, DEFAULT_COORDINATOR_PORT, MIN_PROGRESS_DEADLINE, non_empty, written_deadline},
    spec::{HashAlgorithm, WorkloadSpec},
};

/// A registry that engines report to: which instances live, what their second levels hold.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "lmcache.lmcache.ai",
    version = "v1alpha1",
    kind = "LMCacheCoordinator",
    plural = "lmcachecoordinators",
    singular = "lmcachecoordinator",
    shortname = "lmcc",
    category = "lmcache",
    namespaced,
    status = "CoordinatorStatus",
    derive = "PartialEq",
    doc = "LMCacheCoordinator runs the registry that engines of its namespace register at."
)]
#[serde(rename_all = "camelCase")]
pub struct LMCacheCoordinatorSpec {
    /// What the pods of every kind have.
    #[serde(flatten)]
    pub workload: WorkloadSpec,

    /// How many coordinators run, at least 0. Default 1. Each keeps its registry in its own memory, so with more than
    /// one every engine is known to one of them only; 0 stops the coordinator and keeps its Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 1))]
    pub replicas: Option<i32>,

    /// Address that the server listens on, inside the pod. Default 0.0.0.0: every IPv4 address. Use :: for IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "0.0.0.0"))]
    pub host: Option<String>,

    /// TCP port of the server and of its Service, 1 to 65535. Default 9300. Engines register there, and it answers
    /// /healthz and /metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535), extend("default" = 9300))]
    pub port: Option<i32>,

    /// Seconds without a heartbeat after which an instance is forgotten, greater than 0; fractions are allowed. Default
    /// 30. Keep it well above the engines' coordinator.heartbeatInterval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 30, "minimum" = 0, "exclusiveMinimum" = true))]
    pub instance_timeout: Option<f64>,

    /// Seconds between two searches for instances to forget, at least 0; fractions are allowed. Default 10. 0: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 10, "minimum" = 0))]
    pub health_check_interval: Option<f64>,

    /// Seconds between two sweeps that evict from the second levels, at least 0; fractions are allowed. Default 5. 0:
    /// never, so nothing is evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 5, "minimum" = 0))]
    pub eviction_check_interval: Option<f64>,

    /// Share of the known keys, by their number, that one sweep evicts, 0 to 1. Default 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.2, "minimum" = 0, "maximum" = 1))]
    pub eviction_ratio: Option<f64>,

    /// Used share of a quota at which eviction starts, greater than 0 and at most 1. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 1, "minimum" = 0, "exclusiveMinimum" = true, "maximum" = 1))]
    pub trigger_watermark: Option<f64>,

    /// Tokens in one cache chunk, at least 1 (flag --chunk-size). Unset: the server's own default, 256. Must equal the
    /// server.chunkSize of the engines that register here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub blend_chunk_size: Option<i32>,

    /// Positions between two places of a prompt at which a blend lookup searches for a chunk, at least 1. Unset: the
    /// server's own default, 1 (every position). Without enableBlendLookup it has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub blend_probe_stride: Option<i32>,

    /// How tokens are hashed into cache keys: builtin, sha256_cbor or blake3. Default blake3. Must equal the
    /// server.hashAlgorithm of the engines that register here. All but blake3 need an image that has vLLM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "blake3"))]
    pub hash_algorithm: Option<HashAlgorithm>,

    /// Whether the content of stored chunks is indexed, so that CacheBlend finds chunks of the whole fleet. Default false,
    /// since hashing costs CPU at every store. The index knows only what engines with coordinator.l2EventReporting: true
    /// report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub enable_blend_lookup: Option<bool>,
}

impl LMCacheCoordinatorSpec {
    /// `replicas`, by default 1.
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }

    /// `host`, by default and for an empty string `0.0.0.0`.
    pub fn host(&self) -> &str {
        non_empty(self.host.as_ref()).unwrap_or("0.0.0.0")
    }

    /// `port`, by default 9300.
    pub fn port(&self) -> i32 {
        self.port.unwrap_or(DEFAULT_COORDINATOR_PORT)
    }

    /// `instanceTimeout` in seconds, by default 30.
    pub fn instance_timeout(&self) -> f64 {
        self.instance_timeout.unwrap_or(30.0)
    }

    /// `healthCheckInterval` in seconds, by default 10; 0 means never.
    pub fn health_check_interval(&self) -> f64 {
        self.health_check_interval.unwrap_or(10.0)
    }

    /// `evictionCheckInterval` in seconds, by default 5; 0 means never.
    pub fn eviction_check_interval(&self) -> f64 {
        self.eviction_check_interval.unwrap_or(5.0)
    }

    /// `evictionRatio`, a share, by default 0.2.
    pub fn eviction_ratio(&self) -> f64 {
        self.eviction_ratio.unwrap_or(0.2)
    }

    /// `triggerWatermark`, a share, by default 1.
    pub fn trigger_watermark(&self) -> f64 {
        self.trigger_watermark.unwrap_or(1.0)
    }

    /// Chunk size in tokens that the server works with: `blendChunkSize`, by default 256.
    pub fn chunk_size(&self) -> i32 {
        self.blend_chunk_size.unwrap_or(DEFAULT_CHUNK_SIZE)
    }

    /// `hashAlgorithm`, by default `blake3`.
    pub fn hash_algorithm(&self) -> HashAlgorithm {
        self.hash_algorithm.unwrap_or_default()
    }

    /// `enableBlendLookup`, by default false.
    pub fn enable_blend_lookup(&self) -> bool {
        self.enable_blend_lookup.unwrap_or(false)
    }

    /// Whether the server publishes metrics: if `prometheus` is written, unless its `enabled` is false.
    pub fn prometheus_enabled(&self) -> bool {
        self.workload.prometheus.as_ref().is_some_and(|prometheus| prometheus.enabled.unwrap_or(true))
    }

    /// How long a rollout may stand still before it is reported: `progressDeadlineSeconds` (at least 1 s), unset 600 s.
    pub fn progress_deadline(&self) -> Duration {
        written_deadline(&self.workload).unwrap_or(MIN_PROGRESS_DEADLINE)
    }

    /// Where engines reach the coordinator of this name and namespace.
    pub fn url(&self, name: &str, namespace: &str) -> String {
        format!("http://{name}.{namespace}.svc:{}", self.port())
    }
}
