//! What the operator remembers of each engine between reconciles. All of it can be lost: a restart finds it again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use lmcache_crds::Report;
use lmcache_observability::traces::TraceContext;
use tokio::time::Instant;

use super::queue::Ticket;
use crate::apply::Applied;
use crate::observe::CredentialsMemo;
use crate::render::{ChildKind, Resolved};

/// Memory of one engine.
#[derive(Default)]
pub struct Memory {
    /// UID that the rest speaks of.
    pub uid: String,
    /// Status as last written and its resourceVersion, until the watch has delivered it.
    pub written: Option<(u64, Report)>,
    /// When the status was last written.
    pub written_at: Option<Instant>,
    /// What each child agreed with.
    pub applied: HashMap<(ChildKind, String), Applied>,
    /// What the last complete apply was rendered from.
    pub rendered: Option<Rendered>,
    /// Children whose place somebody else has.
    pub taken: Vec<(ChildKind, String)>,
    /// Credentials as last read.
    pub credentials: Option<CredentialsMemo>,
    /// Reconciles in a row in which a child could not be applied.
    pub failures: u32,
    /// Reconciles in a row that ended in an error.
    pub errors: u32,
    /// Traces of the reconciles that worked on the rollout under way.
    pub reconciles: Vec<TraceContext>,
}

/// What children were rendered from, and which they were.
pub struct Rendered {
    /// `metadata.generation` of the engine.
    pub generation: i64,
    /// What its references came to.
    pub resolved: Resolved,
    /// Children that should exist.
    pub wanted: Vec<(ChildKind, String)>,
    /// Children that should not.
    pub unwanted: Vec<(ChildKind, String)>,
}

/// Memories of all engines.
#[derive(Default)]
pub struct Memories(Mutex<HashMap<Ticket, Memory>>);

impl Memories {
    /// Takes a memory out for the time of one reconcile; a resource made anew under an old name starts afresh.
    pub fn take(&self, ticket: &Ticket, uid: &str) -> Memory {
        let memory = self.lock().remove(ticket).filter(|memory| memory.uid == uid);
        memory.unwrap_or_else(|| Memory { uid: uid.to_owned(), ..Memory::default() })
    }

    /// Puts it back.
    pub fn put(&self, ticket: Ticket, memory: Memory) {
        self.lock().insert(ticket, memory);
    }

    /// Counts an error of a reconcile whose memory was lost with it, and says how many came in a row.
    pub fn count_error(&self, ticket: &Ticket, uid: &str) -> u32 {
        let mut memories = self.lock();
        let memory = memories.entry(ticket.clone()).or_default();
        if memory.uid != uid {
            *memory = Memory { uid: uid.to_owned(), ..Memory::default() };
        }
        memory.errors += 1;
        memory.errors
    }

    /// Traces of the reconciles that worked on the rollout under way.
    pub fn reconciles(&self, ticket: &Ticket) -> Vec<TraceContext> {
        self.lock().get(ticket).map(|memory| memory.reconciles.clone()).unwrap_or_default()
    }

    /// Forgets a resource that is gone.
    pub fn forget(&self, ticket: &Ticket) {
        self.lock().remove(ticket);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Ticket, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
