//! Controllers: observe, render, apply, advance, publish; who is woken, who goes first, what happens on errors.

mod children;
mod controller;
pub mod hits;
mod kinds;
mod memory;
pub mod queue;
mod reconcile;
mod rollout;
mod trigger;
pub mod wake;
mod workers;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use lmcache_crds::LMCacheCoordinator;
use lmcache_observability::Metrics;
use lmcache_observability::traces::Traces;
use tokio_util::sync::CancellationToken;

pub use controller::Resources;
pub use kinds::Managed;
pub use memory::Memories;
pub use workers::{Reconcile, work};

use crate::cli::CrossNamespaceSecrets;
use crate::observe::{Cache, Caches, Guarded};
use crate::publish::Reporter;
use crate::render;
use hits::Hits;
use queue::Queue;
use wake::Wakeups;

/// What every controller works with.
pub struct Context {
    /// The client.
    pub client: Client,
    /// What is known of the cluster.
    pub caches: Caches,
    /// Every coordinator, for the engines that refer to one.
    pub coordinators: Cache<Guarded<LMCacheCoordinator>>,
    /// What rendering depends on beside the spec.
    pub options: render::Options,
    /// Whether Secrets of other namespaces may be used.
    pub cross_namespace_secrets: CrossNamespaceSecrets,
    /// Where everything is counted.
    pub metrics: Metrics,
    /// Where everything is traced.
    pub traces: Traces,
    /// Who signs Events.
    pub reporter: Reporter,
    /// Who is worked on.
    pub queue: Queue,
    /// Who is woken.
    pub wakeups: Wakeups,
    /// What is remembered.
    pub memories: Memories,
    /// What the cache servers count.
    pub hits: Hits,
    /// Cancelled when the process should stop.
    pub shutdown: CancellationToken,
}

impl Context {
    /// Forgets a resource that is gone, with its series.
    pub fn forget(&self, ticket: &queue::Ticket) {
        self.memories.forget(ticket);
        self.hits.forget(ticket);
        self.wakeups.forget(ticket);
        self.metrics.forget(ticket.0, &ticket.1.namespace, &ticket.1.name);
    }
}

/// A shared context.
pub type SharedContext = Arc<Context>;

/// A pause that grows with the attempts: 1 s, doubling up to a minute, with a fifth of jitter.
pub fn pause_after(attempts: u32) -> Duration {
    let pause = Duration::from_secs(1 << attempts.saturating_sub(1).min(6)).min(Duration::from_mins(1));
    jittered(pause, 0.2)
}

/// A duration made up to `share` longer at random, so that many waiters do not come at once.
pub fn jittered(duration: Duration, share: f64) -> Duration {
    // The standard library seeds its hashers at random; nothing here needs better randomness.
    let random = RandomState::new().hash_one(0_u8);
    #[allow(clippy::cast_precision_loss, reason = "a fraction of a pause")]
    let fraction = (random >> 11) as f64 / (1_u64 << 53) as f64;
    duration.mul_f64(1.0 + share * fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_no_further() {
        for (attempts, seconds) in [(0, 1), (1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (1000, 60)] {
            let pause = pause_after(attempts);
            let (low, high) = (Duration::from_secs(seconds), Duration::from_secs(seconds).mul_f64(1.2));
            assert!(pause >= low && pause <= high, "{attempts}: {pause:?}");
        }
    }
}
