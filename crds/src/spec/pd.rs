//! Disaggregated prefill and decode.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What vLLM does when NIXL fails to load cached data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadFailurePolicy {
    /// The request fails.
    #[default]
    Fail,
    /// The data is computed anew.
    Ignore,
}

impl LoadFailurePolicy {
    /// The name as the connector's `kv_load_failure_policy` takes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            LoadFailurePolicy::Fail => "fail",
            LoadFailurePolicy::Ignore => "ignore",
        }
    }
}

/// Disaggregated prefill and decode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PdSpec {
    /// TCP port of NIXL's side channel in the vLLM pods, 1024 to 65535. Default 5558.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 65535), extend("default" = 5558))]
    pub nixl_side_channel_port: Option<i32>,

    /// What vLLM does when NIXL fails to load cached data: fail (the request fails) or ignore (the data is computed
    /// anew). Default fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "fail"))]
    pub nixl_load_failure_policy: Option<LoadFailurePolicy>,

    /// Whether NIXL refuses a peer of another version or configuration. Unset: the connector's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforce_handshake_compat: Option<bool>,
}

impl PdSpec {
    /// `nixlSideChannelPort`, by default 5558.
    pub fn nixl_side_channel_port(&self) -> i32 {
        self.nixl_side_channel_port.unwrap_or(5558)
    }

    /// `nixlLoadFailurePolicy`, by default `fail`.
    pub fn nixl_load_failure_policy(&self) -> LoadFailurePolicy {
        self.nixl_load_failure_policy.unwrap_or_default()
    }
}
