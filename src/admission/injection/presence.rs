//! Things of ours that a pod may have already: the same is used, another one is a conflict (D43).

use serde_json::Value;

use super::Injector;
use super::pod::{Pod, Target, name_of, normal_path};
use super::reason::{Skip, SkipReason, shown};

fn conflict(injector: Injector, message: String) -> Skip {
    Skip { injector, reason: SkipReason::NameConflict, message }
}

/// The volume, unless the pod has it.
pub(super) fn missing_volume(injector: Injector, pod: &Pod<'_>, ours: Value) -> Result<Option<Value>, Skip> {
    let name = name_of(&ours);
    match pod.volumes.iter().find(|theirs| name_of(theirs) == name) {
        None => Ok(Some(ours)),
        Some(theirs) if same_volume(theirs, &ours) => Ok(None),
        Some(_) => {
            let name = shown(name.unwrap_or_default());
            Err(conflict(injector, format!("the pod has a volume {name} with other content")))
        }
    }
}

/// The mount, unless the container has it.
pub(super) fn missing_mount(injector: Injector, target: &Target<'_>, ours: Value) -> Result<Option<Value>, Skip> {
    let name = name_of(&ours);
    let path = path_of(&ours);
    let container = shown(target.name);
    if let Some(theirs) = target.mounts.iter().find(|theirs| name_of(theirs) == name) {
        if same_mount(theirs, &ours) {
            return Ok(None);
        }
        let name = shown(name.unwrap_or_default());
        return Err(conflict(injector, format!("container {container} mounts volume {name} in another way")));
    }
    let device = |device: &Value| text(device, "devicePath").map(normal_path);
    let mut paths = target.mounts.iter().map(path_of).chain(target.devices.iter().map(device));
    if paths.any(|theirs| theirs == path) {
        let path = path.unwrap_or_default();
        return Err(conflict(injector, format!("container {container} has another mount at {path}")));
    }
    Ok(Some(ours))
}

/// The init container, unless the pod has it.
pub(super) fn missing_stage(injector: Injector, pod: &Pod<'_>, ours: Value) -> Result<Option<Value>, Skip> {
    let name = name_of(&ours);
    let other = |of: &str| {
        let name = shown(name.unwrap_or_default());
        conflict(injector, format!("the pod has {of} {name} with other content"))
    };
    // Names are unique among all containers of a pod.
    if pod.containers.iter().any(|theirs| name_of(theirs) == name) {
        return Err(other("a container"));
    }
    match pod.init_containers.iter().find(|theirs| name_of(theirs) == name) {
        None => Ok(Some(ours)),
        Some(theirs) if same_stage(theirs, &ours) => Ok(None),
        Some(_) => Err(other("an init container")),
    }
}

/// Whether two volumes hold the same: what the API server fills in does not count.
fn same_volume(theirs: &Value, ours: &Value) -> bool {
    let (Some((kind, theirs)), Some((our_kind, ours))) = (source(theirs), source(ours)) else { return false };
    let same = |field| text(theirs, field).unwrap_or_default() == text(ours, field).unwrap_or_default();
    let same_path = || text(theirs, "path").map(normal_path) == text(ours, "path").map(normal_path);
    kind == our_kind && same("medium") && given(theirs, "sizeLimit").is_none() && same_path()
}

/// Kind and settings of a volume, if it has just one.
fn source(volume: &Value) -> Option<(&String, &Value)> {
    let mut sources = volume.as_object()?.iter().filter(|(key, value)| *key != "name" && !value.is_null());
    let only = sources.next()?;
    sources.next().is_none().then_some(only)
}

fn same_mount(theirs: &Value, ours: &Value) -> bool {
    let read_only = |mount: &Value| given(mount, "readOnly").is_some_and(|value| value == &Value::Bool(true));
    let whole = ["subPath", "subPathExpr"].iter().all(|part| text(theirs, part).is_none_or(str::is_empty));
    path_of(theirs) == path_of(ours) && read_only(theirs) == read_only(ours) && whole
}

/// Whether an init container does the same: resources, privileges and what else the cluster added do not count.
fn same_stage(theirs: &Value, ours: &Value) -> bool {
    let has_all = |list: &str, same: fn(&Value, &Value) -> bool| {
        items(ours, list).all(|ours| items(theirs, list).any(|it| name_of(it) == name_of(ours) && same(it, ours)))
    };
    let runs_its_own = ["command", "args"].iter().all(|list| items(theirs, list).next().is_none());
    let same_value = |theirs: &Value, ours: &Value| text(theirs, "value") == text(ours, "value");
    text(theirs, "image") == text(ours, "image")
        && runs_its_own
        && has_all("env", same_value)
        && has_all("volumeMounts", same_mount)
}

fn items<'a>(parent: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    parent.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn given<'a>(parent: &'a Value, key: &str) -> Option<&'a Value> {
    parent.get(key).filter(|value| !value.is_null())
}

/// The text of a field.
pub(super) fn text<'a>(parent: &'a Value, key: &str) -> Option<&'a str> {
    parent.get(key)?.as_str()
}

/// The path of a mount.
pub(super) fn path_of(mount: &Value) -> Option<String> {
    text(mount, "mountPath").map(normal_path)
}

/// Whether a volume, if there is one, is this directory of the node.
pub(super) fn is_host_path(volume: Option<&Value>, path: &str) -> bool {
    let host = |volume: &Value| Some(normal_path(text(volume.get("hostPath")?, "path")?));
    volume.and_then(host).is_some_and(|theirs| theirs == path)
}
