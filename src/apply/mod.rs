//! Children to the API server: ownership first, then only what differs, by server-side apply.

mod diff;
mod ownership;

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{Client, Error, Resource};
use lmcache_observability::{ApplyOutcome, traces};
use lmcache_states::FailureKind;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{Instrument, info, info_span};

pub use diff::agrees;
pub use ownership::{Owner, Ownership, ownership};

use crate::observe::{ADOPT_ANNOTATION, Cache, FIELD_MANAGER, Live, controller_of, resource_version};
use crate::render::{Child, ChildKind};

/// What the operator remembers of a child it has applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Hash of the rendered object.
    intent: u64,
    /// Fingerprint of the live object that agreed with it; `None` until the watch has delivered what was written.
    fingerprint: Option<u64>,
    /// resourceVersion of that live object.
    version: u64,
    /// `metadata.generation` of that live object.
    pub generation: i64,
    /// When this was found.
    at: Instant,
}

/// How long a watch may take to deliver what was written; an object that it has not shown by then is gone.
const DELIVERY: Duration = Duration::from_mins(1);

impl Applied {
    /// Whether the child still is as it was when it agreed; `latest` is the newest version that its watch has delivered.
    /// A cache that is behind what was written says nothing against it.
    pub fn holds(&self, live: Option<&Live>, latest: u64) -> bool {
        match live {
            None => self.version > latest && self.at.elapsed() < DELIVERY,
            Some(live) if live.version() <= self.version => true,
            Some(live) => live.meta().deletion_timestamp.is_none() && self.fingerprint == Some(live.fingerprint),
        }
    }

    fn seen(live: &Live, intent: u64) -> Self {
        Applied {
            intent,
            fingerprint: Some(live.fingerprint),
            version: live.version(),
            generation: live.meta().generation.unwrap_or_default(),
            at: Instant::now(),
        }
    }

    fn written(metadata: &ObjectMeta, intent: u64) -> Self {
        Applied {
            intent,
            fingerprint: None,
            version: resource_version(metadata),
            generation: metadata.generation.unwrap_or_default(),
            at: Instant::now(),
        }
    }
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
        if let Err(error) = &result {
            traces::fail(&span, &error.to_string());
        }
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
        if let Some(memo) = memo.filter(|memo| memo.version > newest && memo.at.elapsed() < DELIVERY) {
            if memo.intent == intent {
                return Ok((ApplyOutcome::Unchanged, memo));
            }
            return self.send(child, intent, None).await.map(|applied| (ApplyOutcome::Configured, applied));
        }
        let Some(live) = live else { return self.create(child, intent).await };
        self.admit(live.meta())?;
        let same = |memo: &Applied| memo.intent == intent && memo.holds(Some(&live), 0);
        if memo.as_ref().is_some_and(same) {
            return Ok((ApplyOutcome::Unchanged, Applied::seen(&live, intent)));
        }
        let content = live.parse().map_err(|e| ApplyError::Unavailable(e.to_string()))?;
        if agrees(&child.object, &content.object, &content.owned) {
            return Ok((ApplyOutcome::Unchanged, Applied::seen(&live, intent)));
        }
        let applied = self.send(child, intent, live.meta().uid.as_deref()).await?;
        info!("Configured {} {}", child.kind, child.name);
        Ok((ApplyOutcome::Configured, applied))
    }

    async fn create(&self, child: &Child, intent: u64) -> Result<(ApplyOutcome, Applied), ApplyError> {
        let mut object = child.object.clone();
        object["metadata"]["resourceVersion"] = CREATE_ONLY.into();
        match self.patch(child, &object).await {
            Ok(metadata) => {
                info!("Created {} {}", child.kind, child.name);
                Ok((ApplyOutcome::Created, Applied::written(&metadata, intent)))
            }
            Err(Error::Api(status)) if status.code == 409 => self.take_existing(child, intent).await,
            Err(error) => Err(refused(child.kind, "patch", &error)),
        }
    }

    /// An object of that name exists that the cache, selected by our labels, does not show.
    async fn take_existing(&self, child: &Child, intent: u64) -> Result<(ApplyOutcome, Applied), ApplyError> {
        let live = self.metadata(child.kind).get_opt(&child.name).await.map_err(|e| refused(child.kind, "get", &e))?;
        let Some(live) = live else {
            return Err(ApplyError::Unavailable("it was deleted while it was being applied".to_owned()));
        };
        self.admit(&live.metadata)?;
        let applied = self.send(child, intent, live.metadata.uid.as_deref()).await?;
        info!("Took over {} {}", child.kind, child.name);
        Ok((ApplyOutcome::Configured, applied))
    }

    /// Whether a live object may be written to. Who reports an error names the object.
    fn admit(&self, live: &ObjectMeta) -> Result<(), ApplyError> {
        match ownership(live, self.owner, self.selector.iter().copied()) {
            Ownership::Foreign(whose) => {
                // What somebody controls cannot be handed over.
                let or = match controller_of(live) {
                    None => format!(", or hand it over with the annotation {ADOPT_ANNOTATION}=true"),
                    Some(_) => String::new(),
                };
                Err(ApplyError::Conflict(format!("it exists, and {whose}; delete or rename it{or}")))
            }
            Ownership::Orphan => Err(ApplyError::Unavailable(format!(
                "it still belongs to a deleted {} of this name and is being collected",
                self.owner.kind
            ))),
            Ownership::Ours | Ownership::Adoptable if live.deletion_timestamp.is_some() => {
                Err(ApplyError::Unavailable("it is being deleted".to_owned()))
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
        sent.map(|metadata| Applied::written(&metadata, intent)).map_err(|error| refused(child.kind, "patch", &error))
    }

    /// Only the metadata comes back: the watch delivers the rest.
    async fn patch(&self, child: &Child, object: &Value) -> Result<ObjectMeta, Error> {
        // What is rendered is typed, so there is no unknown field that the API server would have to look for.
        let params = PatchParams::apply(FIELD_MANAGER).force().validation_ignore();
        let api = self.metadata(child.kind);
        let applied = match api.patch(&child.name, &params, &Patch::Apply(object)).await {
            Err(Error::Api(status)) if status.code == 422 && what_clears_the_way(object).is_some() => {
                let clearing = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
                api.patch(&child.name, &clearing, &Patch::Merge(what_clears_the_way(object))).await?;
                api.patch(&child.name, &params, &Patch::Apply(object)).await?
            }
            applied => applied?,
        };
        Ok(applied.metadata)
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
        match self.metadata(kind).delete(name, &params).await {
            Ok(_) => {
                info!("Deleted {kind} {name}");
                Ok(ApplyOutcome::Configured)
            }
            Err(Error::Api(status)) if status.code == 404 => Ok(ApplyOutcome::Unchanged),
            Err(error) => Err(refused(kind, "delete", &error)),
        }
    }

    fn metadata(&self, kind: ChildKind) -> Api<PartialObjectMeta<DynamicObject>> {
        Api::namespaced_with(self.client.clone(), &self.owner.namespace, &kind.api_resource())
    }
}

/// A merge patch that removes what an apply cannot: the parameters of a rolling update, which the API server has filled in,
/// forbid every other strategy, and an apply only removes what it had set.
fn what_clears_the_way(object: &Value) -> Option<Value> {
    let strategy = object.pointer("/spec/strategy/type").filter(|type_| *type_ != "RollingUpdate")?;
    let mut patch = json!({"spec": {"strategy": {"type": strategy, "rollingUpdate": null}}});
    if let Some(uid) = object.pointer("/metadata/uid") {
        patch["metadata"] = json!({ "uid": uid });
    }
    Some(patch)
}

fn refused(kind: ChildKind, verb: &str, error: &Error) -> ApplyError {
    explain(&kind.api_resource().plural, verb, error)
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn live(version: u64, data: &str, leaving: bool) -> Live {
        Live::try_from(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data}, "metadata": {
            "name": "x", "resourceVersion": version.to_string(),
            "deletionTimestamp": leaving.then_some("2026-01-01T00:00:00Z")}}))
        .expect("ConfigMap")
    }

    #[rstest]
    #[case::unchanged(Some(live(7, "a", false)), 9, true)]
    #[case::other_content(Some(live(7, "b", false)), 9, false)]
    #[case::on_its_way_out(Some(live(7, "a", true)), 9, false)]
    #[case::not_delivered_yet(Some(live(4, "b", false)), 4, true)]
    #[case::never_delivered(None, 4, true)]
    #[case::deleted(None, 9, false)]
    fn a_child_holds_until_the_watch_says_otherwise(
        #[case] live: Option<Live>,
        #[case] latest: u64,
        #[case] expected: bool,
    ) {
        let applied = Applied::seen(&self::live(5, "a", false), 1);
        assert_eq!(applied.holds(live.as_ref(), latest), expected);
    }

    #[rstest]
    #[case::recreate(
        json!({"metadata": {"uid": "u"}, "spec": {"strategy": {"type": "Recreate"}}}),
        json!({"metadata": {"uid": "u"}, "spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}}),
    )]
    #[case::rolling(json!({"spec": {"strategy": {"type": "RollingUpdate"}}}), Value::Null)]
    #[case::another_kind(json!({"spec": {"ports": []}}), Value::Null)]
    fn only_a_strategy_without_parameters_needs_the_way_cleared(#[case] object: Value, #[case] expected: Value) {
        assert_eq!(what_clears_the_way(&object).unwrap_or_default(), expected);
    }

    #[rstest]
    #[case(
        403,
        "daemonsets.apps \"x\" is forbidden: User \"operator\" cannot patch resource \"daemonsets\"",
        FailureKind::Forbidden
    )]
    #[case(403, "daemonsets.apps \"x\" is forbidden: exceeded quota", FailureKind::Rejected)]
    #[case(422, "DaemonSet.apps \"x\" is invalid", FailureKind::Rejected)]
    #[case(500, "etcdserver: leader changed", FailureKind::Unavailable)]
    #[case(409, "uid mismatch", FailureKind::Unavailable)]
    fn a_refused_request_is_told_from_one_that_may_be_tried_again(
        #[case] code: u16,
        #[case] message: &str,
        #[case] kind: FailureKind,
    ) {
        let status = kube::core::Status::failure(message, "Reason").with_code(code);
        assert_eq!(explain("daemonsets", "patch", &Error::Api(Box::new(status))).kind(), kind);
    }
}
