//! Finished spans on their way out: a bounded queue, and one thread of its own that sends them in batches.
//!
//! Whoever ends a span never waits: a full queue drops it and counts. The thread has its own runtime, so that a slow
//! collector takes nothing from reconciles, and so that what is queued can still be sent when they have ended. It sleeps
//! until something is to be sent: to be woken for every span would cost more than the span.

use std::sync::mpsc as done;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::connection::LastFailure;
use super::exporter::{ExporterError, exporter, shown};
use super::settings::TraceSettings;
use crate::metrics::Metrics;

/// A span of a rollout is told at once, for a process that is killed takes it along; those that end with it go together.
const URGENT: Duration = Duration::from_millis(5);
/// Urgent spans of a whole fleet are told together, this long after the last ones.
const BETWEEN_URGENT: Duration = Duration::from_millis(250);

/// What waits to be sent.
#[derive(Debug)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// Told when the time to send may have changed.
    changed: Notify,
    capacity: usize,
    batch: usize,
    delay: Duration,
}

#[derive(Debug, Default)]
struct Waiting {
    spans: Vec<SpanData>,
    /// When the oldest of them came.
    since: Option<Instant>,
    /// When the oldest urgent one came.
    urgent: Option<Instant>,
    closed: bool,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False when there is no room.
    fn push(&self, span: SpanData, urgent: bool) -> bool {
        let mut waiting = self.waiting();
        if waiting.closed || waiting.spans.len() >= self.capacity {
            return false;
        }
        waiting.spans.push(span);
        let first = waiting.since.is_none();
        let hurries = urgent && waiting.urgent.is_none();
        if first || hurries {
            let now = Instant::now();
            waiting.since.get_or_insert(now);
            if hurries {
                waiting.urgent = Some(now);
            }
        }
        let changed = first || hurries || waiting.spans.len() == self.batch;
        drop(waiting);
        if changed {
            self.changed.notify_one();
        }
        true
    }

    /// When the next batch is to be sent, if anything waits; `sent` is when the last one was.
    fn due(&self, sent: Option<Instant>) -> Option<Instant> {
        let waiting = self.waiting();
        let since = waiting.since?;
        if waiting.spans.len() >= self.batch {
            return Some(since);
        }
        let hurried = waiting.urgent.map(|at| (at + URGENT).max(sent.map_or(at, |sent| sent + BETWEEN_URGENT)));
        hurried.into_iter().chain([since + self.delay]).min()
    }

    /// Takes a batch out; what is left counts as having come now.
    fn take(&self) -> Vec<SpanData> {
        let mut waiting = self.waiting();
        let size = self.batch.min(waiting.spans.len());
        let rest = waiting.spans.split_off(size);
        let left = (!rest.is_empty()).then(Instant::now);
        waiting.since = left;
        waiting.urgent = waiting.urgent.and(left);
        std::mem::replace(&mut waiting.spans, rest)
    }

    fn close(&self) {
        self.waiting().closed = true;
    }
}

/// The way into the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Spans {
    queue: Arc<Queue>,
    metrics: Metrics,
}

impl Spans {
    /// Queues a span, or drops and counts it. `urgent` ones are sent at once.
    pub fn offer(&self, span: SpanData, urgent: bool) {
        if !self.queue.push(span, urgent) {
            self.metrics.trace_spans_dropped(DropReason::QueueFull, 1);
        }
    }
}

/// Why a span was dropped; label `reason` of `lmcache_operator_trace_spans_dropped_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Spans end faster than the collector takes them.
    QueueFull,
    /// The collector refused them or could not be reached.
    ExportFailed,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [DropReason; 2] = [DropReason::QueueFull, DropReason::ExportFailed];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue_full",
            DropReason::ExportFailed => "export_failed",
        }
    }
}

impl SpanProcessor for Spans {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.offer(span, false);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The thread that sends.
#[derive(Debug)]
pub(super) struct Sender {
    stop: Mutex<Option<oneshot::Sender<()>>>,
    done: Mutex<done::Receiver<()>>,
}

impl Sender {
    /// Starts the thread. Nothing is connected before the first span is sent.
    pub fn start(
        settings: &TraceSettings,
        resource: &Resource,
        metrics: &Metrics,
    ) -> Result<(Spans, Sender), StartError> {
        let queue = Arc::new(Queue {
            waiting: Mutex::default(),
            changed: Notify::new(),
            capacity: settings.queue,
            batch: settings.batch.min(settings.queue),
            delay: settings.delay,
        });
        let sender = Spans { queue: Arc::clone(&queue), metrics: metrics.clone() };
        let (stop, stopped) = oneshot::channel();
        let (ended, done) = done::channel();
        let (ready, made) = done::channel();
        let (settings, resource, own) = (settings.clone(), resource.clone(), metrics.clone());
        let run = move || {
            // The other end learns that the thread has ended by this being dropped.
            let _ended = ended;
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(StartError::Thread(error)))),
            };
            runtime.block_on(async move {
                let failure = LastFailure::default();
                let mut exporter = match exporter(&settings, &failure) {
                    Ok(exporter) => exporter,
                    Err(error) => return drop(ready.send(Err(error.into()))),
                };
                opentelemetry_sdk::trace::SpanExporter::set_resource(&mut exporter, &resource);
                let _ = ready.send(Ok(()));
                Worker { queue, exporter, settings, metrics: own, failure, failing: false }.run(stopped).await;
            });
        };
        thread::Builder::new().name("traces".to_owned()).spawn(run).map_err(StartError::Thread)?;
        made.recv().unwrap_or_else(|_| Err(StartError::Thread(std::io::Error::other("the thread ended"))))?;
        Ok((sender, Sender { stop: Mutex::new(Some(stop)), done: Mutex::new(done) }))
    }

    /// Sends what is queued and ends the thread, within `limit`; false when time was too short. Blocks.
    pub fn stop(&self, limit: Duration) -> bool {
        if let Some(stop) = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = stop.send(());
        }
        let done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(done.recv_timeout(limit), Err(done::RecvTimeoutError::Timeout))
    }
}

/// The thread cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The exporter cannot be made.
    #[error(transparent)]
    Exporter(#[from] ExporterError),
    /// The system gives no thread.
    #[error("cannot start a thread for traces: {0}")]
    Thread(#[source] std::io::Error),
}

struct Worker {
    queue: Arc<Queue>,
    exporter: opentelemetry_otlp::SpanExporter,
    settings: TraceSettings,
    metrics: Metrics,
    failure: LastFailure,
    failing: bool,
}

impl Worker {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let queue = Arc::clone(&self.queue);
        let mut sent = None;
        loop {
            let due = queue.due(sent);
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    sent = Some(Instant::now());
                    self.export(queue.take()).await;
                }
                () = queue.changed.notified() => {}
            }
        }
        queue.close();
        loop {
            let batch = queue.take();
            if batch.is_empty() {
                break;
            }
            self.export(batch).await;
        }
    }

    async fn export(&mut self, batch: Vec<SpanData>) {
        let count = batch.len();
        // What a connection said that broke since is not why this one fails.
        self.failure.take();
        // The client has its own timeout; this one holds whatever it does.
        let limit = self.settings.timeout + Duration::from_secs(1);
        let result = match timeout(limit, self.exporter.export(batch)).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {:?}", self.settings.timeout)),
        };
        let (endpoint, protocol) = (shown(&self.settings.endpoint), self.settings.protocol.as_str());
        match result {
            Ok(()) => {
                self.metrics.trace_spans_exported(count);
                if std::mem::take(&mut self.failing) {
                    info!(endpoint, "Exported traces again");
                }
            }
            Err(error) => {
                self.metrics.trace_export_failed();
                self.metrics.trace_spans_dropped(DropReason::ExportFailed, count);
                // Once, not for every batch: the counters tell how many.
                if !std::mem::replace(&mut self.failing, true) {
                    let error = self.failure.explain(error);
                    warn!(endpoint, protocol, error, "Failed to export traces to {endpoint} as {protocol}: {error}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::InstrumentationScope;

    use super::*;
    use crate::traces::{FinishedSpan, TraceContext};

    const DELAY: Duration = Duration::from_secs(5);

    fn queue(capacity: usize, batch: usize) -> Queue {
        Queue { waiting: Mutex::default(), changed: Notify::new(), capacity, batch, delay: DELAY }
    }

    fn span() -> SpanData {
        let at = jiff::Timestamp::UNIX_EPOCH;
        let span = FinishedSpan {
            context: TraceContext { trace_id: [1; 16], span_id: [1; 8], sampled: true },
            parent: None,
            parent_is_remote: false,
            name: "rollout".to_owned(),
            start: at,
            end: at,
            attributes: Vec::new(),
            events: Vec::new(),
            links: Vec::new(),
            error: None,
        };
        span.into_data(InstrumentationScope::default())
    }

    /// Whether the sender was told since it was last asked.
    fn told(queue: &Queue) -> bool {
        use std::future::Future as _;
        let notified = std::pin::pin!(queue.changed.notified());
        notified.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_span_of_a_batch_wakes_the_sender_and_the_next_ones_do_not() {
        let queue = queue(10, 3);
        let mut woken = Vec::new();
        for _ in 0..5 {
            assert!(queue.push(span(), false));
            woken.push(told(&queue));
        }
        assert_eq!(woken, [true, false, true, false, false], "the first, and the one that fills the batch");
    }

    #[tokio::test(start_paused = true)]
    async fn spans_of_reconciles_wait_for_the_delay_or_a_full_batch() {
        let (queue, now) = (queue(10, 3), Instant::now());
        assert_eq!(queue.due(None), None);
        queue.push(span(), false);
        assert_eq!(queue.due(None), Some(now + DELAY));
        tokio::time::advance(Duration::from_secs(1)).await;
        queue.push(span(), false);
        queue.push(span(), false);
        assert!(queue.due(None) <= Some(Instant::now()), "{:?}", queue.due(None));
    }

    #[tokio::test(start_paused = true)]
    async fn spans_of_a_rollout_hurry_but_not_more_often_than_the_pause_between_them() {
        let (queue, now) = (queue(10, 3), Instant::now());
        queue.push(span(), false);
        told(&queue);
        queue.push(span(), true);
        assert!(told(&queue));
        assert_eq!(queue.due(None), Some(now + URGENT));
        assert_eq!(queue.due(Some(now)), Some(now + BETWEEN_URGENT));
        assert_eq!(queue.take().len(), 2);
        assert_eq!(queue.due(Some(now)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_batch_leaves_behind_still_hurries_and_keeps_its_order() {
        let queue = queue(10, 3);
        for number in 0..4 {
            let mut span = span();
            span.name = number.to_string().into();
            queue.push(span, true);
        }
        let names = |spans: Vec<SpanData>| spans.into_iter().map(|it| it.name.into_owned()).collect::<Vec<_>>();
        assert_eq!(names(queue.take()), ["0", "1", "2"]);
        let now = Instant::now();
        assert_eq!(queue.due(Some(now)), Some(now + BETWEEN_URGENT));
        assert_eq!(names(queue.take()), ["3"]);
        assert_eq!(queue.due(None), None);
    }

    #[test]
    fn a_full_or_closed_queue_takes_nothing() {
        let queue = queue(2, 2);
        assert_eq!(
            [queue.push(span(), false), queue.push(span(), true), queue.push(span(), true)],
            [true, true, false]
        );
        queue.close();
        queue.take();
        assert!(!queue.push(span(), false));
    }
}
