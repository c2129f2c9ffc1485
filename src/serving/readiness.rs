//! Whether the process is ready, and what it still waits for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What must be there before `/readyz` says yes. A clone speaks of the same process.
///
/// Nothing is awaited at first: a standby that waits for the Lease is ready, because a Deployment that replaces its pod
/// ends the old one only when the new one is ready, and the old one holds the Lease.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeSet<&'static str>>>);

impl Readiness {
    /// From now on not ready until [`Readiness::arrived`] was told of each of `parts` (`DaemonSet cache`).
    pub fn awaiting(&self, parts: impl IntoIterator<Item = &'static str>) {
        self.lock().extend(parts);
    }

    /// `part` is there.
    pub fn arrived(&self, part: &'static str) {
        self.lock().remove(part);
    }

    /// What is still awaited, sorted; empty when the process is ready.
    pub fn missing(&self) -> Vec<&'static str> {
        self.lock().iter().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
