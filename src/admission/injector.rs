//! The two injecting webhooks: who is asked, what is decided, what is told.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use lmcache_observability::WebhookOutcome;
use serde_json::Value;
use tracing::{info, warn};

use super::engines::Engines;
use super::injection::{Decision, EngineLookup, Injector, OptIn, Skip, SkipReason, decide, opt_in, patch};
use super::notes::{Note, Notes};
use super::review::{AdmissionRequest, Handler, Operation, Response};

/// Answers for one of the two injectors. It never refuses a pod.
pub struct Injection {
    /// Which one.
    pub injector: Injector,
    /// Where engines are found.
    pub engines: Engines,
    /// Who tells the pods' owners.
    pub notes: Notes,
}

impl Handler for Injection {
    fn webhook(&self) -> &'static str {
        self.injector.as_str()
    }

    fn handle<'a>(&'a self, request: &'a AdmissionRequest) -> BoxFuture<'a, Response> {
        async {
            if request.operation != Operation::Create || !request.sub_resource.is_empty() {
                return Response::allowed(WebhookOutcome::Allowed, "not-a-creation");
            }
            let decision = self.decision(request).await;
            self.answer(request, &decision)
        }
        .boxed()
    }

    /// Whatever goes wrong, the pod passes and says so (D21).
    fn failed(&self, request: &AdmissionRequest, _: &'static str, what: &str) -> Response {
        self.answer(request, &Decision::Skip(Skip::internal_error(self.injector, what)))
    }
}

impl Injection {
    async fn decision(&self, request: &AdmissionRequest) -> Decision {
        let namespace = Some(request.namespace.as_str());
        let lookup = match opt_in(&request.object, self.injector, namespace) {
            OptIn::Engine(reference) => self.engines.lookup(self.injector, &reference).await,
            OptIn::AlreadyInjected | OptIn::NotOptedIn | OptIn::Malformed(_) => Ok(EngineLookup::NotFound),
        };
        match lookup {
            Ok(engine) => decide(&request.object, namespace, self.injector, &engine),
            Err(error) => Decision::Skip(Skip::internal_error(self.injector, error.to_string())),
        }
    }

    fn answer(&self, request: &AdmissionRequest, decision: &Decision) -> Response {
        let (outcome, reason) = label(decision);
        let warnings = decision.warnings();
        self.tell(request, outcome, reason, &warnings);
        let message = if *decision == Decision::AlreadyInjected { "already injected" } else { "" };
        Response {
            message: message.to_owned(),
            warnings,
            patch: Some(patch(&request.object, decision)),
            ..Response::allowed(outcome, reason)
        }
    }

    /// A log line for each pod; an Event for the owner of a pod that is not what its owner wants (D57).
    fn tell(&self, request: &AdmissionRequest, outcome: WebhookOutcome, reason: &'static str, warnings: &[String]) {
        let (injector, namespace, name) = (self.injector.as_str(), &request.namespace, name_of(request));
        let outcome = outcome.as_str();
        if warnings.is_empty() {
            info!(injector, namespace, name, outcome, "Looked at Pod {name}");
            return;
        }
        warn!(injector, namespace, name, outcome, reason, "Looked at Pod {name}: {}", warnings.join("; "));
        if request.dry_run {
            return;
        }
        if let Some(note) = Note::for_owner(&request.object, namespace, self.injector, reason, warnings) {
            self.notes.send(note);
        }
    }
}

/// Outcome and reason as metrics have them.
fn label(decision: &Decision) -> (WebhookOutcome, &'static str) {
    let outcome = match decision {
        Decision::AlreadyInjected => return (WebhookOutcome::Allowed, "already-injected"),
        Decision::Inject(_) => WebhookOutcome::Injected,
        Decision::Skip(skip) if skip.reason == SkipReason::InternalError => WebhookOutcome::Error,
        Decision::Skip(_) => WebhookOutcome::Skipped,
    };
    (outcome, decision.reason().map_or("", SkipReason::as_str))
}

/// A pod of a controller has no name yet, but the beginning of one.
fn name_of(request: &AdmissionRequest) -> &str {
    let begun = || request.object.pointer("/metadata/generateName").and_then(Value::as_str);
    Some(request.name.as_str()).filter(|name| !name.is_empty()).or_else(begun).unwrap_or_default()
}
