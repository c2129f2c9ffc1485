//! Who is worked on next: edits by people first, everybody once at a time, touches gathered, retries when they are due.
//!
//! Without the two priorities an edit made while a thousand engines converge would wait for all of them.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::reconcile::RESYNC;
pub use super::trigger::Trigger;
use crate::key::Key;

/// A resource of one kind.
pub type Ticket = (&'static str, Key);

/// How soon a resource is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// In its turn.
    Ordinary,
    /// Before all that are not urgent: a person waits for it.
    Urgent,
}

/// The queue of all kinds.
#[derive(Clone, Default)]
pub struct Queue {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    urgent: VecDeque<Ticket>,
    ordinary: VecDeque<Ticket>,
    queued: HashMap<Ticket, Priority>,
    running: HashSet<Ticket>,
    /// Asked for while they were being worked on.
    again: HashMap<Ticket, Priority>,
    later: BTreeMap<(Instant, u64), Ticket>,
    due: HashMap<Ticket, (Instant, u64)>,
    sequence: u64,
    /// Why each is asked for.
    triggers: HashMap<Ticket, Trigger>,
}

impl Queue {
    /// Asks for a resource now.
    pub fn add(&self, ticket: Ticket, priority: Priority) {
        self.lock().add(ticket, priority);
        self.changed.notify_one();
    }

    /// Asks for a resource in a while. An earlier date that it has stands: the first touch opens a window and later ones
    /// fall into it, so that a stream of touches starves nobody.
    pub fn add_after(&self, ticket: Ticket, delay: Duration) {
        self.lock().add_after(ticket, delay);
        self.changed.notify_one();
    }

    /// Says why a resource is about to be asked for.
    pub fn note(&self, ticket: &Ticket, trigger: Trigger) {
        self.lock().note(ticket, trigger);
    }

    /// Takes out why a resource was asked for.
    pub fn trigger(&self, ticket: &Ticket) -> Trigger {
        self.lock().triggers.remove(ticket).unwrap_or(Trigger::Resync)
    }

    /// Forgets the dates of a resource that is gone.
    pub fn forget(&self, ticket: &Ticket) {
        let mut state = self.lock();
        state.unschedule(ticket);
        state.triggers.remove(ticket);
    }

    /// How many of a kind wait for their turn.
    pub fn depth(&self, kind: &str) -> usize {
        self.lock().queued.keys().filter(|ticket| ticket.0 == kind).count()
    }

    /// Waits for the next resource. Nobody else gets it until [`done`](Self::done).
    pub async fn next(&self) -> Ticket {
        loop {
            let next_due = {
                let mut state = self.lock();
                state.collect_due(Instant::now());
                if let Some(ticket) = state.pop() {
                    if !state.queued.is_empty() {
                        self.changed.notify_one();
                    }
                    return ticket;
                }
                state.later.first_key_value().map(|((at, _), _)| *at)
            };
            let timer = async {
                match next_due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = timer => {}
            }
        }
    }

    /// Says that a resource has been worked on, and when it should be looked at again if nothing happens before.
    pub fn done(&self, ticket: &Ticket, again: Option<Duration>) {
        {
            let mut state = self.lock();
            state.running.remove(ticket);
            if let Some(priority) = state.again.remove(ticket) {
                state.add(ticket.clone(), priority);
            } else if let Some(delay) = again {
                state.note(ticket, if delay >= RESYNC { Trigger::Resync } else { Trigger::Retry });
                state.add_after(ticket.clone(), delay);
            }
        }
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn note(&mut self, ticket: &Ticket, trigger: Trigger) {
        let noted = self.triggers.entry(ticket.clone()).or_insert(trigger);
        *noted = trigger.max(*noted);
    }

    fn add(&mut self, ticket: Ticket, priority: Priority) {
        self.unschedule(&ticket);
        if self.running.contains(&ticket) {
            let asked = self.again.entry(ticket).or_insert(priority);
            *asked = priority.max(*asked);
            return;
        }
        if self.queued.get(&ticket).is_some_and(|queued| *queued >= priority) {
            return;
        }
        // One that becomes urgent keeps its old place too; there it is passed over.
        match priority {
            Priority::Urgent => self.urgent.push_back(ticket.clone()),
            Priority::Ordinary => self.ordinary.push_back(ticket.clone()),
        }
        self.queued.insert(ticket, priority);
    }

    fn add_after(&mut self, ticket: Ticket, delay: Duration) {
        let at = Instant::now() + delay;
        let soon_enough = self.queued.contains_key(&ticket)
            || self.again.contains_key(&ticket)
            || self.due.get(&ticket).is_some_and(|(due, _)| *due <= at);
        if soon_enough {
            return;
        }
        self.unschedule(&ticket);
        self.sequence += 1;
        self.due.insert(ticket.clone(), (at, self.sequence));
        self.later.insert((at, self.sequence), ticket);
    }

    fn unschedule(&mut self, ticket: &Ticket) {
        if let Some(date) = self.due.remove(ticket) {
            self.later.remove(&date);
        }
    }

    fn collect_due(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let ticket = entry.remove();
            self.due.remove(&ticket);
            self.add(ticket, Priority::Ordinary);
        }
    }

    fn pop(&mut self) -> Option<Ticket> {
        let ticket = next_of(&mut self.urgent, Priority::Urgent, &self.queued)
            .or_else(|| next_of(&mut self.ordinary, Priority::Ordinary, &self.queued))?;
        self.queued.remove(&ticket);
        self.running.insert(ticket.clone());
        Some(ticket)
    }
}

fn next_of(line: &mut VecDeque<Ticket>, priority: Priority, queued: &HashMap<Ticket, Priority>) -> Option<Ticket> {
    while let Some(ticket) = line.pop_front() {
        if queued.get(&ticket) == Some(&priority) {
            return Some(ticket);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ticket(name: &str) -> Ticket {
        ("LMCacheEngine", Key::new("ns", name))
    }

    async fn taken(queue: &Queue) -> String {
        queue.next().await.1.name.to_string()
    }

    async fn is_empty(queue: &Queue) -> bool {
        tokio::time::timeout(SECOND / 1000, queue.next()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_overtakes_those_that_wait() {
        let queue = Queue::default();
        for name in ["a", "b", "c"] {
            queue.add(ticket(name), Priority::Ordinary);
        }
        queue.add(ticket("c"), Priority::Urgent);
        let order = [taken(&queue).await, taken(&queue).await, taken(&queue).await];
        assert_eq!(order, ["c", "a", "b"]);
        assert!(is_empty(&queue).await, "c does not come twice");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_worked_on_comes_again_when_it_is_done_and_not_before() {
        let queue = Queue::default();
        queue.add(ticket("a"), Priority::Ordinary);
        assert_eq!(taken(&queue).await, "a");
        queue.add(ticket("a"), Priority::Ordinary);
        queue.add(ticket("a"), Priority::Urgent);
        assert!(is_empty(&queue).await);
        queue.add(ticket("b"), Priority::Ordinary);
        queue.done(&ticket("a"), None);
        assert_eq!([taken(&queue).await, taken(&queue).await], ["a", "b"], "a is urgent by now");
        queue.done(&ticket("a"), None);
        assert!(is_empty(&queue).await);
    }

    #[tokio::test(start_paused = true)]
    async fn touches_are_gathered_and_do_not_push_each_other_back() {
        let queue = Queue::default();
        let started = Instant::now();
        for _ in 0..5 {
            queue.add_after(ticket("a"), SECOND);
            tokio::time::advance(SECOND / 10).await;
        }
        assert_eq!(taken(&queue).await, "a");
        assert_eq!(started.elapsed(), SECOND);
        queue.done(&ticket("a"), None);
        assert!(is_empty(&queue).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_now_takes_a_later_one_along() {
        let queue = Queue::default();
        queue.add_after(ticket("a"), SECOND);
        queue.add(ticket("a"), Priority::Ordinary);
        assert_eq!(taken(&queue).await, "a");
        queue.done(&ticket("a"), None);
        tokio::time::advance(SECOND * 2).await;
        assert!(is_empty(&queue).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_retry_comes_when_it_is_due_unless_something_happens_before() {
        let queue = Queue::default();
        queue.add(ticket("a"), Priority::Ordinary);
        let taken_ticket = queue.next().await;
        let started = Instant::now();
        queue.done(&taken_ticket, Some(SECOND * 600));
        queue.add_after(ticket("a"), SECOND);
        assert_eq!(taken(&queue).await, "a");
        assert_eq!(started.elapsed(), SECOND, "the touch came first");
        queue.done(&ticket("a"), Some(SECOND * 5));
        assert_eq!(taken(&queue).await, "a");
        assert_eq!(started.elapsed(), SECOND * 6);
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_triggers_the_strongest_is_told_once() {
        let queue = Queue::default();
        let a = ticket("a");
        for trigger in [Trigger::Child, Trigger::Edit, Trigger::Start] {
            queue.note(&a, trigger);
        }
        queue.add(a.clone(), Priority::Ordinary);
        queue.next().await;
        assert_eq!(queue.trigger(&a), Trigger::Edit);
        for (pause, expected) in [(RESYNC, Trigger::Resync), (SECOND, Trigger::Retry)] {
            queue.done(&a, Some(pause));
            queue.next().await;
            assert_eq!(queue.trigger(&a), expected, "{pause:?}");
        }
        queue.note(&a, Trigger::Child);
        queue.forget(&a);
        assert_eq!(queue.trigger(&a), Trigger::Resync);
    }

    #[tokio::test(start_paused = true)]
    async fn every_waiting_worker_gets_something() {
        let queue = Queue::default();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        for name in ["a", "b", "c"] {
            queue.add(ticket(name), Priority::Ordinary);
        }
        for worker in workers {
            let got = tokio::time::timeout(SECOND, worker).await;
            assert!(matches!(got, Ok(Ok(_))), "{got:?}");
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Add(u8, bool),
        Later(u8, u8),
        Take,
        Done(u8),
        Wait(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..5_u8, any::<bool>()).prop_map(|(n, urgent)| Step::Add(n, urgent)),
            (0..5_u8, 0..5_u8).prop_map(|(n, delay)| Step::Later(n, delay)),
            Just(Step::Take),
            (0..5_u8).prop_map(Step::Done),
            (0..5_u8).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #[test]
        fn nothing_asked_for_is_lost_and_nothing_runs_twice_at_a_time(steps in prop::collection::vec(step(), 0..60)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("runtime");
            runtime.block_on(async {
                let queue = Queue::default();
                let (mut asked, mut running) = (HashSet::new(), HashSet::new());
                for step in steps {
                    match step {
                        Step::Add(n, urgent) => {
                            let priority = if urgent { Priority::Urgent } else { Priority::Ordinary };
                            queue.add(ticket(&n.to_string()), priority);
                            asked.insert(n.to_string());
                        }
                        Step::Later(n, delay) => {
                            queue.add_after(ticket(&n.to_string()), SECOND * delay.into());
                            asked.insert(n.to_string());
                        }
                        Step::Take => {
                            if let Ok(got) = tokio::time::timeout(SECOND / 1000, queue.next()).await {
                                let name = got.1.name.to_string();
                                assert!(running.insert(name.clone()), "{name} runs twice");
                                asked.remove(&name);
                            }
                        }
                        Step::Done(n) => {
                            if running.remove(&n.to_string()) {
                                queue.done(&ticket(&n.to_string()), None);
                            }
                        }
                        Step::Wait(n) => tokio::time::advance(SECOND * n.into()).await,
                    }
                }
                for name in running.drain() {
                    queue.done(&ticket(&name), None);
                }
                tokio::time::advance(SECOND * 10).await;
                while let Ok(got) = tokio::time::timeout(SECOND / 1000, queue.next()).await {
                    asked.remove(&*got.1.name);
                    queue.done(&got, None);
                }
                assert!(asked.is_empty(), "lost: {asked:?}");
            });
        }
    }
}
