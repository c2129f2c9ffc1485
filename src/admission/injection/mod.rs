//! Injection: a pod that opted in -> the changes that connect its vLLM to an engine, or the reason why there are none.
//! Pure: values in, values out, no I/O and no clock.
//!
//! A caller asks [`opt_in()`] which engine a pod wants, looks it up, asks [`decide`], and answers with the operations of
//! [`patch()`]. Everything that speaks against an injection is found before anything is changed (D22). Both injectors run
//! the same code; what differs between them stands in the table of [`Injector`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arguments;
mod command;
mod decision;
mod engine;
mod environment;
mod hash;
mod injector;
mod ipc;
mod opt_in;
mod patch;
mod payload;
mod pod;
mod presence;
mod reason;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use decision::{Decision, Plan, decide};
pub use engine::{Connection, Cudagraph, EngineLookup, EngineView, PayloadImage, Pd};
pub use hash::config_hash;
pub use injector::{CONFIG_HASH, Injector, Names, PD_ROLE};
pub use opt_in::{EngineRef, OptIn, opt_in};
pub use patch::patch;
pub use reason::{Skip, SkipReason};
