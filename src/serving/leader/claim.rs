//! What to do about a Lease, decided without I/O.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::time::Instant;

use super::LeaderConfig;

/// The next request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {
    /// Somebody else holds the Lease.
    Wait,
    /// There is no Lease.
    Create(Lease),
    /// The Lease is ours, free or expired; the resourceVersion in it guards the write.
    Replace(Lease),
}

/// One claimant's view of the Lease.
#[derive(Debug)]
pub(super) struct Claim {
    identity: String,
    namespace: String,
    name: String,
    lease_duration: Duration,
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    lease: Lease,
    /// When the Lease first looked as it does, by the clock of this process.
    since: Instant,
}

impl Claim {
    pub(super) fn new(config: &LeaderConfig) -> Self {
        Claim {
            identity: config.identity.clone(),
            namespace: config.namespace.clone(),
            name: config.name.clone(),
            lease_duration: config.lease_duration,
            seen: None,
        }
    }

    /// The Lease as it was read or written just now.
    pub(super) fn observe(&mut self, lease: Option<Lease>, now: Instant) {
        let since = match (&self.seen, &lease) {
            (Some(seen), Some(lease)) if seen.lease.spec == lease.spec => seen.since,
            _ => now,
        };
        self.seen = lease.map(|lease| Seen { lease, since });
    }

    /// Who holds the Lease; empty when nobody does.
    pub(super) fn holder(&self) -> &str {
        self.seen.as_ref().map_or("", Seen::holder)
    }

    /// What to do now. `time` is written into the Lease and never read back.
    pub(super) fn next(&self, now: Instant, time: Timestamp) -> Move {
        let Some(seen) = &self.seen else { return Move::Create(self.fresh(time)) };
        let ours = seen.holder() == self.identity;
        if !ours && !seen.holder().is_empty() && now < seen.since + seen.duration() {
            return Move::Wait;
        }
        let mut lease = seen.lease.clone();
        let old = lease.spec.take().unwrap_or_default();
        let transitions = old.lease_transitions.unwrap_or_default();
        lease.spec = Some(LeaseSpec {
            acquire_time: if ours { old.acquire_time } else { Some(MicroTime(time)) },
            lease_transitions: Some(if ours { transitions } else { transitions.saturating_add(1) }),
            ..self.held(time)
        });
        Move::Replace(lease)
    }

    /// The Lease without a holder; `None` when it is not ours to release.
    pub(super) fn released(&self, time: Timestamp) -> Option<Lease> {
        let seen = self.seen.as_ref().filter(|seen| seen.holder() == self.identity)?;
        let mut lease = seen.lease.clone();
        let transitions = lease.spec.take().unwrap_or_default().lease_transitions;
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(String::new()),
            // Zero is not valid.
            lease_duration_seconds: Some(1),
            acquire_time: Some(MicroTime(time)),
            renew_time: Some(MicroTime(time)),
            lease_transitions: transitions,
            ..LeaseSpec::default()
        });
        Some(lease)
    }

    fn fresh(&self, time: Timestamp) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                acquire_time: Some(MicroTime(time)),
                lease_transitions: Some(0),
                ..self.held(time)
            }),
        }
    }

    fn held(&self, time: Timestamp) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX)),
            renew_time: Some(MicroTime(time)),
            ..LeaseSpec::default()
        }
    }
}

impl Seen {
    fn holder(&self) -> &str {
        self.lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
    }

    /// As the holder wrote it: it may run with another setting than ours.
    fn duration(&self) -> Duration {
        let seconds = self.lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }
}
