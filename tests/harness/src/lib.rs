//! Helpers for end-to-end suites of `LMCache` resources, on any cluster that a [`kube::Client`] reaches.
//!
//! [`Harness`] applies, changes, awaits and deletes a resource. Every wait demands that the status speaks of the present
//! generation, uses a watch, has a deadline, ends at once on a verdict that waiting cannot change, and on failure tells
//! what a person would look up: history, conditions, Events, pods.
//!
//! [`PhaseRecorder`] watches a resource from before its creation on and checks at the end that every status it ever had
//! obeyed the rules of the phases.
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> anyhow::Result<()> {
//! use lmcache_harness::{Harness, PhaseRecorder};
//!
//! let suite = Harness::in_new_namespace(client.clone(), "suite").await?;
//! let recorder = PhaseRecorder::start(client, suite.namespace(), "cache").await?;
//! suite.apply_fixture("tests/fixtures/cache.yaml").await?;
//! suite.wait_ready("cache").await?;
//! suite.delete_and_wait_collected("cache").await?;
//! recorder.finish().await?.assert_obeys_the_rules();
//! suite.finish().await?;
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

mod collect;
mod fixture;
mod forward;
mod harness;
mod kind;
mod namespace;
mod recorder;
mod recording;
mod report;
mod rules;
mod wait;
mod workload;

pub use forward::PortForward;
pub use harness::{DEFAULT_TIMEOUT, Harness};
pub use kind::{INSTANCE_LABEL, MANAGED_BY_LABEL, MANAGER, NAME_LABEL, PhaseObject, instance_selector};
pub use recorder::PhaseRecorder;
pub use recording::{Recording, Seen, Stream};
pub use rules::Status;
pub use wait::Judgement;
pub use workload::{Recorded, Revision, Template, Workload, WorkloadState};
