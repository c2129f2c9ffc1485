//! The second level of the cache.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::LocalObjectReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resolve::non_empty;

/// What is written to the second level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StorePolicy {
    /// Written to both levels.
    #[default]
    Default,
    /// Kept in the second level only.
    SkipL1,
}

impl StorePolicy {
    /// The name as the server's `--l2-store-policy` takes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            StorePolicy::Default => "default",
            StorePolicy::SkipL1 => "skip_l1",
        }
    }
}

/// What happens to data fetched from the second level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PrefetchPolicy {
    /// The server decides.
    #[default]
    Default,
    /// Kept in the first level.
    Retain,
}

impl PrefetchPolicy {
    /// The name as the server's `--l2-prefetch-policy` takes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            PrefetchPolicy::Default => "default",
            PrefetchPolicy::Retain => "retain",
        }
    }
}

/// Second level of the cache: exactly one adapter, and how it is used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct L2BackendSpec {
    /// A store that speaks RESP, such as Redis or Valkey. Set this or raw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resp: Option<RespSpec>,

    /// Any adapter of the server, configured by hand. Set this or resp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<RawSpec>,

    /// Transformation of what is stored in the second level: encryption. Default none. Cannot be combined with a raw
    /// adapter whose config has a serde key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serde: Option<SerdeSpec>,

    /// What is written where: default (both levels) or skip_l1 (second level only). Default default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "default"))]
    pub store_policy: Option<StorePolicy>,

    /// What happens to data fetched from the second level: default or retain (kept in the first level). Default default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "default"))]
    pub prefetch_policy: Option<PrefetchPolicy>,

    /// How many fetches from the second level may be under way at once, at least 1. Default 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 8))]
    pub prefetch_max_in_flight: Option<i32>,
}

/// A store that speaks RESP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RespSpec {
    /// Host name or IP address of the store. Required, not empty.
    pub host: String,

    /// TCP port of the store, 1 to 65535. Required.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,

    /// Worker threads of the adapter, at least 1. Default 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 8))]
    pub num_workers: Option<i32>,

    /// How much the adapter stores in GB, at least 0. Default 0: no limit of its own.
    #[serde(rename = "maxCapacityGB", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0, "minimum" = 0))]
    pub max_capacity_gb: Option<f64>,

    /// Secret with the store's credentials. Default none: no authentication. The operator copies it to
    /// <engine>-resp-auth in the engine's namespace; a rotation rolls the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_secret_ref: Option<AuthSecretRef>,
}

/// Secret with the credentials of a RESP store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthSecretRef {
    /// Name of the Secret. Required, not empty. Its key password is required, its key username optional.
    pub name: String,

    /// Namespace of the Secret. Default: the engine's. A Secret of another namespace must allow it by the annotation
    /// lmcache.ai/share-with: "<namespace>,<namespace>" or "*".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Any adapter of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RawSpec {
    /// Name of the adapter, such as fs, nixl_store or mooncake. Required, not empty.
    #[serde(rename = "type")]
    pub type_: String,

    /// Settings of the adapter, any JSON, merged with type into one flat object for the server's --l2-adapter. Default
    /// none. Must not hold a key type, nor a key serde together with l2Backend.serde. It stands in the pod's command
    /// line: never write credentials here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<BTreeMap<String, serde_json::Value>>,
}

/// Transformation of what is stored in the second level: exactly one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SerdeSpec {
    /// Encryption with AES-GCM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aesgcm: Option<AesGcmSpec>,
}

/// How keys are derived from the master key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyProvider {
    /// HKDF.
    #[default]
    Hkdf,
}

impl KeyProvider {
    /// The name as the adapter's `key_provider` takes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            KeyProvider::Hkdf => "hkdf",
        }
    }
}

/// Encryption with AES-GCM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AesGcmSpec {
    /// Secret of the engine's namespace that holds the master key under the key master. Required, name not empty. It is
    /// mounted at /etc/lmcache/keys/master; the operator never reads it.
    pub master_key_secret_ref: LocalObjectReference,

    /// How keys are derived from the master key: hkdf. Default hkdf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "hkdf"))]
    pub key_provider: Option<KeyProvider>,

    /// Length of the derived keys in bits: 128 or 256. Default 128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 128, "enum" = [128, 256]))]
    pub aes_bits: Option<i32>,
}

impl L2BackendSpec {
    /// `storePolicy`, by default `default`.
    pub fn store_policy(&self) -> StorePolicy {
        self.store_policy.unwrap_or_default()
    }

    /// `prefetchPolicy`, by default `default`.
    pub fn prefetch_policy(&self) -> PrefetchPolicy {
        self.prefetch_policy.unwrap_or_default()
    }

    /// `prefetchMaxInFlight`, by default 8.
    pub fn prefetch_max_in_flight(&self) -> i32 {
        self.prefetch_max_in_flight.unwrap_or(8)
    }
}

impl RespSpec {
    /// `numWorkers`, by default 8.
    pub fn num_workers(&self) -> i32 {
        self.num_workers.unwrap_or(8)
    }

    /// `maxCapacityGB` where it limits anything, which is when it is greater than 0.
    pub fn max_capacity_gb(&self) -> Option<f64> {
        self.max_capacity_gb.filter(|gb| *gb > 0.0)
    }
}

impl AuthSecretRef {
    /// Namespace of the Secret: the written one, else `own`, the namespace of the resource.
    pub fn namespace_or<'a>(&'a self, own: &'a str) -> &'a str {
        non_empty(self.namespace.as_ref()).unwrap_or(own)
    }
}

impl AesGcmSpec {
    /// `keyProvider`, by default `hkdf`.
    pub fn key_provider(&self) -> KeyProvider {
        self.key_provider.unwrap_or_default()
    }

    /// `aesBits`, by default 128.
    pub fn aes_bits(&self) -> i32 {
        self.aes_bits.unwrap_or(128)
    }
}
