//! Leader election by a Lease: of several processes at most one works.
//!
//! The whole Lease is replaced, guarded by its resourceVersion, so that of two claimants one gets a conflict. Expiry is
//! judged by how long the Lease has not changed as seen from here, never by comparing clocks of two machines.

mod claim;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use lmcache_observability::Metrics;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use claim::{Claim, Move};

/// Name of the Lease; the same as the reference operator's, so that the two never work at once.
pub const LEASE_NAME: &str = "f517be84.lmcache.ai";

/// Where a pod finds its own namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

const NO_ANSWER: &str = "the API server did not answer in time";

const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Who claims which Lease, and how patiently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Written into the Lease; no two processes may share it.
    pub identity: String,
    /// How long the others wait after the last renewal that they saw. Whole seconds.
    pub lease_duration: Duration,
    /// How long the holder works on without a successful renewal; shorter than `lease_duration`.
    pub renew_deadline: Duration,
    /// Pause between two attempts to acquire or to renew.
    pub retry_period: Duration,
}

impl LeaderConfig {
    /// The Lease of the operator with the usual 15 s, 10 s and 2 s. The namespace is `namespace` when it is given, else the
    /// pod's own, else `fallback` (the client's default namespace).
    pub fn new(namespace: Option<&str>, fallback: &str) -> Result<Self, LeaderError> {
        Ok(LeaderConfig {
            namespace: own_namespace(namespace, fallback),
            name: LEASE_NAME.to_owned(),
            identity: identity()?,
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        })
    }
}

/// The operator's own namespace: `given`, else the pod's, else `fallback`.
pub fn own_namespace(given: Option<&str>, fallback: &str) -> String {
    let own = || std::fs::read_to_string(NAMESPACE_FILE).ok().map(|text| text.trim().to_owned());
    let namespace = given.map(str::to_owned).or_else(own).filter(|text| !text.is_empty());
    namespace.unwrap_or_else(|| fallback.to_owned())
}

/// Why there is no leadership.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// The system gives no random bytes for the identity.
    #[error("cannot make an identity for leader election: no random bytes")]
    Random,
}

/// The pod's name and a random part: a process that is started again in the same pod is another claimant.
fn identity() -> Result<String, LeaderError> {
    let host = std::env::var("HOSTNAME").ok().or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.map(|host| host.trim().to_owned()).filter(|host| !host.is_empty());
    let mut random = [0_u8; 8];
    SystemRandom::new().fill(&mut random).map_err(|_| LeaderError::Random)?;
    Ok(format!("{}_{:016x}", host.as_deref().unwrap_or("manager"), u64::from_be_bytes(random)))
}

/// This process leads, until [`Leadership::lost`] returns or it is released or dropped.
#[derive(Debug)]
pub struct Leadership {
    lost: watch::Receiver<bool>,
    stop: DropGuard,
    renewing: JoinHandle<()>,
}

impl Leadership {
    /// Waits until the Lease is ours and keeps it renewed from then on. `None` when `shutdown` comes first.
    pub async fn acquire(
        client: kube::Client,
        config: LeaderConfig,
        metrics: Metrics,
        shutdown: &CancellationToken,
    ) -> Option<Self> {
        let mut elector = Elector::new(client, config, metrics);
        tracing::info!(lease = %elector.lease_name(), identity = elector.config.identity, "Attempting to acquire leader lease");
        tokio::select! {
            biased;
            () = elector.acquire() => {}
            () = shutdown.cancelled() => return None,
        }
        tracing::info!(lease = %elector.lease_name(), "Successfully acquired lease");
        elector.metrics.set_leader(true);
        let stop = CancellationToken::new();
        let (told, lost) = watch::channel(false);
        let renewing = tokio::spawn(elector.lead(stop.clone(), told));
        Some(Leadership { lost, stop: stop.drop_guard(), renewing })
    }

    /// Returns when the Lease is no longer ours or could not be renewed in time. Work must stop at once: another process
    /// may lead within `lease_duration - renew_deadline`.
    pub async fn lost(&mut self) {
        // An error means that the renewing task is gone, and nobody renews any more.
        let _ = self.lost.wait_for(|lost| *lost).await;
    }

    /// Gives the Lease up so that the next process need not wait for its expiry (D72). Call it when work has stopped.
    pub async fn release(self) {
        drop(self.stop);
        let _ = self.renewing.await;
    }
}

/// Does the requests; what to request is the [`Claim`]'s business.
struct Elector {
    api: Api<Lease>,
    config: LeaderConfig,
    claim: Claim,
    metrics: Metrics,
    /// When the last successful write was sent. The others count from when it arrived, which is later.
    renewed: Instant,
    /// What failed last, so that the same failure is told once and not every two seconds.
    told: Option<String>,
}

impl Elector {
    fn new(client: kube::Client, config: LeaderConfig, metrics: Metrics) -> Self {
        let api = Api::namespaced(client, &config.namespace);
        let claim = Claim::new(&config);
        Elector { api, config, claim, metrics, renewed: Instant::now(), told: None }
    }

    fn lease_name(&self) -> String {
        format!("{}/{}", self.config.namespace, self.config.name)
    }

    async fn acquire(&mut self) {
        loop {
            match timeout(self.patience(), self.attempt()).await {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => {}
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                    tracing::debug!(lease = %self.lease_name(), "Another process took the leader lease first");
                }
                Ok(Err(error)) => self.tell("acquire", &describe(&error)),
                Err(_) => self.tell("acquire", NO_ANSWER),
            }
            sleep(self.pause()).await;
        }
    }

    /// One attempt to hold the Lease; whether it is ours now.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let lease = self.api.get_opt(&self.config.name).await?;
        self.claim.observe(lease, Instant::now());
        self.write().await
    }

    /// Renews without reading first; reads only when somebody else has written.
    async fn renew(&mut self) -> Result<bool, kube::Error> {
        match self.write().await {
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => self.attempt().await,
            result => result,
        }
    }

    async fn write(&mut self) -> Result<bool, kube::Error> {
        let (params, sent) = (PostParams::default(), Instant::now());
        let written = match self.claim.next(sent, Timestamp::now()) {
            Move::Wait => return Ok(false),
            Move::Create(lease) => self.api.create(&params, &lease).await?,
            Move::Replace(lease) => self.api.replace(&self.config.name, &params, &lease).await?,
        };
        self.claim.observe(Some(written), Instant::now());
        self.renewed = sent;
        self.told = None;
        Ok(true)
    }

    async fn lead(mut self, stop: CancellationToken, told: watch::Sender<bool>) {
        loop {
            tokio::select! {
                () = stop.cancelled() => break self.release().await,
                () = sleep(self.config.retry_period) => {}
            }
            let deadline = self.renewed + self.config.renew_deadline;
            match timeout_at(deadline.min(Instant::now() + self.patience()), self.renew()).await {
                Ok(Ok(true)) => continue,
                Ok(Ok(false)) => {
                    tracing::error!(lease = %self.lease_name(), holder = self.claim.holder(), "Lost leader lease");
                    break;
                }
                Ok(Err(error)) => self.tell("renew", &describe(&error)),
                Err(_) => self.tell("renew", NO_ANSWER),
            }
            if Instant::now() >= deadline {
                tracing::error!(lease = %self.lease_name(), "Failed to renew leader lease in time");
                break;
            }
        }
        self.metrics.set_leader(false);
        let _ = told.send(true);
    }

    async fn release(&mut self) {
        let Some(lease) = self.claim.released(Timestamp::now()) else { return };
        let params = PostParams::default();
        let request = self.api.replace(&self.config.name, &params, &lease);
        match timeout(RELEASE_TIMEOUT, request).await {
            Ok(Ok(_)) => tracing::info!(lease = %self.lease_name(), "Released leader lease"),
            Ok(Err(error)) => self.tell("release", &describe(&error)),
            Err(_) => self.tell("release", NO_ANSWER),
        }
    }

    /// How long one attempt may take: two fit into the renew deadline, so that one connection that hangs loses nothing.
    fn patience(&self) -> Duration {
        self.config.renew_deadline / 2
    }

    /// A little random, so that several claimants do not ask in step.
    fn pause(&self) -> Duration {
        let mut random = [0_u8];
        let _ = SystemRandom::new().fill(&mut random);
        self.config.retry_period + self.config.retry_period.mul_f64(f64::from(random[0]) / 1024.0)
    }

    fn tell(&mut self, what: &str, error: &str) {
        let failure = format!("{what}: {error}");
        if self.told.as_deref() != Some(&failure) {
            tracing::warn!(lease = %self.lease_name(), error, "Failed to {what} leader lease");
            self.told = Some(failure);
        }
    }
}

/// What failed, and for a missing permission what to grant.
fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("{}; grant get, create and update on leases.coordination.k8s.io", status.message)
        }
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
