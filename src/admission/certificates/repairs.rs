//! How often a renewal that nobody planned is carried out: two replicas whose clocks disagree must not wear out the API
//! server by undoing each other's work.

use std::time::Duration;

use tokio::time::Instant;

use crate::controllers::pause_after;

/// Repairs that are carried out at once; each further one waits longer, since somebody fights back.
const AT_ONCE: usize = 6;
/// After this time without a repair the next ones are carried out at once again.
const PEACE: Duration = Duration::from_mins(5);

/// The repairs of late.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    count: usize,
    last: Option<Instant>,
}

impl Repairs {
    /// How long the next repair has to wait; `None` when it may be carried out now, and then it counts.
    pub fn wait(&mut self) -> Option<Duration> {
        let since = self.last.map_or(PEACE, |last| last.elapsed());
        if since >= PEACE {
            self.count = 0;
        }
        let fights = u32::try_from(self.count.saturating_sub(AT_ONCE)).unwrap_or(u32::MAX);
        let pause = if self.count < AT_ONCE { Duration::ZERO } else { pause_after(fights + 1) };
        if since < pause {
            return Some(pause.saturating_sub(since));
        }
        self.count += 1;
        self.last = Some(Instant::now());
        None
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_repairs_are_immediate_and_a_fight_gets_slow() {
        let mut repairs = Repairs::default();
        for _ in 0..AT_ONCE {
            assert_eq!(repairs.wait(), None);
        }
        let mut carried_out = 0;
        for _ in 0..600 {
            carried_out += usize::from(repairs.wait().is_none());
            advance(Duration::from_secs(1)).await;
        }
        assert!((8..20).contains(&carried_out), "{carried_out} in ten minutes of fighting");
        let wait = repairs.wait().expect("it goes on");
        assert!(wait <= Duration::from_secs(72), "{wait:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn after_some_peace_repairs_are_immediate_again() {
        let mut repairs = Repairs::default();
        for _ in 0..AT_ONCE {
            repairs.wait();
        }
        assert!(repairs.wait().is_some());
        advance(PEACE).await;
        for _ in 0..AT_ONCE {
            assert_eq!(repairs.wait(), None);
        }
    }
}
