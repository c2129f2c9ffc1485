//! Label values and label sets. Every set is a closed list or comes from the operator's own code.

use prometheus_client::encoding::EncodeLabelSet;

/// How a reconcile ended; label `result` of `lmcache_operator_reconcile_duration_seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReconcileResult {
    /// The resource was observed, its children agree and its status is written.
    Success,
    /// It failed and will be tried again.
    Error,
    /// It did not end within the reconcile timeout.
    Timeout,
}

impl ReconcileResult {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            ReconcileResult::Success => "success",
            ReconcileResult::Error => "error",
            ReconcileResult::Timeout => "timeout",
        }
    }
}

/// What applying one child did; label `outcome` of `lmcache_operator_applies_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApplyOutcome {
    /// The child did not exist.
    Created,
    /// The child differed and was changed, or was adopted.
    Configured,
    /// The child agreed already; no request was sent (D27).
    Unchanged,
    /// The child is no longer wanted and was deleted.
    Deleted,
    /// Someone else controls an object of that name; it was left alone (D01).
    Conflict,
    /// The API server refused or could not be reached.
    Error,
}

impl ApplyOutcome {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            ApplyOutcome::Created => "created",
            ApplyOutcome::Configured => "configured",
            ApplyOutcome::Unchanged => "unchanged",
            ApplyOutcome::Deleted => "deleted",
            ApplyOutcome::Conflict => "conflict",
            ApplyOutcome::Error => "error",
        }
    }
}

/// What a webhook did with an object; label `outcome` of `lmcache_operator_webhook_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookOutcome {
    /// A pod was connected to an engine.
    Injected,
    /// A pod stays as it is, with a reason on it.
    Skipped,
    /// The object passes as it is.
    Allowed,
    /// The object is refused.
    Denied,
    /// Something went wrong; the object passes as it is, or the request was none.
    Error,
}

impl WebhookOutcome {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            WebhookOutcome::Injected => "injected",
            WebhookOutcome::Skipped => "skipped",
            WebhookOutcome::Allowed => "allowed",
            WebhookOutcome::Denied => "denied",
            WebhookOutcome::Error => "error",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WebhookRequest {
    pub webhook: &'static str,
    pub outcome: &'static str,
    pub reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Kind {
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Transition {
    pub kind: &'static str,
    pub from: &'static str,
    pub to: &'static str,
    pub reason: String,
}

/// How a rollout ended; label `outcome` of `lmcache_operator_rollout_duration_seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RolloutEnd {
    /// In Ready.
    Ready,
    /// In Degraded.
    Degraded,
    /// A newer generation took its place.
    Superseded,
}

impl RolloutEnd {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            RolloutEnd::Ready => "ready",
            RolloutEnd::Degraded => "degraded",
            RolloutEnd::Superseded => "superseded",
        }
    }
}

/// Leads from a bucket of a histogram to a trace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TraceExemplar {
    pub trace_id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindOutcome {
    pub kind: &'static str,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindPhase {
    pub kind: &'static str,
    pub phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindResult {
    pub kind: &'static str,
    pub result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindError {
    pub kind: &'static str,
    pub error: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Apply {
    pub kind: &'static str,
    pub child: &'static str,
    pub outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ApiRequest {
    pub verb: &'static str,
    pub resource: String,
    pub code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WatchRestart {
    pub resource: &'static str,
    pub cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct BuildInfo {
    pub version: &'static str,
    pub commit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Dropped {
    pub reason: &'static str,
}
