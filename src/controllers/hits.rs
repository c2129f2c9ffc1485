//! Asks the cache servers for their hits, once in an interval, and wakes the engines whose counts have changed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use lmcache_crds::{CacheStatus, Report};
use tracing::debug;

use super::queue::{Priority, Ticket};
use super::{Managed, SharedContext, jittered};
use crate::key::Key;
use crate::observe::hits::{Ledger, Tokens, scrape};
use crate::observe::{Cache, Guarded};
use crate::render::Engine;

/// How many servers are asked at once.
const AT_ONCE: usize = 16;

/// What was counted of each engine.
#[derive(Clone, Default)]
pub struct Hits(Arc<Mutex<HashMap<Ticket, CacheStatus>>>);

impl Hits {
    /// What was counted of this resource last; `None` when nothing was.
    pub fn of(&self, ticket: &Ticket) -> Option<CacheStatus> {
        self.lock().get(ticket).cloned()
    }

    /// Forgets a resource that is gone.
    pub fn forget(&self, ticket: &Ticket) {
        self.lock().remove(ticket);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Ticket, CacheStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An engine whose servers are asked.
struct Subject {
    ticket: Ticket,
    uid: String,
    http_port: u16,
    report: Report,
}

/// Asks in rounds for as long as the process leads.
pub struct Sampler {
    /// What it works with.
    pub context: SharedContext,
    /// Pause between two rounds.
    pub interval: Duration,
    /// Lists the engines of every kind.
    pub sources: Vec<Box<dyn Fn() -> Vec<Candidate> + Send + Sync>>,
}

/// An engine as a cache knows it.
pub struct Candidate(Subject);

/// Lists the engines of one kind.
pub fn candidates<E: Engine + Managed>(cache: Cache<Guarded<E>>) -> Box<dyn Fn() -> Vec<Candidate> + Send + Sync> {
    Box::new(move || {
        let engines = cache.all();
        let valid = engines.iter().filter_map(|engine| match engine.as_ref() {
            Guarded::Valid(engine) => Some(engine),
            Guarded::Malformed(_) => None,
        });
        let subject = |engine: &E| {
            let meta = engine.meta();
            Some(Candidate(Subject {
                ticket: (<E as Managed>::KIND, Key::of(meta)),
                uid: meta.uid.clone()?,
                http_port: u16::try_from(engine.common().http_port()).ok()?,
                report: engine.report(),
            }))
        };
        valid.filter_map(subject).collect()
    })
}

impl Sampler {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut ledgers: HashMap<(Ticket, String), Ledger> = HashMap::new();
        loop {
            tokio::time::sleep(jittered(self.interval, 0.1)).await;
            let subjects: Vec<Subject> = self.sources.iter().flat_map(|list| list()).map(|it| it.0).collect();
            let known: HashSet<(Ticket, String)> =
                subjects.iter().map(|it| (it.ticket.clone(), it.uid.clone())).collect();
            ledgers.retain(|engine, _| known.contains(engine));
            let mut rounds =
                stream::iter(subjects.into_iter().map(|subject| self.ask(subject))).buffer_unordered(AT_ONCE);
            while let Some((subject, answers, present)) = rounds.next().await {
                let published = || subject.report.cache.as_ref().map(tokens_of);
                let ledger = ledgers
                    .entry((subject.ticket.clone(), subject.uid.clone()))
                    .or_insert_with(|| Ledger::after(published()));
                ledger.round(answers, &present);
                if let Some(total) = ledger.known_total() {
                    self.note(&subject, total);
                }
            }
        }
    }

    /// Asks every ready instance of an engine, one after the other: engines are asked side by side.
    async fn ask(&self, subject: Subject) -> (Subject, BTreeMap<String, Option<Tokens>>, Vec<String>) {
        let listed: HashSet<&str> = subject.report.endpoints.iter().map(|it| it.pod_name.as_str()).collect();
        let mut answers = BTreeMap::new();
        let mut present = Vec::new();
        for pod in self.context.caches.pods.of(&subject.ticket.1) {
            let name = pod.metadata.name.clone().unwrap_or_default();
            if !listed.contains(name.as_str()) || !pod.ready() {
                continue;
            }
            let Some(address) = pod.status.pod_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok()) else { continue };
            match scrape(address, subject.http_port).await {
                Ok(tokens) => {
                    answers.insert(name.clone(), tokens);
                }
                Err(error) => {
                    let (kind, key) = &subject.ticket;
                    debug!(kind, namespace = %key.namespace, name = %key.name, pod = name, "Failed to read metrics: {error}");
                }
            }
            present.push(name);
        }
        (subject, answers, present)
    }

    /// Remembers a count that differs from the published one, and wakes the engine to publish it.
    fn note(&self, subject: &Subject, total: Tokens) {
        #[allow(clippy::cast_possible_truncation, reason = "the cast saturates")]
        let (hit, requested) = (total.hit as i64, total.requested as i64);
        let counts = |cache: &CacheStatus| (cache.hit_tokens, cache.requested_tokens);
        let mut counted = self.context.hits.lock();
        // What was noted is published, or is tried again by whoever failed to.
        let known = counted.get(&subject.ticket).or(subject.report.cache.as_ref()).map(counts);
        if known.unwrap_or_default() == (hit, requested) {
            return;
        }
        counted.insert(subject.ticket.clone(), CacheStatus::new(hit, requested, Timestamp::now()));
        drop(counted);
        self.context.queue.add(subject.ticket.clone(), Priority::Ordinary);
    }
}

fn tokens_of(cache: &CacheStatus) -> Tokens {
    #[allow(clippy::cast_precision_loss, reason = "counts are far from 2^53")]
    Tokens { hit: cache.hit_tokens as f64, requested: cache.requested_tokens as f64 }
}
