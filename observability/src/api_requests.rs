//! Counts and times what the operator asks of the API server.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Method, Request, Response, Uri};
use tower::{Layer, Service};

use crate::metrics::Metrics;

/// A tower layer for `kube::client::ClientBuilder::with_layer`. It stands outside of the client's own retries: a call
/// that was retried counts once, with its last code.
#[derive(Clone, Debug)]
pub struct ApiRequestsLayer(Metrics);

impl ApiRequestsLayer {
    pub(crate) fn new(metrics: Metrics) -> Self {
        ApiRequestsLayer(metrics)
    }
}

impl<S> Layer<S> for ApiRequestsLayer {
    type Service = ApiRequestsService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ApiRequestsService { inner, metrics: self.0.clone() }
    }
}

/// The service that [`ApiRequestsLayer`] makes.
#[derive(Clone, Debug)]
pub struct ApiRequestsService<S> {
    inner: S,
    metrics: Metrics,
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
        let response = self.inner.call(request);
        Box::pin(async move {
            let result = response.await;
            let code = result.as_ref().ok().map(|response| response.status().as_u16());
            metrics.api_request(verb, resource, code, begun.elapsed());
            result
        })
    }
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

    #[tokio::test]
    async fn counts_responses_by_code_and_calls_without_a_response_as_error() {
        let metrics = Metrics::new("1.2.3", "abc");
        let service = tower::service_fn(|request: Request<()>| async move {
            match request.uri().path() {
                "/api/v1/pods" => Ok(Response::builder().status(410).body(()).unwrap()),
                _ => Err(std::io::Error::other("refused")),
            }
        });
        let mut counted = metrics.api_requests_layer().layer(service);
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
