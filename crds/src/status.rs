//! What the operator reports: the part every kind shares, and the engines' own.
#![allow(clippy::doc_markdown, reason = "the text is printed by kubectl explain, where backticks are noise")]

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many phase steps `status.phaseTransitions` keeps.
pub const MAX_TRANSITIONS: usize = 20;

/// How many endpoints `status.endpoints` lists (D74).
pub const MAX_ENDPOINTS: usize = 256;

/// Where a resource stands. Serialised by its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Children have never been applied: the spec is invalid, a dependency is missing, or the first apply is under way.
    #[default]
    Pending,
    /// Every child of this generation is applied; the workload controller has not reported yet, or there is nothing to run.
    Reconciled,
    /// Instances of the current revision are being brought up, within the progress deadline.
    Rolling,
    /// Every desired instance runs the current revision and is available.
    Ready,
    /// Needs a person's eye; the reason and the message say why.
    Degraded,
}

impl Phase {
    /// Every phase, in the order of a life.
    pub const ALL: [Phase; 5] = [Phase::Pending, Phase::Reconciled, Phase::Rolling, Phase::Ready, Phase::Degraded];

    /// The name as it stands in `status.phase`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Reconciled => "Reconciled",
            Phase::Rolling => "Rolling",
            Phase::Ready => "Ready",
            Phase::Degraded => "Degraded",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One step of the state machine, as it is kept in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseTransition {
    /// Phase before the step.
    pub from: Phase,
    /// Phase after the step.
    pub to: Phase,
    /// Why, in one CamelCase word; the same word is the Event's reason.
    pub reason: String,
    /// Why, in a sentence for a person.
    pub message: String,
    /// `metadata.generation` that the step was decided for.
    pub generation: i64,
    /// When the step was taken.
    pub time: Time,
}

/// The part of every status that the state machine owns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseRecord {
    /// Where the resource stands: Pending, Reconciled, Rolling, Ready or Degraded.
    #[serde(default)]
    pub phase: Phase,
    /// `metadata.generation` that this status speaks of. A status of an older generation says nothing about the present spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Reason of the present phase, one CamelCase word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message of the present phase, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// ConfigValid, DependenciesReady, Applied, Available, AllInstancesReady and Ready; Reconciling or Stalled while they hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The last 20 phase steps, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phase_transitions: Vec<PhaseTransition>,
    /// When the present rollout last came forward (an instance updated or became ready); the progress deadline counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_progress_time: Option<Time>,
}

/// One running cache server: what a client on the same node connects to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoint {
    /// Node that the instance runs on.
    pub node_name: String,
    /// IP address of that node; empty until the kubelet has reported it.
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    /// Pod of the instance.
    pub pod_name: String,
    /// TCP port of the cache protocol (`spec.server.port`).
    pub port: i32,
    /// TCP port of the metrics Service (`spec.prometheus.port`).
    pub metrics_port: i32,
    /// Whether the pod is ready.
    pub ready: bool,
    /// Revision of the pod template that the pod was made from (its label `controller-revision-hash`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Since when an instance that had been ready is not; absent while it is ready, and while it has never been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_since: Option<Time>,
}

/// Status of `LMCacheEngine` and `CacheBlendEngine`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineStatus {
    /// Phase, conditions and history.
    #[serde(flatten)]
    pub record: PhaseRecord,
    /// Nodes that should run an instance (DaemonSet `status.desiredNumberScheduled`).
    #[serde(default)]
    pub desired_instances: i32,
    /// Instances of the current revision (DaemonSet `status.updatedNumberScheduled`).
    #[serde(default)]
    pub updated_instances: i32,
    /// Ready instances of any revision (DaemonSet `status.numberReady`).
    #[serde(default)]
    pub ready_instances: i32,
    /// Available instances of any revision (DaemonSet `status.numberAvailable`).
    #[serde(default)]
    pub available_instances: i32,
    /// Instances sorted by node name; at most 256, those that are not ready are kept first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// How many endpoints were left out of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints_truncated: Option<i32>,
}

/// The current time as Kubernetes writes it: whole seconds, so that a status read back equals the one written.
pub fn kubernetes_time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}
