//! The cache server: ports, hashing, probes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How tokens are hashed into cache keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HashAlgorithm {
    /// Python's own hash; the same in all processes only with a fixed PYTHONHASHSEED.
    Builtin,
    /// SHA-256 over CBOR.
    Sha256Cbor,
    /// BLAKE3.
    #[default]
    Blake3,
}

impl HashAlgorithm {
    /// The name as the server's `--hash-algorithm` takes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            HashAlgorithm::Builtin => "builtin",
            HashAlgorithm::Sha256Cbor => "sha256_cbor",
            HashAlgorithm::Blake3 => "blake3",
        }
    }
}

/// Ports and hashing of the cache server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerSpec {
    /// TCP port of the cache protocol (ZMQ), 1024 to 65535. Default 5555. Used by the server, the probes, the lookup
    /// Service, the connection ConfigMap and status.endpoints. Must differ from httpPort, and from prometheus.port while
    /// metrics are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 65535), extend("default" = 5555))]
    pub port: Option<i32>,

    /// TCP port of the HTTP frontend, 1024 to 65535. Default 8080. It answers /healthcheck and /metrics, and has
    /// administrative routes without authentication: see networkPolicy. Must differ from port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 65535), extend("default" = 8080))]
    pub http_port: Option<i32>,

    /// Tokens in one cache chunk, at least 1. Default 256. Engines that share a second level or a coordinator need the
    /// same value (a coordinator has it as blendChunkSize). CacheBlendEngine: only 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 256))]
    pub chunk_size: Option<i32>,

    /// Worker threads of the server, at least 1. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 1))]
    pub max_workers: Option<i32>,

    /// How tokens are hashed into cache keys: builtin, sha256_cbor or blake3. Default blake3. Engines that share a second
    /// level or a coordinator need the same value (a coordinator has it as hashAlgorithm).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "blake3"))]
    pub hash_algorithm: Option<HashAlgorithm>,
}

/// What the readiness probe asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReadinessProbe {
    /// Whether the cache port accepts a connection.
    #[default]
    Tcp,
    /// Whether `/healthcheck` of the HTTP frontend says so.
    Http,
}

/// How the kubelet finds out whether an instance can serve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProbesSpec {
    /// What makes an instance ready: tcp (server.port accepts a connection) or http (GET /healthcheck on
    /// server.httpPort succeeds, so an engine that calls itself unhealthy is not ready). Default tcp. Changing it
    /// restarts the instances one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "tcp"))]
    pub readiness: Option<ReadinessProbe>,
}
