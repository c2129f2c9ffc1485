//! The heart: observation -> signal -> machine -> steps -> conditions. Pure: no I/O, no clock, no Kubernetes client.
//!
//! Where to look when a phase is wrong:
//!
//! | question | module |
//! |---|---|
//! | what was the machine told? | `observation` |
//! | what did it make of that, and why with these words? | `classify`: a chain of checks, the first that holds decides |
//! | where may a phase go? | `machine` |
//! | which steps were taken, and when? | `advance` |
//! | which conditions follow? | `conditions` |
#![deny(missing_docs)]

mod advance;
mod classify;
pub mod conditions;
mod diagram;
mod machine;
mod observation;
mod reason;
mod text;

pub use advance::{Advance, advance};
pub use diagram::{edges, is_allowed, mermaid};
pub use machine::is_converging;
pub use observation::{
    Advisory, AdvisoryKind, ChildFailure, Children, Counts, DependencyIssue, DependencyKind, FailureKind, Instance,
    Observation, Problem, ProblemKind, Wording, Workload,
};
pub use reason::Reason;
