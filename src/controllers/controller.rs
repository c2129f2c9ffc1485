//! The controller of every engine kind: what it watches, who is served when, and what happens on errors.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use lmcache_observability::ReconcileResult;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{Instrument, debug, error, info_span};

use super::queue::{Priority, Ticket};
use super::reconcile::{RECONCILE_TIMEOUT, ReconcileError};
use super::{Reconcile, SharedContext, jittered, pause_after};
use crate::key::Key;
use crate::observe::{self, Cache, Feed, Guarded};
use crate::publish::PublishError;
use crate::render::Engine;

/// An engine kind that a controller can serve.
pub trait ManagedEngine: Engine + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}
impl<E: Engine + Clone + Debug + DeserializeOwned + Send + Sync + 'static> ManagedEngine for E {}

/// Starts to watch one engine kind, and gives who reconciles it.
pub fn serve<E: ManagedEngine>(
    context: &SharedContext,
    namespaces: &[Option<String>],
    watches: &mut JoinSet<()>,
) -> (&'static str, Arc<dyn Reconcile>) {
    let (engines, feeds) = Cache::new(namespaces, &(), |engine: &Guarded<E>| Some(key_of(engine.meta())));
    for (namespace, feed) in namespaces.iter().zip(feeds) {
        let api: Api<Guarded<E>> = match namespace {
            Some(namespace) => Api::namespaced(context.client.clone(), namespace),
            None => Api::all(context.client.clone()),
        };
        watches.spawn(watch(context.clone(), api, feed));
    }
    (E::kind_label(), Arc::new(Reconciler { context: context.clone(), engines }))
}

async fn watch<E: ManagedEngine>(context: SharedContext, api: Api<Guarded<E>>, mut feed: Feed<Guarded<E>>) {
    let metrics = context.metrics.clone();
    let mut notice = Notice { context, kind: E::kind_label(), seen: HashMap::new(), listed: HashSet::new() };
    let settings = watcher::Config::default().streaming_lists();
    let mut events = pin!(watcher(api, settings).backoff(observe::backoff()).modify(trim));
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                // The cache first: whoever is woken looks into it.
                feed.take(&event);
                notice.take(&event);
            }
            Err(error) => observe::report(E::resource_label(), &error, &metrics),
        }
    }
}

/// Of the metadata only what a reconcile reads is kept.
fn trim<E: Resource>(object: &mut Guarded<E>)
where
    Guarded<E>: Resource,
{
    let meta = object.meta_mut();
    meta.managed_fields = None;
    meta.labels = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.retain(|key, _| key.starts_with("lmcache.ai/"));
    }
}

/// What of a resource concerns a reconcile; a status that we wrote ourselves does not.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    generation: i64,
    rest: u64,
}

impl Seen {
    fn of(meta: &ObjectMeta) -> Self {
        let mut hasher = DefaultHasher::new();
        (&meta.uid, &meta.finalizers, &meta.annotations, meta.deletion_timestamp.is_some()).hash(&mut hasher);
        Seen { generation: meta.generation.unwrap_or_default(), rest: hasher.finish() }
    }
}

/// Notices edits, so that they go first, and deletions, so that nothing is remembered of them.
struct Notice {
    context: SharedContext,
    kind: &'static str,
    seen: HashMap<Key, Seen>,
    listed: HashSet<Key>,
}

impl Notice {
    fn take<K: Resource>(&mut self, event: &Event<K>) {
        match event {
            Event::Init => self.listed.clear(),
            // A list reaches the cache as a whole when it is complete; before, a reconcile would not find it.
            Event::InitApply(object) => {
                let key = key_of(object.meta());
                self.context.wakeups.known(&(self.kind, key.clone()));
                self.seen.insert(key.clone(), Seen::of(object.meta()));
                self.listed.insert(key);
            }
            Event::InitDone => {
                let gone: Vec<Key> = self.seen.keys().filter(|key| !self.listed.contains(key)).cloned().collect();
                for key in &gone {
                    self.forget(key);
                }
                for key in std::mem::take(&mut self.listed) {
                    self.context.queue.add((self.kind, key), Priority::Ordinary);
                }
            }
            Event::Apply(object) => self.applied(object.meta()),
            Event::Delete(object) => self.forget(&key_of(object.meta())),
        }
    }

    fn applied(&mut self, meta: &ObjectMeta) {
        let (key, now) = (key_of(meta), Seen::of(meta));
        let ticket = (self.kind, key.clone());
        self.context.wakeups.known(&ticket);
        match self.seen.insert(key, now) {
            Some(before) if before == now => {}
            Some(before) if before.generation == now.generation => self.context.queue.add(ticket, Priority::Ordinary),
            _ => self.context.queue.add(ticket, Priority::Urgent),
        }
    }

    fn forget(&mut self, key: &Key) {
        self.seen.remove(key);
        self.context.forget(&(self.kind, key.clone()));
    }
}

fn key_of(meta: &ObjectMeta) -> Key {
    Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// Reconciles engines of one kind.
pub(super) struct Reconciler<E: ManagedEngine> {
    pub(super) context: SharedContext,
    pub(super) engines: Cache<Guarded<E>>,
}

impl<E: ManagedEngine> Reconcile for Reconciler<E> {
    fn turn(self: Arc<Self>, ticket: Ticket) -> BoxFuture<'static, Option<Duration>> {
        async move {
            let object = self.engines.get(&ticket.1.namespace, &ticket.1.name)?;
            let started = Instant::now();
            let meta = object.meta();
            let span = info_span!("reconcile", kind = ticket.0, namespace = %ticket.1.namespace, name = %ticket.1.name,
                generation = meta.generation.unwrap_or_default());
            let uid = meta.uid.as_deref().unwrap_or_default();
            let work = self.reconcile(&object, &ticket).instrument(span.clone());
            let result = tokio::time::timeout(RECONCILE_TIMEOUT, work).await.unwrap_or(Err(ReconcileError::Timeout));
            let outcome = if result.is_ok() { ReconcileResult::Success } else { ReconcileResult::Error };
            self.context.metrics.reconcile_finished(ticket.0, outcome, started.elapsed());
            result.unwrap_or_else(|error| Some(span.in_scope(|| self.failed(&ticket, uid, &error))))
        }
        .boxed()
    }
}

impl<E: ManagedEngine> Reconciler<E> {
    /// Tells of an error, and says when to try again.
    fn failed(&self, ticket: &Ticket, uid: &str, error: &ReconcileError) -> Duration {
        self.context.metrics.reconcile_error(ticket.0, error.label());
        if matches!(error, ReconcileError::Publish(PublishError::Stale)) {
            debug!("Status changed underneath, looking again");
            return jittered(Duration::from_millis(100), 1.0);
        }
        let attempts = self.context.memories.count_error(ticket, uid);
        let error = observe::chain(error);
        error!(attempts, "Failed to reconcile: {error}");
        pause_after(attempts)
    }
}
