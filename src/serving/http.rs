//! The routes.

use std::sync::Arc;

use ::http::header::{ACCEPT, CONTENT_TYPE};
use ::http::{HeaderMap, Method, StatusCode};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lmcache_observability::Metrics;

use super::authorization::{Authorizer, Verdict};
use super::readiness::Readiness;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `/healthz` says that the process is alive, `/readyz` that it does its work.
pub(super) fn health(readiness: Readiness) -> Router {
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready)).with_state(readiness)
}

async fn ready(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let missing = readiness.missing();
    if missing.is_empty() {
        (StatusCode::OK, "ok".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("waiting for {}", missing.join(", ")))
    }
}

#[derive(Clone)]
struct MetricsState {
    metrics: Metrics,
    authorizer: Option<Arc<Authorizer>>,
}

/// `/metrics`, open to all without an authorizer.
pub(super) fn metrics(metrics: Metrics, authorizer: Option<Authorizer>) -> Router {
    let state = MetricsState { metrics, authorizer: authorizer.map(Arc::new) };
    Router::new().route("/metrics", get(scrape)).with_state(state)
}

async fn scrape(State(state): State<MetricsState>, method: Method, headers: HeaderMap) -> Response {
    if let Some(authorizer) = &state.authorizer {
        match authorizer.check(&method, &headers).await {
            Ok(Verdict::Allowed) => {}
            Ok(Verdict::Unauthenticated) => return (StatusCode::UNAUTHORIZED, "Unauthorized").into_response(),
            Ok(Verdict::Forbidden { user }) => {
                return (StatusCode::FORBIDDEN, format!("Authorization denied for user {user}")).into_response();
            }
            Err(error) => {
                tracing::warn!(%error, "Failed to authenticate a metrics request");
                return (StatusCode::INTERNAL_SERVER_ERROR, "Authentication failed").into_response();
            }
        }
    }
    if wants_open_metrics(&headers) {
        ([(CONTENT_TYPE, OPEN_METRICS)], state.metrics.encode()).into_response()
    } else {
        ([(CONTENT_TYPE, CLASSIC)], state.metrics.encode_prometheus()).into_response()
    }
}

/// A scraper that can read it names it in `Accept`; Prometheus does so by default.
fn wants_open_metrics(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("application/openmetrics-text"))
}
