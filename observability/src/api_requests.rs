//! Counts and times what the operator asks of the API server, and tells it as client spans.

use std::cell::LazyCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Method, Request, Response, Uri};
use tower::{Layer, Service};
use tracing::field::Empty;
use tracing::{Instrument, Span, debug_span};

use crate::metrics::Metrics;

/// Target of the spans of requests; nothing is logged under it.
pub(crate) const TARGET: &str = "lmcache_observability::api_requests";

/// A tower layer for `kube::client::ClientBuilder::with_layer`. It stands outside of the client's own retries: a call
/// that was retried counts once, with its last code.
///
/// A request that is made within a span is a client span under it (HTTP semantic conventions); watches, leases and reviews,
/// which belong to no reconcile, are none.
#[derive(Clone, Debug)]
pub struct ApiRequestsLayer {
    metrics: Metrics,
    server: Uri,
}

impl ApiRequestsLayer {
    pub(crate) fn new(metrics: Metrics, server: Uri) -> Self {
        ApiRequestsLayer { metrics, server }
    }
}

impl<S> Layer<S> for ApiRequestsLayer {
    type Service = ApiRequestsService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ApiRequestsService { inner, metrics: self.metrics.clone(), server: self.server.clone() }
    }
}

/// The service that [`ApiRequestsLayer`] makes.
#[derive(Clone, Debug)]
pub struct ApiRequestsService<S> {
    inner: S,
    metrics: Metrics,
    server: Uri,
}

impl<S, In, Out> Service<Request<In>> for ApiRequestsService<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let (verb, resource) = describe(request.method(), request.uri());
        let metrics = self.metrics.clone();
        let begun = Instant::now();
        let span = span(&self.server, request.method(), request.uri());
        let response = span.in_scope(|| self.inner.call(request));
        let work = async move {
            let result = response.await;
            let code = result.as_ref().ok().map(|response| response.status().as_u16());
            metrics.api_request(verb, resource, code, begun.elapsed());
            record(&Span::current(), code);
            result
        };
        Box::pin(work.instrument(span))
    }
}

/// The client span of a request, or none outside of a span. Queries are left out: they select and name no object.
fn span(server: &Uri, method: &Method, uri: &Uri) -> Span {
    if Span::current().is_none() {
        return Span::none();
    }
    // The macro looks at fields only when somebody wants the span. To ask with `enabled!` would be wrong: what filters of
    // layers answer it is kept for the next span, whichever that is.
    let template = LazyCell::new(|| template(uri.path()));
    let base = server.path().trim_end_matches('/');
    let (scheme, authority) =
        (server.scheme_str().unwrap_or_default(), server.authority().map_or("", |it| it.as_str()));
    debug_span!(
        target: TARGET,
        "api-request",
        otel.name = %format_args!("{method} {}", *template),
        otel.kind = "client",
        otel.status_code = Empty,
        http.request.method = method.as_str(),
        http.response.status_code = Empty,
        url.full = %format_args!("{scheme}://{authority}{base}{}", uri.path()),
        url.template = template.as_str(),
        server.address = server.host(),
        server.port = server.port_u16().unwrap_or(if scheme == "http" { 80 } else { 443 }),
        "error.type" = Empty,
    )
}

fn record(span: &Span, code: Option<u16>) {
    if span.is_disabled() {
        return;
    }
    if let Some(code) = code {
        span.record("http.response.status_code", code);
    }
    if code.is_none_or(|code| code >= 400) {
        span.record("otel.status_code", "ERROR");
        span.record("error.type", code.map_or_else(|| "no_response".to_owned(), |code| code.to_string()));
    }
}

/// A path with `{namespace}` and `{name}` in place of what they are.
fn template(path: &str) -> String {
    let mut segments: Vec<&str> = path.split('/').collect();
    let group = match segments.get(1) {
        Some(&"api") => 3,
        Some(&"apis") => 4,
        _ => return path.to_owned(),
    };
    let resource = if segments.get(group) == Some(&"namespaces") && segments.len() > group + 2 {
        segments[group + 1] = "{namespace}";
        group + 2
    } else {
        group
    };
    if let Some(name) = segments.get_mut(resource + 1) {
        *name = "{name}";
    }
    segments.join("/")
}

/// Kubernetes verb and resource (`daemonsets`, `lmcacheengines/status`) of a request. Names and namespaces never show.
/// What is no resource (discovery, `/version`) is `none`.
fn describe(method: &Method, uri: &Uri) -> (&'static str, String) {
    let mut segments = uri.path().split('/').filter(|segment| !segment.is_empty());
    let rest: Vec<&str> = match segments.next() {
        Some("api") => segments.skip(1).collect(),
        Some("apis") => segments.skip(2).collect(),
        _ => Vec::new(),
    };
    let rest = match rest.as_slice() {
        ["namespaces", _namespace, inner @ ..] if !matches!(inner, [] | ["status" | "finalize"]) => inner,
        all => all,
    };
    let (resource, named) = match rest {
        [] => ("none".to_owned(), true),
        [resource] => ((*resource).to_owned(), false),
        [resource, _name] => ((*resource).to_owned(), true),
        [resource, _name, subresource, ..] => (format!("{resource}/{subresource}"), true),
    };
    (verb(method, uri.query().unwrap_or_default(), named), resource)
}

fn verb(method: &Method, query: &str, named: bool) -> &'static str {
    let watches = || query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"));
    match (method.as_str(), named) {
        ("GET", _) if watches() => "watch",
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("GET", "/api/v1/pods?limit=500", "list", "pods")]
    #[case("GET", "/api/v1/pods?labelSelector=a&watch=true&resourceVersion=1", "watch", "pods")]
    #[case("GET", "/api/v1/namespaces/team-a/secrets/credentials", "get", "secrets")]
    #[case("GET", "/api/v1/namespaces/team-a/secrets", "list", "secrets")]
    #[case("GET", "/api/v1/namespaces/team-a", "get", "namespaces")]
    #[case("GET", "/api/v1/namespaces/team-a/status", "get", "namespaces/status")]
    #[case(
        "PATCH",
        "/apis/apps/v1/namespaces/team-a/daemonsets/e?fieldManager=lmcache-operator",
        "patch",
        "daemonsets"
    )]
    #[case(
        "PATCH",
        "/apis/lmcache.lmcache.ai/v1alpha1/namespaces/x/lmcacheengines/e/status",
        "patch",
        "lmcacheengines/status"
    )]
    #[case("POST", "/apis/authentication.k8s.io/v1/tokenreviews", "create", "tokenreviews")]
    #[case("PUT", "/apis/coordination.k8s.io/v1/namespaces/x/leases/l", "update", "leases")]
    #[case("DELETE", "/apis/networking.k8s.io/v1/namespaces/x/networkpolicies/e", "delete", "networkpolicies")]
    #[case("DELETE", "/apis/networking.k8s.io/v1/namespaces/x/networkpolicies", "deletecollection", "networkpolicies")]
    #[case("GET", "/apis/monitoring.coreos.com/v1", "get", "none")]
    #[case("GET", "/version", "get", "none")]
    fn names_verb_and_resource_only(
        #[case] method: &str,
        #[case] uri: &str,
        #[case] verb: &str,
        #[case] resource: &str,
    ) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let seen = describe(&method, &uri.parse().unwrap());
        assert_eq!(seen, (verb, resource.to_owned()), "{method} {uri}");
    }

    #[rstest]
    #[case("/api/v1/namespaces/team-a/secrets/credentials", "/api/v1/namespaces/{namespace}/secrets/{name}")]
    #[case("/apis/apps/v1/namespaces/x/daemonsets/e", "/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}")]
    #[case("/apis/a.b/v1/namespaces/x/engines/e/status", "/apis/a.b/v1/namespaces/{namespace}/engines/{name}/status")]
    #[case("/apis/events.k8s.io/v1/namespaces/x/events", "/apis/events.k8s.io/v1/namespaces/{namespace}/events")]
    #[case("/api/v1/namespaces/team-a", "/api/v1/namespaces/{name}")]
    #[case("/api/v1/nodes/n1", "/api/v1/nodes/{name}")]
    #[case("/api/v1/pods", "/api/v1/pods")]
    #[case("/version", "/version")]
    fn a_template_names_no_object(#[case] path: &str, #[case] expected: &str) {
        assert_eq!(template(path), expected, "{path}");
    }

    #[test]
    fn a_request_is_a_span_only_within_a_span() {
        let (server, path) = ("https://10.0.0.1:6443".parse().unwrap(), "/api/v1/pods".parse().unwrap());
        tracing::subscriber::with_default(tracing_subscriber::registry(), || {
            assert!(span(&server, &Method::GET, &path).is_none());
            let _reconcile = tracing::info_span!("reconcile").entered();
            let span = span(&server, &Method::GET, &path);
            for field in
                ["http.request.method", "http.response.status_code", "url.template", "server.port", "error.type"]
            {
                assert!(span.has_field(field), "{field}: {span:?}");
            }
        });
    }

    #[tokio::test]
    async fn counts_responses_by_code_and_calls_without_a_response_as_error() {
        let metrics = Metrics::new("1.2.3", "abc");
        let service = tower::service_fn(|request: Request<()>| async move {
            match request.uri().path() {
                "/api/v1/pods" => Ok(Response::builder().status(410).body(()).unwrap()),
                _ => Err(std::io::Error::other("refused")),
            }
        });
        let mut counted = metrics.api_requests_layer(&"https://10.0.0.1:6443".parse().unwrap()).layer(service);
        for path in ["/api/v1/pods", "/api/v1/pods", "/api/v1/nodes"] {
            let _ = counted.call(Request::get(path).body(()).unwrap()).await;
        }
        let text = metrics.encode();
        for line in [
            r#"lmcache_operator_api_requests_total{verb="list",resource="pods",code="410"} 2"#,
            r#"lmcache_operator_api_requests_total{verb="list",resource="nodes",code="error"} 1"#,
            r#"lmcache_operator_api_request_duration_seconds_count{verb="list",resource="pods",code="410"} 2"#,
        ] {
            assert!(text.contains(line), "no line {line} in\n{text}");
        }
    }
}
