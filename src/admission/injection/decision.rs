//! The decision: a plan, or the reason why there is none.

use serde_json::Value;

use super::arguments::{
    ArgChange, Arguments, COMPILATION_CONFIG, ENABLE_CHUNKED_PREFILL, ENFORCE_EAGER, KV_TRANSFER_CONFIG,
    NO_ENABLE_CHUNKED_PREFILL, NO_ENFORCE_EAGER, PIPELINE_PARALLEL_SIZE,
};
use super::command::takes_arguments;
use super::engine::{Role, usable};
use super::environment::{EnvChange, Environment};
use super::injector::Place;
use super::ipc::{self, Ipc};
use super::opt_in::pod_namespace;
use super::payload::{self, Payload};
use super::pod::{Pod, Target};
use super::reason::{Skip, SkipReason, shown};
use super::{Cudagraph, EngineLookup, EngineRef, EngineView, Injector, OptIn, PD_ROLE, config_hash, opt_in};

/// What happens to a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing: the pod is injected already.
    AlreadyInjected,
    /// It is connected as planned.
    Inject(Box<Plan>),
    /// It stays as it is, and says why.
    Skip(Skip),
}

/// How a pod is connected. It fits the pod that it was made for, and no other.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub(super) injector: Injector,
    /// Place of the container that runs vLLM.
    pub(super) container: usize,
    pub(super) ipc: Ipc,
    pub(super) payload: Payload,
    pub(super) env: Vec<EnvChange>,
    pub(super) args: Vec<ArgChange>,
    pub(super) config_hash: Option<String>,
    warnings: Vec<String>,
}

impl Decision {
    /// The reason that the pod is stamped with: that of a skip, or of a connection that was left to the pod.
    pub fn reason(&self) -> Option<SkipReason> {
        match self {
            Decision::AlreadyInjected => None,
            Decision::Inject(plan) => plan.reason(),
            Decision::Skip(skip) => Some(skip.reason),
        }
    }

    /// What the person who creates the pod should read, one line each.
    pub fn warnings(&self) -> Vec<String> {
        match self {
            Decision::AlreadyInjected => Vec::new(),
            Decision::Inject(plan) => plan.warnings.clone(),
            Decision::Skip(skip) => vec![skip.to_string()],
        }
    }
}

impl Plan {
    /// `kv-transfer-config-present` when the pod has a connector of its own, which was left alone.
    pub fn reason(&self) -> Option<SkipReason> {
        self.config_hash.is_none().then_some(SkipReason::KvTransferConfigPresent)
    }

    /// What the person who creates the pod should know.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Fingerprint of the injected document; none when the pod has a connector of its own.
    pub fn config_hash(&self) -> Option<&str> {
        self.config_hash.as_deref()
    }
}

/// Decides what happens to a pod, as it stands in `AdmissionRequest.object`. Never fails and never panics: whatever is
/// wrong is a [`Decision::Skip`].
///
/// `namespace` is that of the request. `engine` is what was found for the engine that [`opt_in()`] named; for a pod that
/// names none it does not matter.
pub fn decide(pod: &Value, namespace: Option<&str>, injector: Injector, engine: &EngineLookup) -> Decision {
    let wanted = opt_in(pod, injector, namespace);
    if wanted == OptIn::AlreadyInjected {
        return Decision::AlreadyInjected;
    }
    let parts =
        Pod::read(pod).map_err(|error| Skip::internal_error(injector, format!("the pod cannot be read: {error}")));
    let plan = parts.and_then(|parts| {
        let reference = reference(injector, wanted)?;
        plan(injector, &parts, pod_namespace(pod, namespace), &reference, engine)
    });
    plan.map_or_else(Decision::Skip, |plan| Decision::Inject(Box::new(plan)))
}

fn reference(injector: Injector, wanted: OptIn) -> Result<EngineRef, Skip> {
    let names = injector.names();
    match wanted {
        OptIn::Engine(reference) => Ok(reference),
        OptIn::Malformed(text) => {
            let message = format!("annotation {} is {}, which names no {}", names.engine, shown(&text), names.kind);
            Err(Skip { injector, reason: SkipReason::EngineNotFound, message })
        }
        OptIn::NotOptedIn | OptIn::AlreadyInjected => {
            let message = format!("label {} is set, but annotation {} names no engine", names.label, names.engine);
            Err(Skip { injector, reason: SkipReason::NotOptedIn, message })
        }
    }
}

/// The steps in the order in which reasons are looked for; nothing is changed in any of them (D22).
fn plan(
    injector: Injector,
    pod: &Pod<'_>,
    namespace: &str,
    reference: &EngineRef,
    lookup: &EngineLookup,
) -> Result<Plan, Skip> {
    let rules = injector.rules();
    let mut warnings = Vec::new();
    let (engine, connection) = usable(injector, namespace, reference, lookup)?;
    let role = engine.role(injector, pod.annotation(PD_ROLE), &mut warnings)?;
    let target = pod.target(injector, engine.target_container.as_deref())?;
    check_command(injector, &target)?;
    let bare = rules.bare_decoder && role == Some(Role::Decoder);
    let image = engine.payload_image.as_ref().filter(|_| !bare);
    if rules.needs_payload && !bare && image.is_none() {
        let message =
            format!("{} {reference} names no payload image (spec.injection.payloadImage)", injector.names().kind);
        return Err(Skip { injector, reason: SkipReason::PayloadImageUnset, message });
    }
    let document = engine.document(injector, connection, role)?;
    let ipc = if bare { Ipc::default() } else { ipc::plan(injector, engine, pod, &target)? };
    let payload = image.map(|image| payload::plan(injector, engine, image, pod, &target)).transpose()?;
    let env = environment(injector, engine, &target, payload.is_some(), role)?;
    let (args, config_hash) = arguments(injector, engine, &target, document, bare, &mut warnings);
    let payload = payload.unwrap_or_default();
    Ok(Plan { injector, container: target.index, ipc, payload, env, args, config_hash, warnings })
}

fn check_command(injector: Injector, target: &Target<'_>) -> Result<(), Skip> {
    if takes_arguments(&target.command, &target.args) {
        return Ok(());
    }
    let (container, program) = (shown(target.name), shown(target.command.first().copied().unwrap_or_default()));
    let message = format!(
        "command {program} of container {container} may not pass arguments on; use the image's entrypoint, \"vllm serve\" or \"python3 -m vllm.entrypoints...\""
    );
    Err(Skip { injector, reason: SkipReason::CommandOverride, message })
}

fn environment(
    injector: Injector,
    engine: &EngineView,
    target: &Target<'_>,
    staged: bool,
    role: Option<Role>,
) -> Result<Vec<EnvChange>, Skip> {
    let seed = injector.rules().hash_seed;
    let mut env = Environment::new(target);
    if seed == Place::First {
        env.hash_seed();
    }
    if staged {
        env.python_path(injector, target, injector.names().payload_path)?;
    }
    // Only a pod with a role transfers anything (D68).
    if let (Some(pd), Some(_)) = (engine.pd, role) {
        env.nixl(pd);
    }
    if seed == Place::Last {
        env.hash_seed();
    }
    Ok(env.finish())
}

fn arguments(
    injector: Injector,
    engine: &EngineView,
    target: &Target<'_>,
    document: &str,
    bare: bool,
    warnings: &mut Vec<String>,
) -> (Vec<ArgChange>, Option<String>) {
    let mut args = Arguments::new(&target.command, &target.args);
    let config_hash = if args.has(&KV_TRANSFER_CONFIG) {
        let names = injector.names();
        warnings.push(format!(
            "{}: the pod has its own {}, so it is not connected to the {}",
            SkipReason::KvTransferConfigPresent,
            KV_TRANSFER_CONFIG.name,
            names.kind
        ));
        None
    } else {
        args.append(&[KV_TRANSFER_CONFIG.name, document]);
        Some(config_hash(document))
    };
    if injector.rules().flags && !bare {
        args.switch_on(&NO_ENABLE_CHUNKED_PREFILL, &ENABLE_CHUNKED_PREFILL);
        args.force(&PIPELINE_PARALLEL_SIZE, "1");
        cudagraph(&mut args, engine.cudagraph);
    }
    let (changes, more) = args.finish();
    warnings.extend(more);
    (changes, config_hash)
}

fn cudagraph(args: &mut Arguments<'_>, mode: Cudagraph) {
    match mode {
        Cudagraph::Eager => args.switch_on(&ENFORCE_EAGER, &NO_ENFORCE_EAGER),
        // What runs eagerly is right with any engine, so a user who wants it keeps it.
        Cudagraph::Piecewise => args.respect(&ENFORCE_EAGER, &NO_ENFORCE_EAGER, "cudagraph: piecewise"),
        Cudagraph::FullDecodeOnly => {
            args.respect(&ENFORCE_EAGER, &NO_ENFORCE_EAGER, "cudagraph: full_decode_only");
            args.merge(&COMPILATION_CONFIG, "cudagraph_mode", "FULL_DECODE_ONLY");
        }
    }
}
