//! What the operator reports: the part every kind shares, and what each adds.
#![allow(rustdoc::bare_urls, reason = "plain text, for the same reader")]
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
    /// Trace of the rollout of one generation; only while the operator exports traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<RolloutTrace>,
}

/// Where the rollout of one generation is traced: one trace, from the change to Ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutTrace {
    /// W3C trace id, 32 hexadecimal digits: paste it into a trace viewer.
    pub trace_id: String,
    /// Id of the span rollout in that trace, 16 hexadecimal digits.
    pub span_id: String,
    /// Span of the caller that the annotation lmcache.ai/traceparent named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
    /// `metadata.generation` that is rolled out.
    pub generation: i64,
    /// When the resource was created, or this generation first seen.
    pub start_time: Time,
    /// When it last came to its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// What it came to; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RolloutOutcome>,
}

/// What a rollout came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutOutcome {
    /// The generation got Ready.
    Ready,
    /// The generation got Degraded before it was ever Ready, and has not been since.
    Degraded,
    /// The generation got Degraded first, and Ready afterwards.
    Recovered,
}

impl RolloutOutcome {
    /// The name as it stands in `status.trace.outcome`.
    pub const fn as_str(self) -> &'static str {
        match self {
            RolloutOutcome::Ready => "Ready",
            RolloutOutcome::Degraded => "Degraded",
            RolloutOutcome::Recovered => "Recovered",
        }
    }
}

/// One instance: the pod of an engine on one node, or one replica of a coordinator.
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
    /// TCP port that the instance serves: spec.server.port (the cache protocol) of an engine, spec.port of a coordinator.
    pub port: i32,
    /// TCP port of the metrics Service (`spec.prometheus.port`).
    pub metrics_port: i32,
    /// Whether the pod is ready.
    pub ready: bool,
    /// Revision of the pod template that the pod was made from: its label `controller-revision-hash`, or
    /// `pod-template-hash` of a coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Since when an instance that had been ready is not; absent while it is ready, and while it has never been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_since: Option<Time>,
}

/// What the cache servers count, summed over the instances of an engine. The sums grow only, also when servers restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CacheStatus {
    /// Tokens that lookups found in the cache.
    pub hit_tokens: i64,
    /// Tokens that lookups asked for.
    pub requested_tokens: i64,
    /// hitTokens in per cent of requestedTokens with one decimal, such as 63.4%; absent before the first lookup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_rate: Option<String>,
    /// When the servers were asked.
    pub sampled_at: Time,
}

impl CacheStatus {
    /// Counts at a time, with their rate.
    pub fn new(hit_tokens: i64, requested_tokens: i64, sampled_at: Timestamp) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "a share with three digits")]
        let hit_rate =
            (requested_tokens > 0).then(|| format!("{:.1}%", 100.0 * hit_tokens as f64 / requested_tokens as f64));
        CacheStatus { hit_tokens, requested_tokens, hit_rate, sampled_at: kubernetes_time(sampled_at) }
    }
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
    /// Hits of the cache, where its servers publish them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheStatus>,
    /// Instances sorted by node name; at most 256, those that are not ready are kept first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// How many endpoints were left out of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints_truncated: Option<i32>,
}

/// Status of `LMCacheCoordinator`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorStatus {
    /// Phase, conditions and history.
    #[serde(flatten)]
    pub record: PhaseRecord,
    /// Replicas that should run (`spec.replicas`).
    #[serde(default)]
    pub replicas: i32,
    /// Replicas of the current revision (Deployment `status.updatedReplicas`).
    #[serde(default)]
    pub updated_replicas: i32,
    /// Ready replicas of any revision (Deployment `status.readyReplicas`).
    #[serde(default)]
    pub ready_replicas: i32,
    /// Available replicas of any revision (Deployment `status.availableReplicas`).
    #[serde(default)]
    pub available_replicas: i32,
    /// Replicas sorted by node name; at most 256, those that are not ready are kept first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// How many endpoints were left out of the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints_truncated: Option<i32>,
    /// URL that engines register at, such as http://coordinator.cache.svc:9300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

/// What every kind's status says, under whatever field names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Phase, conditions and history.
    pub record: PhaseRecord,
    /// Instances that should run.
    pub desired: i32,
    /// Instances of the current revision.
    pub updated: i32,
    /// Ready instances of any revision.
    pub ready: i32,
    /// Available instances of any revision.
    pub available: i32,
    /// Hits of the cache; coordinators have none.
    pub cache: Option<CacheStatus>,
    /// URL at which the resource is reached; engines have none.
    pub endpoint: Option<String>,
    /// The instances, at most [`MAX_ENDPOINTS`].
    pub endpoints: Vec<Endpoint>,
    /// How many endpoints were left out of the list.
    pub endpoints_truncated: Option<i32>,
}

impl From<&EngineStatus> for Report {
    fn from(status: &EngineStatus) -> Self {
        Report {
            record: status.record.clone(),
            desired: status.desired_instances,
            updated: status.updated_instances,
            ready: status.ready_instances,
            available: status.available_instances,
            cache: status.cache.clone(),
            endpoint: None,
            endpoints: status.endpoints.clone(),
            endpoints_truncated: status.endpoints_truncated,
        }
    }
}

impl From<Report> for EngineStatus {
    fn from(report: Report) -> Self {
        EngineStatus {
            record: report.record,
            desired_instances: report.desired,
            updated_instances: report.updated,
            ready_instances: report.ready,
            available_instances: report.available,
            cache: report.cache,
            endpoints: report.endpoints,
            endpoints_truncated: report.endpoints_truncated,
        }
    }
}

impl From<&CoordinatorStatus> for Report {
    fn from(status: &CoordinatorStatus) -> Self {
        Report {
            record: status.record.clone(),
            desired: status.replicas,
            updated: status.updated_replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
            cache: None,
            endpoint: status.endpoint.clone(),
            endpoints: status.endpoints.clone(),
            endpoints_truncated: status.endpoints_truncated,
        }
    }
}

impl From<Report> for CoordinatorStatus {
    fn from(report: Report) -> Self {
        CoordinatorStatus {
            record: report.record,
            replicas: report.desired,
            updated_replicas: report.updated,
            ready_replicas: report.ready,
            available_replicas: report.available,
            endpoint: report.endpoint,
            endpoints: report.endpoints,
            endpoints_truncated: report.endpoints_truncated,
        }
    }
}

/// The current time as Kubernetes writes it: whole seconds, so that a status read back equals the one written.
pub fn kubernetes_time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}
