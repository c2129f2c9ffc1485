//! What a reconcile tells the trace of the rollout that it works on, and the other way round.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use lmcache_crds::{PhaseRecord, PhaseTransition};
use lmcache_observability::traces::{self, TraceContext};
use tracing::Span;

use super::controller::Reconciler;
use super::memory::Memory;
use super::reconcile::Subject;
use super::{Context, Managed};
use crate::apply::Owner;
use crate::key::Key;
use crate::observe::Guarded;
use crate::publish::rollout::{self, Facts, ROLLOUT, TRACEPARENT_ANNOTATION, Told};

/// How many reconciles a rollout links to; the first ones are kept.
const MAX_LINKS: usize = 64;

/// What a rollout has from the resource itself.
pub(super) struct Origin {
    created: Option<Timestamp>,
    traceparent: Option<String>,
    seen: Timestamp,
}

impl Origin {
    /// Read now.
    pub fn of(meta: &ObjectMeta) -> Self {
        let annotations = meta.annotations.as_ref();
        Origin {
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            traceparent: annotations.and_then(|it| it.get(TRACEPARENT_ANNOTATION)).cloned(),
            seen: Timestamp::now(),
        }
    }

    fn facts<'a>(&'a self, owner: &'a Owner, generation: i64, reconciles: &'a [TraceContext]) -> Facts<'a> {
        let traceparent = self.traceparent.as_deref();
        Facts { owner, generation, created: self.created, traceparent, seen: self.seen, reconciles }
    }
}

impl<K: Managed> Reconciler<K> {
    /// Follows the rollout along the steps that were decided, and ties it to this reconcile.
    pub(super) fn trace(
        &self,
        subject: &Subject,
        after: &PhaseRecord,
        steps: &[PhaseTransition],
        memory: &mut Memory,
    ) -> Told {
        let traces = &self.context.traces;
        let (before, origin) = (&subject.before.record, &subject.origin);
        if !traces.is_on() {
            return rollout::follow(None, &origin.facts(&subject.owner, subject.generation, &[]), before, after, steps);
        }
        let here = traces::context_of(&Span::current());
        if let Some(here) = here.filter(|_| memory.reconciles.len() < MAX_LINKS) {
            memory.reconciles.push(here);
        }
        let facts = origin.facts(&subject.owner, subject.generation, &memory.reconciles);
        let keeps = |trace_id, parent| traces.keeps(trace_id, parent, ROLLOUT);
        let told = rollout::follow(Some(&keeps), &facts, before, after, steps);
        let under_way = |record: &PhaseRecord| record.trace.as_ref().is_some_and(rollout::is_open);
        let concerns = told.trace.as_ref().is_some_and(rollout::is_open) || !told.spans.is_empty() || under_way(before);
        if !concerns {
            memory.reconciles.clear();
        } else if let Some(to) = told.trace.as_ref().and_then(rollout::context) {
            traces::link(&Span::current(), to);
        }
        told
    }
}

impl Memory {
    /// What was told with this status need not be told again.
    pub(super) fn rollout_written(&mut self, record: &PhaseRecord) {
        if record.trace.as_ref().is_none_or(|trace| !rollout::is_open(trace)) {
            self.reconciles.clear();
        }
    }
}

impl Context {
    /// Ends the trace of a resource that is gone.
    pub(super) fn tell_deleted<K: Managed>(&self, object: &Guarded<K>) {
        if !self.traces.is_on() {
            return;
        }
        let (meta, record) = match object {
            Guarded::Valid(resource) => (resource.meta(), resource.report().record),
            Guarded::Malformed(malformed) => (object.meta(), malformed.status.clone().unwrap_or_default().record),
        };
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (namespace, name, uid) = (text(&meta.namespace), text(&meta.name), text(&meta.uid));
        let reconciles = self.memories.reconciles(&(K::KIND, Key::new(namespace.as_str(), name.as_str())));
        let owner = Owner { kind: K::KIND, namespace, name, uid };
        let origin = Origin::of(meta);
        let facts = origin.facts(&owner, meta.generation.unwrap_or_default(), &reconciles);
        self.traces.export(rollout::deleted(&facts, &record));
    }
}
