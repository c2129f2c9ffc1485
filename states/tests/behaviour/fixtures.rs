//! A small world to observe: an engine on nodes `node-a`, `node-b`, ...

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use lmcache_crds::{Phase, PhaseRecord, PhaseTransition};
use lmcache_states::{
    Advance, ChildFailure, Children, Counts, DependencyIssue, DependencyKind, FailureKind, Instance, Observation,
    Problem, ProblemKind, Wording, Workload, advance,
};

/// The deadline of [`settled`] observations.
pub const DEADLINE: Duration = Duration::from_mins(10);

/// `seconds` after an arbitrary beginning, with a fraction that a status does not keep.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::new(1_800_000_000 + seconds, 250_000_000).expect("a valid time")
}

pub fn node(index: usize) -> String {
    format!("node-{}", char::from(b'a' + u8::try_from(index).expect("few nodes")))
}

/// A ready instance of the current revision that had been ready before.
pub fn instance(index: usize) -> Instance {
    Instance {
        location: node(index),
        pod: Some(format!("engine-{index}")),
        current: true,
        ready: true,
        was_ready: true,
        problem: None,
    }
}

/// An instance of the current revision that has not been ready yet.
pub fn starting(index: usize) -> Instance {
    Instance { ready: false, was_ready: false, ..instance(index) }
}

/// An instance of an old revision that serves.
pub fn outdated(index: usize) -> Instance {
    Instance { current: false, was_ready: false, ..instance(index) }
}

pub fn troubled(index: usize, kind: ProblemKind, message: &str) -> Instance {
    Instance { problem: Some(Problem { kind, message: message.to_owned() }), ..starting(index) }
}

/// Everything is well: `count` instances run the current revision, and the status says so already.
pub fn settled(count: usize) -> Observation {
    let mut observation = Observation {
        generation: 1,
        spec_errors: Vec::new(),
        dependencies: Vec::new(),
        children: Children::Applied,
        workload: None,
        instances: (0..count).map(instance).collect(),
        previous: Counts::default(),
        now: at(0),
        progress_deadline: DEADLINE,
        wording: Wording::Instances,
        advisories: Vec::new(),
    };
    report(&mut observation, count);
    observation.previous = counts(&observation);
    observation
}

/// Lets the workload controller report on the instances, wanting `desired` of them.
pub fn report(observation: &mut Observation, desired: usize) {
    let count = |wanted: &dyn Fn(&Instance) -> bool| {
        i32::try_from(observation.instances.iter().filter(|instance| wanted(instance)).count()).expect("few instances")
    };
    let ready = count(&|instance| instance.ready);
    observation.workload = Some(Workload {
        observed: true,
        desired: i32::try_from(desired).expect("few instances"),
        updated: count(&|instance| instance.current),
        ready,
        available: ready,
        misscheduled: 0,
    });
}

/// An observation of exactly these instances, all of them wanted.
pub fn running(instances: Vec<Instance>) -> Observation {
    let desired = instances.len();
    let mut observation = Observation { instances, ..settled(0) };
    report(&mut observation, desired);
    observation
}

/// The children are applied, but the workload controller has not reported on them.
pub fn unreported(count: usize) -> Observation {
    let mut observation = settled(count);
    observation.workload = observation.workload.map(|workload| Workload { observed: false, ..workload });
    observation
}

pub fn invalid() -> Observation {
    let errors =
        vec!["spec.server.port: must be at most 65535".to_owned(), "spec.l1.sizeGB: must be positive".to_owned()];
    Observation { spec_errors: errors, children: Children::Withheld, ..settled(0) }
}

pub fn missing(kind: DependencyKind, message: &str) -> Observation {
    let issue = DependencyIssue { kind, message: message.to_owned() };
    Observation { dependencies: vec![issue], children: Children::Withheld, ..settled(0) }
}

pub fn failure(object: &str, kind: FailureKind, message: &str, attempts: u32) -> ChildFailure {
    ChildFailure { object: object.to_owned(), kind, message: message.to_owned(), attempts }
}

pub fn counts(observation: &Observation) -> Counts {
    observation.workload.map_or_else(Counts::default, |workload| Counts {
        desired: workload.desired,
        updated: workload.updated,
        available: workload.available,
    })
}

/// What the caller sees when nothing changed since it wrote the status for `observation`.
pub fn seen_again(observation: &Observation) -> Observation {
    let mut again = observation.clone();
    again.previous = counts(observation);
    for instance in &mut again.instances {
        instance.was_ready |= instance.ready && instance.current;
    }
    again
}

/// An engine that is advanced by observations, one after the other.
#[derive(Default)]
pub struct Engine {
    pub record: PhaseRecord,
    previous: Counts,
}

impl Engine {
    /// A new engine that has seen these observations.
    pub fn after(observations: &[Observation]) -> Self {
        let mut engine = Engine::default();
        for observation in observations {
            engine.sees(observation);
        }
        engine
    }

    /// An engine that was brought up with `count` instances.
    pub fn ready(count: usize) -> Self {
        let engine = Engine::after(&[running((0..count).map(starting).collect()), settled(count)]);
        assert_eq!(engine.record.phase, Phase::Ready, "{:#?}", engine.record);
        engine
    }

    /// Advances by an observation, with `previous` as this engine wrote it.
    pub fn sees(&mut self, observation: &Observation) -> Advance {
        let observation = Observation { previous: self.previous, ..observation.clone() };
        let advance = advance(&self.record, &observation);
        self.record = advance.record.clone();
        self.previous = counts(&observation);
        advance
    }

    /// Phase and reason.
    pub fn stands(&self) -> (Phase, &str) {
        (self.record.phase, self.record.reason.as_deref().unwrap_or_default())
    }

    pub fn message(&self) -> &str {
        self.record.message.as_deref().unwrap_or_default()
    }
}

/// The phases that steps lead through, and why.
pub fn path(steps: &[PhaseTransition]) -> Vec<(Phase, &str)> {
    steps.iter().map(|step| (step.to, step.reason.as_str())).collect()
}

pub fn condition<'a>(record: &'a PhaseRecord, type_: &str) -> Option<&'a Condition> {
    record.conditions.iter().find(|condition| condition.type_ == type_)
}

/// Status, reason and message of a condition.
pub fn says<'a>(record: &'a PhaseRecord, type_: &str) -> (&'a str, &'a str, &'a str) {
    let condition = condition(record, type_);
    condition.map_or(("absent", "", ""), |it| (it.status.as_str(), it.reason.as_str(), it.message.as_str()))
}
