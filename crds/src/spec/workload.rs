//! What the pods of every kind have: image, metrics, scheduling, and what is passed through.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, LocalObjectReference, PodSecurityContext, ResourceRequirements, Toleration, Volume, VolumeMount,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ImageSpec, PrometheusSpec, PullPolicy, ServiceMonitorSpec};
use crate::resolve::{DEFAULT_METRICS_PORT, non_empty};

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

/// Fields that every kind has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSpec {
    /// Image of the server. Default lmcache/vllm-openai:latest; pin a tag or a digest in production.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,

    /// Secrets with registry credentials for the pods, in their namespace. Default none. The pods that an engine injects
    /// have injection.imagePullSecrets instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,

    /// Metrics of the server and how Prometheus finds them. An engine publishes metrics also when this is left out; a
    /// coordinator only when it is written ({} is enough).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusSpec>,

    /// Resources of the container, used whole: nothing is merged, and {} means no requests and no limits. Unset, an
    /// engine: request 4 CPUs and ceil(l1.sizeGB + 5) Gi of memory, limit 1.5 times that memory rounded up, no CPU limit.
    /// Unset, a coordinator: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_overrides: Option<ResourceRequirements>,

    /// How much the server logs: DEBUG, INFO, WARNING or ERROR (environment variable LMCACHE_LOG_LEVEL). Default INFO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "INFO"))]
    pub log_level: Option<LogLevel>,

    /// Labels that a node must have to run a pod. A map given here is used whole; {} means every node. Unset:
    /// nvidia.com/gpu.present: "true" for an engine with gpuVendor nvidia, every node for all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,

    /// Scheduling rules of the pods, passed through. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// Taints that the pods tolerate, passed through. Default none beyond those of every pod of a DaemonSet or Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,

    /// Environment of the container, after the operator's own. An entry of the same name replaces the operator's.
    /// Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,

    /// Volumes of the pods, before the operator's own. Default none. In an engine, the name l2-master-key is taken while
    /// l2Backend.serde.aesgcm is set, and a volume named lmcache-dev-shm replaces the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<Volume>>,

    /// Mounts of the container, before the operator's own. Default none. In an engine, the path /etc/lmcache/keys is
    /// taken while l2Backend.serde.aesgcm is set, and a mount at /dev/shm replaces the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<VolumeMount>>,

    /// Annotations of the pods. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_annotations: Option<BTreeMap<String, String>>,

    /// Labels of the pods. Default none. app.kubernetes.io/name, instance and managed-by belong to the operator and are
    /// not overridden; app.kubernetes.io/component may be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_labels: Option<BTreeMap<String, String>>,

    /// ServiceAccount of the pods. Default: the namespace's default account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// PriorityClass of the pods. Default: the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,

    /// Security settings of the pods, passed through: user, groups, seccomp. Default none. A server that does not run as
    /// root needs fsGroup to read the master key of l2Backend.serde.aesgcm (D60).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security_context: Option<PodSecurityContext>,

    /// Arguments appended to the server's command line, one token each. Default none. They come last and so win over
    /// the operator's; a flag that has a field of its own belongs into that field, since probes, ports and Services
    /// follow the field only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_args: Option<Vec<String>>,

    /// Seconds without progress (an instance updated or ready) after which a rollout is reported as Degraded, reason
    /// ProgressDeadlineExceeded. At least 1. Unset: 600, or for an engine the whole startup probe window plus 120 where
    /// that is longer (5 s + 5 s x max(30, l1.sizeGB / 5)). Nothing is rolled back or deleted when it passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub progress_deadline_seconds: Option<i32>,
}

impl WorkloadSpec {
    /// Reference of the server image: `repository:tag`, or `repository@digest` where a digest is given (D62).
    pub fn image_reference(&self) -> String {
        self.image.as_ref().map_or_else(|| ImageSpec::default().reference(), ImageSpec::reference)
    }

    /// `image.pullPolicy`, by default `IfNotPresent`.
    pub fn pull_policy(&self) -> PullPolicy {
        self.image.as_ref().and_then(|image| image.pull_policy).unwrap_or_default()
    }

    /// `prometheus.port`, the port of the metrics Service, by default 9090.
    pub fn metrics_port(&self) -> i32 {
        self.prometheus.as_ref().and_then(|prometheus| prometheus.port).unwrap_or(DEFAULT_METRICS_PORT)
    }

    /// Whether a `ServiceMonitor` is wanted: if `prometheus.serviceMonitor.enabled`, whatever `prometheus.enabled` says.
    pub fn service_monitor_enabled(&self) -> bool {
        self.service_monitor().and_then(|monitor| monitor.enabled).unwrap_or(false)
    }

    /// `prometheus.serviceMonitor.interval`, by default and for an empty string `30s`.
    pub fn service_monitor_interval(&self) -> &str {
        self.service_monitor().and_then(|monitor| non_empty(monitor.interval.as_ref())).unwrap_or("30s")
    }

    /// `prometheus.serviceMonitor.labels`, if any.
    pub fn service_monitor_labels(&self) -> Option<&BTreeMap<String, String>> {
        self.service_monitor()?.labels.as_ref()
    }

    /// `logLevel`, by default `INFO`.
    pub fn log_level(&self) -> LogLevel {
        self.log_level.unwrap_or_default()
    }

    pub(crate) fn service_monitor(&self) -> Option<&ServiceMonitorSpec> {
        self.prometheus.as_ref()?.service_monitor.as_ref()
    }
}
