//! Reading a pod from raw JSON. What is absent and what is null are the same.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::Injector;
use super::reason::{Skip, SkipReason, shown};

/// A part of an object is not what it is in a pod.
#[derive(Debug, thiserror::Error)]
#[error("{path} is not {expected}")]
pub(super) struct Malformed {
    path: String,
    expected: &'static str,
}

static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// The parts of a pod that matter.
pub(super) struct Pod<'a> {
    raw: &'a Value,
    pub host_ipc: bool,
    /// Whether no container of it may run as root.
    pub run_as_non_root: bool,
    pub containers: &'a [Value],
    pub init_containers: &'a [Value],
    pub volumes: &'a [Value],
    pub pull_secrets: &'a [Value],
}

/// The container that runs vLLM.
pub(super) struct Target<'a> {
    /// Its place among the containers.
    pub index: usize,
    pub name: &'a str,
    pub command: Vec<&'a str>,
    pub args: Vec<&'a str>,
    pub env: &'a [Value],
    pub mounts: &'a [Value],
    /// Paths of its block devices.
    pub devices: &'a [Value],
    /// Its `securityContext`, if it has one.
    pub security: Option<&'a Map<String, Value>>,
}

/// The text of an annotation, as it stands there.
pub(super) fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    pod.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

/// The text of an annotation without white space around it, unless nothing is left.
pub(super) fn given_annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    annotation(pod, name).map(str::trim).filter(|text| !text.is_empty())
}

impl<'a> Pod<'a> {
    pub(super) fn read(raw: &'a Value) -> Result<Self, Malformed> {
        let pod = raw.as_object().ok_or_else(|| Malformed { path: "the pod".into(), expected: "an object" })?;
        if let Some(metadata) = object(pod, "metadata", "")? {
            object(metadata, "annotations", "metadata.")?;
        }
        let spec = object(pod, "spec", "")?.unwrap_or(&NOTHING);
        let non_root = |context: &Map<String, Value>| context.get("runAsNonRoot") == Some(&Value::Bool(true));
        Ok(Pod {
            raw,
            host_ipc: spec.get("hostIPC") == Some(&Value::Bool(true)),
            run_as_non_root: object(spec, "securityContext", "spec.")?.is_some_and(non_root),
            containers: list(spec, "containers", "spec.")?,
            init_containers: list(spec, "initContainers", "spec.")?,
            volumes: list(spec, "volumes", "spec.")?,
            pull_secrets: list(spec, "imagePullSecrets", "spec.")?,
        })
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&'a str> {
        given_annotation(self.raw, name)
    }

    /// The container of the name that the pod, else the engine, wants; without a name the first one.
    pub(super) fn target(&self, injector: Injector, engine: Option<&str>) -> Result<Target<'a>, Skip> {
        let wanted = self.annotation(injector.names().container).or(engine.filter(|name| !name.is_empty()));
        let index = match wanted {
            Some(wanted) => self.containers.iter().position(|container| name_of(container) == Some(wanted)),
            None => (!self.containers.is_empty()).then_some(0),
        };
        let Some(index) = index else {
            let message = wanted.map_or_else(
                || "the pod has no containers".to_owned(),
                |name| format!("the pod has no container {}", shown(name)),
            );
            return Err(Skip { injector, reason: SkipReason::TargetContainerNotFound, message });
        };
        Target::read(index, &self.containers[index])
            .map_err(|error| Skip::internal_error(injector, format!("the pod cannot be read: {error}")))
    }
}

impl<'a> Target<'a> {
    fn read(index: usize, raw: &'a Value) -> Result<Self, Malformed> {
        let path = format!("spec.containers[{index}].");
        let Some(container) = raw.as_object() else {
            return Err(Malformed { path: format!("spec.containers[{index}]"), expected: "an object" });
        };
        Ok(Target {
            index,
            name: name_of(raw).unwrap_or_default(),
            command: texts(container, "command", &path)?,
            args: texts(container, "args", &path)?,
            env: list(container, "env", &path)?,
            mounts: list(container, "volumeMounts", &path)?,
            devices: list(container, "volumeDevices", &path)?,
            security: object(container, "securityContext", &path)?,
        })
    }
}

/// The field `name` of a list's item.
pub(super) fn name_of(item: &Value) -> Option<&str> {
    item.get("name")?.as_str()
}

/// A path without needless slashes and dots: what the kernel would make of it, symbolic links aside.
pub(super) fn normal_path(path: &str) -> String {
    let mut steps: Vec<&str> = Vec::new();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => {
                steps.pop();
            }
            step => steps.push(step),
        }
    }
    format!("/{}", steps.join("/"))
}

fn field<'a>(parent: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    parent.get(key).filter(|value| !value.is_null())
}

fn object<'a>(
    parent: &'a Map<String, Value>,
    key: &str,
    path: &str,
) -> Result<Option<&'a Map<String, Value>>, Malformed> {
    let read = |value: &'a Value| {
        value.as_object().ok_or_else(|| Malformed { path: format!("{path}{key}"), expected: "an object" })
    };
    field(parent, key).map(read).transpose()
}

fn list<'a>(parent: &'a Map<String, Value>, key: &str, path: &str) -> Result<&'a [Value], Malformed> {
    let Some(value) = field(parent, key) else { return Ok(&[]) };
    value.as_array().map(Vec::as_slice).ok_or_else(|| Malformed { path: format!("{path}{key}"), expected: "a list" })
}

fn texts<'a>(parent: &'a Map<String, Value>, key: &str, path: &str) -> Result<Vec<&'a str>, Malformed> {
    let texts = list(parent, key, path)?.iter().map(Value::as_str);
    texts
        .collect::<Option<_>>()
        .ok_or_else(|| Malformed { path: format!("{path}{key}"), expected: "a list of strings" })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/dev/shm", "/dev/shm")]
    #[case("/dev/shm/", "/dev/shm")]
    #[case("//dev/./shm//", "/dev/shm")]
    #[case("/dev/pts/../shm", "/dev/shm")]
    #[case("/../dev/shm", "/dev/shm")]
    #[case("dev/shm", "/dev/shm")]
    #[case("/dev/shm/x", "/dev/shm/x")]
    #[case("", "/")]
    fn paths_are_compared_as_the_kernel_reads_them(#[case] path: &str, #[case] expected: &str) {
        assert_eq!(normal_path(path), expected);
    }
}
