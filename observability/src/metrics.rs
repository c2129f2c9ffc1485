//! The registry: every family of the operator, and typed methods to move them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use lmcache_crds::{PhaseTransition, Report};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::engines::EngineSeries;
use crate::labels::{
    ApiRequest, Apply, ApplyOutcome, BuildInfo, Dropped, Kind, KindError, KindOutcome, KindPhase, KindResult,
    ReconcileResult, RolloutEnd, TraceExemplar, Transition, WatchRestart, WebhookOutcome, WebhookRequest,
};
use crate::process::ProcessCollector;
use crate::traces::DropReason;

const PREFIX: &str = "lmcache_operator";

/// Seconds. A phase lasts from a moment (Pending) to hours (Rolling over a large fleet).
const PHASE_BUCKETS: [f64; 12] = [0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0];

/// Seconds. A settled reconcile takes microseconds, one that applies children the time of a few requests.
const RECONCILE_BUCKETS: [f64; 12] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// Seconds, of one request to the API server up to its response head.
const REQUEST_BUCKETS: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Seconds. A decision takes microseconds, a live read on a cache miss the time of a request.
const WEBHOOK_BUCKETS: [f64; 11] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

type Traced = HistogramWithExemplars<TraceExemplar>;
type TracedHistograms<L> = Family<L, Traced, fn() -> Traced>;

/// Observes with the trace that shows it, if there is one.
fn observe(histogram: &Traced, seconds: f64, trace_id: Option<&str>) {
    let exemplar = trace_id.map(|id| TraceExemplar { trace_id: id.to_owned() });
    let at = exemplar.is_some().then(SystemTime::now);
    histogram.observe(seconds, exemplar, at);
}

/// The operator's metrics. A clone shares the same registry.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    registry: Registry,
    phase_transitions: Family<Transition, Counter>,
    phase_duration: TracedHistograms<KindPhase>,
    rollout_duration: TracedHistograms<KindOutcome>,
    engines: Arc<EngineSeries>,
    reconcile_duration: TracedHistograms<KindResult>,
    reconcile_errors: Family<KindError, Counter>,
    queue_depth: Family<Kind, Gauge>,
    in_flight: Family<Kind, Gauge>,
    applies: Family<Apply, Counter>,
    api_requests: Family<ApiRequest, Counter>,
    api_request_duration: Histograms<ApiRequest>,
    watch_restarts: Family<WatchRestart, Counter>,
    leader: Gauge,
    webhook_requests: Family<WebhookRequest, Counter>,
    webhook_duration: Histograms<WebhookRequest>,
    webhook_certificate_expiry: Family<[(&'static str, &'static str); 0], Gauge>,
    trace_spans_exported: Counter,
    trace_spans_dropped: Family<Dropped, Counter>,
    trace_export_failures: Counter,
}

impl Metrics {
    /// A registry with every family, and `build_info` set from the version and the commit of this build.
    pub fn new(version: &'static str, commit: &'static str) -> Self {
        let mut families = Families {
            registry: Registry::default(),
            phase_transitions: Family::default(),
            phase_duration: Family::new_with_constructor(|| Traced::new(PHASE_BUCKETS.into_iter())),
            rollout_duration: Family::new_with_constructor(|| Traced::new(PHASE_BUCKETS.into_iter())),
            engines: Arc::default(),
            reconcile_duration: Family::new_with_constructor(|| Traced::new(RECONCILE_BUCKETS.into_iter())),
            reconcile_errors: Family::default(),
            queue_depth: Family::default(),
            in_flight: Family::default(),
            applies: Family::default(),
            api_requests: Family::default(),
            api_request_duration: Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            watch_restarts: Family::default(),
            leader: Gauge::default(),
            webhook_requests: Family::default(),
            webhook_duration: Family::new_with_constructor(|| Histogram::new(WEBHOOK_BUCKETS)),
            webhook_certificate_expiry: Family::default(),
            trace_spans_exported: Counter::default(),
            trace_spans_dropped: Family::default(),
            trace_export_failures: Counter::default(),
        };
        for reason in DropReason::ALL {
            let _ = families.trace_spans_dropped.get_or_create(&Dropped { reason: reason.as_str() });
        }
        families.register();
        families.register_build_info(version, commit);
        Metrics(Arc::new(families))
    }

    /// One step of the state machine was written to `status`. `previous_since` is when the phase before the step was
    /// entered; without it (the first step of an engine whose age is unknown) no duration is observed. `trace_id` is that of
    /// the rollout, for an exemplar.
    pub fn phase_step(
        &self,
        kind: &'static str,
        step: &PhaseTransition,
        previous_since: Option<Timestamp>,
        trace_id: Option<&str>,
    ) {
        let (from, to) = (step.from.as_str(), step.to.as_str());
        self.0.phase_transitions.get_or_create(&Transition { kind, from, to, reason: step.reason.clone() }).inc();
        if let Some(since) = previous_since {
            let stayed = step.time.0.duration_since(since).as_secs_f64().max(0.0);
            observe(&self.0.phase_duration.get_or_create(&KindPhase { kind, phase: from }), stayed, trace_id);
        }
    }

    /// A rollout ended after `duration`. `trace_id` is its own.
    pub fn rollout_finished(&self, kind: &'static str, end: RolloutEnd, duration: Duration, trace_id: Option<&str>) {
        let labels = KindOutcome { kind, outcome: end.as_str() };
        observe(&self.0.rollout_duration.get_or_create(&labels), duration.as_secs_f64(), trace_id);
    }

    /// The status of an engine as it was last written: gives `engine_phase`, `engine_instances` and `engine_condition`.
    pub fn engine_state(&self, kind: &'static str, namespace: &str, name: &str, status: &Report) {
        self.0.engines.set(kind, namespace, name, status);
    }

    /// The engine is gone: its series go with it.
    pub fn forget(&self, kind: &'static str, namespace: &str, name: &str) {
        self.0.engines.forget(kind, namespace, name);
    }

    /// A reconcile begins. `reconcile_in_flight` counts it until the guard is dropped, however it ends.
    pub fn reconcile_started(&self, kind: &'static str) -> ReconcileInFlight {
        let gauge = self.0.in_flight.get_or_create_owned(&Kind { kind });
        gauge.inc();
        ReconcileInFlight(gauge)
    }

    /// A reconcile ended after `duration`. `trace_id` is its own.
    pub fn reconcile_finished(
        &self,
        kind: &'static str,
        result: ReconcileResult,
        duration: Duration,
        trace_id: Option<&str>,
    ) {
        let labels = KindResult { kind, result: result.as_str() };
        observe(&self.0.reconcile_duration.get_or_create(&labels), duration.as_secs_f64(), trace_id);
    }

    /// A reconcile failed. `error` is the metric label of an error enum's variant, never a message.
    pub fn reconcile_error(&self, kind: &'static str, error: &'static str) {
        self.0.reconcile_errors.get_or_create(&KindError { kind, error }).inc();
    }

    /// How many resources of that kind wait for their turn.
    pub fn queue_depth(&self, kind: &'static str, waiting: usize) {
        self.0.queue_depth.get_or_create(&Kind { kind }).set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    /// One child (`child` is its kind, as `DaemonSet`) of a resource was applied, or could not be.
    pub fn applied(&self, kind: &'static str, child: &'static str, outcome: ApplyOutcome) {
        self.0.applies.get_or_create(&Apply { kind, child, outcome: outcome.as_str() }).inc();
    }

    /// One call of the API server ended. [`crate::ApiRequestsLayer`] calls this; `code` is the HTTP status, `None` when there was
    /// no response at all.
    pub(crate) fn api_request(&self, verb: &'static str, resource: String, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| "error".to_owned(), |code| code.to_string());
        let labels = ApiRequest { verb, resource, code };
        self.0.api_requests.get_or_create(&labels).inc();
        self.0.api_request_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A watch of `resource` (plural, as `daemonsets`) was begun anew. `cause` is one of a fixed list of words.
    pub fn watch_restarted(&self, resource: &'static str, cause: &'static str) {
        self.0.watch_restarts.get_or_create(&WatchRestart { resource, cause }).inc();
    }

    /// Whether this process leads. A process that needs no election leads from its start.
    pub fn set_leader(&self, leads: bool) {
        self.0.leader.set(i64::from(leads));
    }

    /// A webhook (`cacheblend`, `lmcache`, `validating`) has answered a request after `took`. `reason` is one of a fixed list
    /// of words.
    pub fn webhook_request(
        &self,
        webhook: &'static str,
        outcome: WebhookOutcome,
        reason: &'static str,
        took: Duration,
    ) {
        let labels = WebhookRequest { webhook, outcome: outcome.as_str(), reason };
        self.0.webhook_requests.get_or_create(&labels).inc();
        self.0.webhook_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// When the webhook certificate that is served ends. There is no such series while none is served.
    pub fn webhook_certificate_expires(&self, at: Timestamp) {
        self.0.webhook_certificate_expiry.get_or_create(&[]).set(at.as_second());
    }

    /// So many spans reached the collector.
    pub(crate) fn trace_spans_exported(&self, count: usize) {
        self.0.trace_spans_exported.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// So many spans never will.
    pub(crate) fn trace_spans_dropped(&self, reason: DropReason, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.0.trace_spans_dropped.get_or_create(&Dropped { reason: reason.as_str() }).inc_by(count);
    }

    /// An export failed, after its retries.
    pub(crate) fn trace_export_failed(&self) {
        self.0.trace_export_failures.inc();
    }

    /// Everything, in the `OpenMetrics` 1.0 text format.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail, and no collector of ours gives an error of its own.
        let _ = text::encode(&mut out, &self.0.registry);
        out
    }

    /// Everything, in the classic Prometheus text format 0.0.4, for scrapers that do not ask for `OpenMetrics`.
    pub fn encode_prometheus(&self) -> String {
        let mut out = String::new();
        let _ = prometheus_text::encode(&mut out, &self.0.registry);
        out
    }
}

/// Counts a reconcile as in flight for as long as it lives.
#[derive(Debug)]
#[must_use = "the reconcile counts as in flight only while the guard lives"]
pub struct ReconcileInFlight(Gauge);

impl Drop for ReconcileInFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Families {
    fn register(&mut self) {
        self.registry.register_collector(Box::new(ProcessCollector));
        let r = self.registry.sub_registry_with_prefix(PREFIX);
        r.register("phase_transitions", "Phase steps taken", self.phase_transitions.clone());
        r.register("phase_duration_seconds", "Time spent in a phase before leaving it", self.phase_duration.clone());
        r.register(
            "rollout_duration_seconds",
            "Time from a change that was applied to Ready, to Degraded, or to the next change",
            self.rollout_duration.clone(),
        );
        r.register("reconcile_duration_seconds", "Duration of one reconcile", self.reconcile_duration.clone());
        r.register("reconcile_errors", "Reconciles that failed, by cause", self.reconcile_errors.clone());
        r.register("reconcile_queue_depth", "Resources waiting to be reconciled", self.queue_depth.clone());
        r.register("reconcile_in_flight", "Reconciles running now", self.in_flight.clone());
        r.register("applies", "Children applied, by what applying them did", self.applies.clone());
        r.register(
            "api_requests",
            "Requests to the API server; code is error when none answered",
            self.api_requests.clone(),
        );
        r.register(
            "api_request_duration_seconds",
            "Time from a request to the API server to its response head",
            self.api_request_duration.clone(),
        );
        r.register("watch_restarts", "Watches begun anew after a failure", self.watch_restarts.clone());
        r.register("leader", "1 while this process leads, 0 otherwise", self.leader.clone());
        r.register(
            "webhook_requests",
            "Requests that webhooks answered, by what came of them",
            self.webhook_requests.clone(),
        );
        r.register(
            "webhook_duration_seconds",
            "Time from a whole request to a webhook to its answer",
            self.webhook_duration.clone(),
        );
        r.register(
            "webhook_certificate_expiry_timestamp_seconds",
            "When the webhook certificate that is served ends, in seconds since 1970",
            self.webhook_certificate_expiry.clone(),
        );
        r.register("trace_spans_exported", "Spans that the collector took", self.trace_spans_exported.clone());
        r.register("trace_spans_dropped", "Spans that never reached the collector", self.trace_spans_dropped.clone());
        r.register("trace_export_failures", "Exports of spans that failed", self.trace_export_failures.clone());
        r.register_collector(Box::new(Arc::clone(&self.engines)));
    }

    fn register_build_info(&mut self, version: &'static str, commit: &'static str) {
        let info: Family<BuildInfo, Gauge> = Family::default();
        info.get_or_create(&BuildInfo { version, commit }).set(1);
        self.registry.sub_registry_with_prefix(PREFIX).register(
            "build_info",
            "Always 1; the labels tell version and commit of the running operator",
            info,
        );
    }
}
