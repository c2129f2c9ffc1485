//! One reconcile, as a story: validate, resolve, render, apply, observe, advance, publish.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use lmcache_crds::EngineStatus;
use lmcache_states::{Advance, Children, Counts, DependencyIssue, Observation, advance};
use serde_json::json;
use tokio::time::Instant;
use tracing::{Instrument, info_span, warn};

use super::children::{apply_all, failure, nothing_changed};
use super::engine::{ManagedEngine, Reconciler};
use super::memory::Memory;
use super::queue::Ticket;
use super::{Context, jittered, pause_after};
use crate::apply::Owner;
use crate::key::Key;
use crate::observe::{self, Guarded, Malformed, Resolver, Running, resource_version};
use crate::publish::{Change, PublishError, Published, Publisher};
use crate::render::{self, ChildKind};

/// A reconcile that does not end within this time is given up and tried again.
pub(super) const RECONCILE_TIMEOUT: Duration = Duration::from_secs(30);
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
    dependencies: Vec<DependencyIssue>,
    children: Children,
}

impl<E: ManagedEngine> Reconciler<E> {
    /// One reconcile; says when to come again.
    pub(super) async fn reconcile(
        &self,
        object: &Guarded<E>,
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
            Guarded::Valid(engine) => self.engine(engine, ticket, &mut memory).await,
            Guarded::Malformed(malformed) => self.malformed(object, malformed, ticket, &mut memory).await,
        };
        if result.is_ok() {
            memory.errors = 0;
        }
        self.context.memories.put(ticket.clone(), memory);
        if self.engines.get(&ticket.1.namespace, &ticket.1.name).is_none() {
            // Deleted meanwhile: what the deletion made forget must not come back.
            self.context.forget(ticket);
        }
        result
    }

    async fn strip_finalizer(&self, object: &Guarded<E>) -> Result<(), ReconcileError> {
        let meta = object.meta();
        let others: Vec<&String> = meta.finalizers.iter().flatten().filter(|f| *f != LEGACY_FINALIZER).collect();
        let patch = json!({"metadata": {"finalizers": others, "resourceVersion": meta.resource_version}});
        let api: Api<PartialObjectMeta<E>> =
            Api::namespaced(self.context.client.clone(), &object.namespace().unwrap_or_default());
        match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(ReconcileError::Request {
                action: "take the legacy finalizer off",
                message: crate::apply::explain(&E::plural(&()), "patch", &error).to_string(),
            }),
        }
    }

    async fn engine(
        &self,
        engine: &E,
        ticket: &Ticket,
        memory: &mut Memory,
    ) -> Result<Option<Duration>, ReconcileError> {
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
        malformed: &Malformed,
        ticket: &Ticket,
        memory: &mut Memory,
    ) -> Result<Option<Duration>, ReconcileError> {
        warn!("Failed to decode: {}", malformed.errors.join("; "));
        let subject = Self::subject(object.meta(), &ticket.1, malformed.status.as_ref(), memory);
        let attempt =
            Attempt { spec_errors: malformed.errors.clone(), dependencies: Vec::new(), children: Children::Withheld };
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
    fn subject(meta: &ObjectMeta, key: &Key, status: Option<&EngineStatus>, memory: &mut Memory) -> Subject {
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
                let children = if nothing_changed(&self.context, subject.generation, &subject.owner, &resolved, memory)
                {
                    Children::Applied
                } else {
                    let children = render::children(engine, &resolved, &self.context.options);
                    apply_all(&self.context, &subject.owner, (subject.generation, resolved), children, memory).await
                };
                Attempt { spec_errors: errors, dependencies: issues, children }
            }
            Ok((_, issues)) => withheld(errors, issues),
            Err(failed) => {
                let error = crate::apply::explain("secrets", "get", &failed.error);
                let failure = failure(format!("Secret {}", failed.secret), &error, memory.failures + 1);
                Attempt { spec_errors: errors, dependencies: Vec::new(), children: Children::Failed(vec![failure]) }
            }
        }
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
    ) -> Result<Option<Duration>, ReconcileError> {
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
            return Ok(Some(rest.min(again)));
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
            Published::Gone => return Ok(None),
        }
        Ok(Some(again))
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
