//! The validating webhook of our three kinds: refuses what the reconciler would call invalid, and warns of what is legal
//! but surely not meant.
//!
//! [`validate`] is pure. An update is refused only for errors that it adds (ratcheting): an object that was stored before
//! a rule existed stays changeable in everything else.

mod flags;
mod warnings;

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use lmcache_crds::{CacheBlendEngine, LMCacheCoordinator, LMCacheCoordinatorSpec, LMCacheEngine};
use lmcache_observability::WebhookOutcome::Allowed;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::review::{AdmissionRequest, Handler, Operation, Response};
use crate::controllers::Managed;
use crate::key::Key;
use crate::observe::{GROUP, Guarded};
use warnings::Warned;

/// The coordinator of that name, if there is one and it can be read.
pub type Coordinators = Arc<dyn Fn(Key) -> BoxFuture<'static, Option<LMCacheCoordinatorSpec>> + Send + Sync>;

/// Answers for the validating webhook. Reads nothing but the coordinator that a spec refers to, and writes nothing.
pub struct Validator {
    coordinators: Coordinators,
}

impl Validator {
    /// `coordinators` looks up what an engine refers to (D77).
    pub fn new(coordinators: Coordinators) -> Self {
        Validator { coordinators }
    }
}

impl Handler for Validator {
    fn webhook(&self) -> &'static str {
        "validating"
    }

    fn handle<'a>(&'a self, request: &'a AdmissionRequest) -> BoxFuture<'a, Response> {
        async {
            let coordinator = match coordinator_of(request) {
                Some(key) => (self.coordinators)(key).await,
                None => None,
            };
            validate(request, coordinator.as_ref())
        }
        .boxed()
    }
}

/// The coordinator that an engine refers to.
pub fn coordinator_of(request: &AdmissionRequest) -> Option<Key> {
    let name = request.object.pointer("/spec/coordinator/ref/name")?.as_str().filter(|name| !name.is_empty())?;
    Some(Key::new(request.namespace.as_str(), name))
}

/// The answer for one object. `coordinator` is the one that [`coordinator_of`] names, if it is known.
pub fn validate(request: &AdmissionRequest, coordinator: Option<&LMCacheCoordinatorSpec>) -> Response {
    let is_stored = matches!(request.operation, Operation::Create | Operation::Update);
    if request.kind.group != GROUP || !is_stored || !request.sub_resource.is_empty() {
        return Response::allowed(Allowed, "not-validated");
    }
    match request.kind.kind.as_str() {
        <LMCacheEngine as Managed>::KIND => judge::<LMCacheEngine>(request, coordinator),
        <CacheBlendEngine as Managed>::KIND => judge::<CacheBlendEngine>(request, coordinator),
        <LMCacheCoordinator as Managed>::KIND => judge::<LMCacheCoordinator>(request, coordinator),
        _ => Response::allowed(Allowed, "not-validated"),
    }
}

fn judge<K>(request: &AdmissionRequest, coordinator: Option<&LMCacheCoordinatorSpec>) -> Response
where
    K: Managed + Warned,
{
    // Finalizers of an object that is going must come off, whatever else is wrong with it.
    if request.object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return Response::allowed(Allowed, "terminating");
    }
    let object = decode::<K>(named(&request.object));
    let errors = errors(&object);
    let before = match request.operation {
        Operation::Update => self::errors(&decode::<K>(request.old_object.clone())),
        _ => Vec::new(),
    };
    let added = added(&errors, &before);
    if !added.is_empty() {
        return Response::invalid("invalid", once(&added));
    }
    let mut response = Response::allowed(Allowed, if errors.is_empty() { "valid" } else { "invalid-before" });
    if !errors.is_empty() {
        let errors: Vec<&str> = errors.iter().map(String::as_str).collect();
        response.warnings.push(format!("the resource was invalid before and still is: {}", once(&errors)));
    }
    if let Ok(Guarded::Valid(object)) = &object {
        let concerns = object.advisories(coordinator).into_iter().filter_map(|advisory| advisory.concern);
        response.warnings.extend(concerns);
        response.warnings.extend(object.warnings());
    }
    response
}

type Decoded<K> = Result<Guarded<K>, serde_json::Error>;

fn decode<K: Managed>(object: Value) -> Decoded<K> {
    Guarded::deserialize(object)
}

/// What is wrong with an object, in the words of the reconciler.
fn errors<K: Managed>(object: &Decoded<K>) -> Vec<String> {
    match object {
        Ok(Guarded::Valid(object)) => object.errors().iter().map(ToString::to_string).collect(),
        Ok(Guarded::Malformed(object)) => object.errors.clone(),
        Err(error) => vec![format!("metadata: Invalid value: {error}")],
    }
}

/// An object whose name is still to be made is judged by a name like the one it will get.
fn named(object: &Value) -> Value {
    let mut object = object.clone();
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    if text("name").is_empty() && !text("generateName").is_empty() {
        let name = format!("{}00000", text("generateName"));
        object["metadata"]["name"] = json!(name);
    }
    object
}

/// Errors that were not there before. An entry of a list may have moved.
fn added<'a>(errors: &'a [String], before: &[String]) -> Vec<&'a str> {
    let mut known: HashMap<String, usize> = HashMap::new();
    for error in before {
        *known.entry(without_indices(error)).or_default() += 1;
    }
    let mut is_known = |error: &str| match known.get_mut(&without_indices(error)) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    };
    errors.iter().map(String::as_str).filter(|error| !is_known(error)).collect()
}

/// Of `spec.volumes[3].name: ...` the place in the list is left out.
fn without_indices(error: &str) -> String {
    let (path, rest) = error.split_once(": ").unwrap_or((error, ""));
    let parts = path.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest));
    format!("{}: {rest}", parts.collect::<Vec<_>>().join("[]"))
}

/// As `lmcache_crds::join_errors`: each text once, joined by `; `.
fn once(errors: &[&str]) -> String {
    let mut texts: Vec<&str> = Vec::new();
    for error in errors {
        if !texts.contains(error) {
            texts.push(error);
        }
    }
    texts.join("; ")
}

#[cfg(test)]
mod tests;
