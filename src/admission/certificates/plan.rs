//! When a certificate is made anew: a pure decision about times.
//!
//! A new authority is trusted for a while before anything is signed by it, so that every API server knows it by then;
//! the old one stays trusted for a while after, so that a replica that hears of the change late is still believed.

use std::time::Duration;

use jiff::Timestamp;

/// Most authorities that are trusted at a time. More than two are there only after clocks have jumped.
pub const MAX_AUTHORITIES: usize = 4;

/// How long certificates live, and how long a change of authority takes. All follow from one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    serving: Duration,
}

impl Lifetimes {
    /// From the lifetime of a serving certificate, at least ten seconds.
    pub fn new(serving: Duration) -> Self {
        Lifetimes { serving: serving.max(Duration::from_secs(10)) }
    }

    /// Of a serving certificate.
    pub fn serving(self) -> Duration {
        self.serving
    }

    /// Of an authority: four serving certificates long.
    pub fn authority(self) -> Duration {
        self.serving * 4
    }

    /// How far a certificate's beginning is set back, for clocks that are behind. Whole seconds, as certificates have.
    pub fn skew(self) -> Duration {
        Duration::from_secs((self.serving.as_secs() / 10).clamp(1, 300))
    }

    /// How long a new authority is trusted before it signs what is served.
    pub fn settle(self) -> Duration {
        (self.serving / 6).min(Duration::from_mins(1))
    }

    /// How long an old authority is still trusted after its successor was made.
    pub fn overlap(self) -> Duration {
        (self.serving / 2).min(Duration::from_hours(1))
    }
}

/// From when to when a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First moment.
    pub not_before: Timestamp,
    /// First moment after the last.
    pub not_after: Timestamp,
}

impl Validity {
    /// Whether a certificate counts at that time.
    pub fn holds(self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// Two thirds of its lifetime have passed then.
    pub fn renewal(self) -> Timestamp {
        let lifetime = self.not_after.duration_since(self.not_before).unsigned_abs();
        after(self.not_before, lifetime * 2 / 3)
    }
}

/// What is stored, as far as it can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Trusted authorities, the newest first.
    pub authorities: Vec<Validity>,
    /// Whether the key of the newest is there.
    pub signs: bool,
    /// What is served.
    pub serving: Option<Serving>,
}

/// A serving certificate whose key is there and that one of the authorities signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Its times.
    pub validity: Validity,
    /// Which of the authorities signed it.
    pub issuer: usize,
    /// Whether it has every name that the server is called by.
    pub named: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing, before that time.
    Keep {
        /// When to look again.
        until: Timestamp,
    },
    /// The stored content is to be changed.
    Renew(Renewal),
}

/// How the stored content is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Whether a new authority is made, in front of the others.
    pub authority: bool,
    /// Whether a new serving certificate is made, signed by the newest authority.
    pub serving: bool,
    /// Which of the stored authorities stay trusted, in their order.
    pub keep: Vec<usize>,
}

/// Decides what is to be done at that time. Carrying out the result leads to [`Plan::Keep`] at the same time.
pub fn plan(now: Timestamp, stored: &Stored, lifetimes: Lifetimes) -> Plan {
    let newest = stored.authorities.first().copied();
    let made = newest.map(|newest| after(newest.not_before, lifetimes.skew()));
    let authority = !(stored.signs && newest.is_some_and(|newest| newest.holds(now) && now < newest.renewal()));
    let usable = stored.serving.filter(|serving| usable(now, stored, serving));
    let serving = match (usable, made) {
        (Some(_), _) if authority => false,
        (Some(serving), Some(made)) if serving.issuer > 0 => now >= after(made, lifetimes.settle()),
        (Some(serving), _) => now >= serving.validity.renewal(),
        (None, _) => true,
    };
    let issuer = usable.filter(|_| !serving).map(|serving| serving.issuer);
    let superseded = |made: Timestamp| now >= after(made, lifetimes.overlap());
    let stays = |index: usize, validity: &Validity| {
        let recent = index == 0 || authority || made.is_none_or(|made| !superseded(made));
        now < validity.not_after && (recent || issuer == Some(index))
    };
    let mut keep: Vec<usize> =
        stored.authorities.iter().enumerate().filter(|(index, it)| stays(*index, it)).map(|(index, _)| index).collect();
    while keep.len() + usize::from(authority) > MAX_AUTHORITIES {
        let oldest = keep.iter().rposition(|index| issuer != Some(*index));
        keep.remove(oldest.unwrap_or_default());
    }
    if authority || serving || keep.len() < stored.authorities.len() {
        return Plan::Renew(Renewal { authority, serving, keep });
    }
    Plan::Keep { until: next_change(now, stored, lifetimes) }
}

fn usable(now: Timestamp, stored: &Stored, serving: &Serving) -> bool {
    let trusted = stored.authorities.get(serving.issuer).is_some_and(|issuer| issuer.holds(now));
    serving.named && serving.validity.holds(now) && trusted
}

/// The first time at which something that was decided turns out otherwise.
fn next_change(now: Timestamp, stored: &Stored, lifetimes: Lifetimes) -> Timestamp {
    let mut times = Vec::new();
    if let Some(newest) = stored.authorities.first() {
        let made = after(newest.not_before, lifetimes.skew());
        times.extend([newest.renewal(), after(made, lifetimes.settle()), after(made, lifetimes.overlap())]);
    }
    times.extend(stored.authorities.iter().map(|it| it.not_after));
    if let Some(serving) = &stored.serving {
        times.extend([serving.validity.renewal(), serving.validity.not_after]);
    }
    times.into_iter().filter(|time| *time > now).min().unwrap_or_else(|| after(now, lifetimes.settle()))
}

/// A later time; the end of all times when there is none so late.
pub(super) fn after(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
