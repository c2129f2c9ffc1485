//! Counts and times what the operator asks of the API server, and tells it as client spans.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Method, Request, Response, Uri};
use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanKind, Status};
use tower::{Layer, Service};

use crate::metrics::Metrics;
use crate::traces::{Begun, Ended, Traces};

/// A tower layer for `kube::client::ClientBuilder::with_layer`. It stands outside of the client's own retries: a call
/// that was retried counts once, with its last code.
///
/// A request that is made within a span is a client span under it (HTTP semantic conventions); watches, leases and reviews,
/// which belong to no reconcile, are none.
#[derive(Clone, Debug)]
pub struct ApiRequestsLayer {
    metrics: Metrics,
    traces: Traces,
    server: Arc<Server>,
}

impl ApiRequestsLayer {
    /// `server` is the URL of the API server.
    pub fn new(metrics: &Metrics, traces: &Traces, server: &Uri) -> Self {
        ApiRequestsLayer { metrics: metrics.clone(), traces: traces.clone(), server: Arc::new(Server::of(server)) }
    }
}

impl<S> Layer<S> for ApiRequestsLayer {
    type Service = ApiRequestsService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ApiRequestsService { inner, layer: self.clone() }
    }
}

/// The service that [`ApiRequestsLayer`] makes.
#[derive(Clone, Debug)]
pub struct ApiRequestsService<S> {
    inner: S,
    layer: ApiRequestsLayer,
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
        let metrics = self.layer.metrics.clone();
        let begun = Instant::now();
        let mut span = self.layer.span(request.method(), request.uri());
        let response = self.inner.call(request);
        Box::pin(async move {
            let result = response.await;
            let code = result.as_ref().ok().map(|response| response.status().as_u16());
            metrics.api_request(verb, resource, code, begun.elapsed());
            if let Some(span) = &mut span {
                span.outcome = code.map_or(Outcome::NoResponse, Outcome::Code);
            }
            result
        })
    }
}

impl ApiRequestsLayer {
    /// The client span of a request, or none outside of a span.
    fn span(&self, method: &Method, uri: &Uri) -> Option<ClientSpan> {
        let begun = self.traces.begin()?;
        let (traces, server) = (self.traces.clone(), Arc::clone(&self.server));
        Some(ClientSpan {
            begun,
            traces,
            server,
            method: method.clone(),
            uri: uri.clone(),
            outcome: Outcome::Cancelled,
        })
    }
}

/// The API server, as spans name it.
#[derive(Debug)]
struct Server {
    /// Scheme, authority and path, without a slash at the end.
    url: String,
    address: Arc<str>,
    port: i64,
}

impl Server {
    fn of(url: &Uri) -> Self {
        let scheme = url.scheme_str().unwrap_or_default();
        let authority = url.authority().map_or("", |it| it.as_str());
        Server {
            url: format!("{scheme}://{authority}{}", url.path().trim_end_matches('/')),
            address: url.host().unwrap_or_default().into(),
            port: url.port_u16().unwrap_or(if scheme == "http" { 80 } else { 443 }).into(),
        }
    }
}

/// The span of a request; told when it is dropped, so also when nobody waits for the answer any longer.
struct ClientSpan {
    begun: Begun,
    traces: Traces,
    server: Arc<Server>,
    method: Method,
    uri: Uri,
    outcome: Outcome,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Code(u16),
    NoResponse,
    Cancelled,
}

impl Outcome {
    /// Attribute `error.type`.
    fn error_type(self) -> Option<String> {
        match self {
            Outcome::Code(code) => (code >= 400).then(|| code.to_string()),
            Outcome::NoResponse => Some("no_response".to_owned()),
            Outcome::Cancelled => Some("cancelled".to_owned()),
        }
    }
}

impl Drop for ClientSpan {
    fn drop(&mut self) {
        self.traces.end(&self.begun, client(&self.server, &self.method, self.uri.path(), self.outcome));
    }
}

/// The path alone is told: queries select, and name no object.
fn client(server: &Server, method: &Method, path: &str, outcome: Outcome) -> Ended {
    let template = template(path);
    let name = format!("{method} {template}").into();
    let mut attributes = Vec::with_capacity(7);
    attributes.push(KeyValue::new("http.request.method", method.as_str().to_owned()));
    attributes.push(KeyValue::new("url.full", format!("{}{path}", server.url)));
    attributes.push(KeyValue::new("url.template", template));
    attributes.push(KeyValue::new("server.address", Arc::clone(&server.address)));
    attributes.push(KeyValue::new("server.port", server.port));
    if let Outcome::Code(code) = outcome {
        attributes.push(KeyValue::new("http.response.status_code", i64::from(code)));
    }
    let error = outcome.error_type();
    let status = if error.is_some() { Status::error("") } else { Status::Unset };
    attributes.extend(error.map(|error| KeyValue::new("error.type", error)));
    Ended { name, kind: SpanKind::Client, attributes, status }
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

    fn attributes(span: &Ended) -> Vec<(String, String)> {
        span.attributes.iter().map(|it| (it.key.to_string(), it.value.to_string())).collect()
    }

    #[rstest]
    #[case("https://10.0.0.1:6443/", "https://10.0.0.1:6443/api/v1/pods", "6443")]
    #[case("https://cluster.example/k8s/c1", "https://cluster.example/k8s/c1/api/v1/pods", "443")]
    #[case("http://localhost", "http://localhost/api/v1/pods", "80")]
    fn a_request_names_the_server_it_goes_to(#[case] server: &str, #[case] full: &str, #[case] port: &str) {
        let server = Server::of(&server.parse().unwrap());
        let seen = attributes(&client(&server, &Method::GET, "/api/v1/pods", Outcome::Code(200)));
        let expected = [
            ("http.request.method", "GET"),
            ("url.full", full),
            ("url.template", "/api/v1/pods"),
            ("server.address", &server.address),
            ("server.port", port),
            ("http.response.status_code", "200"),
        ];
        assert_eq!(seen, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    #[rstest]
    #[case(Outcome::Code(200), None)]
    #[case(Outcome::Code(409), Some("409"))]
    #[case(Outcome::NoResponse, Some("no_response"))]
    #[case(Outcome::Cancelled, Some("cancelled"))]
    fn a_request_that_failed_says_how(#[case] outcome: Outcome, #[case] error: Option<&str>) {
        let server = Server::of(&"https://10.0.0.1:6443".parse().unwrap());
        let span = client(&server, &Method::PATCH, "/api/v1/namespaces/x/services/e", outcome);
        assert_eq!(span.name, "PATCH /api/v1/namespaces/{namespace}/services/{name}");
        let seen = attributes(&span).into_iter().find(|(key, _)| key == "error.type").map(|(_, value)| value);
        assert_eq!(seen.as_deref(), error, "{span:?}");
        assert_eq!(matches!(span.status, Status::Error { .. }), error.is_some(), "{span:?}");
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
        let mut counted =
            ApiRequestsLayer::new(&metrics, &Traces::off(), &"https://10.0.0.1:6443".parse().unwrap()).layer(service);
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
