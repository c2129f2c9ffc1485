//! Sums over the instances of an engine that only ever grow, although servers restart and instances come and go.

use std::collections::BTreeMap;

use super::text::Tokens;

/// Counts of one engine.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// What instances had counted that are gone, or before they started anew.
    carried: Tokens,
    /// What each instance says, by its pod.
    instances: BTreeMap<String, Tokens>,
    /// The sum that was published before this process began; taken into account at the first full round.
    published: Option<Tokens>,
}

impl Ledger {
    /// A ledger that goes on from what was published last.
    pub fn after(published: Option<Tokens>) -> Self {
        Ledger { published, ..Ledger::default() }
    }

    /// Takes in one round: what every instance that answered says. `present` are all instances that exist. One that did not
    /// answer, or whose answer has no counters, keeps what it said last; that it started anew shows when it counts again.
    pub fn round(&mut self, answers: BTreeMap<String, Option<Tokens>>, present: &[String]) {
        let gone: Vec<String> = self.instances.keys().filter(|pod| !present.contains(pod)).cloned().collect();
        for pod in gone {
            if let Some(last) = self.instances.remove(&pod) {
                self.carry(last);
            }
        }
        for (pod, now) in answers {
            let Some(now) = now else {
                self.instances.entry(pod).or_default();
                continue;
            };
            if let Some(last) = self.instances.insert(pod, now)
                && (now.hit < last.hit || now.requested < last.requested)
            {
                self.carry(last);
            }
        }
        if self.instances.len() >= present.len()
            && let Some(published) = self.published.take()
        {
            // Nobody knows which part of it the present instances have counted; the sum must not fall.
            let counted = self.total();
            self.carry(Tokens {
                hit: (published.hit - counted.hit).max(0.0),
                requested: (published.requested - counted.requested).max(0.0),
            });
        }
    }

    /// The sum; `None` until it is known how it continues the published one.
    pub fn known_total(&self) -> Option<Tokens> {
        self.published.is_none().then(|| self.total())
    }

    fn total(&self) -> Tokens {
        self.instances
            .values()
            .fold(self.carried, |sum, it| Tokens { hit: sum.hit + it.hit, requested: sum.requested + it.requested })
    }

    fn carry(&mut self, tokens: Tokens) {
        self.carried.hit += tokens.hit;
        self.carried.requested += tokens.requested;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens(hit: f64, requested: f64) -> Tokens {
        Tokens { hit, requested }
    }

    fn answers(all: &[(&str, f64, f64)]) -> BTreeMap<String, Option<Tokens>> {
        all.iter().map(|(pod, hit, requested)| ((*pod).to_owned(), Some(tokens(*hit, *requested)))).collect()
    }

    fn pods(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn sums_over_instances() {
        let mut ledger = Ledger::default();
        ledger.round(answers(&[("a", 1.0, 10.0), ("b", 2.0, 20.0)]), &pods(&["a", "b"]));
        assert_eq!(ledger.known_total(), Some(tokens(3.0, 30.0)));
    }

    #[test]
    fn a_server_that_starts_anew_takes_nothing_away() {
        let mut ledger = Ledger::default();
        ledger.round(answers(&[("a", 100.0, 200.0)]), &pods(&["a"]));
        ledger.round(answers(&[("a", 5.0, 10.0)]), &pods(&["a"]));
        assert_eq!(ledger.known_total(), Some(tokens(105.0, 210.0)));
        ledger.round(answers(&[("a", 6.0, 12.0)]), &pods(&["a"]));
        assert_eq!(ledger.known_total(), Some(tokens(106.0, 212.0)));
    }

    #[test]
    fn an_instance_that_is_gone_is_still_counted() {
        let mut ledger = Ledger::default();
        ledger.round(answers(&[("a", 100.0, 200.0), ("b", 1.0, 2.0)]), &pods(&["a", "b"]));
        ledger.round(answers(&[("b", 2.0, 4.0), ("c", 3.0, 6.0)]), &pods(&["b", "c"]));
        assert_eq!(ledger.known_total(), Some(tokens(105.0, 210.0)));
    }

    #[test]
    fn an_instance_that_does_not_answer_keeps_its_counts() {
        let mut ledger = Ledger::default();
        ledger.round(answers(&[("a", 1.0, 2.0), ("b", 10.0, 20.0)]), &pods(&["a", "b"]));
        ledger.round(answers(&[("a", 2.0, 4.0)]), &pods(&["a", "b"]));
        assert_eq!(ledger.known_total(), Some(tokens(12.0, 24.0)));
    }

    #[test]
    fn an_answer_without_counters_changes_nothing() {
        let mut ledger = Ledger::default();
        ledger.round(BTreeMap::from([("a".to_owned(), None)]), &pods(&["a"]));
        assert_eq!(ledger.known_total(), Some(tokens(0.0, 0.0)));
        ledger.round(answers(&[("a", 100.0, 200.0)]), &pods(&["a"]));
        ledger.round(BTreeMap::from([("a".to_owned(), None)]), &pods(&["a"]));
        ledger.round(answers(&[("a", 101.0, 201.0)]), &pods(&["a"]));
        assert_eq!(ledger.known_total(), Some(tokens(101.0, 201.0)));
    }

    #[test]
    fn goes_on_from_what_another_process_had_published() {
        let mut ledger = Ledger::after(Some(tokens(500.0, 900.0)));
        ledger.round(answers(&[("a", 100.0, 200.0)]), &pods(&["a", "b"]));
        assert_eq!(ledger.known_total(), None, "b has not been heard yet");
        ledger.round(answers(&[("a", 120.0, 200.0), ("b", 30.0, 40.0)]), &pods(&["a", "b"]));
        assert_eq!(ledger.known_total(), Some(tokens(500.0, 900.0)));
        ledger.round(answers(&[("a", 121.0, 201.0), ("b", 30.0, 40.0)]), &pods(&["a", "b"]));
        assert_eq!(ledger.known_total(), Some(tokens(501.0, 901.0)));
    }

    type Round = BTreeMap<String, (u32, u32)>;

    fn rounds() -> impl Strategy<Value = Vec<(Round, Vec<bool>)>> {
        let round = proptest::collection::btree_map("[a-c]", (0..1000_u32, 0..1000_u32), 0..4);
        proptest::collection::vec((round, proptest::collection::vec(any::<bool>(), 4)), 1..12)
    }

    proptest! {
        #[test]
        fn the_sum_never_falls(published in proptest::option::of((0..5000_u32, 0..5000_u32)), rounds in rounds()) {
            let published = published.map(|(hit, requested)| tokens(hit.into(), requested.into()));
            let mut ledger = Ledger::after(published);
            let mut before = published.unwrap_or_default();
            for (round, heard) in rounds {
                let present: Vec<String> = round.keys().cloned().collect();
                let answers = round.into_iter().zip(heard).filter(|(_, heard)| *heard);
                let answers = answers.map(|((pod, (hit, requested)), _)| (pod, (hit > 5).then(|| tokens(hit.into(), requested.into()))));
                ledger.round(answers.collect(), &present);
                if let Some(now) = ledger.known_total() {
                    prop_assert!(now.hit >= before.hit && now.requested >= before.requested, "{now:?} after {before:?}");
                    before = now;
                }
            }
        }
    }
}
