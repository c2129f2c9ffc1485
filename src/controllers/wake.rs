//! Wake-ups: which resource must look again because something around it changed.
//!
//! A rollout touches a workload and its pods many times within moments. The first touch starts a fixed
//! window, the others within it are merged; a window that every touch prolonged could starve a busy fleet.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::Stream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::Instant;

use super::gate::Ticket;
use crate::key::Key;

/// How long touches of one resource are gathered.
pub const WINDOW: Duration = Duration::from_millis(400);

/// Whom a wake-up is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wake {
    /// Kind of the resource; `None` wakes every kind that has one of this name.
    pub kind: Option<&'static str>,
    /// The resource.
    pub key: Key,
    /// Whether to go without the window: somebody waits for what changed.
    pub at_once: bool,
}

/// Hands wake-ups from the watches to the controllers.
#[derive(Clone)]
pub struct Wakeups {
    listeners: Arc<RwLock<Vec<Listener>>>,
    references: Arc<RwLock<HashMap<Key, HashSet<Ticket>>>>,
    everyone: watch::Sender<u64>,
}

impl Default for Wakeups {
    fn default() -> Self {
        Wakeups { listeners: Arc::default(), references: Arc::default(), everyone: watch::Sender::new(0) }
    }
}

struct Listener {
    kind: &'static str,
    namespace: Option<String>,
    sender: UnboundedSender<(Key, bool)>,
}

impl Wakeups {
    /// The wake-ups of one kind, in one namespace or in all.
    pub fn listen(&self, kind: &'static str, namespace: Option<String>) -> impl Stream<Item = Key> + Send + 'static {
        let (sender, receiver) = unbounded_channel();
        let listener = Listener { kind, namespace, sender };
        self.listeners.write().unwrap_or_else(PoisonError::into_inner).push(listener);
        futures::stream::unfold(Window::new(receiver), |mut window| async move { Some((window.next().await?, window)) })
    }

    /// Wakes whom it may concern.
    pub fn wake(&self, wake: &Wake) {
        let listeners = self.listeners.read().unwrap_or_else(PoisonError::into_inner);
        for listener in listeners.iter() {
            let kind = wake.kind.is_none_or(|kind| kind == listener.kind);
            let namespace = listener.namespace.as_deref().is_none_or(|ns| ns == &*wake.key.namespace);
            if kind && namespace {
                // A listener that is gone belongs to a controller that has stopped.
                let _ = listener.sender.send((wake.key.clone(), wake.at_once));
            }
        }
    }

    /// Remembers which foreign objects a resource refers to; what it referred to before is forgotten.
    pub fn refer(&self, ticket: &Ticket, targets: &[Key]) {
        let mut references = self.references.write().unwrap_or_else(PoisonError::into_inner);
        references.retain(|target, referrers| {
            if !targets.contains(target) {
                referrers.remove(ticket);
            }
            !referrers.is_empty()
        });
        for target in targets {
            references.entry(target.clone()).or_default().insert(ticket.clone());
        }
    }

    /// Wakes everybody who refers to this object, at once: they may be waiting for it.
    pub fn wake_referrers(&self, target: &Key) {
        let references = self.references.read().unwrap_or_else(PoisonError::into_inner);
        for (kind, key) in references.get(target).into_iter().flatten() {
            self.wake(&Wake { kind: Some(kind), key: key.clone(), at_once: true });
        }
    }

    /// Wakes every resource of every kind.
    pub fn wake_all(&self) {
        self.everyone.send_modify(|count| *count += 1);
    }

    /// Yields whenever everybody should look again.
    pub fn everyone(&self) -> impl Stream<Item = ()> + Send + 'static {
        // A call that comes while nobody polls is not lost: the channel remembers that it changed.
        futures::stream::unfold(self.everyone.subscribe(), |mut everyone| async move {
            everyone.changed().await.ok()?;
            Some(((), everyone))
        })
    }
}

struct Window {
    incoming: UnboundedReceiver<(Key, bool)>,
    due: VecDeque<(Instant, Key)>,
    waiting: HashSet<Key>,
}

impl Window {
    fn new(incoming: UnboundedReceiver<(Key, bool)>) -> Self {
        Window { incoming, due: VecDeque::new(), waiting: HashSet::new() }
    }

    async fn next(&mut self) -> Option<Key> {
        loop {
            let next_due = self.due.front().map(|(at, _)| *at);
            tokio::select! {
                () = tokio::time::sleep_until(next_due.unwrap_or_else(Instant::now)), if next_due.is_some() => {
                    if let Some((_, key)) = self.due.pop_front() {
                        // An urgent wake-up may have taken it along already.
                        if self.waiting.remove(&key) {
                            return Some(key);
                        }
                    }
                }
                arrived = self.incoming.recv() => {
                    let (key, at_once) = arrived?;
                    if at_once {
                        self.waiting.remove(&key);
                        return Some(key);
                    }
                    if self.waiting.insert(key.clone()) {
                        self.due.push_back((Instant::now() + WINDOW, key));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;

    fn wake(name: &str, at_once: bool) -> Wake {
        Wake { kind: Some("A"), key: Key::new("ns", name), at_once }
    }

    #[tokio::test(start_paused = true)]
    async fn merges_touches_within_the_window() {
        let wakeups = Wakeups::default();
        let mut stream = Box::pin(wakeups.listen("A", None));
        for _ in 0..5 {
            wakeups.wake(&wake("x", false));
            wakeups.wake(&wake("y", false));
        }
        assert_eq!(stream.next().await, Some(Key::new("ns", "x")));
        assert_eq!(stream.next().await, Some(Key::new("ns", "y")));
        assert!(futures::poll!(stream.next()).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_touches_does_not_starve_anyone() {
        let wakeups = Wakeups::default();
        let mut stream = Box::pin(wakeups.listen("A", None));
        let started = Instant::now();
        let touching = wakeups.clone();
        tokio::spawn(async move {
            loop {
                touching.wake(&wake("x", false));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        assert_eq!(stream.next().await, Some(Key::new("ns", "x")));
        assert!(started.elapsed() <= WINDOW * 2, "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_urgent_wake_up_goes_first_and_takes_the_waiting_one_along() {
        let wakeups = Wakeups::default();
        let mut stream = Box::pin(wakeups.listen("A", None));
        wakeups.wake(&wake("x", false));
        wakeups.wake(&wake("x", true));
        let started = Instant::now();
        assert_eq!(stream.next().await, Some(Key::new("ns", "x")));
        assert_eq!(started.elapsed(), Duration::ZERO);
        wakeups.wake(&wake("z", false));
        assert_eq!(stream.next().await, Some(Key::new("ns", "z")), "x does not come twice");
    }

    #[tokio::test(start_paused = true)]
    async fn wakes_those_who_refer_to_an_object_until_they_no_longer_do() {
        let wakeups = Wakeups::default();
        let mut stream = Box::pin(wakeups.listen("A", None));
        let (ticket, secret) = (("A", Key::new("ns", "x")), Key::new("ns", "secret"));
        wakeups.refer(&ticket, std::slice::from_ref(&secret));
        wakeups.wake_referrers(&secret);
        assert_eq!(stream.next().await, Some(Key::new("ns", "x")));
        wakeups.refer(&ticket, &[]);
        wakeups.wake_referrers(&secret);
        assert!(futures::poll!(stream.next()).is_pending());
    }

    #[tokio::test]
    async fn a_call_for_everyone_is_not_lost_on_a_listener_that_is_busy() {
        let wakeups = Wakeups::default();
        let mut everyone = Box::pin(wakeups.everyone());
        wakeups.wake_all();
        assert_eq!(everyone.next().await, Some(()));
        assert!(futures::poll!(everyone.next()).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn wakes_only_the_kind_and_namespace_that_are_meant() {
        let wakeups = Wakeups::default();
        let mut other_kind = Box::pin(wakeups.listen("B", None));
        let mut other_namespace = Box::pin(wakeups.listen("A", Some("elsewhere".into())));
        let mut meant = Box::pin(wakeups.listen("A", Some("ns".into())));
        wakeups.wake(&wake("x", true));
        assert_eq!(meant.next().await, Some(Key::new("ns", "x")));
        assert!(futures::poll!(other_kind.next()).is_pending());
        assert!(futures::poll!(other_namespace.next()).is_pending());
        wakeups.wake(&Wake { kind: None, ..wake("y", true) });
        assert_eq!(other_kind.next().await, Some(Key::new("ns", "y")));
    }
}
