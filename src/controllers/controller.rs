//! The controller of every kind: what it watches, who is served when, and what happens on errors.

use std::collections::{HashMap, HashSet};
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
use lmcache_crds::LMCacheCoordinator;
use lmcache_observability::{ReconcileResult, traces};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{Instrument, Span, debug, error, info_span};

use super::queue::{Priority, Ticket, Trigger};
use super::reconcile::{RECONCILE_TIMEOUT, ReconcileError};
use super::wake::Target;
use super::{Managed, Reconcile, SharedContext, jittered, pause_after};
use crate::key::Key;
use crate::observe::{self, Cache, Feed, Guarded};
use crate::publish::PublishError;

/// The resources of one kind, and what fills them.
pub struct Resources<K: Managed> {
    /// What is known of them.
    pub cache: Cache<Guarded<K>>,
    feeds: Vec<Feed<Guarded<K>>>,
}

impl<K: Managed> Resources<K> {
    /// None yet, in these namespaces (`None` for all).
    pub fn new(namespaces: &[Option<String>]) -> Self {
        let (cache, feeds) = Cache::new(namespaces, &(), |resource: &Guarded<K>| Some(Key::of(resource.meta())));
        Resources { cache, feeds }
    }

    /// Starts to watch them, and gives who reconciles them.
    pub fn serve(
        self,
        context: &SharedContext,
        namespaces: &[Option<String>],
        watches: &mut JoinSet<()>,
    ) -> (&'static str, Arc<dyn Reconcile>) {
        for (namespace, feed) in namespaces.iter().zip(self.feeds) {
            let api: Api<Guarded<K>> = match namespace {
                Some(namespace) => Api::namespaced(context.client.clone(), namespace),
                None => Api::all(context.client.clone()),
            };
            watches.spawn(watch(context.clone(), api, feed));
        }
        (K::KIND, Arc::new(Reconciler { context: context.clone(), resources: self.cache }))
    }
}

async fn watch<K: Managed>(context: SharedContext, api: Api<Guarded<K>>, mut feed: Feed<Guarded<K>>) {
    let metrics = context.metrics.clone();
    let mut notice = Notice { context, kind: K::KIND, seen: HashMap::new(), listed: HashSet::new(), begun: false };
    let settings = watcher::Config::default().streaming_lists();
    let mut events = pin!(watcher(api, settings).backoff(observe::backoff()).modify(trim));
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                // The cache first: whoever is woken looks into it.
                feed.take(&event);
                if let Event::Delete(object) = &event {
                    notice.context.tell_deleted(object);
                }
                notice.take(&event);
            }
            Err(error) => observe::report(K::PLURAL, &error, &metrics),
        }
    }
}

/// Of the metadata only what a reconcile reads is kept.
fn trim<K: Managed>(object: &mut Guarded<K>) {
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
    /// Whether a whole list has arrived before.
    begun: bool,
}

impl Notice {
    fn take<K: Resource>(&mut self, event: &Event<K>) {
        match event {
            Event::Init => self.listed.clear(),
            // A list reaches the cache as a whole when it is complete; before, a reconcile would not find it.
            Event::InitApply(object) => {
                let key = Key::of(object.meta());
                self.context.wakeups.known(&(self.kind, key.clone()));
                self.seen.insert(key.clone(), Seen::of(object.meta()));
                self.listed.insert(key);
            }
            Event::InitDone => {
                let gone: Vec<Key> = self.seen.keys().filter(|key| !self.listed.contains(key)).cloned().collect();
                for key in &gone {
                    self.forget(key);
                }
                let trigger = if std::mem::replace(&mut self.begun, true) { Trigger::Resync } else { Trigger::Start };
                for key in std::mem::take(&mut self.listed) {
                    self.tell_referrers(&key);
                    let ticket = (self.kind, key);
                    self.context.queue.note(&ticket, trigger);
                    self.context.queue.add(ticket, Priority::Ordinary);
                }
            }
            Event::Apply(object) => self.applied(object.meta()),
            Event::Delete(object) => self.forget(&Key::of(object.meta())),
        }
    }

    fn applied(&mut self, meta: &ObjectMeta) {
        let (key, now) = (Key::of(meta), Seen::of(meta));
        let ticket = (self.kind, key.clone());
        self.context.wakeups.known(&ticket);
        let priority = match self.seen.insert(key.clone(), now) {
            Some(before) if before == now => return,
            Some(before) if before.generation == now.generation => Priority::Ordinary,
            _ => Priority::Urgent,
        };
        self.context.queue.note(&ticket, Trigger::Edit);
        self.context.queue.add(ticket, priority);
        self.tell_referrers(&key);
    }

    fn forget(&mut self, key: &Key) {
        self.seen.remove(key);
        self.context.forget(&(self.kind, key.clone()));
        self.tell_referrers(key);
    }

    /// Engines follow the coordinator that they refer to (D13).
    fn tell_referrers(&self, key: &Key) {
        if self.kind == LMCacheCoordinator::KIND {
            self.context.wakeups.wake_referrers(&Target::Coordinator(key.clone()));
        }
    }
}

/// Reconciles resources of one kind.
pub(super) struct Reconciler<K: Managed> {
    pub(super) context: SharedContext,
    pub(super) resources: Cache<Guarded<K>>,
}

impl<K: Managed> Reconcile for Reconciler<K> {
    fn turn(self: Arc<Self>, ticket: Ticket) -> BoxFuture<'static, Option<Duration>> {
        async move {
            let trigger = self.context.queue.trigger(&ticket);
            let object = self.resources.get(&ticket.1.namespace, &ticket.1.name)?;
            let started = Instant::now();
            let meta = object.meta();
            let span = info_span!("reconcile", kind = ticket.0, namespace = %ticket.1.namespace, name = %ticket.1.name,
                generation = meta.generation.unwrap_or_default(), trigger = trigger.as_str());
            let uid = meta.uid.as_deref().unwrap_or_default();
            let work = self.reconcile(&object, &ticket).instrument(span.clone());
            let result = tokio::time::timeout(RECONCILE_TIMEOUT, work).await.unwrap_or(Err(ReconcileError::Timeout));
            let outcome = if result.is_ok() { ReconcileResult::Success } else { ReconcileResult::Error };
            let trace = traces::context_of(&span).map(|context| traces::to_hex(&context.trace_id));
            self.context.metrics.reconcile_finished(ticket.0, outcome, started.elapsed(), trace.as_deref());
            result.unwrap_or_else(|error| Some(span.in_scope(|| self.failed(&ticket, uid, &error))))
        }
        .boxed()
    }
}

impl<K: Managed> Reconciler<K> {
    /// Tells of an error, and says when to try again.
    fn failed(&self, ticket: &Ticket, uid: &str, error: &ReconcileError) -> Duration {
        self.context.metrics.reconcile_error(ticket.0, error.label());
        if matches!(error, ReconcileError::Publish(PublishError::Stale)) {
            debug!("Status changed underneath, looking again");
            return jittered(Duration::from_millis(100), 1.0);
        }
        let attempts = self.context.memories.count_error(ticket, uid);
        let error = observe::chain(error);
        traces::fail(&Span::current(), &error);
        error!(attempts, "Failed to reconcile: {error}");
        pause_after(attempts)
    }
}
