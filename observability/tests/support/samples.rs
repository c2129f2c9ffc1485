//! A registry with at least one series of every family, so that an exposition shows them all with type, labels and help.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use lmcache_crds::{CacheStatus, Phase, PhaseRecord, PhaseTransition, Report};
use lmcache_observability::traces::Traces;
use lmcache_observability::{ApiRequestsLayer, ApplyOutcome, Metrics, ReconcileResult, RolloutEnd, WebhookOutcome};
use tower::{Layer, Service};

const KIND: &str = "LMCacheEngine";

/// One metric family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// As it is queried: a counter ends in `_total`.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    pub help: String,
    /// In the order of the exposition, without `le`.
    pub labels: Vec<String>,
}

/// Moves everything once.
pub fn registry() -> Metrics {
    let metrics = Metrics::new("0.1.0", "abcdef");
    let time = Time(Timestamp::UNIX_EPOCH);
    let step = PhaseTransition {
        from: Phase::Rolling,
        to: Phase::Ready,
        reason: "AllInstancesReady".to_owned(),
        message: String::new(),
        generation: 1,
        time: time.clone(),
    };
    metrics.phase_step(KIND, &step, Some(Timestamp::UNIX_EPOCH), None);
    metrics.rollout_finished(KIND, RolloutEnd::Ready, Duration::ZERO, None);
    let condition = Condition {
        type_: "Ready".to_owned(),
        status: "True".to_owned(),
        reason: "AllInstancesReady".to_owned(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: time,
    };
    let cache = Some(CacheStatus::new(1, 2, Timestamp::UNIX_EPOCH));
    let record = PhaseRecord { conditions: vec![condition], ..PhaseRecord::default() };
    metrics.engine_state(KIND, "default", "sample", &Report { record, cache, ..Report::default() });
    drop(metrics.reconcile_started(KIND));
    metrics.reconcile_finished(KIND, ReconcileResult::Success, Duration::ZERO, None);
    metrics.reconcile_error(KIND, "request");
    metrics.queue_depth(KIND, 0);
    metrics.applied(KIND, "DaemonSet", ApplyOutcome::Created);
    metrics.watch_restarted("pods", "expired");
    metrics.set_leader(true);
    metrics.webhook_request("lmcache", WebhookOutcome::Injected, "", Duration::ZERO);
    metrics.webhook_certificate_expires(Timestamp::UNIX_EPOCH);
    request(&metrics);
    metrics
}

/// One request to the API server that is answered at once.
fn request(metrics: &Metrics) {
    let answer = tower::service_fn(|_: http::Request<()>| async { Ok::<_, std::io::Error>(http::Response::new(())) });
    let server = http::Uri::from_static("https://127.0.0.1:6443");
    let mut counted = ApiRequestsLayer::new(metrics, &Traces::off(), &server).layer(answer);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    if let (Ok(runtime), Ok(request)) = (runtime, http::Request::get("/api/v1/pods").body(())) {
        let _ = runtime.block_on(counted.call(request));
    }
}

/// The families of an exposition in the classic text format, in its order.
pub fn families(exposition: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let (mut help, mut open) = ("", false);
    for line in exposition.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, text)| text);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (name, kind, help) = (name.to_owned(), kind.to_owned(), help.to_owned());
            families.push(Family { name, kind, help, labels: Vec::new() });
            open = true;
        } else if let (true, Some(family)) = (open && !line.starts_with('#'), families.last_mut()) {
            family.labels = labels(line);
            open = false;
        }
    }
    families
}

/// The label names of a sample line. No label value of the operator's holds `="` or a comma before a name.
fn labels(line: &str) -> Vec<String> {
    let inner = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(inner, _)| inner);
    let names = inner.split("\",").filter_map(|pair| pair.split_once("=\"")).map(|(name, _)| name.trim().to_owned());
    names.filter(|name| name != "le").collect()
}
