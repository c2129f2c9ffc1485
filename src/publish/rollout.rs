//! The trace of a rollout, derived from the steps: one trace for each generation of a resource.
//!
//! ```text
//! rollout                from the change to Ready, to Degraded, or to the next change
//!   Pending              one span for each stay in a phase
//!   Reconciled
//!   Rolling
//!   recovery             only after Degraded: until Ready, or the next change
//!     Degraded
//!     Rolling
//! ```
//!
//! A span is told when the status that ends it has been written, with the times that stand in that status, and its id is
//! made from what stands there too. So an operator that starts anew, or another one that leads by now, goes on with the
//! same trace: `status.trace` says which. A process that is killed within the moment between the write and the export takes
//! the span of that stay with it; the span above still has its step. Nothing here asks for the time or sends anything.

mod walk;

use jiff::Timestamp;
use lmcache_crds::{Phase, PhaseRecord, PhaseTransition, RolloutOutcome, RolloutTrace, kubernetes_time};
use lmcache_observability::traces::{FinishedSpan, TraceContext, from_hex, to_hex};
use ring::digest::{SHA256, digest};
use tracing::warn;

use crate::apply::Owner;
use walk::Walk;

/// By this annotation (W3C `traceparent`) the next rollout joins the trace of whoever changes the resource.
pub const TRACEPARENT_ANNOTATION: &str = "lmcache.ai/traceparent";
/// Name of the span of a whole rollout.
pub const ROLLOUT: &str = "rollout";

/// Whether a trace is kept, by its id and by who began it.
pub type Keeps<'a> = &'a dyn Fn([u8; 16], Option<TraceContext>) -> bool;

/// What the rollouts of one resource are told from.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The resource.
    pub owner: &'a Owner,
    /// Its `metadata.generation`.
    pub generation: i64,
    /// Its `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// Its annotation [`TRACEPARENT_ANNOTATION`].
    pub traceparent: Option<&'a str>,
    /// When this reconcile began.
    pub seen: Timestamp,
    /// Spans of the reconciles that worked on the rollout, as far as they are remembered.
    pub reconciles: &'a [TraceContext],
}

/// What a reconcile leads to.
#[derive(Debug, Default, PartialEq)]
pub struct Told {
    /// The `status.trace` to write.
    pub trace: Option<RolloutTrace>,
    /// The spans to export once it is written.
    pub spans: Vec<FinishedSpan>,
}

/// Follows the steps from `before` to `after`. Without `keeps` nothing is traced.
pub fn follow(
    keeps: Option<Keeps<'_>>,
    facts: &Facts<'_>,
    before: &PhaseRecord,
    after: &PhaseRecord,
    steps: &[PhaseTransition],
) -> Told {
    let stored = before.trace.clone();
    let Some(keeps) = keeps else {
        return Told { trace: stored.filter(|it| it.generation == facts.generation), spans: Vec::new() };
    };
    let at = kubernetes_time(facts.seen);
    let mut spans = Vec::new();
    let trace = match stored {
        Some(trace) if trace.generation == facts.generation => Some(trace),
        old => {
            spans.extend(old.into_iter().flat_map(|old| ended(facts, &old, before, at.0, "Superseded")));
            begun(keeps, facts, before, at.0)
        }
    };
    let Some(trace) = trace else { return Told { trace: None, spans } };
    if !is_open(&trace) {
        return Told { trace: Some(trace), spans };
    }
    let history: Vec<PhaseTransition> = before.phase_transitions.iter().chain(steps).cloned().collect();
    let mut walk = Walk::new(facts, trace, &history, before);
    for index in history.len() - steps.len()..history.len() {
        walk.step(index);
    }
    walk.verdict(after, at.0);
    let (trace, told) = walk.finish();
    spans.extend(told);
    Told { trace: Some(trace), spans }
}

/// The spans that end when the resource is deleted.
pub fn deleted(facts: &Facts<'_>, record: &PhaseRecord) -> Vec<FinishedSpan> {
    let trace = record.trace.as_ref();
    trace.map(|trace| ended(facts, trace, record, kubernetes_time(facts.seen).0, "Deleted")).unwrap_or_default()
}

/// Whether the rollout is still under way, or has still to recover.
pub fn is_open(trace: &RolloutTrace) -> bool {
    matches!(trace.outcome, None | Some(RolloutOutcome::Degraded))
}

/// The span `rollout` of a trace, for links to it.
pub fn context(trace: &RolloutTrace) -> Option<TraceContext> {
    let (trace_id, span_id) = (from_hex(&trace.trace_id)?, from_hex(&trace.span_id)?);
    Some(TraceContext { trace_id, span_id, sampled: true })
}

/// A generation that nobody has judged yet begins a trace.
fn begun(keeps: Keeps<'_>, facts: &Facts<'_>, before: &PhaseRecord, at: Timestamp) -> Option<RolloutTrace> {
    if before.observed_generation == Some(facts.generation) {
        // It was rolled out while nobody traced, or is not kept.
        return None;
    }
    let parent: Option<TraceContext> = facts.traceparent.and_then(|text| {
        let read = text.parse();
        read.inspect_err(|error| warn!("Ignored annotation {TRACEPARENT_ANNOTATION}: {error}")).ok()
    });
    let generation = facts.generation.to_string();
    let trace_id = match parent {
        Some(parent) => parent.trace_id,
        None => id(&["trace", &facts.owner.uid, &generation]),
    };
    if !keeps(trace_id, parent) {
        return None;
    }
    let new = before.observed_generation.is_none() && before.phase == Phase::Pending;
    let start = facts.created.filter(|created| new && *created <= at).unwrap_or(at);
    Some(RolloutTrace {
        trace_id: to_hex(&trace_id),
        span_id: to_hex(&id::<8>(&[ROLLOUT, &to_hex(&trace_id), &facts.owner.uid, &generation])),
        parent_span_id: parent.map(|parent| to_hex(&parent.span_id)),
        generation: facts.generation,
        start_time: kubernetes_time(start),
        end_time: None,
        outcome: None,
    })
}

/// The spans of a rollout that ends without an outcome of its own.
fn ended(
    facts: &Facts<'_>,
    trace: &RolloutTrace,
    record: &PhaseRecord,
    at: Timestamp,
    outcome: &'static str,
) -> Vec<FinishedSpan> {
    if !is_open(trace) {
        return Vec::new();
    }
    let mut walk = Walk::new(facts, trace.clone(), &record.phase_transitions, record);
    walk.cut(record.phase, at, outcome);
    walk.finish().1
}

/// An id made from what it stands for: the same words give the same id, in every process and release.
fn id<const N: usize>(words: &[&str]) -> [u8; N] {
    let mut text = Vec::new();
    for word in words {
        text.extend_from_slice(word.as_bytes());
        text.push(0);
    }
    let mut id = [0; N];
    id.copy_from_slice(&digest(&SHA256, &text).as_ref()[..N]);
    // All zero is no id.
    if id == [0; N] {
        id[N - 1] = 1;
    }
    id
}

#[cfg(test)]
mod tests;
