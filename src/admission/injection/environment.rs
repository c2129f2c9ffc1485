//! Environment variables of the container that runs vLLM.

use serde_json::{Value, json};

use super::pod::{Target, name_of};
use super::presence::text;
use super::reason::{Skip, SkipReason, shown};
use super::{Injector, Pd};

const HASH_SEED: &str = "PYTHONHASHSEED";
const PYTHON_PATH: &str = "PYTHONPATH";
const NIXL_HOST: &str = "VLLM_NIXL_SIDE_CHANNEL_HOST";
const NIXL_PORT: &str = "VLLM_NIXL_SIDE_CHANNEL_PORT";

/// One change to the list `env`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum EnvChange {
    /// Another value for the variable at this place.
    Value { at: usize, text: String },
    /// One more variable.
    Append(Value),
}

/// Changes to a container's environment; of equal names the last one counts, as for the kubelet.
pub(super) struct Environment<'a> {
    given: &'a [Value],
    changes: Vec<EnvChange>,
}

impl<'a> Environment<'a> {
    pub(super) fn new(target: &Target<'a>) -> Self {
        Environment { given: target.env, changes: Vec::new() }
    }

    pub(super) fn finish(self) -> Vec<EnvChange> {
        self.changes
    }

    /// Makes hashes equal in all processes: LMCache finds its blocks by them (D61).
    pub(super) fn hash_seed(&mut self) {
        self.default_to(HASH_SEED, json!({"name": HASH_SEED, "value": "0"}));
    }

    /// NIXL's side channel.
    pub(super) fn nixl(&mut self, pd: Pd) {
        let host = json!({"name": NIXL_HOST, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
        self.default_to(NIXL_HOST, host);
        self.default_to(NIXL_PORT, json!({"name": NIXL_PORT, "value": pd.nixl_port.to_string()}));
    }

    /// Puts a directory before everything else that Python searches.
    pub(super) fn python_path(&mut self, injector: Injector, target: &Target<'_>, path: &str) -> Result<(), Skip> {
        let Some((at, entry)) = self.find(PYTHON_PATH) else {
            self.changes.push(EnvChange::Append(json!({"name": PYTHON_PATH, "value": path})));
            return Ok(());
        };
        if entry.get("valueFrom").is_some_and(|source| !source.is_null()) {
            let container = shown(target.name);
            let message = format!(
                "{PYTHON_PATH} of container {container} comes from valueFrom, so {path} cannot be put before it"
            );
            return Err(Skip { injector, reason: SkipReason::PythonpathValueFrom, message });
        }
        let value = text(entry, "value").unwrap_or_default();
        if value.split(':').next() != Some(path) {
            let text = if value.is_empty() { path.to_owned() } else { format!("{path}:{value}") };
            self.changes.push(EnvChange::Value { at, text });
        }
        Ok(())
    }

    fn default_to(&mut self, name: &str, entry: Value) {
        if self.find(name).is_none() {
            self.changes.push(EnvChange::Append(entry));
        }
    }

    fn find(&self, name: &str) -> Option<(usize, &'a Value)> {
        self.given.iter().enumerate().rfind(|(_, entry)| name_of(entry) == Some(name))
    }
}
