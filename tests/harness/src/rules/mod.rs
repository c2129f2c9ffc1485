//! The rules that every status must obey, checked on what was seen.

mod conditions;
mod history;
mod readiness;
#[cfg(test)]
mod testing;

use std::time::Instant;

use lmcache_crds::PhaseRecord;

pub(crate) use conditions::of_conditions;
pub(crate) use history::{added, of_history};
pub(crate) use readiness::{near_gap, of_readiness};

/// One status that was written.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a> {
    /// resourceVersion of the object with it.
    pub version: u64,
    /// When the recorder heard of it.
    pub at: Instant,
    /// `metadata.generation` at that time.
    pub generation: i64,
    /// The status.
    pub record: &'a PhaseRecord,
}
