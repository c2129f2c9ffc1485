//! Fields that users pass through, in the form in which the API server stores them. It drops what is empty and
//! rewrites quantities; an object rendered otherwise would never equal the one read back, and would be sent again at
//! every reconcile.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, Toleration, Volume, VolumeMount};
use serde_json::Value;

use super::quantity;

/// Objects that mean nothing when they are empty. Others do: an empty label selector selects everything.
const EMPTY_MEANS_UNSET: [&str; 7] =
    ["annotations", "labels", "limits", "matchLabels", "nodeSelector", "requests", "resources"];
/// Switches that the API server does not store when they are off.
const OFF_MEANS_UNSET: [&str; 4] = ["readOnly", "stdin", "stdinOnce", "tty"];

/// Drops nulls, empty lists, and what else the API server does not store.
pub fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, field| {
            prune(field);
            match field {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(inner) => !inner.is_empty() || !EMPTY_MEANS_UNSET.contains(&name.as_str()),
                Value::Bool(on) => *on || !OFF_MEANS_UNSET.contains(&name.as_str()),
                _ => true,
            }
        }),
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

/// Adds variables to an environment: an entry takes the place of an earlier one of its name, as it would in the
/// container. The list is keyed by name, and server-side apply refuses a key that comes twice.
pub fn merge_env(mut env: Vec<EnvVar>, added: &[EnvVar]) -> Vec<EnvVar> {
    for entry in added {
        match env.iter_mut().find(|existing| existing.name == entry.name) {
            Some(existing) => *existing = entry.clone(),
            None => env.push(entry.clone()),
        }
    }
    env
}

/// Makes quantities canonical and drops empty strings where the API server does.
pub fn normalise_pod(pod: &mut PodSpec) {
    pod.containers.iter_mut().for_each(normalise_container);
    pod.init_containers.iter_mut().flatten().for_each(normalise_container);
    pod.volumes.iter_mut().flatten().for_each(normalise_volume);
    pod.tolerations.iter_mut().flatten().for_each(normalise_toleration);
    if let Some(secrets) = &mut pod.image_pull_secrets {
        // The list is keyed by name, and server-side apply refuses a key that comes twice.
        let mut seen = BTreeSet::new();
        secrets.retain(|secret| seen.insert(secret.name.clone()));
    }
}

fn normalise_container(container: &mut Container) {
    quantity::normalise_container(container);
    drop_empty(&mut container.working_dir);
    if let Some(env) = &mut container.env {
        *env = merge_env(Vec::with_capacity(env.len()), env);
        for variable in env {
            drop_empty(&mut variable.value);
        }
    }
    container.volume_mounts.iter_mut().flatten().for_each(normalise_mount);
}

fn normalise_mount(mount: &mut VolumeMount) {
    drop_empty(&mut mount.sub_path);
    drop_empty(&mut mount.sub_path_expr);
}

fn normalise_volume(volume: &mut Volume) {
    quantity::normalise_volume(volume);
    if let Some(empty_dir) = &mut volume.empty_dir {
        drop_empty(&mut empty_dir.medium);
    }
}

fn normalise_toleration(toleration: &mut Toleration) {
    for text in [&mut toleration.key, &mut toleration.operator, &mut toleration.value, &mut toleration.effect] {
        drop_empty(text);
    }
}

fn drop_empty(text: &mut Option<String>) {
    if text.as_deref() == Some("") {
        *text = None;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({"env": [], "name": "x"}), json!({"name": "x"}))]
    #[case(json!({"a": null, "labels": {}, "list": [{"items": []}]}), json!({"list": [{}]}))]
    #[case(json!({"emptyDir": {}, "podSelector": {"matchLabels": {}}}), json!({"emptyDir": {}, "podSelector": {}}))]
    #[case(json!({"readOnly": false, "privileged": false}), json!({"privileged": false}))]
    #[case(json!({"resources": {"limits": {}, "requests": {}}}), json!({}))]
    #[case(json!({"labels": {"readOnly": "", "b": "false"}}), json!({"labels": {"readOnly": "", "b": "false"}}))]
    fn what_is_empty_is_dropped_unless_it_means_something(#[case] mut value: Value, #[case] expected: Value) {
        prune(&mut value);
        assert_eq!(value, expected);
    }

    #[test]
    fn passed_through_fields_take_their_stored_form() {
        let mut pod: PodSpec = serde_json::from_value(json!({
            "containers": [{
                "name": "c", "workingDir": "",
                "env": [{"name": "A", "value": ""}, {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1024Ki"}}}],
                "resources": {"limits": {"cpu": "0.5"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": ""}],
            }],
            "initContainers": [{
                "name": "i", "resources": {"requests": {"memory": "2048Mi"}},
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}],
            }],
            "imagePullSecrets": [{"name": "a"}, {"name": "b"}, {"name": "a"}],
            "tolerations": [{"key": "k", "operator": "Exists", "value": ""}],
            "volumes": [{"name": "v", "emptyDir": {"medium": "", "sizeLimit": "1.5Gi"}}],
        }))
        .unwrap();
        normalise_pod(&mut pod);
        assert_eq!(
            json!(pod),
            json!({
                "containers": [{
                    "name": "c",
                    "env": [{"name": "A"}, {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}}],
                    "resources": {"limits": {"cpu": "500m"}},
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                }],
                "initContainers": [{
                    "name": "i", "resources": {"requests": {"memory": "2Gi"}},
                    "env": [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}],
                }],
                "imagePullSecrets": [{"name": "a"}, {"name": "b"}],
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1536Mi"}}],
            })
        );
    }
}
