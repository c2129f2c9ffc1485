//! Along the steps of one rollout, span by span.

use jiff::Timestamp;
use lmcache_crds::{Phase, PhaseRecord, PhaseTransition, RolloutOutcome, RolloutTrace, kubernetes_time};
use lmcache_observability::traces::{Attribute, FinishedSpan, SpanEvent, TraceContext, from_hex};

use super::{Facts, ROLLOUT, id};

const RECOVERY: &str = "recovery";
const TRANSITION: &str = "phase.transition";

pub(super) struct Walk<'a> {
    facts: &'a Facts<'a>,
    trace: RolloutTrace,
    /// Steps before the rollout, then its own, oldest first; at the end those that are being told.
    history: &'a [PhaseTransition],
    /// What the status said before the steps that are being told.
    before: &'a PhaseRecord,
    spans: Vec<FinishedSpan>,
}

impl<'a> Walk<'a> {
    pub fn new(
        facts: &'a Facts<'a>,
        trace: RolloutTrace,
        history: &'a [PhaseTransition],
        before: &'a PhaseRecord,
    ) -> Self {
        Walk { facts, trace, history, before, spans: Vec::new() }
    }

    pub fn finish(self) -> (RolloutTrace, Vec<FinishedSpan>) {
        (self.trace, self.spans)
    }

    /// The step at `index` of the history: it ends a stay, and perhaps the rollout.
    pub fn step(&mut self, index: usize) {
        if !super::is_open(&self.trace) {
            return;
        }
        let step = &self.history[index];
        self.stay(index, step.from, step.time.0, Some(step));
        if step.generation != self.trace.generation {
            return;
        }
        let told = index + 1;
        match (self.trace.outcome, step.to) {
            (None, Phase::Ready) => self.close(told, step.time.0, RolloutOutcome::Ready, None),
            (None, Phase::Degraded) => {
                let error = format!("{}: {}", step.reason, step.message);
                self.close(told, step.time.0, RolloutOutcome::Degraded, Some(error));
            }
            (Some(RolloutOutcome::Degraded), Phase::Ready) => {
                self.close(told, step.time.0, RolloutOutcome::Recovered, None);
            }
            _ => {}
        }
    }

    /// A generation can be found wanting without a step, when the one before was too.
    pub fn verdict(&mut self, after: &PhaseRecord, at: Timestamp) {
        let judged = after.observed_generation == Some(self.trace.generation) && after.phase == Phase::Degraded;
        if !judged || self.trace.outcome.is_some() {
            return;
        }
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        let error = format!("{}: {}", of(&after.reason), of(&after.message));
        self.stay(self.history.len(), after.phase, at, None);
        self.close(self.history.len(), at, RolloutOutcome::Degraded, Some(error));
    }

    /// Ends it where it stands.
    pub fn cut(&mut self, phase: Phase, at: Timestamp, outcome: &'static str) {
        self.stay(self.history.len(), phase, at, None);
        let above = self.above(self.history.len(), at, outcome, None);
        self.spans.push(above);
    }

    fn close(&mut self, told: usize, at: Timestamp, outcome: RolloutOutcome, error: Option<String>) {
        let above = self.above(told, at, outcome.as_str(), error);
        self.spans.push(above);
        self.trace.outcome = Some(outcome);
        self.trace.end_time = Some(kubernetes_time(at));
    }

    /// When the span above stays began.
    fn base(&self) -> Timestamp {
        match (&self.trace.outcome, &self.trace.end_time) {
            (Some(RolloutOutcome::Degraded), Some(end)) => end.0,
            _ => self.trace.start_time.0,
        }
    }

    /// The span of a stay that ended at `end`: it was entered by the step before `index`.
    fn stay(&mut self, index: usize, phase: Phase, end: Timestamp, left: Option<&PhaseTransition>) {
        let entered = index.checked_sub(1).and_then(|at| self.history.get(at));
        let base = self.base();
        let start = entered.map_or(base, |step| step.time.0.max(base)).min(end);
        let same = |step: &&PhaseTransition| Some(step.time.0) == entered.map(|it| it.time.0) && step.to == phase;
        let ordinal = self.history[..index.saturating_sub(1).min(self.history.len())].iter().filter(same).count();
        let mut attributes = self.attributes();
        attributes.push(("phase", phase.as_str().into()));
        let (reason, message) = match entered {
            Some(step) => (Some(&step.reason), Some(&step.message)),
            None => (self.before.reason.as_ref(), self.before.message.as_ref()),
        };
        attributes.extend(reason.map(|reason| ("reason", Attribute::from(reason.as_str()))));
        attributes.extend(message.map(|message| ("message", Attribute::from(message.as_str()))));
        let own = id(&[
            phase.as_str(),
            &self.trace.trace_id,
            &self.trace.span_id,
            self.parent_name(),
            &entered.map_or(0, |step| step.time.0.as_second()).to_string(),
            &ordinal.to_string(),
        ]);
        let error = (phase == Phase::Degraded).then(|| message.cloned().unwrap_or_default());
        self.spans.push(FinishedSpan {
            context: self.within(own),
            parent: Some(self.parent()),
            parent_is_remote: false,
            name: phase.as_str().to_owned(),
            start,
            end,
            attributes,
            events: left.into_iter().map(event).collect(),
            links: Vec::new(),
            error,
        });
    }

    /// The span above the stays: `rollout`, or `recovery` after it. The first `told` steps of the history are its past.
    fn above(&self, told: usize, end: Timestamp, outcome: &'static str, error: Option<String>) -> FinishedSpan {
        let recovers = self.recovers();
        let start = self.base().min(end);
        let mut attributes = self.attributes();
        attributes.push(("outcome", outcome.into()));
        let own = |step: &&PhaseTransition| step.generation == self.trace.generation && step.time.0 >= start;
        let steps: Vec<&PhaseTransition> = self.history[..told].iter().filter(own).collect();
        // The step to Degraded ended what was before.
        let ended = |step: &&PhaseTransition| step.to == Phase::Degraded && step.time.0 == start;
        let first = if recovers { steps.iter().position(ended).map_or(0, |at| at + 1) } else { 0 };
        let remote = self.trace.parent_span_id.as_deref().and_then(from_hex);
        FinishedSpan {
            context: self.within(self.parent()),
            parent: if recovers { from_hex(&self.trace.span_id) } else { remote },
            parent_is_remote: !recovers && remote.is_some(),
            name: self.parent_name().to_owned(),
            start,
            end,
            attributes,
            events: steps[first..].iter().map(|step| event(step)).collect(),
            links: self.facts.reconciles.to_vec(),
            error,
        }
    }

    fn recovers(&self) -> bool {
        self.trace.outcome.is_some()
    }

    fn parent_name(&self) -> &'static str {
        if self.recovers() { RECOVERY } else { ROLLOUT }
    }

    /// Id of the span above the stays.
    fn parent(&self) -> [u8; 8] {
        if self.recovers() {
            return id(&[RECOVERY, &self.trace.trace_id, &self.trace.span_id]);
        }
        from_hex(&self.trace.span_id).unwrap_or_else(|| id(&[ROLLOUT, &self.trace.trace_id]))
    }

    fn within(&self, span_id: [u8; 8]) -> TraceContext {
        let trace_id = from_hex(&self.trace.trace_id).unwrap_or_else(|| id(&["trace", &self.trace.trace_id]));
        TraceContext { trace_id, span_id, sampled: true }
    }

    fn attributes(&self) -> Vec<(&'static str, Attribute)> {
        let owner = self.facts.owner;
        vec![
            ("kind", owner.kind.into()),
            ("namespace", owner.namespace.as_str().into()),
            ("name", owner.name.as_str().into()),
            ("generation", self.trace.generation.into()),
        ]
    }
}

fn event(step: &PhaseTransition) -> SpanEvent {
    SpanEvent {
        name: TRANSITION,
        time: step.time.0,
        attributes: vec![
            ("from", step.from.as_str().into()),
            ("to", step.to.as_str().into()),
            ("reason", step.reason.as_str().into()),
            ("message", step.message.as_str().into()),
            ("generation", step.generation.into()),
        ],
    }
}
