//! From an HTTP request to a handler and back, whatever the client sends.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::FutureExt as _;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use lmcache_observability::{Metrics, WebhookOutcome};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::{Handlers, Limits};
use crate::admission::review::{self, AdmissionRequest, Handler};

/// Largest body in bytes. An API server takes no object above 3 MiB, and sends little more than it took.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// Bodies above this size, or of unknown size, are taken in a few at a time. Bytes.
const LARGE_BODY: usize = 64 * 1024;
const LARGE_AT_A_TIME: usize = 2;
/// All others that are worked on at a time.
const AT_A_TIME: usize = 512;

struct Route {
    handler: Arc<dyn Handler>,
    metrics: Metrics,
    bounds: Arc<Bounds>,
    limits: Limits,
}

struct Bounds {
    all: Semaphore,
    large: Semaphore,
}

/// A router for the handlers.
pub(super) fn router(handlers: Handlers, metrics: &Metrics, limits: Limits) -> Router {
    let bounds = Arc::new(Bounds { all: Semaphore::new(AT_A_TIME), large: Semaphore::new(LARGE_AT_A_TIME) });
    let mut router = Router::new();
    for (path, handler) in handlers {
        let route = Route { handler, metrics: metrics.clone(), bounds: bounds.clone(), limits };
        router = router.route(path, post(answer).with_state(Arc::new(route)));
    }
    router.fallback(async || (StatusCode::NOT_FOUND, "no webhook is served on this path\n"))
}

/// Why a request is not answered by its handler.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("want content type application/json")]
    ContentType,
    #[error("the body is larger than {MAX_BODY} bytes")]
    TooLarge,
    #[error("the body did not arrive in time")]
    Slow,
    #[error("the body did not arrive: {0}")]
    Broken(String),
    #[error("too many requests are under way")]
    Busy,
    #[error(transparent)]
    Review(#[from] review::ReviewError),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Refusal::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Refusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::Slow => StatusCode::REQUEST_TIMEOUT,
            Refusal::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Broken(_) | Refusal::Review(_) => StatusCode::BAD_REQUEST,
        }
    }

    /// Label `reason` of the metrics.
    fn reason(&self) -> &'static str {
        match self {
            Refusal::ContentType => "content-type",
            Refusal::TooLarge => "too-large",
            Refusal::Slow => "slow",
            Refusal::Broken(_) => "broken",
            Refusal::Busy => "busy",
            Refusal::Review(_) => "malformed",
        }
    }
}

async fn answer(State(route): State<Arc<Route>>, request: Request) -> Response {
    let webhook = route.handler.webhook();
    match route.take(request).await {
        Ok((outcome, reason, took, body)) => {
            route.metrics.webhook_request(webhook, outcome, reason, took);
            ([(CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err(refusal) => {
            tracing::warn!(webhook, reason = refusal.reason(), "Refused a webhook request: {refusal}");
            route.metrics.webhook_request(webhook, WebhookOutcome::Error, refusal.reason(), Duration::ZERO);
            (refusal.status(), format!("{refusal}\n")).into_response()
        }
    }
}

type Answered = (WebhookOutcome, &'static str, Duration, Vec<u8>);

impl Route {
    async fn take(&self, request: Request) -> Result<Answered, Refusal> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers) {
            return Err(Refusal::ContentType);
        }
        let length = content_length(&parts.headers);
        if length.is_some_and(|length| length > MAX_BODY) {
            return Err(Refusal::TooLarge);
        }
        let is_large = length.is_none_or(|length| length > LARGE_BODY);
        let semaphore = if is_large { &self.bounds.large } else { &self.bounds.all };
        // The semaphores are never closed.
        let _turn = timeout(self.limits.turn, semaphore.acquire()).await.map_err(|_| Refusal::Busy)?;
        let body = read(body, self.limits.body).await?;
        let begun = Instant::now();
        let request = AdmissionRequest::decode(&body)?;
        drop(body);
        let response = self.ask(&request).await;
        let body = response.encode(&request.uid);
        Ok((response.outcome, response.reason, begun.elapsed(), body))
    }

    /// The handler's answer, or that it has none: nothing that goes wrong in it reaches the client as a failure (D21).
    async fn ask(&self, request: &AdmissionRequest) -> review::Response {
        let webhook = self.handler.webhook();
        let (reason, what) =
            match timeout(self.limits.answer, AssertUnwindSafe(self.handler.handle(request)).catch_unwind()).await {
                Ok(Ok(response)) => return response,
                Ok(Err(_)) => ("panic", "it panicked".to_owned()),
                Err(_) => ("timeout", "it did not answer in time".to_owned()),
            };
        let (namespace, name) = (request.namespace.as_str(), request.name.as_str());
        tracing::error!(webhook, namespace, name, "Failed to answer a webhook request: {what}");
        let failed = std::panic::catch_unwind(AssertUnwindSafe(|| self.handler.failed(request, reason, &what)));
        failed.unwrap_or_else(|_| review::Response::error(reason, format!("webhook {webhook} failed: {what}")))
    }
}

async fn read(body: Body, patience: Duration) -> Result<Bytes, Refusal> {
    let collected = timeout(patience, Limited::new(body, MAX_BODY).collect()).await.map_err(|_| Refusal::Slow)?;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() { Refusal::TooLarge } else { Refusal::Broken(error.to_string()) }
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

fn content_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
