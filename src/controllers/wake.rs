//! Wake-ups: which resource must look again because something around it changed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::queue::{Priority, Queue, Ticket, Trigger};
use crate::key::Key;
use crate::render::ChildKind;

/// How long touches of one resource are gathered: a rollout touches a workload and its pods many times within moments.
pub const WINDOW: Duration = Duration::from_millis(600);

/// A foreign object that resources refer to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A Secret with credentials.
    Secret(Key),
    /// A coordinator.
    Coordinator(Key),
    /// A child that somebody else has in the resource's place (D05).
    Child(ChildKind, Key),
}

/// Hands changes from the watches to the queue.
#[derive(Clone, Default)]
pub struct Wakeups {
    queue: Queue,
    book: Arc<RwLock<Book>>,
}

#[derive(Default)]
struct Book {
    /// Every resource that exists, by key: the kinds that have one of this name.
    known: HashMap<Key, HashSet<&'static str>>,
    /// Foreign objects and the resources that refer to them.
    references: HashMap<Target, HashSet<Ticket>>,
    /// The same the other way round.
    targets: HashMap<Ticket, Vec<Target>>,
}

impl Wakeups {
    /// Wake-ups into this queue.
    pub fn new(queue: Queue) -> Self {
        Wakeups { queue, book: Arc::default() }
    }

    /// A resource exists.
    pub fn known(&self, (kind, key): &Ticket) {
        self.write(|book| book.known.entry(key.clone()).or_default().insert(kind));
    }

    /// A resource is gone.
    pub fn forget(&self, ticket: &Ticket) {
        self.write(|book| {
            if let Some(kinds) = book.known.get_mut(&ticket.1) {
                kinds.remove(ticket.0);
                if kinds.is_empty() {
                    book.known.remove(&ticket.1);
                }
            }
        });
        self.refer(ticket, &[]);
        self.queue.forget(ticket);
    }

    /// Something that bears the name of a resource has changed: its child or its pod.
    pub fn touch(&self, key: &Key) {
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        for kind in book.known.get(key).into_iter().flatten() {
            let ticket = (*kind, key.clone());
            self.queue.note(&ticket, Trigger::Child);
            self.queue.add_after(ticket, WINDOW);
        }
    }

    /// Remembers which foreign objects a resource refers to; what it referred to before is forgotten.
    pub fn refer(&self, ticket: &Ticket, targets: &[Target]) {
        let same = |book: &Book| book.targets.get(ticket).map_or(&[][..], Vec::as_slice) == targets;
        if same(&self.book.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        self.write(|book| {
            for target in book.targets.remove(ticket).unwrap_or_default() {
                if let Some(referrers) = book.references.get_mut(&target) {
                    referrers.remove(ticket);
                    if referrers.is_empty() {
                        book.references.remove(&target);
                    }
                }
            }
            if targets.is_empty() {
                return;
            }
            for target in targets {
                book.references.entry(target.clone()).or_default().insert(ticket.clone());
            }
            book.targets.insert(ticket.clone(), targets.to_vec());
        });
    }

    /// A foreign object has changed: those who refer to it look at once, for they may be waiting for it.
    pub fn wake_referrers(&self, target: &Target) {
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        for ticket in book.references.get(target).into_iter().flatten() {
            self.queue.note(ticket, Trigger::Reference);
            self.queue.add(ticket.clone(), Priority::Ordinary);
        }
    }

    /// Something that concerns everybody has changed.
    pub fn wake_all(&self) {
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        for (key, kinds) in &book.known {
            for kind in kinds {
                let ticket = (*kind, key.clone());
                self.queue.note(&ticket, Trigger::Reference);
                self.queue.add(ticket, Priority::Ordinary);
            }
        }
    }

    fn write<R>(&self, change: impl FnOnce(&mut Book) -> R) -> R {
        change(&mut self.book.write().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(kind: &'static str, name: &str) -> Ticket {
        (kind, Key::new("ns", name))
    }

    async fn waiting(queue: &Queue) -> Vec<Ticket> {
        let mut all = Vec::new();
        while let Ok(ticket) = tokio::time::timeout(WINDOW * 2, queue.next()).await {
            all.push(ticket);
        }
        all.sort();
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_touch_wakes_every_kind_that_has_a_resource_of_the_name() {
        let queue = Queue::default();
        let wakeups = Wakeups::new(queue.clone());
        wakeups.known(&ticket("A", "x"));
        wakeups.known(&ticket("B", "x"));
        wakeups.known(&ticket("A", "y"));
        wakeups.touch(&Key::new("ns", "x"));
        wakeups.touch(&Key::new("elsewhere", "x"));
        assert_eq!(waiting(&queue).await, [ticket("A", "x"), ticket("B", "x")]);
    }

    #[tokio::test(start_paused = true)]
    async fn wakes_those_who_refer_to_an_object_until_they_no_longer_do() {
        let queue = Queue::default();
        let wakeups = Wakeups::new(queue.clone());
        let (engine, secret) = (ticket("A", "x"), Target::Secret(Key::new("ns", "shared")));
        wakeups.refer(&engine, std::slice::from_ref(&secret));
        wakeups.wake_referrers(&Target::Coordinator(Key::new("ns", "shared")));
        assert_eq!(waiting(&queue).await, []);
        wakeups.wake_referrers(&secret);
        assert_eq!(waiting(&queue).await, std::slice::from_ref(&engine));
        wakeups.refer(&engine, &[]);
        wakeups.wake_referrers(&secret);
        assert_eq!(waiting(&queue).await, []);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_wakes_a_resource_that_is_gone() {
        let queue = Queue::default();
        let wakeups = Wakeups::new(queue.clone());
        let engine = ticket("A", "x");
        wakeups.known(&engine);
        wakeups.touch(&engine.1);
        wakeups.forget(&engine);
        wakeups.touch(&engine.1);
        wakeups.wake_all();
        assert_eq!(waiting(&queue).await, []);
    }
}
