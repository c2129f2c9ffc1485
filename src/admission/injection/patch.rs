//! The decision as operations on the raw pod (RFC 6902). Nothing else is touched, so fields unknown to this build stay
//! as they are (D40).

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Map, Value, json};

use super::arguments::{ArgChange, insertions};
use super::environment::EnvChange;
use super::{CONFIG_HASH, Decision, Plan, Skip};

/// The operations that carry out a decision on the pod that it was made for; none when the pod is already as it should
/// be, or when it has no place for a stamp.
pub fn patch(pod: &Value, decision: &Decision) -> Patch {
    let mut operations = Operations { pod, list: Vec::new() };
    match decision {
        Decision::AlreadyInjected => {}
        Decision::Skip(skip) => stamp_skip(&mut operations, skip),
        Decision::Inject(plan) => inject(&mut operations, plan),
    }
    Patch(operations.list)
}

fn stamp_skip(operations: &mut Operations<'_>, skip: &Skip) {
    operations.annotate(&[(skip.injector.names().skip_reason, skip.reason.as_str())], &[]);
}

fn inject(operations: &mut Operations<'_>, plan: &Plan) {
    let spec = ["spec"];
    if plan.ipc.join_host {
        operations.set(&spec, "hostIPC", true.into());
    }
    let volumes = [&plan.ipc.volume, &plan.payload.volume];
    operations.append(&spec, "volumes", volumes.into_iter().flatten().cloned().collect());
    operations.append(&spec, "initContainers", plan.payload.stage.iter().cloned().collect());
    let secrets = plan.payload.pull_secrets.iter().map(|name| json!({"name": name}));
    operations.append(&spec, "imagePullSecrets", secrets.collect());

    let index = plan.container.to_string();
    let container = ["spec", "containers", index.as_str()];
    let mounts = [&plan.ipc.mount, &plan.payload.mount];
    operations.append(&container, "volumeMounts", mounts.into_iter().flatten().cloned().collect());
    operations.edit_env(&container, &plan.env);
    operations.edit_args(&container, &plan.args);

    let names = plan.injector.names();
    let mut stamps = vec![(names.injected, "true")];
    stamps.extend(plan.config_hash().map(|hash| (CONFIG_HASH, hash)));
    stamps.extend(plan.reason().map(|reason| (names.skip_reason, reason.as_str())));
    // An old reason does not outlive a success (D36).
    let stale: &[&str] = if plan.reason().is_none() { &[names.skip_reason] } else { &[] };
    operations.annotate(&stamps, stale);
}

struct Operations<'a> {
    pod: &'a Value,
    list: Vec<PatchOperation>,
}

impl Operations<'_> {
    fn at(&self, parent: &[&str], key: &str) -> Option<&Value> {
        let mut value = self.pod;
        for token in parent.iter().chain([&key]) {
            value = match value {
                Value::Array(items) => items.get(token.parse::<usize>().ok()?)?,
                other => other.get(*token)?,
            };
        }
        Some(value).filter(|value| !value.is_null())
    }

    fn add(&mut self, parent: &[&str], key: &str, value: Value) {
        self.list.push(PatchOperation::Add(AddOperation { path: path(parent, key), value }));
    }

    fn replace(&mut self, parent: &[&str], key: &str, value: Value) {
        self.list.push(PatchOperation::Replace(ReplaceOperation { path: path(parent, key), value }));
    }

    /// Gives a field of an object this value.
    fn set(&mut self, parent: &[&str], key: &str, value: Value) {
        match self.at(parent, key) {
            Some(old) if *old == value => {}
            Some(_) => self.replace(parent, key, value),
            None => self.add(parent, key, value),
        }
    }

    /// Adds items to the end of a list, which may not be there yet.
    fn append(&mut self, parent: &[&str], key: &str, items: Vec<Value>) {
        if items.is_empty() {
            return;
        }
        if self.at(parent, key).is_none() {
            return self.add(parent, key, items.into());
        }
        let list = [parent, &[key]].concat();
        for item in items {
            self.add(&list, "-", item);
        }
    }

    fn edit_env(&mut self, container: &[&str], changes: &[EnvChange]) {
        let mut appended = Vec::new();
        for change in changes {
            match change {
                EnvChange::Append(entry) => appended.push(entry.clone()),
                EnvChange::Value { at, text } => {
                    let at = at.to_string();
                    let entry = [container, &["env", at.as_str()]].concat();
                    self.set(&entry, "value", text.as_str().into());
                }
            }
        }
        self.append(container, "env", appended);
    }

    fn edit_args(&mut self, container: &[&str], changes: &[ArgChange]) {
        let length = self.at(container, "args").and_then(Value::as_array).map_or(0, Vec::len);
        let list = [container, &["args"]].concat();
        for change in changes {
            if let ArgChange::Replace { at, text } = change {
                self.replace(&list, &at.to_string(), text.as_str().into());
            }
        }
        let (at_end, inside): (Vec<_>, Vec<_>) = insertions(changes).into_iter().partition(|(at, _)| *at >= length);
        for (at, text) in inside {
            self.add(&list, &at.to_string(), text.into());
        }
        // Insertions come last first.
        self.append(container, "args", at_end.into_iter().rev().map(|(_, text)| text.into()).collect());
    }

    /// Sets and removes annotations, if the pod has a place for them.
    fn annotate(&mut self, set: &[(&str, &str)], remove: &[&str]) {
        let all = || -> Value {
            set.iter().map(|(key, text)| ((*key).to_owned(), json!(text))).collect::<Map<_, _>>().into()
        };
        if !self.pod.is_object() {
            return;
        }
        match (self.at(&[], "metadata"), self.at(&["metadata"], "annotations")) {
            (None, _) => self.add(&[], "metadata", json!({"annotations": all()})),
            (Some(Value::Object(_)), None) => self.add(&["metadata"], "annotations", all()),
            (Some(_), Some(Value::Object(_))) => {
                let annotations = ["metadata", "annotations"];
                for (key, text) in set {
                    self.set(&annotations, key, (*text).into());
                }
                for key in remove {
                    if self.pod["metadata"]["annotations"].get(key).is_some() {
                        self.list.push(PatchOperation::Remove(RemoveOperation { path: path(&annotations, key) }));
                    }
                }
            }
            _ => {}
        }
    }
}

fn path(parent: &[&str], key: &str) -> PointerBuf {
    PointerBuf::from_tokens(parent.iter().copied().chain([key]))
}
