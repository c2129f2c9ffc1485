//! Why a pod was not injected.

use std::fmt;

use super::Injector;

/// Why a pod, or a part of it, was not injected: a closed set, for annotations and metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SkipReason {
    /// The pod has the label, but its annotation names no engine.
    NotOptedIn,
    /// The engine, or its connection `ConfigMap`, does not exist; or the annotation cannot be a reference to an engine.
    EngineNotFound,
    /// The engine is being deleted (D71).
    EngineTerminating,
    /// The engine's newest spec is invalid (D71).
    EngineInvalid,
    /// The engine is in another namespace and not shared with the pod's (D46).
    EngineNotShared,
    /// The connection `ConfigMap` is not controlled by the engine (D71).
    ConfigNotOwned,
    /// The connection `ConfigMap` has no document for the pod's role (D23).
    ConfigKeyMissing,
    /// The engine disaggregates prefill and decode, and the pod's role is neither.
    UnknownPdRole,
    /// The pod has no container of the wanted name, or none at all.
    TargetContainerNotFound,
    /// The container's command is not one of vLLM's own (D44).
    CommandOverride,
    /// The engine names no payload image, and the injector cannot do without.
    PayloadImageUnset,
    /// The pod has a connector of its own, which is left alone. Stamped beside a success.
    KvTransferConfigPresent,
    /// A volume, mount or container of the pod stands where one of ours should (D43).
    NameConflict,
    /// The engine needs the node's /dev/shm, and the pod mounts another one (D79).
    DevShmConflict,
    /// `PYTHONPATH` comes from elsewhere, so nothing can be put before it (D63).
    PythonpathValueFrom,
    /// Something went wrong inside, or the pod is not shaped like one (D21).
    InternalError,
}

impl SkipReason {
    /// Every reason.
    pub const ALL: [SkipReason; 16] = [
        SkipReason::NotOptedIn,
        SkipReason::EngineNotFound,
        SkipReason::EngineTerminating,
        SkipReason::EngineInvalid,
        SkipReason::EngineNotShared,
        SkipReason::ConfigNotOwned,
        SkipReason::ConfigKeyMissing,
        SkipReason::UnknownPdRole,
        SkipReason::TargetContainerNotFound,
        SkipReason::CommandOverride,
        SkipReason::PayloadImageUnset,
        SkipReason::KvTransferConfigPresent,
        SkipReason::NameConflict,
        SkipReason::DevShmConflict,
        SkipReason::PythonpathValueFrom,
        SkipReason::InternalError,
    ];

    /// The text of the annotation and of the metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            SkipReason::NotOptedIn => "not-opted-in",
            SkipReason::EngineNotFound => "engine-not-found",
            SkipReason::EngineTerminating => "engine-terminating",
            SkipReason::EngineInvalid => "engine-invalid",
            SkipReason::EngineNotShared => "engine-not-shared",
            SkipReason::ConfigNotOwned => "config-not-owned",
            SkipReason::ConfigKeyMissing => "config-key-missing",
            SkipReason::UnknownPdRole => "unknown-pd-role",
            SkipReason::TargetContainerNotFound => "target-container-not-found",
            SkipReason::CommandOverride => "command-override",
            SkipReason::PayloadImageUnset => "payload-image-unset",
            SkipReason::KvTransferConfigPresent => "kv-transfer-config-present",
            SkipReason::NameConflict => "name-conflict",
            SkipReason::DevShmConflict => "dev-shm-conflict",
            SkipReason::PythonpathValueFrom => "pythonpath-value-from",
            SkipReason::InternalError => "internal-error",
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A pod is not injected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Whose skip it is.
    pub injector: Injector,
    /// Why, for machines.
    pub reason: SkipReason,
    /// Why, for a person: one sentence on one line, without a full stop.
    pub message: String,
}

impl Skip {
    /// A skip because of an error that is not the pod's: a failed read, a panic (D21).
    pub fn internal_error(injector: Injector, message: impl Into<String>) -> Self {
        Skip { injector, reason: SkipReason::InternalError, message: message.into() }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} injection skipped ({}): {}", self.injector, self.reason, self.message)
    }
}

/// Longest part of a user's text that a message repeats, in characters.
const SHOWN: usize = 80;

/// A user's text in a message: quoted, on one line, and not too long.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_a_text_of_its_own_in_kebab_case() {
        let texts: BTreeSet<&str> = SkipReason::ALL.into_iter().map(SkipReason::as_str).collect();
        assert_eq!(texts.len(), SkipReason::ALL.len(), "{texts:?}");
        let kebab = |text: &&str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        assert!(texts.iter().all(kebab), "{texts:?}");
    }

    #[test]
    fn a_users_text_is_shown_on_one_line_and_cut() {
        assert_eq!(shown("a\nb"), r#""a\nb""#);
        assert_eq!(shown(&"é".repeat(81)), format!("\"{}\"...", "é".repeat(80)));
    }
}
