//! All children of one resource to the API server, and what came of it.

use futures::future::join_all;
use lmcache_observability::ApplyOutcome;
use lmcache_states::{ChildFailure, Children, FailureKind};

use super::Context;
use super::memory::{Memory, Rendered};
use crate::apply::{Applier, ApplyError, Owner};
use crate::render::{self, Application, Child, ChildKind, Resolved};

/// Whether the children would be rendered as they were, and still stand as they were applied: then there is nothing to do.
pub(super) fn nothing_changed(
    context: &Context,
    generation: i64,
    owner: &Owner,
    resolved: &Resolved,
    memory: &Memory,
) -> bool {
    let Some(rendered) = &memory.rendered else { return false };
    let live = |kind: ChildKind, name: &str| context.caches.children(kind).get(&owner.namespace, name);
    rendered.generation == generation
        && rendered.resolved == *resolved
        && rendered.unwanted.iter().all(|(kind, name)| live(*kind, name).is_none())
        && rendered.wanted.iter().all(|child| {
            let latest = context.caches.children(child.0).latest(&owner.namespace);
            let live = live(child.0, &child.1);
            memory.applied.get(child).is_some_and(|applied| applied.holds(live.as_deref(), latest))
        })
}

/// Applies every child, also when one of them fails (D10), and removes those that the spec no longer wants.
pub(super) async fn apply_all(
    context: &Context,
    (owner, application): (&Owner, Application),
    (generation, resolved): (i64, Resolved),
    children: render::Children,
    memory: &mut Memory,
) -> Children {
    let names = children.wanted.iter().map(|child| (child.kind, child.name.clone())).collect();
    let rendered = Rendered { generation, resolved, wanted: names, unwanted: children.unwanted.clone() };
    memory.rendered = None;
    memory.taken.clear();
    let labels = application.selector_labels(&owner.name);
    let selector: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let applier = Applier { client: &context.client, owner, selector: &selector };
    let wanted = children.wanted.into_iter();
    // Pods need their credentials, and should never be open; everything else does not wait for anything.
    let (first, rest): (Vec<Child>, Vec<Child>) =
        wanted.partition(|child| matches!(child.kind, ChildKind::Secret | ChildKind::NetworkPolicy));
    let attempts = memory.failures + 1;
    let mut failures = Vec::new();
    for group in [first, rest] {
        let applying = group.into_iter().map(|child| async {
            let cache = context.caches.children(child.kind);
            let memo = memory.applied.get(&(child.kind, child.name.clone())).copied();
            let result = applier.apply(&child, cache, memo).await;
            (child, result)
        });
        for (child, result) in join_all(applying).await {
            let outcome = result.as_ref().map_or_else(ApplyError::outcome, |(outcome, _)| *outcome);
            context.metrics.applied(owner.kind, child.kind.as_str(), outcome);
            match result {
                Ok((_, applied)) => {
                    memory.applied.insert((child.kind, child.name), applied);
                }
                Err(error) => {
                    let object = format!("{} {}/{}", child.kind, owner.namespace, child.name);
                    if error.kind() == FailureKind::Conflict {
                        memory.taken.push((child.kind, child.name.clone()));
                    }
                    memory.applied.remove(&(child.kind, child.name));
                    failures.push(failure(object, &error, attempts));
                }
            }
        }
    }
    failures.extend(remove(context, &applier, children.unwanted, attempts, memory).await);
    if !failures.is_empty() {
        return Children::Failed(failures);
    }
    memory.rendered = Some(rendered);
    Children::Applied
}

async fn remove(
    context: &Context,
    applier: &Applier<'_>,
    unwanted: Vec<(ChildKind, String)>,
    attempts: u32,
    memory: &mut Memory,
) -> Vec<ChildFailure> {
    let mut failures = Vec::new();
    for (kind, name) in unwanted {
        let live = context.caches.children(kind).get(&applier.owner.namespace, &name);
        memory.applied.remove(&(kind, name.clone()));
        match applier.remove(kind, &name, live).await {
            Ok(ApplyOutcome::Unchanged) => {}
            Ok(outcome) => context.metrics.applied(applier.owner.kind, kind.as_str(), outcome),
            Err(error) => {
                context.metrics.applied(applier.owner.kind, kind.as_str(), error.outcome());
                failures.push(failure(format!("{kind} {}/{name}", applier.owner.namespace), &error, attempts));
            }
        }
    }
    failures
}

/// A failure as the state machine is told of it.
pub(super) fn failure(object: String, error: &ApplyError, attempts: u32) -> ChildFailure {
    ChildFailure { object, kind: error.kind(), message: error.to_string(), attempts }
}
