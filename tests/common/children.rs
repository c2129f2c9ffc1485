//! The children of a resource as they can be compared between namespaces and clusters.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{ApiResource, DynamicObject, ListParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};

/// Annotations that controllers of Kubernetes and kubectl add.
const FOREIGN_NOTES: [&str; 3] = ["deprecated.daemonset.", "deployment.kubernetes.io/", "kubectl.kubernetes.io/"];

/// Every object whose owner has this UID, normalised, by `Kind/name`.
pub async fn of(client: &Client, namespace: &str, owner: &str) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for kind in kinds() {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
        let list = match api.list(&ListParams::default()).await {
            Ok(list) => list.items,
            // A kind that is not installed has no objects.
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            Err(error) => return Err(error.into()),
        };
        for mut object in list {
            if object.owner_references().iter().any(|it| it.uid == owner) {
                object.types = Some(TypeMeta { api_version: kind.api_version.clone(), kind: kind.kind.clone() });
                let name = format!("{}/{}", kind.kind, object.name_any());
                found.insert(name, normalise(&serde_json::to_value(object)?, namespace)?);
            }
        }
    }
    Ok(found)
}

fn kinds() -> [ApiResource; 8] {
    [
        ApiResource::erase::<DaemonSet>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Secret>(&()),
        ApiResource::erase::<ServiceAccount>(&()),
        ApiResource::erase::<NetworkPolicy>(&()),
        service_monitor(),
    ]
}

/// The kind that the Prometheus operator brings.
pub fn service_monitor() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("monitoring.coreos.com", "v1", "ServiceMonitor"))
}

/// Drops what the API server or the clock decides; keeps everything that an operator decides.
pub fn normalise(object: &Value, namespace: &str) -> Result<Value> {
    let mut object = object.clone();
    object["metadata"] = metadata(&object["metadata"]);
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    match object["kind"].as_str() {
        Some("Service") => service(&mut object["spec"]),
        Some("ServiceMonitor") if object["spec"]["namespaceSelector"] == json!({}) => {
            remove(&mut object["spec"], "namespaceSelector");
        }
        _ => {}
    }
    if let Some(template) = object.pointer_mut("/spec/template/metadata") {
        remove(template, "creationTimestamp");
        if template.get("annotations").is_none() {
            template["annotations"] = json!({});
        }
    }
    Ok(serde_json::from_str(&object.to_string().replace(namespace, "__NAMESPACE__"))?)
}

fn metadata(metadata: &Value) -> Value {
    let map = |field: &str| metadata[field].as_object().cloned().unwrap_or_default();
    let is_foreign = |key: &String| FOREIGN_NOTES.iter().any(|prefix| key.starts_with(prefix));
    let notes: Map<_, _> = map("annotations").into_iter().filter(|(key, _)| !is_foreign(key)).collect();
    let mut kept = json!({"name": metadata["name"], "labels": map("labels"), "annotations": notes});
    if let Some(owners) = metadata["ownerReferences"].as_array() {
        let fields = ["apiVersion", "kind", "name", "controller", "blockOwnerDeletion"];
        let keep = |owner: &Value| fields.iter().map(|it| ((*it).to_owned(), owner[*it].clone())).collect();
        kept["ownerReferences"] = owners.iter().map(|owner| Value::Object(keep(owner))).collect();
    }
    kept
}

fn service(spec: &mut Value) {
    if spec["clusterIP"].as_str().is_some_and(|ip| ip != "None") {
        spec["clusterIP"] = json!("<allocated>");
    }
    remove(spec, "clusterIPs");
}

fn remove(value: &mut Value, field: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(field);
    }
}

/// Where two values differ: JSON pointer, wanted, found.
pub fn differences(wanted: &Value, found: &Value) -> Vec<(String, Value, Value)> {
    let mut differences = Vec::new();
    compare(wanted, found, String::new(), &mut differences);
    differences
}

fn compare(wanted: &Value, found: &Value, path: String, differences: &mut Vec<(String, Value, Value)>) {
    let absent = || json!("<absent>");
    match (wanted, found) {
        (Value::Object(want), Value::Object(have)) => {
            let mut keys: Vec<_> = want.keys().chain(have.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                match (want.get(key), have.get(key)) {
                    (Some(want), Some(have)) => compare(want, have, path, differences),
                    (want, have) => {
                        let or_absent = |it: Option<&Value>| it.cloned().unwrap_or_else(absent);
                        differences.push((path, or_absent(want), or_absent(have)));
                    }
                }
            }
        }
        (Value::Array(want), Value::Array(have)) if want.len() == have.len() => {
            for (index, (want, have)) in want.iter().zip(have).enumerate() {
                compare(want, have, format!("{path}/{index}"), differences);
            }
        }
        _ if wanted == found => {}
        _ => differences.push((path, wanted.clone(), found.clone())),
    }
}
