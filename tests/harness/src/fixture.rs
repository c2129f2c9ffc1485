//! Fixtures: YAML with placeholders, applied server-side.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, Client};
use serde::Deserialize as _;

use crate::kind::PhaseObject;

const FIELD_MANAGER: &str = "lmcache-harness";

/// Applies all documents; returns the last one of kind `K`.
pub(crate) async fn apply<K: PhaseObject>(client: &Client, namespace: &str, fixture: &str) -> Result<K> {
    let text = read(fixture)?.replace("__NAMESPACE__", namespace);
    let mut kinds = BTreeMap::new();
    let mut last = None;
    for document in serde_norway::Deserializer::from_str(&text) {
        let value = serde_json::Value::deserialize(document).context("the fixture is not YAML")?;
        if value.is_null() {
            continue;
        }
        let object: DynamicObject = serde_json::from_value(value).context("the fixture holds no Kubernetes object")?;
        let applied = apply_one(client, namespace, object, &mut kinds).await?;
        let is_ours =
            applied.types.as_ref().is_some_and(|it| it.kind == K::kind(&()) && it.api_version == K::api_version(&()));
        if is_ours {
            last = Some(applied.try_parse::<K>()?);
        }
    }
    last.with_context(|| format!("the fixture holds no {}", K::kind(&())))
}

type Kinds = BTreeMap<(String, String), (ApiResource, Scope)>;

async fn apply_one(
    client: &Client,
    namespace: &str,
    mut object: DynamicObject,
    kinds: &mut Kinds,
) -> Result<DynamicObject> {
    let (Some(types), Some(name)) = (object.types.clone(), object.metadata.name.clone()) else {
        bail!("an object of the fixture lacks apiVersion, kind or metadata.name");
    };
    let what = format!("{} {name}", types.kind);
    let key = (types.api_version.clone(), types.kind.clone());
    if !kinds.contains_key(&key) {
        let gvk = GroupVersionKind::try_from(&types)?;
        let (resource, capabilities) =
            discovery::pinned_kind(client, &gvk).await.with_context(|| format!("the cluster does not serve {what}"))?;
        kinds.insert(key.clone(), (resource, capabilities.scope));
    }
    let (resource, scope) = &kinds[&key];
    let api: Api<DynamicObject> = match scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => {
            let namespace = object.metadata.namespace.get_or_insert_with(|| namespace.to_owned());
            Api::namespaced_with(client.clone(), namespace, resource)
        }
    };
    // An applied object must not carry what only a stored one has; recorded fixtures do.
    object.metadata.managed_fields = None;
    object.metadata.resource_version = None;
    object.metadata.uid = None;
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(&object)).await.with_context(|| format!("cannot apply {what}"))
}

fn read(fixture: &str) -> Result<String> {
    let is_text = fixture.contains('\n') || fixture.contains(": ");
    if is_text && !Path::new(fixture).exists() {
        return Ok(fixture.to_owned());
    }
    std::fs::read_to_string(fixture).with_context(|| format!("cannot read fixture {fixture}"))
}
