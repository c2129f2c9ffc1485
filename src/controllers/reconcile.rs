//! One reconcile, as a story: validate, resolve, render, apply, observe, advance, publish.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use lmcache_crds::Report;
use lmcache_states::{
    Advance, Advisory, ChildFailure, Children, Counts, DependencyIssue, FailureKind, Observation, advance,
};
use serde_json::json;
use tokio::time::Instant;
use tracing::{Instrument, info_span, warn};

use super::children::{apply_all, failure, nothing_changed};
use super::controller::Reconciler;
use super::memory::Memory;
use super::queue::Ticket;
use super::rollout::Origin;
use super::wake;
use super::{Context, Managed, jittered, pause_after};
use crate::apply::Owner;
use crate::key::Key;
use crate::observe::{
    self, DependencyError, Guarded, Malformed, Resolution, Resolver, Running, Target, resource_version,
};
use crate::publish::{Change, PublishError, Published, Publisher};
use crate::render::Resolved;

/// A reconcile that does not end within this time is given up and tried again.
pub(super) const RECONCILE_TIMEOUT: Duration = Duration::from_secs(30);
/// Every resource is looked at this often even if nothing happens: a missed event must not last for ever.
pub(super) const RESYNC: Duration = Duration::from_mins(10);
/// Changes of counts alone are written at most this often.
const COUNTS_INTERVAL: Duration = Duration::from_secs(2);
/// A rollout of a resource whose spec cannot be read has the default deadline.
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
    /// The `error` label of `reconcile_errors_total`.
    pub(super) fn label(&self) -> &'static str {
        match self {
            ReconcileError::Publish(PublishError::Stale) => "stale",
            ReconcileError::Publish(_) => "status",
            ReconcileError::Request { .. } => "request",
            ReconcileError::Timeout => "timeout",
        }
    }
}

/// The resource of one reconcile, and what was last written of it.
pub(super) struct Subject {
    pub(super) owner: Owner,
    key: Key,
    pub(super) generation: i64,
    version: String,
    pub(super) before: Report,
    pub(super) origin: Origin,
}

/// What the spec led to, before pods are looked at.
struct Attempt {
    spec_errors: Vec<String>,
    dependencies: Vec<DependencyIssue>,
    advisories: Vec<Advisory>,
    children: Children,
}

impl Attempt {
    /// Nothing was applied.
    fn withheld(spec_errors: Vec<String>, dependencies: Vec<DependencyIssue>) -> Self {
        Attempt { spec_errors, dependencies, advisories: Vec::new(), children: Children::Withheld }
    }
}

/// What was seen of the pods, and what they are judged by.
struct Terms {
    running: Running,
    endpoint: Option<String>,
    progress_deadline: Duration,
    now: Timestamp,
}

impl<K: Managed> Reconciler<K> {
    /// One reconcile; says when to come again.
    pub(super) async fn reconcile(
        &self,
        object: &Guarded<K>,
        ticket: &Ticket,
    ) -> Result<Option<Duration>, ReconcileError> {
        let meta = object.meta();
        if meta.finalizers.iter().flatten().any(|f| f == LEGACY_FINALIZER) {
            self.strip_finalizer(object).await?;
            return Ok(None);
        }
        if meta.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let mut memory = self.context.memories.take(ticket, meta.uid.as_deref().unwrap_or_default());
        let result = match object {
            Guarded::Valid(resource) => self.resource(resource, ticket, &mut memory).await,
            Guarded::Malformed(malformed) => self.malformed(object, malformed, ticket, &mut memory).await,
        };
        if result.is_ok() {
            memory.errors = 0;
        }
        self.context.memories.put(ticket.clone(), memory);
        if self.resources.get(&ticket.1.namespace, &ticket.1.name).is_none() {
            // Deleted meanwhile: what the deletion made forget must not come back.
            self.context.forget(ticket);
        }
        result
    }

    async fn strip_finalizer(&self, object: &Guarded<K>) -> Result<(), ReconcileError> {
        let meta = object.meta();
        let others: Vec<&String> = meta.finalizers.iter().flatten().filter(|f| *f != LEGACY_FINALIZER).collect();
        let patch = json!({"metadata": {"finalizers": others, "resourceVersion": meta.resource_version}});
        let api: Api<PartialObjectMeta<K>> =
            Api::namespaced(self.context.client.clone(), &object.namespace().unwrap_or_default());
        match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(ReconcileError::Request {
                action: "take the legacy finalizer off",
                message: crate::apply::explain(K::PLURAL, "patch", &error).to_string(),
            }),
        }
    }

    async fn resource(
        &self,
        resource: &K,
        ticket: &Ticket,
        memory: &mut Memory,
    ) -> Result<Option<Duration>, ReconcileError> {
        let subject = Self::subject(resource.meta(), &ticket.1, || resource.report(), memory);
        let attempt = self.attempt(resource, &subject, ticket, memory).await;
        memory.failures = if let Children::Failed(failures) = &attempt.children { failures[0].attempts } else { 0 };
        let applied = memory.applied.get(&(K::WORKLOAD, subject.owner.name.clone())).map(|a| a.generation);
        let now = Timestamp::now();
        let terms = Terms {
            running: self.observe(&subject, applied, resource.ports(), now),
            endpoint: resource.endpoint(),
            progress_deadline: resource.progress_deadline(),
            now,
        };
        self.settle(&subject, attempt, terms, memory).await
    }

    fn observe(&self, subject: &Subject, applied: Option<i64>, ports: (i32, i32), now: Timestamp) -> Running {
        let target = Target {
            kind: K::WORKLOAD,
            key: &subject.key,
            owner: &subject.owner.uid,
            applied_generation: applied,
            ports,
        };
        self.context.traces.step("observe", || observe::running(&self.context.caches, &target, &subject.before, now))
    }

    /// An object that cannot be decoded has no spec to render; its status can still say so.
    async fn malformed(
        &self,
        object: &Guarded<K>,
        malformed: &Malformed,
        ticket: &Ticket,
        memory: &mut Memory,
    ) -> Result<Option<Duration>, ReconcileError> {
        warn!("Failed to decode: {}", malformed.errors.join("; "));
        let report = || malformed.status.clone().unwrap_or_default();
        let subject = Self::subject(object.meta(), &ticket.1, report, memory);
        let attempt = Attempt::withheld(malformed.errors.clone(), Vec::new());
        let now = Timestamp::now();
        let last = subject.before.endpoints.first();
        let ports = last.map_or_else(Default::default, |endpoint| (endpoint.port, endpoint.metrics_port));
        let terms = Terms {
            running: self.observe(&subject, None, ports, now),
            endpoint: subject.before.endpoint.clone(),
            progress_deadline: MALFORMED_DEADLINE,
            now,
        };
        self.settle(&subject, attempt, terms, memory).await
    }

    /// The last written status is newer than the cached one until the watch has delivered it.
    fn subject(meta: &ObjectMeta, key: &Key, cached: impl FnOnce() -> Report, memory: &mut Memory) -> Subject {
        let delivered = resource_version(meta);
        memory.written.take_if(|(version, _)| *version <= delivered);
        let (version, before) = match &memory.written {
            Some((version, report)) => (version.to_string(), report.clone()),
            None => (meta.resource_version.clone().unwrap_or_default(), cached()),
        };
        let owner = Owner {
            kind: K::KIND,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
            uid: meta.uid.clone().unwrap_or_default(),
        };
        let (generation, origin) = (meta.generation.unwrap_or_default(), Origin::of(meta));
        Subject { owner, key: key.clone(), generation, version, before, origin }
    }

    /// Validates, resolves, renders and applies as far as the spec allows.
    async fn attempt(&self, resource: &K, subject: &Subject, ticket: &Ticket, memory: &mut Memory) -> Attempt {
        let errors = self.context.traces.step("validate", || resource.errors());
        let references = resource.references();
        let namespace = &subject.owner.namespace;
        let mut targets = references.targets(namespace);
        targets.extend(
            memory
                .taken
                .iter()
                .map(|(kind, name)| wake::Target::Child(*kind, Key::new(namespace.as_str(), name.as_str()))),
        );
        // Before they are looked for, so that what appears in between is not missed.
        self.context.wakeups.refer(ticket, &targets);
        if !errors.is_empty() {
            return Attempt::withheld(errors.iter().map(ToString::to_string).collect(), Vec::new());
        }
        let resolver = Resolver {
            client: &self.context.client,
            caches: &self.context.caches,
            coordinators: &self.context.coordinators,
            policy: self.context.cross_namespace_secrets,
            namespace,
        };
        let resolving = resolver.resolve(references, &mut memory.credentials);
        let (advisories, children) = match resolving.instrument(info_span!("resolve-dependencies")).await {
            Ok(Resolution { resolved, issues, coordinator }) if issues.is_empty() => {
                let children = self.apply(resource, subject, resolved, memory).await;
                let mut advisories = resource.advisories(coordinator.as_ref());
                let caches = &self.context.caches;
                advisories.extend(K::INJECTOR.and_then(|it| observe::injected(caches, it, &subject.key)));
                (advisories, children)
            }
            Ok(Resolution { issues, .. }) => return Attempt::withheld(Vec::new(), issues),
            Err(error) => (Vec::new(), Children::Failed(vec![unresolved(&error, memory.failures + 1)])),
        };
        Attempt { spec_errors: Vec::new(), dependencies: Vec::new(), advisories, children }
    }

    /// Renders and applies, unless everything stands as it was applied.
    async fn apply(&self, resource: &K, subject: &Subject, resolved: Resolved, memory: &mut Memory) -> Children {
        let Subject { owner, generation, .. } = subject;
        if nothing_changed(&self.context, *generation, owner, &resolved, memory) {
            return Children::Applied;
        }
        let children = resource.children(&resolved, &self.context.options);
        apply_all(&self.context, (owner, K::APPLICATION), (*generation, resolved), children, memory).await
    }

    /// Advances the machine, publishes what it decided, and says when to look again.
    async fn settle(
        &self,
        subject: &Subject,
        attempt: Attempt,
        terms: Terms,
        memory: &mut Memory,
    ) -> Result<Option<Duration>, ReconcileError> {
        let Terms { running, endpoint, progress_deadline, now } = terms;
        let before = &subject.before;
        let observation = Observation {
            generation: subject.generation,
            spec_errors: attempt.spec_errors,
            dependencies: attempt.dependencies,
            children: attempt.children,
            workload: running.workload,
            instances: running.instances,
            previous: Counts { desired: before.desired, updated: before.updated, available: before.available },
            now,
            progress_deadline,
            wording: K::WORDING,
            advisories: attempt.advisories,
        };
        let Advance { mut record, steps, wake_at } =
            self.context.traces.step("evaluate-phase", || advance(&before.record, &observation));
        let told = self.trace(subject, &record, &steps, memory);
        record.trace = told.trace;
        let counts = running.workload;
        let (endpoints, endpoints_truncated) = observe::limit(running.endpoints);
        let after = Report {
            record,
            desired: counts.map_or(0, |c| c.desired),
            updated: counts.filter(|c| c.observed).map_or(0, |c| c.updated),
            ready: counts.map_or(0, |c| c.ready),
            available: counts.map_or(0, |c| c.available),
            cache: self.context.hits.of(&(K::KIND, subject.key.clone())).or_else(|| before.cache.clone()),
            endpoint,
            endpoints,
            endpoints_truncated,
        };
        let again = again(&observation, wake_at, now);
        if steps.is_empty()
            && same_verdict(before, &after)
            && before.record.trace == after.record.trace
            && let Some(rest) = memory.written_at.and_then(|at| COUNTS_INTERVAL.checked_sub(at.elapsed()))
            && *before != after
        {
            return Ok(Some(rest.min(again)));
        }
        let version = subject.version.clone();
        let change = Change { owner: &subject.owner, version, before, after: &after, steps: &steps, spans: told.spans };
        let Context { client, reporter, metrics, traces, .. } = &*self.context;
        match (Publisher { client, reporter, metrics, traces }).publish::<K>(change).await? {
            Published::Written(version) => {
                memory.rollout_written(&after.record);
                memory.written = Some((version, after));
                memory.written_at = Some(Instant::now());
            }
            Published::Unchanged => {}
            Published::Gone => return Ok(None),
        }
        Ok(Some(again))
    }
}

/// A reference about which nothing could be found out, as the state machine is told of it.
fn unresolved(error: &DependencyError, attempts: u32) -> ChildFailure {
    match error {
        DependencyError::Secret { secret, error } => {
            let error = crate::apply::explain("secrets", "get", error);
            failure(format!("Secret {secret}"), &error, attempts)
        }
        DependencyError::NotListed(coordinator) => ChildFailure {
            object: format!("LMCacheCoordinator {coordinator}"),
            kind: FailureKind::Unavailable,
            message: "coordinators have not been listed yet".to_owned(),
            attempts,
        },
    }
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
fn same_verdict(before: &Report, after: &Report) -> bool {
    let verdicts = |report: &Report| {
        let conditions = report.record.conditions.iter();
        conditions.map(|c| (c.type_.clone(), c.status.clone(), c.reason.clone())).collect::<Vec<_>>()
    };
    before.record.phase == after.record.phase
        && before.record.reason == after.record.reason
        && before.record.observed_generation == after.record.observed_generation
        && verdicts(before) == verdicts(after)
}
