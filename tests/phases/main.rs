//! Behaviour of the operator on a real control plane: what a person at `kubectl` and a pipeline may rely on.
//!
//! `table.rs` says which scenario is played for which kind. All tests share one control plane and one operator. Each plays in
//! a namespace and on nodes of its own, is recorded from before the creation of its resources on, and ends with the rules of
//! the phases asserted over everything that was ever written.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod children;
mod kind;
mod scene;
mod table;
mod watch;

mod coordinators;
mod deletion;
mod dependencies;
mod drift;
mod instances;
mod late_api;
mod life;
mod ownership;
mod quiet;
mod rollouts;
mod specs;
mod together;
mod troubles;
