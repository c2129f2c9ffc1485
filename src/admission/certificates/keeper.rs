//! The operator's own authority: kept in a Secret, renewed in time, trusted by the webhook configurations.
//!
//! Everything is watched, nothing is asked again and again: a Secret that is deleted or damaged, a configuration that
//! trusts somebody else, and, by looking at the clock every few seconds, a clock that jumps. Several replicas agree
//! because the Secret is only ever created where there is none, or replaced in the version that was read.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Error};
use lmcache_observability::Metrics;
use tokio::time::{sleep, timeout};

use super::material::{Material, MaterialError};
use super::plan::{Lifetimes, Plan, Renewal, plan};
use super::published::Published;
use super::repairs::Repairs;
use super::seen::Seen;
use super::served::ServedCertificate;
use crate::admission::registration::{self, Address, Names};
use crate::controllers::pause_after;
use crate::observe::{FIELD_MANAGER, backoff, chain, report};

/// How often the clock is looked at: it may be set while a timer runs.
const TICK: Duration = Duration::from_secs(5);
/// How long one round of requests may take.
const ROUND: Duration = Duration::from_secs(20);
/// How often a change of the Secret by another replica is answered at once.
const ATTEMPTS: usize = 5;
/// Why the certificate cannot be kept up.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The Secret cannot be read or written.
    #[error("failed to {verb} Secret {name}: {}", chain(source))]
    Secret {
        /// What was tried.
        verb: &'static str,
        /// Namespace and name.
        name: String,
        /// What the API server said.
        source: Error,
    },
    /// Another replica was faster, again and again.
    #[error("Secret {0} was changed by others {ATTEMPTS} times in a row")]
    Contended(String),
    /// No certificate could be made.
    #[error(transparent)]
    Material(#[from] MaterialError),
    /// A configuration cannot be written.
    #[error("failed to publish the webhook authority: {}", chain(.0))]
    Configuration(#[source] Error),
    /// The API server does not answer.
    #[error("the API server did not answer within {} s", ROUND.as_secs())]
    Timeout,
}

/// Keeps an authority and a serving certificate.
pub struct SelfManaged {
    /// The client.
    pub client: Client,
    /// How everything is called.
    pub names: Names,
    /// Where the API server calls.
    pub address: Address,
    /// Names that the certificate must have: DNS names and IP addresses.
    pub hosts: Vec<String>,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
    /// Where the expiry is shown.
    pub metrics: Metrics,
    /// Where the certificate is served from.
    pub served: ServedCertificate,
}

/// What is known, and what was done.
struct State {
    secret: Seen<Secret>,
    mutating: Published<MutatingWebhookConfiguration>,
    validating: Published<ValidatingWebhookConfiguration>,
    bundle: Vec<u8>,
    /// The stored content is good until then, unless somebody changes it.
    until: Timestamp,
    failures: u32,
    repairs: Repairs,
}

impl SelfManaged {
    /// Never returns. `arrived` is called when a certificate is served and trusted.
    pub async fn run(self, arrived: impl Fn() + Send + Sync) {
        let mut state = State {
            secret: Seen::Unknown,
            mutating: Published::new(self.client.clone(), self.names.mutating(), registration::mutating),
            validating: Published::new(self.client.clone(), self.names.validating(), registration::validating),
            bundle: Vec::new(),
            until: Timestamp::MIN,
            failures: 0,
            repairs: Repairs::default(),
        };
        let (mutating, mutating_name) = state.mutating.api();
        let (validating, validating_name) = state.validating.api();
        let mut secrets = pin!(watcher::watch_object(self.secrets(), &self.names.secret()).backoff(backoff()));
        let mut mutating = pin!(watcher::watch_object(mutating, &mutating_name).backoff(backoff()));
        let mut validating = pin!(watcher::watch_object(validating, &validating_name).backoff(backoff()));
        loop {
            let pause = self.round(&mut state, &arrived).await;
            tokio::select! {
                Some(event) = secrets.next() => match event {
                    Ok(secret) => state.secret.take(secret),
                    Err(error) => report("secrets", &error, &self.metrics),
                },
                Some(event) = mutating.next() => match event {
                    Ok(configuration) => state.mutating.take(configuration),
                    Err(error) => report("mutatingwebhookconfigurations", &error, &self.metrics),
                },
                Some(event) = validating.next() => match event {
                    Ok(configuration) => state.validating.take(configuration),
                    Err(error) => report("validatingwebhookconfigurations", &error, &self.metrics),
                },
                () = sleep(pause) => {}
            }
        }
    }

    /// Does what is to be done now, and says how long nothing will be.
    async fn round(&self, state: &mut State, arrived: &(impl Fn() + Send + Sync)) -> Duration {
        let done = timeout(ROUND, async {
            let wait = self.renew(state).await?;
            if self.publish(state).await? {
                arrived();
            }
            Ok(wait)
        });
        match done.await.unwrap_or(Err(KeeperError::Timeout)) {
            Ok(wait) => {
                state.failures = 0;
                let due = Timestamp::now().duration_until(state.until);
                wait.unwrap_or(due.try_into().unwrap_or(TICK)).min(TICK)
            }
            Err(error) => {
                state.failures += 1;
                tracing::warn!(%error, "Failed to keep the webhook certificate");
                pause_after(state.failures)
            }
        }
    }

    /// Brings the stored content to where the plan keeps it, and serves it. Some wait when that has to wait.
    async fn renew(&self, state: &mut State) -> Result<Option<Duration>, KeeperError> {
        if state.secret.is_unknown() {
            return Ok(None);
        }
        for _ in 0..ATTEMPTS {
            let now = Timestamp::now();
            let data = state.secret.get().and_then(|secret| secret.data.as_ref());
            let material = data.map(Material::read).unwrap_or_default();
            let renewal = match plan(now, &material.stored(&self.hosts), self.lifetimes) {
                Plan::Keep { until } => {
                    if let Some(key) = material.serving() {
                        self.served.replace(key, &self.metrics);
                    }
                    (state.bundle, state.until) = (material.bundle(), until);
                    return Ok(None);
                }
                Plan::Renew(renewal) => renewal,
            };
            if now < state.until
                && let Some(wait) = state.repairs.wait()
            {
                return Ok(Some(wait));
            }
            self.write(state, &renewal, &material.renew(&renewal, now, self.lifetimes, &self.hosts)?).await?;
        }
        Err(KeeperError::Contended(self.secret_name()))
    }

    /// Stores it, unless somebody else has stored something; what is there then is looked at next.
    async fn write(&self, state: &mut State, renewal: &Renewal, material: &Material) -> Result<(), KeeperError> {
        let api = self.secrets();
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let secret = self.secret(state.secret.get(), material);
        let (verb, written) = match state.secret.get() {
            Some(_) => ("update", api.replace(&self.names.secret(), &params, &secret).await),
            None => ("create", api.create(&params, &secret).await),
        };
        match written {
            Ok(secret) => {
                let (authority, serving) = (renewal.authority, renewal.serving);
                tracing::info!(secret = self.secret_name(), authority, serving, "Renewed webhook certificates");
                state.secret = Seen::Present(Box::new(secret));
                state.until = Timestamp::MIN;
                Ok(())
            }
            Err(Error::Api(status)) if matches!(status.code, 404 | 409) => {
                let found = api.get_opt(&self.names.secret()).await.map_err(|source| self.failed("get", source))?;
                state.secret = found.map_or(Seen::Absent, |secret| Seen::Present(Box::new(secret)));
                Ok(())
            }
            Err(source) => Err(self.failed(verb, source)),
        }
    }

    /// What somebody else has written on the Secret stays there.
    fn secret(&self, found: Option<&Secret>, material: &Material) -> Secret {
        let mut secret = found.cloned().unwrap_or_else(|| Secret {
            metadata: ObjectMeta {
                name: Some(self.names.secret()),
                namespace: Some(self.names.namespace.clone()),
                labels: Some([("app.kubernetes.io/name".to_owned(), "operator".to_owned())].into()),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        });
        secret.metadata.managed_fields = None;
        secret.data = Some(material.data());
        secret
    }

    /// Whether a certificate is served and both configurations trust it.
    async fn publish(&self, state: &mut State) -> Result<bool, KeeperError> {
        if state.bundle.is_empty() || self.served.current().is_none() {
            return Ok(false);
        }
        let mutating = state.mutating.publish(&self.address, &state.bundle).await;
        let validating = state.validating.publish(&self.address, &state.bundle).await;
        Ok(mutating.map_err(KeeperError::Configuration)? && validating.map_err(KeeperError::Configuration)?)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.names.namespace)
    }

    fn secret_name(&self) -> String {
        format!("{}/{}", self.names.namespace, self.names.secret())
    }

    fn failed(&self, verb: &'static str, source: Error) -> KeeperError {
        KeeperError::Secret { verb, name: self.secret_name(), source }
    }
}
