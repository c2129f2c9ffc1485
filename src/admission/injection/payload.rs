//! Staging a payload image: its init container copies the payload to a volume, from where vLLM imports it.

use serde_json::{Value, json};

use super::pod::{Pod, Target, name_of};
use super::presence::{missing_mount, missing_stage, missing_volume};
use super::reason::Skip;
use super::{EngineView, Injector, PayloadImage};

/// What a pod needs to have a payload staged.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Payload {
    pub volume: Option<Value>,
    pub stage: Option<Value>,
    pub mount: Option<Value>,
    /// Pull secrets that the pod does not name yet.
    pub pull_secrets: Vec<String>,
}

pub(super) fn plan(
    injector: Injector,
    engine: &EngineView,
    image: &PayloadImage,
    pod: &Pod<'_>,
    target: &Target<'_>,
) -> Result<Payload, Skip> {
    let names = injector.names();
    let (volume, path) = (names.payload_volume, names.payload_path);
    let mount = json!({"name": volume, "mountPath": path, "readOnly": true});
    Ok(Payload {
        volume: missing_volume(injector, pod, json!({"name": volume, "emptyDir": {}}))?,
        stage: missing_stage(injector, pod, stage(injector, image, pod, target))?,
        mount: missing_mount(injector, target, mount)?,
        pull_secrets: pull_secrets(injector, engine, pod),
    })
}

/// Small, and without privileges, so that neither a quota nor the `restricted` profile refuses the pod for it (D42).
fn stage(injector: Injector, image: &PayloadImage, pod: &Pod<'_>, target: &Target<'_>) -> Value {
    let names = injector.names();
    let (volume, path) = (names.payload_volume, names.payload_path);
    let mut security = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let own = target.security.filter(|own| own.get("runAsNonRoot") == Some(&Value::Bool(true)));
    if pod.run_as_non_root || own.is_some() {
        security["runAsNonRoot"] = true.into();
    }
    // Where only the container says who it is, an image without a user of its own could not start beside it.
    for field in ["runAsUser", "runAsGroup"] {
        if let Some(id) = own.and_then(|own| own.get(field)) {
            security[field] = id.clone();
        }
    }
    json!({
        "name": names.payload_stage,
        "image": image.reference,
        "imagePullPolicy": image.pull_policy,
        "env": [{"name": "SHARED_DIR", "value": path}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": security,
        "volumeMounts": [{"name": volume, "mountPath": path}],
    })
}

/// The pod's list, if its annotation has one, else the engine's, without those that the pod names already.
fn pull_secrets(injector: Injector, engine: &EngineView, pod: &Pod<'_>) -> Vec<String> {
    let wanted: Vec<&str> = match pod.annotation(injector.names().pull_secrets) {
        Some(list) => list.split(',').map(str::trim).collect(),
        None => engine.pull_secrets.iter().map(String::as_str).collect(),
    };
    let mut missing: Vec<String> = Vec::new();
    for name in wanted {
        let there = pod.pull_secrets.iter().any(|secret| name_of(secret) == Some(name));
        if !name.is_empty() && !there && !missing.iter().any(|other| other == name) {
            missing.push(name.to_owned());
        }
    }
    missing
}
