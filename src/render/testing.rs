//! Engines for tests.

use lmcache_crds::LMCacheEngine;
use serde_json::{Value, json};

use super::context::Context;
use super::{Child, ChildKind, Children, Options, Resolved, children};

/// An engine `c1` in namespace `ai` with this spec.
pub fn engine(spec: &Value) -> LMCacheEngine {
    let object = json!({
        "apiVersion": "lmcache.lmcache.ai/v1alpha1", "kind": "LMCacheEngine",
        "metadata": {"name": "c1", "namespace": "ai", "uid": "u-1"},
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// A spec of 10 GB with further fields.
pub fn spec(fields: Value) -> Value {
    let mut spec = json!({"l1": {"sizeGB": 10}});
    let Value::Object(fields) = fields else { panic!("not an object: {fields}") };
    for (name, value) in fields {
        spec[name] = value;
    }
    spec
}

/// Runs `read` with the context of an engine with this spec.
pub fn with_context<T>(spec: &Value, resolved: &Resolved, read: impl FnOnce(Context<'_>) -> T) -> T {
    read(Context::new(&engine(spec), resolved, &Options::default()))
}

/// Children of an engine with this spec.
pub fn rendered(spec: &Value, resolved: &Resolved) -> Children {
    children(&engine(spec), resolved, &Options::default())
}

/// One child of an engine with this spec and nothing to resolve.
pub fn object(spec: &Value, kind: ChildKind, name: &str) -> Value {
    let children = rendered(spec, &Resolved { service_monitor_api: true, ..Resolved::default() });
    let found: Option<&Child> = children.get(kind, name);
    found.unwrap_or_else(|| panic!("no {kind} {name} in {children:?}")).object.clone()
}

/// The engine container of an engine with this spec.
pub fn container(spec: &Value) -> Value {
    object(spec, ChildKind::DaemonSet, "c1")["spec"]["template"]["spec"]["containers"][0].clone()
}
