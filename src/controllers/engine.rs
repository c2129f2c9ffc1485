//! The controller of every engine kind: what it watches, who is served when, and what happens on errors.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::Api;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{Controller, Predicate as _, PredicateConfig, WatchStreamExt, predicates, reflector};
use lmcache_observability::ReconcileResult;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::{Instrument, debug, error, info_span};

use super::gate::Ticket;
use super::reconcile::{RECONCILE_TIMEOUT, ReconcileError};
use super::{SharedContext, jittered, pause_after};
use crate::key::Key;
use crate::observe::{self, Guarded};
use crate::publish::PublishError;
use crate::render::Engine;

/// An engine kind that a controller can serve.
pub trait ManagedEngine: Engine + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}
impl<E: Engine + Clone + Debug + DeserializeOwned + Send + Sync + 'static> ManagedEngine for E {}

/// Watches one engine kind in one namespace, or in all, and reconciles until the shutdown.
pub async fn run<E: ManagedEngine>(context: SharedContext, namespace: Option<String>) {
    let kind = E::kind_label();
    let api: Api<Guarded<E>> = match &namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    let (store, writer) = reflector::store();
    let resource = E::resource_label();
    let mut notice = Notice::<E> { context: context.clone(), store: store.clone(), generations: HashMap::new() };
    let metrics = context.metrics.clone();
    let mut listed = Vec::new();
    let stream = watcher::watcher(api, watcher::Config::default().streaming_lists())
        .backoff(observe::backoff())
        .modify(trim)
        .reflect(writer)
        .inspect(move |event| match event {
            Ok(event) => notice.take(event),
            Err(error) => observe::report(resource, error, &metrics),
        })
        .filter_map(|event| std::future::ready(event.ok()))
        .flat_map(move |event| stream::iter(touched(&mut listed, event)).map(Ok::<_, watcher::Error>))
        .predicate_filter(
            predicates::generation.combine(predicates::finalizers).combine(predicates::annotations),
            PredicateConfig::default(),
        );
    let shutdown = context.shutdown.clone();
    let wakeups = context.wakeups.listen(kind, namespace).map(|key| ObjectRef::new(&key.name).within(&key.namespace));
    let everyone = context.wakeups.everyone();
    let reconciler = Arc::new(Reconciler::<E> { context, store: store.clone() });
    Controller::for_stream(stream, store)
        .with_config(Config::default())
        .reconcile_on(wakeups)
        .reconcile_all_on(everyone)
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(
            |object, reconciler| async move { reconciler.turn(object).await },
            |_, _, _| Action::await_change(),
            reconciler,
        )
        .for_each(|_| std::future::ready(()))
        .await;
}

/// The objects that an event is about, not before the store holds them. A list reaches the store as a whole when it is
/// complete; a reconcile that ran before would not find a new object, or find an old version, and nothing would run it again.
fn touched<K>(listed: &mut Vec<K>, event: Event<K>) -> Vec<K> {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => listed.push(object),
        Event::InitDone => return std::mem::take(listed),
        Event::Apply(object) | Event::Delete(object) => return vec![object],
    }
    Vec::new()
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

/// Notices edits, so that they go first, and deletions, so that nothing is remembered of them.
struct Notice<E: ManagedEngine> {
    context: SharedContext,
    store: Store<Guarded<E>>,
    generations: HashMap<Key, i64>,
}

impl<E: ManagedEngine> Notice<E> {
    fn take(&mut self, event: &Event<Guarded<E>>) {
        match event {
            Event::Apply(object) => {
                let (key, generation) = (key_of(object.meta()), object.meta().generation.unwrap_or_default());
                if self.generations.insert(key.clone(), generation) != Some(generation) {
                    self.context.gate.promote(&(E::kind_label(), key));
                }
            }
            Event::InitApply(object) => {
                self.generations.insert(key_of(object.meta()), object.meta().generation.unwrap_or_default());
            }
            Event::Delete(object) => self.forget(&key_of(object.meta())),
            Event::Init => {}
            Event::InitDone => {
                let gone = |key: &&Key| self.store.get(&ObjectRef::new(&key.name).within(&key.namespace)).is_none();
                let gone: Vec<Key> = self.generations.keys().filter(gone).cloned().collect();
                gone.iter().for_each(|key| self.forget(key));
            }
        }
    }

    fn forget(&mut self, key: &Key) {
        self.generations.remove(key);
        self.context.forget(&(E::kind_label(), key.clone()));
    }
}

fn key_of(meta: &ObjectMeta) -> Key {
    Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// Reconciles engines of one kind.
pub(super) struct Reconciler<E: ManagedEngine> {
    pub(super) context: SharedContext,
    pub(super) store: Store<Guarded<E>>,
}

impl<E: ManagedEngine> Reconciler<E> {
    /// Waits for a turn, reconciles, and says when to come again.
    async fn turn(&self, object: Arc<Guarded<E>>) -> Result<Action, Infallible> {
        let kind = E::kind_label();
        let ticket: Ticket = (kind, key_of(object.meta()));
        self.context.metrics.queue_depth(kind, self.context.gate.waiting());
        let _permit = tokio::select! {
            permit = self.context.gate.enter(ticket.clone()) => permit,
            () = self.context.shutdown.cancelled() => return Ok(Action::await_change()),
        };
        let _in_flight = self.context.metrics.reconcile_started(kind);
        // It may have changed, or gone, while it waited.
        let Some(object) = self.store.get(&ObjectRef::from_obj(&*object)) else { return Ok(Action::await_change()) };
        let started = Instant::now();
        let meta = object.meta();
        let span = info_span!("reconcile", kind, namespace = %ticket.1.namespace, name = %ticket.1.name,
            generation = meta.generation.unwrap_or_default());
        let uid = meta.uid.clone().unwrap_or_default();
        let work = Box::pin(self.reconcile(&object, &ticket)).instrument(span.clone());
        let result = tokio::time::timeout(RECONCILE_TIMEOUT, work).await.unwrap_or(Err(ReconcileError::Timeout));
        let outcome = if result.is_ok() { ReconcileResult::Success } else { ReconcileResult::Error };
        self.context.metrics.reconcile_finished(kind, outcome, started.elapsed());
        Ok(result.unwrap_or_else(|error| span.in_scope(|| self.failed(&ticket, &uid, &error))))
    }

    fn failed(&self, ticket: &Ticket, uid: &str, error: &ReconcileError) -> Action {
        self.context.metrics.reconcile_error(ticket.0, error.label());
        if matches!(error, ReconcileError::Publish(PublishError::Stale)) {
            debug!("Status changed underneath, looking again");
            return Action::requeue(jittered(Duration::from_millis(100), 1.0));
        }
        let attempts = self.context.memories.count_error(ticket, uid);
        let error = observe::chain(error);
        error!(attempts, "Failed to reconcile: {error}");
        Action::requeue(pause_after(attempts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_object_is_touched_when_the_list_is_complete() {
        let mut listed = Vec::new();
        let events = [
            (Event::Init, vec![]),
            (Event::InitApply("a"), vec![]),
            // The watch broke in the middle of the list.
            (Event::Init, vec![]),
            (Event::InitApply("a"), vec![]),
            (Event::InitApply("b"), vec![]),
            (Event::InitDone, vec!["a", "b"]),
            (Event::Apply("a"), vec!["a"]),
            (Event::Delete("b"), vec!["b"]),
        ];
        for (event, expected) in events {
            let what = format!("{event:?}");
            assert_eq!(touched(&mut listed, event), expected, "{what}");
        }
    }
}
