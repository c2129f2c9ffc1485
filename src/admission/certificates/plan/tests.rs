#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// Lifetimes in which everything is a round number: authority 2400, skew 60, settle 60, overlap 300 (seconds).
const V: u64 = 600;

fn lifetimes() -> Lifetimes {
    Lifetimes::new(Duration::from_secs(V))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn from_to(from: i64, to: i64) -> Validity {
    Validity { not_before: at(from), not_after: at(to) }
}

/// As it is made at that second.
fn authority(made: i64) -> Validity {
    from_to(made - 60, made + 2400)
}

fn serving(made: i64, issuer: usize) -> Serving {
    Serving { validity: from_to(made - 60, made + 600), issuer, named: true }
}

fn stored(authorities: &[i64], serving: Option<Serving>) -> Stored {
    Stored { authorities: authorities.iter().map(|made| authority(*made)).collect(), signs: true, serving }
}

fn renewal(authority: bool, serving: bool, keep: &[usize]) -> Plan {
    Plan::Renew(Renewal { authority, serving, keep: keep.to_vec() })
}

#[test]
fn all_times_follow_from_one_number() {
    let seconds = |duration: Duration| duration.as_secs();
    for (serving, authority, skew, settle, overlap) in
        [(10, 40, 1, 1, 5), (600, 2400, 60, 60, 300), (90 * 86_400, 360 * 86_400, 300, 60, 3600)]
    {
        let it = Lifetimes::new(Duration::from_secs(serving));
        let found = (seconds(it.authority()), seconds(it.skew()), seconds(it.settle()), seconds(it.overlap()));
        assert_eq!(found, (authority, skew, settle, overlap), "{serving}");
    }
    assert_eq!(Lifetimes::new(Duration::ZERO).serving(), Duration::from_secs(10), "no shorter");
}

#[rstest]
#[case::nothing_stored(0, Stored::default(), renewal(true, true, &[]))]
#[case::everything_fresh(0, stored(&[0], Some(serving(0, 0))), Plan::Keep { until: at(60) })]
#[case::settled(61, stored(&[0], Some(serving(0, 0))), Plan::Keep { until: at(300) })]
#[case::right_before_renewal(379, stored(&[0], Some(serving(0, 0))), Plan::Keep { until: at(380) })]
#[case::serving_at_two_thirds(380, stored(&[0], Some(serving(0, 0))), renewal(false, true, &[0]))]
#[case::serving_ended(601, stored(&[0], Some(serving(0, 0))), renewal(false, true, &[0]))]
#[case::serving_from_the_future(0, stored(&[0], Some(serving(100, 0))), renewal(false, true, &[0]))]
#[case::serving_lost(10, stored(&[0], None), renewal(false, true, &[0]))]
#[case::serving_lacks_a_name(10, stored(&[0], Some(Serving { named: false, ..serving(0, 0) })), renewal(false, true, &[0]))]
#[case::authority_at_two_thirds(1580, stored(&[0], Some(serving(1500, 0))), renewal(true, false, &[0]))]
#[case::authority_and_serving_due(1580, stored(&[0], Some(serving(1200, 0))), renewal(true, false, &[0]))]
#[case::authority_due_and_serving_ended(1580, stored(&[0], Some(serving(900, 0))), renewal(true, true, &[0]))]
#[case::authority_ended(2401, stored(&[0], Some(serving(2300, 0))), renewal(true, true, &[]))]
#[case::authority_from_the_future(0, stored(&[1000], Some(serving(0, 0))), renewal(true, true, &[0]))]
#[case::key_of_the_authority_lost(10, Stored { signs: false, ..stored(&[0], Some(serving(0, 0))) }, renewal(true, false, &[0]))]
#[case::successor_not_settled(1600, stored(&[1580, 0], Some(serving(1500, 1))), Plan::Keep { until: at(1640) })]
#[case::due_but_successor_not_settled(1600, stored(&[1580, 0], Some(serving(1200, 1))), Plan::Keep { until: at(1640) })]
#[case::successor_settled(1640, stored(&[1580, 0], Some(serving(1500, 1))), renewal(false, true, &[0, 1]))]
#[case::ended_before_successor_settled(1600, stored(&[1580, 0], Some(serving(900, 1))), renewal(false, true, &[0, 1]))]
#[case::both_trusted(1700, stored(&[1580, 0], Some(serving(1640, 0))), Plan::Keep { until: at(1880) })]
#[case::overlap_over(1880, stored(&[1580, 0], Some(serving(1640, 0))), renewal(false, false, &[0]))]
#[case::old_one_ended(2400, stored(&[2390, 0], Some(serving(2395, 0))), renewal(false, false, &[0]))]
#[case::too_many_after_jumps(
    10,
    Stored { signs: false, ..stored(&[4, 3, 2, 1], Some(serving(0, 3))) },
    renewal(true, false, &[0, 1, 3])
)]
fn a_plan_follows_from_the_times(#[case] now: i64, #[case] stored: Stored, #[case] expected: Plan) {
    assert_eq!(plan(at(now), &stored, lifetimes()), expected, "at {now}: {stored:?}");
}

/// What carrying out a renewal leads to.
fn carry_out(now: Timestamp, stored: &Stored, renewal: &Renewal, lifetimes: Lifetimes) -> Stored {
    // As certificates have it: whole seconds.
    let second = now.as_second();
    let made = |lifetime: Duration| {
        let skew = i64::try_from(lifetimes.skew().as_secs()).unwrap();
        let to = after(now, lifetime).as_second();
        from_to(second - skew, to)
    };
    let mut authorities: Vec<_> = renewal.keep.iter().map(|index| stored.authorities[*index]).collect();
    let shift = usize::from(renewal.authority);
    let mut serving = stored.serving.and_then(|serving| {
        let place = renewal.keep.iter().position(|index| *index == serving.issuer)?;
        Some(Serving { issuer: place + shift, ..serving })
    });
    if renewal.authority {
        authorities.insert(0, made(lifetimes.authority()));
    }
    if renewal.serving {
        let validity = made(lifetimes.serving());
        let not_after = validity.not_after.min(authorities[0].not_after);
        serving = Some(Serving { validity: Validity { not_after, ..validity }, issuer: 0, named: true });
    }
    Stored { authorities, signs: stored.signs || renewal.authority, serving }
}

/// Carries out whatever is planned at that time; it is done after one step.
fn settle(now: Timestamp, stored: &Stored, lifetimes: Lifetimes) -> Result<(Stored, Timestamp), TestCaseError> {
    let after = match plan(now, stored, lifetimes) {
        Plan::Keep { until } => return Ok((stored.clone(), until)),
        Plan::Renew(renewal) => carry_out(now, stored, &renewal, lifetimes),
    };
    match plan(now, &after, lifetimes) {
        Plan::Keep { until } => Ok((after, until)),
        again @ Plan::Renew(_) => {
            Err(TestCaseError::fail(format!("{stored:?}\nbecame {after:?}\nand is to become {again:?} at {now}")))
        }
    }
}

fn any_validity() -> impl Strategy<Value = Validity> {
    (-20_000_i64..20_000, 1_i64..20_000).prop_map(|(from, lifetime)| from_to(from, from + lifetime))
}

fn any_stored() -> impl Strategy<Value = Stored> {
    let serving = (any_validity(), 0_usize..6, any::<bool>());
    (prop::collection::vec(any_validity(), 0..6), any::<bool>(), prop::option::of(serving)).prop_map(
        |(authorities, signs, serving)| {
            let serving = serving
                .filter(|(_, issuer, _)| *issuer < authorities.len())
                .map(|(validity, issuer, named)| Serving { validity, issuer, named });
            Stored { signs: signs && !authorities.is_empty(), authorities, serving }
        },
    )
}

fn any_lifetimes() -> impl Strategy<Value = Lifetimes> {
    (10_u64..4000).prop_map(|seconds| Lifetimes::new(Duration::from_secs(seconds)))
}

proptest! {
    #[test]
    fn whatever_is_stored_and_whenever_one_step_leads_to_a_trusted_certificate(
        stored in any_stored(), lifetimes in any_lifetimes(), millis in -20_000_000_i64..20_000_000,
    ) {
        let now = Timestamp::from_millisecond(millis).unwrap();
        let (after, until) = settle(now, &stored, lifetimes)?;
        let serving = after.serving.unwrap();
        prop_assert!(serving.named && serving.validity.holds(now), "{:?} at {}", after, now);
        prop_assert!(after.authorities[serving.issuer].holds(now), "{:?} at {}", after, now);
        prop_assert!(after.signs && after.authorities.len() <= MAX_AUTHORITIES, "{:?}", after);
        prop_assert!(until > now, "{until} {now}");
    }

    #[test]
    fn a_clock_that_jumps_is_followed(
        lifetimes in any_lifetimes(), jumps in prop::collection::vec(-50_000_i64..50_000, 1..30),
    ) {
        let mut stored = Stored::default();
        let mut second = 0;
        for jump in jumps {
            second += jump;
            stored = settle(at(second), &stored, lifetimes)?.0;
            let serving = stored.serving.unwrap();
            let trusted = stored.authorities[serving.issuer].holds(at(second));
            prop_assert!(serving.validity.holds(at(second)) && trusted, "{:?} at {}", stored, second);
        }
    }

    /// Replicas and API servers hear of a change late, each by less than the time to settle.
    #[test]
    fn what_is_served_late_is_trusted_late_and_what_is_trusted_early_is_served_late(
        lifetimes in any_lifetimes(), delays in prop::collection::vec(0_u64..100, 40),
    ) {
        let settle_ms = u64::try_from(lifetimes.settle().as_millis()).unwrap();
        let mut history: Vec<(Timestamp, Stored)> = Vec::new();
        let mut now = Timestamp::UNIX_EPOCH;
        let mut stored = Stored::default();
        for delay in delays {
            let (next, until) = settle(now, &stored, lifetimes)?;
            history.push((now, next.clone()));
            stored = next;
            now = after(until, Duration::from_millis(delay * settle_ms / 2000));
        }
        for (later, (_, served)) in history.iter().enumerate() {
            let certificate = authority_of(served);
            prop_assert!(served.authorities.len() <= 2, "{:?}", served);
            let (begin, end) = (history[later].0, history.get(later + 1).map_or(now, |next| next.0));
            // The state that somebody else believes in at any time between half a settling time before and after.
            for (from, to, believed) in spans(&history, now) {
                let half = Duration::from_millis(settle_ms / 2);
                if later > 0 && from < after(end, half) && begin < after(to, half) {
                    prop_assert!(
                        believed.authorities.contains(&certificate),
                        "served {:?} from {} to {}, believed {:?} from {} to {}", served, begin, end, believed, from, to
                    );
                }
            }
        }
    }
}

fn authority_of(stored: &Stored) -> Validity {
    stored.authorities[stored.serving.unwrap().issuer]
}

fn spans(history: &[(Timestamp, Stored)], end: Timestamp) -> Vec<(Timestamp, Timestamp, &Stored)> {
    let ends = history.iter().skip(1).map(|(time, _)| *time).chain([end]);
    history.iter().zip(ends).map(|((from, stored), to)| (*from, to, stored)).collect()
}
