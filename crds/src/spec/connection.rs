//! The connection to a coordinator.

use k8s_openapi::api::core::v1::LocalObjectReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::resolve::non_empty;

/// Coordinator that an engine registers with, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorConnection {
    /// An LMCacheCoordinator of the engine's namespace, by name. The engine follows its address. Set this or url.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub coordinator_ref: Option<LocalObjectReference>,

    /// URL of a coordinator, such as http://coordinator.example:9300, passed through as it is. Set this or ref.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// IP address that the instances tell the coordinator. Default, also for an empty string: each pod's own.
    #[serde(rename = "advertiseIP", default, skip_serializing_if = "Option::is_none")]
    pub advertise_ip: Option<String>,

    /// Seconds between two heartbeats, greater than 0; fractions are allowed. Default 5. Keep it well below the
    /// coordinator's instanceTimeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 5, "minimum" = 0, "exclusiveMinimum" = true))]
    pub heartbeat_interval: Option<f64>,

    /// Whether stores and evictions of the second level are reported to the coordinator. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub l2_event_reporting: Option<bool>,

    /// Seconds between two reports of second level events, greater than 0; fractions are allowed. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 1, "minimum" = 0, "exclusiveMinimum" = true))]
    pub l2_event_flush_interval: Option<f64>,
}

impl CoordinatorConnection {
    /// The written URL, if it is not empty. It wins over a reference.
    pub fn url(&self) -> Option<&str> {
        non_empty(self.url.as_ref())
    }

    /// Name of the referenced coordinator, if it is not empty.
    pub fn ref_name(&self) -> Option<&str> {
        non_empty(self.coordinator_ref.as_ref().map(|reference| &reference.name))
    }

    /// `advertiseIP`, if it is not empty.
    pub fn advertise_ip(&self) -> Option<&str> {
        non_empty(self.advertise_ip.as_ref())
    }

    /// `heartbeatInterval` in seconds, by default 5.
    pub fn heartbeat_interval(&self) -> f64 {
        self.heartbeat_interval.unwrap_or(5.0)
    }

    /// `l2EventReporting`, by default false.
    pub fn l2_event_reporting(&self) -> bool {
        self.l2_event_reporting.unwrap_or(false)
    }

    /// `l2EventFlushInterval` in seconds, by default 1.
    pub fn l2_event_flush_interval(&self) -> f64 {
        self.l2_event_flush_interval.unwrap_or(1.0)
    }
}
