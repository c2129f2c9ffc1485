//! Who is worked on next: at most so many at once, edits by people before everything else.
//!
//! Without it an edit made while a thousand engines converge would wait for all of them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::key::Key;

/// Bounds how many resources are worked on at once, over all kinds.
#[derive(Clone)]
pub struct Gate {
    state: Arc<Mutex<State>>,
}

/// A resource of one kind.
pub type Ticket = (&'static str, Key);

struct State {
    free: usize,
    urgent: VecDeque<Ticket>,
    others: VecDeque<Ticket>,
    waiting: HashMap<Ticket, oneshot::Sender<Permit>>,
    edited: HashSet<Ticket>,
}

/// The right to work on one resource; given back when dropped.
pub struct Permit {
    state: Option<Arc<Mutex<State>>>,
}

impl Gate {
    /// A gate that lets `concurrency` through.
    pub fn new(concurrency: usize) -> Self {
        let state = State {
            free: concurrency.max(1),
            urgent: VecDeque::new(),
            others: VecDeque::new(),
            waiting: HashMap::new(),
            edited: HashSet::new(),
        };
        Gate { state: Arc::new(Mutex::new(state)) }
    }

    /// Says that a person changed this resource: it goes first, now if it is waiting, or the next time it comes.
    pub fn promote(&self, ticket: &Ticket) {
        let mut state = lock(&self.state);
        if state.waiting.contains_key(ticket) {
            state.urgent.push_back(ticket.clone());
        } else {
            state.edited.insert(ticket.clone());
        }
    }

    /// Forgets a resource that is gone.
    pub fn forget(&self, ticket: &Ticket) {
        lock(&self.state).edited.remove(ticket);
    }

    /// How many are waiting.
    pub fn waiting(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// Waits for a turn. The controller never works on one resource twice at a time, so a ticket waits once.
    pub async fn enter(&self, ticket: Ticket) -> Permit {
        let receiver = {
            let mut state = lock(&self.state);
            let urgent = state.edited.remove(&ticket);
            if state.free > 0 {
                state.free -= 1;
                return Permit { state: Some(self.state.clone()) };
            }
            let (sender, receiver) = oneshot::channel();
            if urgent {
                state.urgent.push_back(ticket.clone());
            } else {
                state.others.push_back(ticket.clone());
            }
            state.waiting.insert(ticket, sender);
            receiver
        };
        receiver.await.unwrap_or(Permit { state: None })
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// The next that still waits; a promoted ticket stands in both queues, so its second place is passed over.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        while let Some(ticket) = self.urgent.pop_front().or_else(|| self.others.pop_front()) {
            if let Some(sender) = self.waiting.remove(&ticket) {
                return Some(sender);
            }
        }
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(shared) = self.state.take() else { return };
        let next = {
            let mut state = lock(&shared);
            let next = state.next();
            if next.is_none() {
                state.free += 1;
            }
            next
        };
        if let Some(sender) = next {
            // If the one that waited has given up, the permit comes back and is dropped in its turn.
            let _ = sender.send(Permit { state: Some(shared) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn ticket(name: &str) -> Ticket {
        ("LMCacheEngine", Key::new("ns", name))
    }

    #[tokio::test]
    async fn lets_no_more_through_than_it_should() {
        let gate = Gate::new(3);
        let inside = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let work = (0..50).map(|i| {
            let (gate, inside, most) = (gate.clone(), inside.clone(), most.clone());
            tokio::spawn(async move {
                let _permit = gate.enter(ticket(&i.to_string())).await;
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
            })
        });
        futures::future::join_all(work).await;
        assert_eq!(most.load(Ordering::SeqCst), 3);
        assert_eq!(lock(&gate.state).free, 3, "every permit came back");
    }

    async fn order_of(gate: &Gate, names: &[&str], promote: &[&str]) -> Vec<String> {
        let first = gate.enter(ticket("busy")).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut work = Vec::new();
        for name in names {
            let (gate, order, name) = (gate.clone(), order.clone(), (*name).to_owned());
            work.push(tokio::spawn(async move {
                let _permit = gate.enter(ticket(&name)).await;
                order.lock().expect("order").push(name);
            }));
            tokio::task::yield_now().await;
        }
        promote.iter().for_each(|name| gate.promote(&ticket(name)));
        drop(first);
        futures::future::join_all(work).await;
        order.lock().expect("order").clone()
    }

    #[tokio::test]
    async fn an_edit_overtakes_those_that_wait() {
        assert_eq!(order_of(&Gate::new(1), &["a", "b", "c"], &["c"]).await, ["c", "a", "b"]);
    }

    #[tokio::test]
    async fn an_edit_before_its_turn_comes_is_remembered() {
        let gate = Gate::new(1);
        gate.promote(&ticket("b"));
        assert_eq!(order_of(&gate, &["a", "b"], &[]).await, ["b", "a"]);
    }

    #[tokio::test]
    async fn one_that_gives_up_does_not_keep_its_permit() {
        let gate = Gate::new(1);
        let first = gate.enter(ticket("busy")).await;
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.enter(ticket("a")).await }
        });
        tokio::task::yield_now().await;
        waiting.abort();
        let _ = waiting.await;
        drop(first);
        drop(gate.enter(ticket("b")).await);
        assert_eq!(lock(&gate.state).free, 1);
    }
}
