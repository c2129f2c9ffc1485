//! Finished spans on their way out: a bounded queue, and one thread of its own that sends them in batches.
//!
//! Whoever ends a span never waits: a full queue drops it and counts. The thread has its own runtime, so that a slow
//! collector takes nothing from reconciles, and so that what is queued can still be sent when they have ended.

use std::sync::mpsc as done;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::exporter::{ExporterError, LastFailure, exporter, shown};
use super::settings::TraceSettings;
use crate::metrics::Metrics;

/// A span of a rollout is told at once, for a process that is killed takes it along; those that end with it go together.
const URGENT: Duration = Duration::from_millis(5);

struct Queued {
    span: SpanData,
    urgent: bool,
}

/// The way into the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Spans {
    sender: mpsc::Sender<Queued>,
    metrics: Metrics,
}

impl Spans {
    /// Queues a span, or drops and counts it. `urgent` ones are sent at once.
    pub fn offer(&self, span: SpanData, urgent: bool) {
        if self.sender.try_send(Queued { span, urgent }).is_err() {
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
        let (sender, queue) = mpsc::channel(settings.queue);
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
        let sender = Spans { sender, metrics: metrics.clone() };
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
    queue: mpsc::Receiver<Queued>,
    exporter: opentelemetry_otlp::SpanExporter,
    settings: TraceSettings,
    metrics: Metrics,
    failure: LastFailure,
    failing: bool,
}

impl Worker {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            let first = tokio::select! {
                biased;
                _ = &mut stopped => break,
                first = self.queue.recv() => first,
            };
            let Some(first) = first else { return };
            let (batch, stop) = self.gather(first, &mut stopped).await;
            self.export(batch).await;
            if stop {
                break;
            }
        }
        self.queue.close();
        while let Ok(first) = self.queue.try_recv() {
            let mut batch = vec![first.span];
            while batch.len() < self.settings.batch
                && let Ok(next) = self.queue.try_recv()
            {
                batch.push(next.span);
            }
            self.export(batch).await;
        }
    }

    /// Waits until a batch is full, its time is over, or everything ends.
    async fn gather(&mut self, first: Queued, stopped: &mut oneshot::Receiver<()>) -> (Vec<SpanData>, bool) {
        let now = Instant::now();
        let mut until = now + self.settings.delay;
        let mut batch = Vec::with_capacity(self.settings.batch.min(64));
        let mut next = Some(first);
        while let Some(Queued { span, urgent }) = next {
            if urgent {
                until = until.min(Instant::now() + URGENT);
            }
            batch.push(span);
            if batch.len() >= self.settings.batch {
                break;
            }
            next = tokio::select! {
                biased;
                _ = &mut *stopped => return (batch, true),
                next = timeout_at(until, self.queue.recv()) => next.unwrap_or_default(),
            };
        }
        (batch, false)
    }

    async fn export(&mut self, batch: Vec<SpanData>) {
        let count = batch.len();
        // The client has its own timeout; this one holds whatever it does.
        let limit = self.settings.timeout + Duration::from_secs(1);
        let result = match timeout(limit, self.exporter.export(batch)).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {:?}", self.settings.timeout)),
        };
        let (endpoint, protocol) = (shown(&self.settings.endpoint), self.settings.protocol.as_str());
        let reason = self.failure.take();
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
                    let error = reason.map_or(error.clone(), |reason| format!("{error}: {reason}"));
                    warn!(endpoint, protocol, error, "Failed to export traces to {endpoint} as {protocol}: {error}");
                }
            }
        }
    }
}
