#![allow(clippy::unwrap_used)]

use lmcache_observability::traces::Attribute;
use proptest::prelude::*;
use rstest::rstest;

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn owner() -> Owner {
    Owner { kind: "LMCacheEngine", namespace: "ai".into(), name: "cache".into(), uid: "uid-1".into() }
}

fn step(from: Phase, to: Phase, generation: i64, second: i64) -> PhaseTransition {
    let reason = format!("To{to}");
    let message = format!("it is {to}");
    PhaseTransition { from, to, reason, message, generation, time: kubernetes_time(at(second)) }
}

/// A resource whose status lives through reconciles.
struct Life {
    owner: Owner,
    record: PhaseRecord,
    generation: i64,
    traceparent: Option<String>,
    reconciles: Vec<TraceContext>,
    spans: Vec<FinishedSpan>,
}

impl Life {
    fn new() -> Self {
        Life {
            owner: owner(),
            record: PhaseRecord::default(),
            generation: 1,
            traceparent: None,
            reconciles: Vec::new(),
            spans: Vec::new(),
        }
    }

    fn facts(&self, second: i64) -> Facts<'_> {
        Facts {
            owner: &self.owner,
            generation: self.generation,
            created: Some(at(0)),
            traceparent: self.traceparent.as_deref(),
            seen: at(second),
            reconciles: &self.reconciles,
        }
    }

    /// One reconcile that takes the resource through these phases.
    fn moves(&mut self, second: i64, phases: &[Phase]) {
        let mut after = self.record.clone();
        let mut steps = Vec::new();
        for to in phases {
            let taken = step(after.phase, *to, self.generation, second);
            after.phase = *to;
            after.reason = Some(taken.reason.clone());
            after.phase_transitions.push(taken.clone());
            steps.push(taken);
        }
        after.observed_generation = Some(self.generation);
        self.writes(second, after, &steps);
    }

    fn writes(&mut self, second: i64, mut after: PhaseRecord, steps: &[PhaseTransition]) {
        let told = follow(Some(&|_, _| true), &self.facts(second), &self.record, &after, steps);
        after.trace = told.trace;
        self.record = after;
        self.spans.extend(told.spans);
    }

    fn trace(&self) -> &RolloutTrace {
        self.record.trace.as_ref().unwrap()
    }

    /// Name, start, end and outcome of what was told.
    fn told(&self) -> Vec<(String, i64, i64, String)> {
        let second = |time: Timestamp| time.as_second() - 1_700_000_000;
        let of = |span: &FinishedSpan| match attribute(span, "outcome") {
            Some(Attribute::Text(outcome)) => outcome.clone(),
            _ => String::new(),
        };
        self.spans.iter().map(|it| (it.name.clone(), second(it.start), second(it.end), of(it))).collect()
    }

    fn span(&self, name: &str) -> &FinishedSpan {
        self.spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {:#?}", self.told()))
    }
}

fn attribute<'a>(span: &'a FinishedSpan, key: &str) -> Option<&'a Attribute> {
    span.attributes.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
}

fn row(name: &str, start: i64, end: i64, outcome: &str) -> (String, i64, i64, String) {
    (name.to_owned(), start, end, outcome.to_owned())
}

use Phase::{Degraded, Ready, Reconciled, Rolling};

#[test]
fn a_first_rollout_is_told_phase_by_phase_from_the_creation_on() {
    let mut life = Life::new();
    life.moves(2, &[]);
    life.moves(3, &[Reconciled]);
    life.moves(4, &[Rolling]);
    assert_eq!(life.told(), [row("Pending", 0, 3, ""), row("Reconciled", 3, 4, "")]);
    life.moves(9, &[Ready]);
    assert_eq!(life.told()[2..], [row("Rolling", 4, 9, ""), row("rollout", 0, 9, "Ready")]);
    let root = life.span("rollout");
    assert_eq!((root.parent, to_hex(&root.context.span_id)), (None, life.trace().span_id.clone()));
    assert_eq!(root.events.len(), 3, "{:?}", root.events);
    for name in ["Pending", "Reconciled", "Rolling"] {
        assert_eq!(life.span(name).parent, Some(root.context.span_id), "{name}");
    }
    assert_eq!(life.trace().outcome, Some(RolloutOutcome::Ready));
    assert_eq!(attribute(life.span("Rolling"), "reason"), Some(&Attribute::from("ToRolling")));
}

#[test]
fn what_happens_after_ready_belongs_to_no_rollout() {
    let mut life = Life::new();
    life.moves(3, &[Reconciled, Rolling, Ready]);
    let (told, trace) = (life.spans.len(), life.trace().clone());
    life.moves(50, &[Degraded]);
    life.moves(60, &[Rolling, Ready]);
    assert_eq!((life.spans.len(), life.trace()), (told, &trace), "{:#?}", life.told());
}

#[test]
fn a_change_begins_another_trace_and_a_rollout_under_way_is_superseded() {
    let mut life = Life::new();
    life.moves(3, &[Reconciled, Rolling]);
    let first = life.trace().clone();
    life.generation = 2;
    life.moves(8, &[Reconciled]);
    assert_eq!(
        life.told()[2..],
        [row("Rolling", 3, 8, ""), row("rollout", 0, 8, "Superseded"), row("Rolling", 8, 8, ""),]
    );
    assert_ne!(life.trace().trace_id, first.trace_id);
    assert_eq!(life.trace().start_time, kubernetes_time(at(8)));
    life.moves(11, &[Rolling]);
    life.moves(12, &[Ready]);
    assert_eq!(life.told().last().unwrap(), &row("rollout", 8, 12, "Ready"));
}

#[test]
fn degraded_ends_the_rollout_and_its_recovery_stays_in_the_trace() {
    let mut life = Life::new();
    life.moves(1, &[Reconciled, Rolling]);
    life.moves(5, &[Degraded]);
    assert_eq!(life.told().last().unwrap(), &row("rollout", 0, 5, "Degraded"));
    assert_eq!(life.span("rollout").error.as_deref(), Some("ToDegraded: it is Degraded"));
    life.moves(20, &[Rolling]);
    life.moves(30, &[Ready]);
    assert_eq!(
        life.told()[4..],
        [row("Degraded", 5, 20, ""), row("Rolling", 20, 30, ""), row("recovery", 5, 30, "Recovered"),]
    );
    let (root, recovery) = (life.span("rollout"), life.span("recovery"));
    assert_eq!((recovery.parent, recovery.context.trace_id), (Some(root.context.span_id), root.context.trace_id));
    assert_eq!(life.span("Degraded").parent, Some(recovery.context.span_id));
    assert_eq!(recovery.events.len(), 2, "{:?}", recovery.events);
    assert_eq!(life.trace().outcome, Some(RolloutOutcome::Recovered));
}

#[test]
fn a_generation_that_is_found_wanting_without_a_step_is_degraded_too() {
    let mut life = Life::new();
    life.moves(1, &[Reconciled, Degraded]);
    life.generation = 2;
    life.moves(7, &[]);
    assert_eq!(life.trace().outcome, Some(RolloutOutcome::Degraded));
    assert_eq!(life.told().last().unwrap(), &row("rollout", 7, 7, "Degraded"));
    let told = life.spans.len();
    life.moves(8, &[]);
    assert_eq!(life.spans.len(), told, "it is told once");
}

#[test]
fn nothing_is_begun_for_what_was_rolled_out_before_anybody_traced() {
    let mut life = Life::new();
    life.record = PhaseRecord { phase: Ready, observed_generation: Some(1), ..PhaseRecord::default() };
    life.moves(9, &[Degraded]);
    assert_eq!((&life.record.trace, life.spans.len()), (&None, 0));
}

#[test]
fn without_an_endpoint_a_trace_is_kept_for_its_generation_and_then_dropped() {
    let mut life = Life::new();
    life.moves(3, &[Reconciled, Rolling, Ready]);
    let off = |life: &Life| follow(None, &life.facts(9), &life.record, &life.record, &[]);
    assert_eq!(off(&life), Told { trace: life.record.trace.clone(), spans: Vec::new() });
    life.generation = 2;
    assert_eq!(off(&life), Told::default());
}

#[test]
fn a_trace_that_is_not_kept_is_not_begun() {
    let life = Life::new();
    let told = follow(Some(&|_, _| false), &life.facts(9), &life.record, &life.record, &[]);
    assert_eq!(told, Told::default());
}

#[test]
fn a_rollout_joins_the_trace_of_its_caller() {
    let mut life = Life::new();
    life.traceparent = Some(format!("00-{TRACE}-{CALLER}-01"));
    life.moves(3, &[Reconciled, Rolling, Ready]);
    let root = life.span("rollout");
    assert_eq!(life.trace().trace_id, TRACE);
    assert_eq!((root.parent.map(|id| to_hex(&id)).as_deref(), root.parent_is_remote), (Some(CALLER), true));
    assert_eq!(life.trace().parent_span_id.as_deref(), Some(CALLER));
}

#[rstest]
#[case("")]
#[case("nonsense")]
fn a_traceparent_that_is_none_is_ignored(#[case] text: &str) {
    let mut life = Life::new();
    life.traceparent = Some(text.to_owned());
    life.moves(3, &[Reconciled]);
    assert_eq!(life.trace().parent_span_id, None);
    assert_ne!(life.trace().trace_id, TRACE);
}

#[test]
fn two_resources_in_one_callers_trace_have_spans_of_their_own() {
    let caller = Some(format!("00-{TRACE}-{CALLER}-01"));
    let mut lives = [Life::new(), Life::new()];
    lives[1].owner.uid = "uid-2".to_owned();
    for life in &mut lives {
        life.traceparent.clone_from(&caller);
        life.moves(3, &[Reconciled, Rolling, Ready]);
    }
    let ids = |life: &Life| life.spans.iter().map(|it| it.context.span_id).collect::<std::collections::HashSet<_>>();
    assert!(ids(&lives[0]).is_disjoint(&ids(&lives[1])));
}

#[test]
fn a_deleted_resource_ends_its_trace() {
    let mut life = Life::new();
    life.moves(3, &[Reconciled, Rolling]);
    life.spans = deleted(&life.facts(9), &life.record);
    assert_eq!(life.told(), [row("Rolling", 3, 9, ""), row("rollout", 0, 9, "Deleted")]);
    life.moves(10, &[Ready]);
    assert_eq!(deleted(&life.facts(11), &life.record), []);
}

#[test]
fn links_lead_to_the_reconciles() {
    let mut life = Life::new();
    life.reconciles = vec![TraceContext { trace_id: [7; 16], span_id: [8; 8], sampled: true }];
    life.moves(3, &[Reconciled, Rolling, Ready]);
    assert_eq!(life.span("rollout").links, life.reconciles);
}

fn phases() -> impl Strategy<Value = Vec<(u8, Vec<Phase>)>> {
    let phase = prop::sample::select(vec![Reconciled, Rolling, Ready, Degraded]);
    prop::collection::vec((0..9_u8, prop::collection::vec(phase, 0..4)), 1..30)
}

proptest! {
    #[test]
    fn every_span_lies_in_its_parent_and_has_an_id_of_its_own(moves in phases()) {
        let mut life = Life::new();
        let mut second = 0;
        for (index, (pause, phases)) in moves.iter().enumerate() {
            second += i64::from(*pause);
            if index % 5 == 4 {
                life.generation += 1;
            }
            life.moves(second, phases);
            life.record.phase_transitions.drain(..life.record.phase_transitions.len().saturating_sub(20));
        }
        let end = deleted(&life.facts(second + 1), &life.record);
        life.spans.extend(end);
        let mut ids = std::collections::HashSet::new();
        for span in &life.spans {
            prop_assert!(span.start <= span.end, "{:?}", span);
            prop_assert!(ids.insert((span.context.trace_id, span.context.span_id)), "twice: {:#?}", life.told());
        }
        for span in &life.spans {
            if let Some(parent) = span.parent {
                let parent = life.spans.iter().find(|it| it.context.span_id == parent);
                let parent = parent.unwrap_or_else(|| panic!("no parent of {span:?} in {:#?}", life.told()));
                // A recovery follows its rollout.
                let inside = parent.start <= span.start && (span.end <= parent.end || span.name == "recovery");
                prop_assert!(inside, "{:?} in {:?}", span, parent);
            }
        }
    }

    #[test]
    fn another_process_tells_the_same_ids(moves in phases()) {
        let (mut one, mut other) = (Life::new(), Life::new());
        for (index, (_, phases)) in moves.iter().enumerate() {
            let second = i64::try_from(index).unwrap();
            one.moves(second, phases);
            other.moves(second, phases);
        }
        prop_assert_eq!(one.spans, other.spans);
        prop_assert_eq!(one.record.trace, other.record.trace);
    }
}
