//! Metrics of the servers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Metrics of the server and how Prometheus finds them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusSpec {
    /// Whether the server publishes metrics. Default true. Where prometheus is left out, an engine publishes metrics and
    /// a coordinator does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub enabled: Option<bool>,

    /// TCP port of the metrics Service, 1 to 65535. Default 9090. The Service forwards it to where the server publishes
    /// /metrics (server.httpPort of an engine, port of a coordinator) and may have the same number; the server itself
    /// does not listen on this port. An engine's must differ from server.port while metrics are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535), extend("default" = 9090))]
    pub port: Option<i32>,

    /// A ServiceMonitor for the Prometheus operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_monitor: Option<ServiceMonitorSpec>,
}

/// A ServiceMonitor for the Prometheus operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitorSpec {
    /// Whether a ServiceMonitor of the resource's name is made. Default false. It does not depend on prometheus.enabled;
    /// with metrics off it finds nothing. Skipped while the cluster has no ServiceMonitor API, made as soon as it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub enabled: Option<bool>,

    /// How often Prometheus scrapes, as a Prometheus duration such as 15s or 1m30s. Default 30s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "30s", "pattern" = crate::validation::PROMETHEUS_DURATION, "maxLength" = 64))]
    pub interval: Option<String>,

    /// Labels of the ServiceMonitor, over the operator's own (so they may override them). Default none. Usually the
    /// label that your Prometheus selects monitors by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}
