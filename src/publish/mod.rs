//! Effects: one status write, and only after it has succeeded Events, metrics, log lines and spans of the same steps.

mod events;
pub mod rollout;
mod rollouts;

use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use lmcache_crds::{Phase, PhaseRecord, PhaseTransition, Report};
use lmcache_observability::traces::{FinishedSpan, Traces};
use lmcache_observability::{Metrics, RolloutEnd};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tracing::{Instrument, debug, info, info_span, warn};

pub use events::{Reporter, Told};

use crate::apply::Owner;
use crate::controllers::Managed;
use crate::observe::{FIELD_MANAGER, resource_version};

/// What a status write came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Published {
    /// Nothing differed; no request was sent.
    Unchanged,
    /// Written; holds the resourceVersion that the API server gave.
    Written(u64),
    /// The resource is gone.
    Gone,
}

/// The status could not be written.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The resource has changed since it was read; look again.
    #[error("the resource has changed since it was read")]
    Stale,
    /// The API server refused or failed.
    #[error("failed to write status: {0}")]
    Api(#[source] Error),
    /// The status is no JSON object.
    #[error("failed to serialise status: {0}")]
    Serialise(#[from] serde_json::Error),
}

/// One change of status: from what is stored to what was decided.
pub struct Change<'a> {
    /// The resource.
    pub owner: &'a Owner,
    /// resourceVersion that `before` was read at.
    pub version: String,
    /// The status that is stored.
    pub before: &'a Report,
    /// The status that was decided.
    pub after: &'a Report,
    /// The steps in between.
    pub steps: &'a [PhaseTransition],
    /// The spans that ended with them.
    pub spans: Vec<FinishedSpan>,
}

/// Writes statuses and tells of their steps.
pub struct Publisher<'a> {
    /// The client.
    pub client: &'a Client,
    /// Whose name Events carry.
    pub reporter: &'a Reporter,
    /// Where steps are counted.
    pub metrics: &'a Metrics,
    /// Where rollouts are traced.
    pub traces: &'a Traces,
}

impl Publisher<'_> {
    /// Publishes a change.
    pub async fn publish<K: Managed>(&self, mut change: Change<'_>) -> Result<Published, PublishError> {
        let owner = change.owner;
        let version = self.write::<K>(&change).instrument(info_span!("write-status")).await?;
        if version != Published::Gone {
            self.metrics.engine_state(owner.kind, &owner.namespace, &owner.name, change.after);
        }
        if !matches!(version, Published::Written(_)) {
            return Ok(version);
        }
        self.traces.export(std::mem::take(&mut change.spans));
        self.tell(&change).await;
        Ok(version)
    }

    async fn write<K: Managed>(&self, change: &Change<'_>) -> Result<Published, PublishError> {
        let status = difference(&K::Status::from(change.before.clone()), &K::Status::from(change.after.clone()))?;
        if status.is_empty() {
            return Ok(Published::Unchanged);
        }
        let patch = json!({ "metadata": { "resourceVersion": change.version }, "status": status });
        let api: Api<PartialObjectMeta<K>> = Api::namespaced(self.client.clone(), &change.owner.namespace);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            field_validation: Some(kube::api::ValidationDirective::Ignore),
            ..PatchParams::default()
        };
        match api.patch_status(&change.owner.name, &params, &Patch::Merge(&patch)).await {
            Ok(written) => Ok(Published::Written(resource_version(&written.metadata))),
            Err(Error::Api(status)) if status.code == 404 => Ok(Published::Gone),
            Err(Error::Api(status)) if status.code == 409 => Err(PublishError::Stale),
            Err(error) => Err(PublishError::Api(error)),
        }
    }

    /// Everything that is said of the steps is said here.
    async fn tell(&self, change: &Change<'_>) {
        let owner = change.owner;
        let trace = |record: &PhaseRecord| record.trace.as_ref().map(|trace| trace.trace_id.clone());
        let (earlier, own) = (trace(&change.before.record), trace(&change.after.record));
        for ended in rollouts::ended(&change.before.record, change.steps) {
            let trace_id = if ended.end == RolloutEnd::Superseded { &earlier } else { &own };
            self.metrics.rollout_finished(owner.kind, ended.end, ended.took, trace_id.as_deref());
        }
        let mut since = entered(change.before);
        for step in change.steps {
            self.metrics.phase_step(owner.kind, step, since, own.as_deref());
            since = Some(step.time.0);
            info!(from = %step.from, to = %step.to, reason = %step.reason, generation = step.generation,
                "Moved from {} to {}: {}", step.from, step.to, step.message);
            self.event(owner, step).await;
        }
        if change.steps.is_empty()
            && let Some(verdict) = new_verdict(change)
        {
            warn!(phase = %verdict.to, reason = %verdict.reason, "Stays {}: {}", verdict.to, verdict.message);
            self.event(owner, &verdict).await;
        }
    }

    async fn event(&self, owner: &Owner, step: &PhaseTransition) {
        let event = self.reporter.event(owner, step);
        let api = Api::namespaced(self.client.clone(), &owner.namespace);
        match api.create(&kube::api::PostParams::default(), &event).await {
            // The name is made from the step: an Event that exists has told it already.
            Ok(_) => {}
            Err(Error::Api(status)) if status.code == 409 => debug!(reason = %step.reason, "Event exists already"),
            Err(error) => {
                let error = crate::observe::chain(&error);
                warn!(reason = %step.reason, %error, "Failed to record Event: {error}");
            }
        }
    }
}

/// A resource that stays where it is, but for another reason that needs attention.
fn new_verdict(change: &Change<'_>) -> Option<PhaseTransition> {
    let (before, after) = (&change.before.record, &change.after.record);
    let attention = match after.phase {
        Phase::Degraded => true,
        Phase::Pending => after.reason.as_deref() != Some(lmcache_states::Reason::Applying.as_str()),
        _ => false,
    };
    if !attention || before.reason == after.reason {
        return None;
    }
    Some(PhaseTransition {
        from: after.phase,
        to: after.phase,
        reason: after.reason.clone()?,
        message: after.message.clone().unwrap_or_default(),
        generation: after.observed_generation.unwrap_or_default(),
        time: lmcache_crds::kubernetes_time(Timestamp::now()),
    })
}

/// When the present phase was entered.
fn entered(status: &Report) -> Option<Timestamp> {
    status.record.phase_transitions.last().map(|step| step.time.0)
}

/// A merge patch of the fields that differ; a field that is gone is null, also within an object.
fn difference(before: &impl Serialize, after: &impl Serialize) -> Result<Map<String, Value>, serde_json::Error> {
    let before: Map<String, Value> = serde_json::from_value(serde_json::to_value(before)?)?;
    let after: Map<String, Value> = serde_json::from_value(serde_json::to_value(after)?)?;
    Ok(merge_patch(&before, after))
}

fn merge_patch(before: &Map<String, Value>, mut after: Map<String, Value>) -> Map<String, Value> {
    let gone: Vec<String> = before.keys().filter(|key| !after.contains_key(*key)).cloned().collect();
    after.retain(|key, value| before.get(key) != Some(value));
    for (key, value) in &mut after {
        if let (Some(Value::Object(before)), Value::Object(after)) = (before.get(key), value) {
            *after = merge_patch(before, std::mem::take(after));
        }
    }
    after.extend(gone.into_iter().map(|key| (key, Value::Null)));
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_written() {
        let before = json!({"phase": "Rolling", "readyInstances": 1, "reason": "RollingUpdate"});
        let after = json!({"phase": "Ready", "readyInstances": 1});
        let patch = difference(&before, &after).expect("patch");
        assert_eq!(Value::Object(patch), json!({"phase": "Ready", "reason": null}));
        assert!(difference(&after, &after).expect("patch").is_empty());
    }

    #[test]
    fn what_is_gone_from_an_object_is_taken_out_of_it() {
        let before = json!({"trace": {"generation": 1, "traceId": "a", "outcome": "Ready"}, "phase": "Ready"});
        let after = json!({"trace": {"generation": 2, "traceId": "a"}, "phase": "Ready"});
        let patch = difference(&before, &after).expect("patch");
        assert_eq!(Value::Object(patch), json!({"trace": {"generation": 2, "outcome": null}}));
    }
}
