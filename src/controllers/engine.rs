//! The controller of every engine kind: one reconcile, as a story.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, future::join_all};
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{Controller, Predicate as _, WatchStreamExt, predicates, reflector};
use kube::{Resource, ResourceExt};
use lmcache_crds::EngineStatus;
use lmcache_observability::{ApplyOutcome, ReconcileResult};
use lmcache_states::{Advance, ChildFailure, Children, Counts, Observation, advance};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;
use tracing::{Instrument, debug, error, info_span, warn};

use super::gate::Ticket;
use super::memory::Memory;
use super::{Context, SharedContext, jittered, pause_after};
use crate::apply::{Applier, ApplyError, Owner};
use crate::key::Key;
use crate::observe::{self, Resolver, Running, resource_version};
use crate::publish::{Change, PublishError, Published, Publisher};
use crate::render::{self, Child, ChildKind, Engine};

/// An engine kind that a controller can serve.
pub trait ManagedEngine: Engine + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}
impl<E: Engine + Clone + Debug + DeserializeOwned + Send + Sync + 'static> ManagedEngine for E {}

type Guarded<E> = DeserializeGuard<E>;

/// A reconcile that does not end within this time is given up and tried again.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(30);
/// Every engine is looked at this often even if nothing happens: a missed event must not last for ever.
const RESYNC: Duration = Duration::from_mins(10);
/// Changes of counts alone are written at most this often.
const COUNTS_INTERVAL: Duration = Duration::from_secs(2);
/// A rollout of an engine whose spec cannot be read has the default deadline.
const MALFORMED_DEADLINE: Duration = Duration::from_mins(10);
/// Older releases set this finalizer; it is taken off (D54).
const LEGACY_FINALIZER: &str = "lmcache.ai/cleanup";

/// Why a reconcile ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The status could not be written.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// A request that is not about a child failed.
    #[error("failed to {action}: {message}")]
    Request {
        /// What was tried.
        action: &'static str,
        /// What the API server said.
        message: String,
    },
    /// It took too long.
    #[error("gave up after {} s", RECONCILE_TIMEOUT.as_secs())]
    Timeout,
}

impl ReconcileError {
    fn label(&self) -> &'static str {
        match self {
            ReconcileError::Publish(PublishError::Stale) => "stale",
            ReconcileError::Publish(_) => "status",
            ReconcileError::Request { .. } => "request",
            ReconcileError::Timeout => "timeout",
        }
    }
}

/// Watches one engine kind in one namespace, or in all, and reconciles until the shutdown.
pub async fn run<E: ManagedEngine>(context: SharedContext, namespace: Option<String>) {
    let kind = E::kind_label();
    let api: Api<Guarded<E>> = match &namespace {
        Some(namespace) => Api::namespaced(context.client.clone(), namespace),
        None => Api::all(context.client.clone()),
    };
    let (store, writer) = reflector::store();
    let resource = E::resource_label();
    let mut notice = Notice::<E> { context: context.clone(), store: store.clone(), generations: std::collections::HashMap::new() };
    let metrics = context.metrics.clone();
    let stream = watcher::watcher(api, watcher::Config::default().streaming_lists())
        .backoff(observe::backoff())
        .modify(trim)
        .reflect(writer)
        .inspect(move |event| match event {
            Ok(event) => notice.take(event),
            Err(error) => observe::report(resource, error, &metrics),
        })
        .filter(|event| std::future::ready(event.is_ok()))
        .touched_objects()
        .predicate_filter(
            predicates::generation.combine(predicates::finalizers).combine(predicates::annotations),
            kube::runtime::PredicateConfig::default(),
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
        .run(|object, reconciler| async move { reconciler.turn(object).await }, |_, _, _| Action::await_change(), reconciler)
        .for_each(|_| std::future::ready(()))
        .await;
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
    generations: std::collections::HashMap<Key, i64>,
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

fn key_of(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Key {
    Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

struct Reconciler<E: ManagedEngine> {
    context: SharedContext,
    store: Store<Guarded<E>>,
}

/// The engine of one reconcile, and what was last written of it.
struct Subject {
    owner: Owner,
    key: Key,
    generation: i64,
    version: String,
    before: EngineStatus,
}

/// What the spec led to, before pods are looked at.
struct Attempt {
    spec_errors: Vec<String>,
    dependencies: Vec<lmcache_states::DependencyIssue>,
    children: Children,
}

impl<E: ManagedEngine> Reconciler<E> {
    /// Waits for a turn, reconciles, and says when to come again.
    async fn turn(&self, object: Arc<Guarded<E>>) -> Result<Action, std::convert::Infallible> {
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

    async fn reconcile(&self, object: &Guarded<E>, ticket: &Ticket) -> Result<Action, ReconcileError> {
        let meta = object.meta();
        if meta.finalizers.iter().flatten().any(|f| f == LEGACY_FINALIZER) {
            self.strip_finalizer(object).await?;
            return Ok(Action::await_change());
        }
        if meta.deletion_timestamp.is_some() {
            return Ok(Action::await_change());
        }
        let mut memory = self.context.memories.take(ticket, meta.uid.as_deref().unwrap_or_default());
        let result = match &object.0 {
            Ok(engine) => self.engine(engine, ticket, &mut memory).await,
            Err(invalid) => self.malformed(object, &invalid.error, ticket, &mut memory).await,
        };
        if result.is_ok() {
            memory.errors = 0;
        }
        self.context.memories.put(ticket.clone(), memory);
        if self.store.get(&ObjectRef::from_obj(object)).is_none() {
            // Deleted meanwhile: what the deletion made forget must not come back.
            self.context.forget(ticket);
        }
        result
    }

    async fn strip_finalizer(&self, object: &Guarded<E>) -> Result<(), ReconcileError> {
        let meta = object.meta();
        let others: Vec<&String> = meta.finalizers.iter().flatten().filter(|f| *f != LEGACY_FINALIZER).collect();
        let patch = json!({"metadata": {"finalizers": others, "resourceVersion": meta.resource_version}});
        let api: Api<PartialObjectMeta<E>> = Api::namespaced(self.context.client.clone(), &object.namespace().unwrap_or_default());
        match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(ReconcileError::Request {
                action: "take the legacy finalizer off",
                message: crate::apply::explain(&E::plural(&()), "patch", &error).to_string(),
            }),
        }
    }

    async fn engine(&self, engine: &E, ticket: &Ticket, memory: &mut Memory) -> Result<Action, ReconcileError> {
        let subject = Self::subject(engine.meta(), &ticket.1, engine.status(), memory);
        let attempt = self.attempt(engine, &subject, ticket, memory).await;
        memory.failures = if let Children::Failed(failures) = &attempt.children { failures[0].attempts } else { 0 };
        let applied = memory.applied.get(&(ChildKind::DaemonSet, subject.owner.name.clone())).map(|a| a.generation);
        let ports = (engine.common().server_port(), engine.common().metrics_port());
        let now = Timestamp::now();
        let uid = &subject.owner.uid;
        let running = info_span!("observe").in_scope(|| {
            observe::running(&self.context.caches, &subject.key, uid, applied, &subject.before, ports, now)
        });
        self.settle(&subject, attempt, running, engine.progress_deadline(), now, memory).await
    }

    /// An object that cannot be decoded has no spec to render; its status can still say so.
    async fn malformed(
        &self,
        object: &Guarded<E>,
        error: &str,
        ticket: &Ticket,
        memory: &mut Memory,
    ) -> Result<Action, ReconcileError> {
        warn!("Failed to decode: {error}");
        let resource = kube::core::ApiResource::erase::<E>(&());
        let api: Api<kube::core::DynamicObject> =
            Api::namespaced_with(self.context.client.clone(), &ticket.1.namespace, &resource);
        let live = api.get_opt(&ticket.1.name).await.map_err(|error| ReconcileError::Request {
            action: "read a resource that cannot be decoded",
            message: observe::chain(&error),
        })?;
        let Some(live) = live else { return Ok(Action::await_change()) };
        let status = live.data.get("status").cloned().and_then(|status| serde_json::from_value(status).ok());
        let subject = Self::subject(object.meta(), &ticket.1, status.as_ref(), memory);
        let attempt = Attempt {
            spec_errors: vec![format!("spec: Invalid value: {error}")],
            dependencies: Vec::new(),
            children: Children::Withheld,
        };
        let now = Timestamp::now();
        let running = observe::running(
            &self.context.caches,
            &subject.key,
            &subject.owner.uid,
            None,
            &subject.before,
            (lmcache_crds::DEFAULT_SERVER_PORT, lmcache_crds::DEFAULT_METRICS_PORT),
            now,
        );
        self.settle(&subject, attempt, running, MALFORMED_DEADLINE, now, memory).await
    }

    /// The last written status is newer than the cached one until the watch has delivered it.
    fn subject(
        meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
        key: &Key,
        status: Option<&EngineStatus>,
        memory: &mut Memory,
    ) -> Subject {
        let cached = resource_version(meta);
        memory.written.take_if(|(version, _)| *version <= cached);
        let (version, before) = match &memory.written {
            Some((version, status)) => (version.to_string(), status.clone()),
            None => (meta.resource_version.clone().unwrap_or_default(), status.cloned().unwrap_or_default()),
        };
        let owner = Owner {
            kind: E::kind_label(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            uid: meta.uid.clone().unwrap_or_default(),
        };
        Subject { owner, key: key.clone(), generation: meta.generation.unwrap_or_default(), version, before }
    }

    /// Validates, resolves, renders and applies as far as the spec allows.
    async fn attempt(&self, engine: &E, subject: &Subject, ticket: &Ticket, memory: &mut Memory) -> Attempt {
        let withheld = |spec_errors, dependencies| Attempt { spec_errors, dependencies, children: Children::Withheld };
        let errors = info_span!("validate").in_scope(|| engine.validate());
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let sources = engine.common().auth_secret_ref().map(|r| observe::source_of(r, &subject.owner.namespace));
        // Before the Secret is looked for, so that one that appears in between is not missed.
        self.context.wakeups.refer(ticket, sources.as_slice());
        if !errors.is_empty() {
            return withheld(errors, Vec::new());
        }
        let resolver = Resolver {
            client: &self.context.client,
            caches: &self.context.caches,
            policy: self.context.cross_namespace_secrets,
            namespace: &subject.owner.namespace,
        };
        let resolving = resolver.resolve(engine.common(), &mut memory.credentials);
        match resolving.instrument(info_span!("resolve-dependencies")).await {
            Ok((resolved, issues)) if issues.is_empty() => {
                let children = render::children(engine, &resolved, &self.context.options);
                Attempt { spec_errors: errors, dependencies: issues, children: self.apply(subject, children, memory).await }
            }
            Ok((_, issues)) => withheld(errors, issues),
            Err(failed) => {
                let error = crate::apply::explain("secrets", "get", &failed.error);
                let failure = failure(format!("Secret {}", failed.secret), &error, memory.failures + 1);
                Attempt { spec_errors: errors, dependencies: Vec::new(), children: Children::Failed(vec![failure]) }
            }
        }
    }

    /// Applies every child, also when one of them fails (D10).
    async fn apply(&self, subject: &Subject, children: render::Children, memory: &mut Memory) -> Children {
        let labels = render::selector_labels(&subject.owner.name);
        let selector: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let applier = Applier { client: &self.context.client, owner: &subject.owner, selector: &selector };
        let wanted = children.wanted.into_iter();
        // Pods need their credentials, and should never be open; everything else does not wait for anything.
        let (first, rest): (Vec<Child>, Vec<Child>) =
            wanted.partition(|child| matches!(child.kind, ChildKind::Secret | ChildKind::NetworkPolicy));
        let attempts = memory.failures + 1;
        let mut failures = Vec::new();
        for group in [first, rest] {
            let applying = group.into_iter().map(|child| async {
                let cache = self.context.caches.children(child.kind);
                let memo = memory.applied.get(&(child.kind, child.name.clone())).copied();
                let result = applier.apply(&child, cache, memo).await;
                (child, result)
            });
            for (child, result) in join_all(applying).await {
                let outcome = result.as_ref().map_or_else(ApplyError::outcome, |(outcome, _)| *outcome);
                self.context.metrics.applied(subject.owner.kind, child.kind.as_str(), outcome);
                match result {
                    Ok((_, applied)) => {
                        memory.applied.insert((child.kind, child.name), applied);
                    }
                    Err(error) => {
                        let object = format!("{} {}/{}", child.kind, subject.owner.namespace, child.name);
                        memory.applied.remove(&(child.kind, child.name));
                        failures.push(failure(object, &error, attempts));
                    }
                }
            }
        }
        failures.extend(self.remove(&applier, children.unwanted, attempts, memory).await);
        if failures.is_empty() { Children::Applied } else { Children::Failed(failures) }
    }

    async fn remove(
        &self,
        applier: &Applier<'_>,
        unwanted: Vec<(ChildKind, String)>,
        attempts: u32,
        memory: &mut Memory,
    ) -> Vec<ChildFailure> {
        let mut failures = Vec::new();
        for (kind, name) in unwanted {
            let live = self.context.caches.children(kind).get(&applier.owner.namespace, &name);
            memory.applied.remove(&(kind, name.clone()));
            match applier.remove(kind, &name, live).await {
                Ok(ApplyOutcome::Unchanged) => {}
                Ok(outcome) => self.context.metrics.applied(applier.owner.kind, kind.as_str(), outcome),
                Err(error) => {
                    self.context.metrics.applied(applier.owner.kind, kind.as_str(), error.outcome());
                    failures.push(failure(format!("{kind} {}/{name}", applier.owner.namespace), &error, attempts));
                }
            }
        }
        failures
    }

    /// Advances the machine, publishes what it decided, and says when to look again.
    async fn settle(
        &self,
        subject: &Subject,
        attempt: Attempt,
        running: Running,
        progress_deadline: Duration,
        now: Timestamp,
        memory: &mut Memory,
    ) -> Result<Action, ReconcileError> {
        let before = &subject.before;
        let observation = Observation {
            generation: subject.generation,
            spec_errors: attempt.spec_errors,
            dependencies: attempt.dependencies,
            children: attempt.children,
            workload: running.workload,
            instances: running.instances,
            previous: Counts {
                desired: before.desired_instances,
                updated: before.updated_instances,
                available: before.available_instances,
            },
            now,
            progress_deadline,
        };
        let Advance { record, steps, wake_at } =
            info_span!("evaluate-phase").in_scope(|| advance(&before.record, &observation));
        let counts = running.workload;
        let (endpoints, endpoints_truncated) = observe::limit(running.endpoints);
        let after = EngineStatus {
            record,
            desired_instances: counts.map_or(0, |c| c.desired),
            updated_instances: counts.filter(|c| c.observed).map_or(0, |c| c.updated),
            ready_instances: counts.map_or(0, |c| c.ready),
            available_instances: counts.map_or(0, |c| c.available),
            endpoints,
            endpoints_truncated,
        };
        let again = again(&observation, wake_at, now);
        if steps.is_empty()
            && same_verdict(before, &after)
            && let Some(rest) = memory.written_at.and_then(|at| COUNTS_INTERVAL.checked_sub(at.elapsed()))
            && *before != after
        {
            return Ok(Action::requeue(rest.min(again)));
        }
        let version = subject.version.clone();
        let change = Change { owner: &subject.owner, version, before, after: &after, steps: &steps };
        let Context { client, reporter, metrics, .. } = &*self.context;
        match (Publisher { client, reporter, metrics }).publish::<E>(&change).await? {
            Published::Written(version) => {
                memory.written = Some((version, after));
                memory.written_at = Some(Instant::now());
            }
            Published::Unchanged => {}
            Published::Gone => return Ok(Action::await_change()),
        }
        Ok(Action::requeue(again))
    }
}

fn failure(object: String, error: &ApplyError, attempts: u32) -> ChildFailure {
    ChildFailure { object, kind: error.kind(), message: error.to_string(), attempts }
}

/// When to look again if nothing happens: at the deadline, after a failure, or at the slow resync.
fn again(observation: &Observation, wake_at: Option<Timestamp>, now: Timestamp) -> Duration {
    let mut again = jittered(RESYNC, 0.2);
    if let Children::Failed(failures) = &observation.children {
        again = again.min(pause_after(failures[0].attempts));
    }
    if let Some(wake_at) = wake_at {
        let wait = Duration::try_from(wake_at.duration_since(now)).unwrap_or_default();
        again = again.min(wait + Duration::from_millis(500));
    }
    again
}

/// Whether two statuses say the same but for counts, endpoints and words.
fn same_verdict(before: &EngineStatus, after: &EngineStatus) -> bool {
    let verdicts = |status: &EngineStatus| {
        let conditions = status.record.conditions.iter();
        conditions.map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone())).collect::<Vec<_>>()
    };
    before.record.phase == after.record.phase
        && before.record.reason == after.record.reason
        && before.record.observed_generation == after.record.observed_generation
        && verdicts(before) == verdicts(after)
}
