//! Workers: so many resources are worked on at once, over all kinds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tracing::error;

use super::SharedContext;
use super::queue::Ticket;

/// Who reconciles one kind.
pub trait Reconcile: Send + Sync {
    /// Works on one resource, and says when it should be looked at again if nothing happens before.
    fn turn(self: Arc<Self>, ticket: Ticket) -> BoxFuture<'static, Option<Duration>>;
}

/// A reconcile that panicked is not tried again sooner than this.
const AFTER_PANIC: Duration = Duration::from_mins(1);

/// Starts `count` workers that reconcile until the shutdown; what a worker is at then is brought to its end.
pub fn work(
    context: &SharedContext,
    kinds: impl IntoIterator<Item = (&'static str, Arc<dyn Reconcile>)>,
    count: u16,
) -> JoinSet<()> {
    let kinds: Arc<HashMap<&'static str, Arc<dyn Reconcile>>> = Arc::new(kinds.into_iter().collect());
    (0..count.max(1)).map(|_| worker(context.clone(), kinds.clone())).collect()
}

async fn worker(context: SharedContext, kinds: Arc<HashMap<&'static str, Arc<dyn Reconcile>>>) {
    loop {
        let ticket = tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            ticket = context.queue.next() => ticket,
        };
        let kind = ticket.0;
        let Some(reconciler) = kinds.get(kind) else { continue };
        context.metrics.queue_depth(kind, context.queue.depth(kind));
        let in_flight = context.metrics.reconcile_started(kind);
        // A task of its own, so that a panic ends this reconcile and not the worker.
        let again = match tokio::spawn(reconciler.clone().turn(ticket.clone())).await {
            Ok(again) => again,
            Err(failure) => {
                context.metrics.reconcile_error(kind, "panic");
                error!(kind, name = %ticket.1, "Failed to reconcile: {failure}");
                Some(AFTER_PANIC)
            }
        };
        drop(in_flight);
        context.queue.done(&ticket, again);
    }
}
