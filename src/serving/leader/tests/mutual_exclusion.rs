//! Whatever order requests, pauses and failures come in: never do two claimants believe to lead.

use std::sync::LazyLock;

use k8s_openapi::api::coordination::v1::Lease;
use proptest::prelude::*;
use proptest::test_runner::RngAlgorithm;

use super::*;

const CLAIMANTS: usize = 3;

/// Made once: it reads the host's name and random bytes.
static CONFIG: LazyLock<LeaderConfig> = LazyLock::new(|| config("claimant"));

#[derive(Clone, Debug)]
enum Step {
    /// A claimant reads the Lease.
    Read(usize),
    /// A claimant writes what its view of the Lease makes it write, however old that view is.
    Write(usize),
    /// As `Write`, but the answer is lost on its way back.
    WriteUnanswered(usize),
    /// The holder gives up its Lease.
    Release(usize),
    /// Time passes, for all alike.
    Pass(u64),
}

/// Drawn as plain numbers: `prop_oneof` seeds a random generator of its own for each step.
fn step() -> impl Strategy<Value = Step> {
    (0_u8..13, 0..CLAIMANTS, 0_u8..20).prop_map(|(kind, who, seconds)| match kind {
        0..4 => Step::Read(who),
        4..8 => Step::Write(who),
        8 => Step::WriteUnanswered(who),
        9 => Step::Release(who),
        _ => Step::Pass(seconds.into()),
    })
}

struct World {
    claims: Vec<Claim>,
    /// Until when each claimant works on without another successful renewal.
    leads_until: Vec<Option<Instant>>,
    stored: Option<Lease>,
    version: u64,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let claim = |who| Claim::new(&LeaderConfig { identity: format!("claimant-{who}"), ..CONFIG.clone() });
        World {
            claims: (0..CLAIMANTS).map(claim).collect(),
            leads_until: vec![None; CLAIMANTS],
            stored: None,
            version: 0,
            now: Instant::now(),
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Read(who) => self.claims[who].observe(self.stored.clone(), self.now),
            Step::Write(who) => {
                if let Some(lease) = self.write(who) {
                    self.claims[who].observe(Some(lease), self.now);
                    self.leads_until[who] = Some(self.now + CONFIG.renew_deadline);
                } else {
                    self.leads_until[who] = None;
                }
            }
            Step::WriteUnanswered(who) => drop(self.write(who)),
            Step::Release(who) => {
                self.leads_until[who] = None;
                if let Some(lease) = self.claims[who].released(self.time()) {
                    self.replace(lease);
                }
            }
            Step::Pass(seconds) => self.now += Duration::from_secs(seconds),
        }
    }

    fn write(&mut self, who: usize) -> Option<Lease> {
        match self.claims[who].next(self.now, self.time()) {
            Move::Wait => None,
            Move::Create(lease) => self.stored.is_none().then(|| self.store(lease)),
            Move::Replace(lease) => self.replace(lease),
        }
    }

    fn replace(&mut self, lease: Lease) -> Option<Lease> {
        let current = self.stored.as_ref()?.metadata.resource_version.clone();
        (current == lease.metadata.resource_version).then(|| self.store(lease))
    }

    fn store(&mut self, mut lease: Lease) -> Lease {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.stored = Some(lease.clone());
        lease
    }

    /// Distinct at each write, as renewals are.
    fn time(&self) -> Timestamp {
        Timestamp::from_second(i64::try_from(self.version).unwrap()).unwrap()
    }

    fn leaders(&self) -> Vec<usize> {
        (0..CLAIMANTS).filter(|who| self.leads_until[*who].is_some_and(|until| self.now < until)).collect()
    }
}

proptest! {
    // Without optimisation the default generator, a cryptographic one, takes longer than all the rest.
    #![proptest_config(ProptestConfig { cases: 2000, rng_algorithm: RngAlgorithm::XorShift, ..ProptestConfig::default() })]
    #[test]
    fn at_most_one_claimant_believes_to_lead(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new();
        for (index, step) in steps.iter().enumerate() {
            world.take(step);
            let leaders = world.leaders();
            prop_assert!(leaders.len() <= 1, "{leaders:?} lead after step {index} of {steps:?}");
        }
    }
}
