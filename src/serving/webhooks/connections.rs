//! Which connections are open, and which one has to go when there are too many.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// A bounded number of connections. Those that never asked anything make place for new ones, the oldest first.
#[derive(Clone)]
pub(super) struct Connections(Arc<Shared>);

struct Shared {
    most: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    by_age: BTreeMap<u64, (CancellationToken, Arc<Activity>)>,
}

impl Connections {
    pub fn new(most: usize) -> Self {
        Connections(Arc::new(Shared { most, open: Mutex::default() }))
    }

    /// A place for a new connection; `None` when all places are taken by those that have asked something.
    pub fn admit(&self) -> Option<Connection> {
        let mut open = self.0.lock();
        if open.by_age.len() >= self.0.most {
            let idle = open.by_age.iter().find(|(_, (_, activity))| !activity.has_asked()).map(|(id, _)| *id);
            let (evicted, _) = open.by_age.remove(&idle?)?;
            evicted.cancel();
        }
        let (id, evicted, activity) = (open.next, CancellationToken::new(), Arc::new(Activity::new()));
        open.next += 1;
        open.by_age.insert(id, (evicted.clone(), activity.clone()));
        Some(Connection { id, evicted, activity, shared: self.0.clone() })
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().by_age.len()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection; its place is free when it is dropped.
pub(super) struct Connection {
    id: u64,
    evicted: CancellationToken,
    activity: Arc<Activity>,
    shared: Arc<Shared>,
}

impl Connection {
    /// Returns when the connection has to make place.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Returns when nothing has been asked for too long: `first` after the connection was opened, then `idle`.
    pub async fn rested(&self, first: Duration, idle: Duration) {
        self.activity.rested(first, idle).await;
    }

    /// Whether a request has come in.
    pub fn has_asked(&self) -> bool {
        self.activity.has_asked()
    }

    /// Where its requests are counted.
    pub fn activity(&self) -> Arc<Activity> {
        self.activity.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.lock().by_age.remove(&self.id);
    }
}

/// What happens on a connection.
pub(super) struct Activity {
    asked: AtomicBool,
    in_flight: AtomicUsize,
    since: Mutex<Instant>,
    changed: Notify,
}

impl Activity {
    fn new() -> Self {
        Activity {
            asked: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            since: Mutex::new(Instant::now()),
            changed: Notify::new(),
        }
    }

    fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Counts a request as under way for as long as the result lives.
    pub fn request(self: &Arc<Self>) -> RequestInFlight {
        self.asked.store(true, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        RequestInFlight(self.clone())
    }

    async fn rested(&self, first: Duration, idle: Duration) {
        loop {
            let changed = self.changed.notified();
            let limit = if self.has_asked() { idle } else { first };
            let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
            if self.in_flight.load(Ordering::Relaxed) > 0 {
                changed.await;
                continue;
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(since + limit) => {
                    let busy = self.in_flight.load(Ordering::Relaxed) > 0;
                    let later = *self.since.lock().unwrap_or_else(PoisonError::into_inner) > since;
                    if !busy && !later {
                        return;
                    }
                }
            }
        }
    }
}

pub(super) struct RequestInFlight(Arc<Activity>);

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        *self.0.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}
