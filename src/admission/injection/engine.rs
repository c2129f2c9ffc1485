//! What an injector knows of an engine.

use std::collections::BTreeMap;

use super::opt_in::EngineRef;
use super::reason::{Skip, SkipReason, shown};
use super::{Injector, PD_ROLE};
use crate::observe::shared_with;
use crate::render::{DECODER_DOCUMENT, DOCUMENT, PREFILLER_DOCUMENT};

/// What was found where the pod's annotation points to.
#[derive(Clone, Debug, PartialEq)]
pub enum EngineLookup {
    /// No engine of that kind, namespace and name, as a live read said (D41).
    NotFound,
    /// The engine.
    Found(Box<EngineView>),
}

/// An engine, as far as injection depends on it. Defaults are resolved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineView {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Whether it has a deletion timestamp.
    pub terminating: bool,
    /// What is wrong with its newest spec, for a person; nothing when the spec is valid.
    pub invalid: Option<String>,
    /// Value of its annotation `lmcache.ai/share-with`: a comma list of namespaces, or `*` (D46).
    pub share_with: Option<String>,
    /// Whether engine and vLLM do without a shared /dev/shm; it wins over `host_ipc`. Never for a `CacheBlendEngine`.
    pub isolated_ipc: bool,
    /// Whether vLLM must share the node's IPC namespace.
    pub host_ipc: bool,
    /// Disaggregated prefill and decode, if the engine has it.
    pub pd: Option<Pd>,
    /// Image to stage into the pod, if a usable one is set.
    pub payload_image: Option<PayloadImage>,
    /// Names of the pull secrets of that image.
    pub pull_secrets: Vec<String>,
    /// Container that runs vLLM; unset or empty: the pod's first.
    pub target_container: Option<String>,
    /// CUDA graphs of vLLM. Only a `CacheBlendEngine` has a say in it.
    pub cudagraph: Cudagraph,
    /// The `ConfigMap` `<name>-connection` of the engine's namespace, if it exists.
    pub connection: Option<Connection>,
}

/// The connection `ConfigMap` of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// Whether its controlling owner is this very engine.
    pub controlled: bool,
    /// Its documents by key.
    pub data: BTreeMap<String, String>,
}

/// Disaggregated prefill and decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pd {
    /// TCP port of NIXL's side channel.
    pub nixl_port: i32,
}

/// An image whose `/payload` is staged into pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadImage {
    /// `repository:tag` or `repository@digest`.
    pub reference: String,
    /// As a container's `imagePullPolicy` takes it.
    pub pull_policy: String,
}

/// How much of vLLM is captured in CUDA graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cudagraph {
    /// Nothing.
    #[default]
    Eager,
    /// Pieces between attention layers.
    Piecewise,
    /// Whole decode steps, and nothing else.
    FullDecodeOnly,
}

/// Side of a pod in disaggregated prefill and decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Prefiller,
    Decoder,
}

impl EngineView {
    /// Whether a pod of this namespace may bind to the engine.
    fn serves(&self, namespace: &str) -> bool {
        self.namespace == namespace || self.share_with.as_deref().is_some_and(|share| shared_with(share, namespace))
    }

    /// The pod's role; nothing when it has none, or when the engine knows no roles (then with a warning, D35).
    pub(super) fn role(
        &self,
        injector: Injector,
        annotation: Option<&str>,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Role>, Skip> {
        let Some(role) = annotation else { return Ok(None) };
        if self.pd.is_none() {
            let (kind, namespace, name) = (injector.names().kind, &self.namespace, &self.name);
            let role = shown(role);
            warnings.push(format!("{PD_ROLE} {role} is ignored: {kind} {namespace}/{name} has no spec.pd"));
            return Ok(None);
        }
        match role {
            "prefiller" => Ok(Some(Role::Prefiller)),
            "decoder" => Ok(Some(Role::Decoder)),
            other => {
                let message = format!("{PD_ROLE} must be prefiller or decoder, not {}", shown(other));
                Err(Skip { injector, reason: SkipReason::UnknownPdRole, message })
            }
        }
    }

    /// The document for a role, as it stands in the `ConfigMap`.
    pub(super) fn document<'a>(
        &self,
        injector: Injector,
        connection: &'a Connection,
        role: Option<Role>,
    ) -> Result<&'a str, Skip> {
        let key = match role {
            None => DOCUMENT,
            Some(Role::Prefiller) => PREFILLER_DOCUMENT,
            Some(Role::Decoder) => DECODER_DOCUMENT,
        };
        let document = connection.data.get(key).map(String::as_str).filter(|text| !text.is_empty());
        document.ok_or_else(|| {
            let message = format!("ConfigMap {}/{}-connection has no {key}", self.namespace, self.name);
            Skip { injector, reason: SkipReason::ConfigKeyMissing, message }
        })
    }
}

/// The engine, if it may and can be used by a pod of this namespace, and its connection (D46, D71).
pub(super) fn usable<'a>(
    injector: Injector,
    namespace: &str,
    reference: &EngineRef,
    lookup: &'a EngineLookup,
) -> Result<(&'a EngineView, &'a Connection), Skip> {
    let kind = injector.names().kind;
    let skip = |reason, message| Skip { injector, reason, message };
    let EngineLookup::Found(engine) = lookup else {
        return Err(skip(SkipReason::EngineNotFound, format!("there is no {kind} {reference}")));
    };
    if !engine.serves(namespace) {
        let message = format!(
            "{kind} {reference} is not shared with namespace {namespace}; its owner can name it in the annotation lmcache.ai/share-with"
        );
        return Err(skip(SkipReason::EngineNotShared, message));
    }
    if engine.terminating {
        return Err(skip(SkipReason::EngineTerminating, format!("{kind} {reference} is being deleted")));
    }
    if let Some(error) = &engine.invalid {
        return Err(skip(SkipReason::EngineInvalid, format!("the spec of {kind} {reference} is invalid: {error}")));
    }
    let Some(connection) = &engine.connection else {
        let message = format!("{kind} {reference} has no ConfigMap {}-connection yet", engine.name);
        return Err(skip(SkipReason::EngineNotFound, message));
    };
    if !connection.controlled {
        let message = format!("ConfigMap {reference}-connection is not controlled by {kind} {reference}");
        return Err(skip(SkipReason::ConfigNotOwned, message));
    }
    Ok((engine, connection))
}
