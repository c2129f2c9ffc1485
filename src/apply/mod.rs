//! Children to the API server: ownership first, then only what differs, by server-side apply.

mod diff;
mod ownership;

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Client, Error, Resource};
use lmcache_observability::ApplyOutcome;
use lmcache_states::FailureKind;
use serde_json::Value;
use tracing::{Instrument, info, info_span};

pub use diff::agrees;
pub use ownership::{Owner, Ownership, ownership};

use crate::observe::{Cache, FIELD_MANAGER, Live};
use crate::render::{Child, ChildKind};

/// What the operator remembers of a child it has applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Hash of the rendered object.
    intent: u64,
    /// Fingerprint of the live object that agreed with it.
    fingerprint: u64,
    /// resourceVersion of that live object.
    version: u64,
    /// `metadata.generation` of that live object.
    pub generation: i64,
}

/// Why a child could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Somebody else's object bears the name.
    #[error("{0}")]
    Conflict(String),
    /// The API server does not allow it.
    #[error("{0}")]
    Forbidden(String),
    /// The API server refuses the object.
    #[error("{0}")]
    Rejected(String),
    /// Trying again may help.
    #[error("{0}")]
    Unavailable(String),
}

impl ApplyError {
    /// How the state machine sees it.
    pub fn kind(&self) -> FailureKind {
        match self {
            ApplyError::Conflict(_) => FailureKind::Conflict,
            ApplyError::Forbidden(_) => FailureKind::Forbidden,
            ApplyError::Rejected(_) => FailureKind::Rejected,
            ApplyError::Unavailable(_) => FailureKind::Unavailable,
        }
    }

    /// The `outcome` label of `applies_total`.
    pub fn outcome(&self) -> ApplyOutcome {
        match self {
            ApplyError::Conflict(_) => ApplyOutcome::Conflict,
            _ => ApplyOutcome::Error,
        }
    }
}

/// Applies the children of one owner.
pub struct Applier<'a> {
    /// The client.
    pub client: &'a Client,
    /// Whose children they are.
    pub owner: &'a Owner,
    /// Labels that mark the owner's children.
    pub selector: &'a [(&'a str, &'a str)],
}

/// No stored object can have this resourceVersion, so an apply that carries it can create and never change.
const CREATE_ONLY: &str = "1";

impl Applier<'_> {
    /// Makes a child agree with what was rendered; `memo` is what an earlier call gave.
    pub async fn apply(
        &self,
        child: &Child,
        cache: &Cache<Live>,
        memo: Option<Applied>,
    ) -> Result<(ApplyOutcome, Applied), ApplyError> {
        let span = info_span!("apply", otel.name = %format_args!("apply {}", child.kind), child.kind = child.kind.as_str(),
            child.name = %child.name, outcome = tracing::field::Empty);
        let result = self.apply_inner(child, cache, memo).instrument(span.clone()).await;
        let outcome = result.as_ref().map_or_else(ApplyError::outcome, |(outcome, _)| *outcome);
        span.record("outcome", outcome.as_str());
        result
    }

    async fn apply_inner(
        &self,
        child: &Child,
        cache: &Cache<Live>,
        memo: Option<Applied>,
    ) -> Result<(ApplyOutcome, Applied), ApplyError> {
        let intent = hash(&child.object);
        let live = cache.get(&self.owner.namespace, &child.name);
        // The watch may not have delivered yet what the last call wrote; then the memory is the newer truth.
        let newest = live.as_ref().map_or_else(|| cache.latest(&self.owner.namespace), |live| live.version());
        if let Some(memo) = memo.filter(|memo| memo.version > newest) {
            if memo.intent == intent {
                return Ok((ApplyOutcome::Unchanged, memo));
            }
            return self.send(child, intent, None).await.map(|applied| (ApplyOutcome::Configured, applied));
        }
        let Some(live) = live else { return self.create(child, intent).await };
        self.admit(child.kind, &child.name, live.meta())?;
        let agreed = |live: &Live| Applied {
            intent,
            fingerprint: live.fingerprint,
            version: live.version(),
            generation: live.meta().generation.unwrap_or_default(),
        };
        if memo.is_some_and(|memo| memo.intent == intent && memo.fingerprint == live.fingerprint) {
            return Ok((ApplyOutcome::Unchanged, agreed(&live)));
        }
        let content = live.parse().map_err(|e| ApplyError::Unavailable(e.to_string()))?;
        if agrees(&child.object, &content.object, &content.owned) {
            return Ok((ApplyOutcome::Unchanged, agreed(&live)));
        }
        let applied = self.send(child, intent, live.meta().uid.as_deref()).await?;
        info!("Configured {} {}", child.kind, child.name);
        Ok((ApplyOutcome::Configured, applied))
    }

    async fn create(&self, child: &Child, intent: u64) -> Result<(ApplyOutcome, Applied), ApplyError> {
        let mut object = child.object.clone();
        object["metadata"]["resourceVersion"] = CREATE_ONLY.into();
        match self.patch(child, &object).await {
            Ok(live) => {
                info!("Created {} {}", child.kind, child.name);
                Ok((ApplyOutcome::Created, applied(&live, intent)))
            }
            Err(Error::Api(status)) if status.code == 409 => self.take_existing(child, intent).await,
            Err(error) => Err(self.explain(child.kind, "patch", &error)),
        }
    }

    /// An object of that name exists that the cache, selected by our labels, does not show.
    async fn take_existing(&self, child: &Child, intent: u64) -> Result<(ApplyOutcome, Applied), ApplyError> {
        let api: Api<Live> = self.api(child.kind);
        let live = api.get_opt(&child.name).await.map_err(|e| self.explain(child.kind, "get", &e))?;
        let Some(live) = live else {
            return Err(ApplyError::Unavailable("it was deleted while it was being applied".to_owned()));
        };
        self.admit(child.kind, &child.name, live.meta())?;
        let applied = self.send(child, intent, live.meta().uid.as_deref()).await?;
        info!("Took over {} {}", child.kind, child.name);
        Ok((ApplyOutcome::Configured, applied))
    }

    /// Whether a live object may be written to.
    fn admit(
        &self,
        kind: ChildKind,
        name: &str,
        live: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    ) -> Result<(), ApplyError> {
        match ownership(live, self.owner, self.selector.iter().copied()) {
            Ownership::Foreign(whose) => Err(ApplyError::Conflict(format!(
                "{kind} {}/{name} exists and {whose}; delete or rename it, or hand it over with the annotation {}=true",
                self.owner.namespace,
                crate::observe::ADOPT_ANNOTATION
            ))),
            Ownership::Orphan => Err(ApplyError::Unavailable(format!(
                "{kind} {name} still belongs to a deleted {} of this name and is being collected",
                self.owner.kind
            ))),
            Ownership::Ours | Ownership::Adoptable if live.deletion_timestamp.is_some() => {
                Err(ApplyError::Unavailable(format!("{kind} {name} is being deleted")))
            }
            Ownership::Ours | Ownership::Adoptable => Ok(()),
        }
    }

    /// Applies over an object that may be written to; `uid` keeps the write from hitting a successor.
    async fn send(&self, child: &Child, intent: u64, uid: Option<&str>) -> Result<Applied, ApplyError> {
        let sent = match uid {
            Some(uid) => {
                let mut object = child.object.clone();
                object["metadata"]["uid"] = uid.into();
                self.patch(child, &object).await
            }
            None => self.patch(child, &child.object).await,
        };
        sent.map(|live| applied(&live, intent)).map_err(|error| self.explain(child.kind, "patch", &error))
    }

    async fn patch(&self, child: &Child, object: &Value) -> Result<Live, Error> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        self.api(child.kind).patch(&child.name, &params, &Patch::Apply(object)).await
    }

    /// Deletes an object that the spec no longer wants, if it is ours.
    pub async fn remove(
        &self,
        kind: ChildKind,
        name: &str,
        live: Option<Arc<Live>>,
    ) -> Result<ApplyOutcome, ApplyError> {
        let ours = live.filter(|live| {
            live.meta().deletion_timestamp.is_none()
                && ownership(live.meta(), self.owner, self.selector.iter().copied()) == Ownership::Ours
        });
        let Some(live) = ours else { return Ok(ApplyOutcome::Unchanged) };
        let preconditions = Preconditions { uid: live.meta().uid.clone(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        let resource = kind.api_resource();
        let api: Api<PartialObjectMeta<kube::core::DynamicObject>> =
            Api::namespaced_with(self.client.clone(), &self.owner.namespace, &resource);
        match api.delete(name, &params).await {
            Ok(_) => {
                info!("Deleted {kind} {name}");
                Ok(ApplyOutcome::Configured)
            }
            Err(Error::Api(status)) if status.code == 404 => Ok(ApplyOutcome::Unchanged),
            Err(error) => Err(self.explain(kind, "delete", &error)),
        }
    }

    fn api(&self, kind: ChildKind) -> Api<Live> {
        Api::namespaced_with(self.client.clone(), &self.owner.namespace, &kind.api_resource())
    }

    fn explain(&self, kind: ChildKind, verb: &str, error: &Error) -> ApplyError {
        explain(&kind.api_resource().plural, verb, error)
    }
}

/// What a failed request means, in words that name the fix.
pub fn explain(resource: &str, verb: &str, error: &Error) -> ApplyError {
    let Error::Api(status) = error else { return ApplyError::Unavailable(crate::observe::chain(error)) };
    let message = status.message.clone();
    let ends = |cause: &kube::core::response::StatusCause| cause.reason == "NamespaceTerminating";
    match status.code {
        403 if status.details.as_ref().is_some_and(|details| details.causes.iter().any(ends)) => {
            ApplyError::Unavailable(message)
        }
        // RBAC says `User "x" cannot patch resource "y"`; quotas and policies answer 403 in other words.
        403 if message.contains(" cannot ") => {
            ApplyError::Forbidden(format!("{message}; grant the verb {verb} on {resource} to the operator"))
        }
        400 | 403 | 413 | 422 => ApplyError::Rejected(message),
        _ => ApplyError::Unavailable(message),
    }
}

fn applied(live: &Live, intent: u64) -> Applied {
    Applied {
        intent,
        fingerprint: live.fingerprint,
        version: live.version(),
        generation: live.meta().generation.unwrap_or_default(),
    }
}

fn hash(object: &Value) -> u64 {
    let mut sink = HashSink(DefaultHasher::new());
    // Neither a tree of values nor the sink can fail.
    let _ = serde_json::to_writer(&mut sink, object);
    sink.0.finish()
}

struct HashSink(DefaultHasher);

impl std::io::Write for HashSink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
