//! A line now and then for the person who waits, on stderr.

use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(5);

/// Says what is being done.
pub fn say(text: &str) {
    eprintln!("bench: {text}");
}

/// How many of all are done.
pub struct Progress {
    what: &'static str,
    count: usize,
    said: Instant,
}

impl Progress {
    /// Nothing is done yet.
    pub fn new(what: &'static str, count: usize) -> Self {
        Self { what, count, said: Instant::now() }
    }

    /// So many are done; says it every few seconds.
    pub fn at(&mut self, done: usize) {
        if self.said.elapsed() >= INTERVAL {
            self.said = Instant::now();
            say(&format!("{done} of {} {}", self.count, self.what));
        }
    }
}
