//! The first level of the cache: size and eviction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// First level of the cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct L1Spec {
    /// Size of the first level per instance in GB, greater than 0; fractions are allowed. Required. Also sets the memory
    /// request of the pod (see resourceOverrides) and how long an instance may take to start: the memory is pinned
    /// first, so 5 s of startup time are given for every 5 GB, at least 150 s.
    #[serde(rename = "sizeGB")]
    #[schemars(extend("minimum" = 0, "exclusiveMinimum" = true))]
    pub size_gb: f64,
}

/// What is evicted from the first level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum EvictionPolicy {
    /// Least recently used first.
    #[default]
    #[serde(rename = "LRU")]
    Lru,
    /// Nothing: the first level is only a buffer in front of the second.
    #[serde(rename = "noop")]
    Noop,
}

impl EvictionPolicy {
    /// The name as the server's `--eviction-policy` takes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            EvictionPolicy::Lru => "LRU",
            EvictionPolicy::Noop => "noop",
        }
    }
}

/// When and how much the first level evicts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionSpec {
    /// What is evicted: LRU (least recently used first) or noop (nothing; goes with l2Backend.storePolicy skip_l1).
    /// Default LRU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "LRU"))]
    pub policy: Option<EvictionPolicy>,

    /// Filled share of the first level at which eviction starts, greater than 0 and at most 1. Default 0.8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.8, "minimum" = 0, "exclusiveMinimum" = true, "maximum" = 1))]
    pub trigger_watermark: Option<f64>,

    /// Share of the first level that one eviction frees, greater than 0 and at most 1. Default 0.2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.2, "minimum" = 0, "exclusiveMinimum" = true, "maximum" = 1))]
    pub eviction_ratio: Option<f64>,
}
