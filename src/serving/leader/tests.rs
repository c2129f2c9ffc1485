//! Server, client and claimants share the one thread of the test's runtime, so that virtual time passes only when none of
//! them has anything left to do. Every wait has an end: what never comes fails the test instead of spinning on.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use ::http::{Method, Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{advance, sleep};
use tower::BoxError;

use super::*;

mod mutual_exclusion;

/// Virtual time after which nothing is going to happen any more.
const LIMIT: Duration = Duration::from_mins(10);

/// Several times what any test here needs; more is a loop without a pause, which no limit of virtual time ends.
const MAX_REQUESTS: usize = 1000;

/// An API server that knows one Lease and guards it by its resourceVersion.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    /// When each request came, and what it was.
    requests: Vec<(Instant, String)>,
    /// Every request is answered with this code while it is set; 0 means no answer at all.
    failure: Option<u16>,
}

impl Server {
    fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let (code, answer) = server.answer(&parts.method, parts.uri.path(), &body);
                if code == 0 {
                    std::future::pending::<()>().await;
                }
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, BoxError>(Response::builder().status(code).body(body).unwrap())
            }
        });
        kube::Client::new(service, "default")
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let mut state = self.0.lock().unwrap();
        assert!(state.requests.len() < MAX_REQUESTS, "a busy loop of {method} {path}");
        state.requests.push((Instant::now(), format!("{method} {path}")));
        if let Some(code) = state.failure {
            return (code, status(code));
        }
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        match (method.as_str(), state.lease.clone()) {
            ("GET", Some(lease)) => (200, lease),
            ("GET" | "PUT", None) => (404, status(404)),
            ("POST", None) => (201, state.store(sent())),
            ("POST", Some(_)) => (409, status(409)),
            ("PUT", Some(lease)) => {
                let sent = sent();
                if sent["metadata"]["resourceVersion"] == lease["metadata"]["resourceVersion"] {
                    (200, state.store(sent))
                } else {
                    (409, status(409))
                }
            }
            other => panic!("unexpected request {other:?}"),
        }
    }

    fn edit(&self, edit: impl FnOnce(&mut Value)) {
        let mut state = self.0.lock().unwrap();
        let mut lease = state.lease.clone().unwrap();
        edit(&mut lease);
        state.store(lease);
    }

    fn delete(&self) {
        self.0.lock().unwrap().lease = None;
    }

    fn fail_with(&self, code: Option<u16>) {
        self.0.lock().unwrap().failure = code;
    }

    fn spec(&self) -> Value {
        self.0.lock().unwrap().lease.as_ref().unwrap()["spec"].clone()
    }

    fn holder(&self) -> String {
        self.spec()["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    fn take_requests(&self) -> Vec<(Instant, String)> {
        std::mem::take(&mut self.0.lock().unwrap().requests)
    }

    /// A Lease that another process holds.
    fn held_by_other(renew_time: &str) -> Self {
        let server = Server::default();
        server.0.lock().unwrap().store(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE_NAME, "namespace": "lmcache"},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 4,
                "acquireTime": renew_time, "renewTime": renew_time},
        }));
        server
    }
}

impl State {
    fn store(&mut self, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.lease = Some(lease.clone());
        lease
    }
}

/// As the API server words it; `kube` tells "not found" by the reason and not by the code.
fn status(code: u16) -> Value {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason,
        "message": format!("answered {code}")})
}

fn config(identity: &str) -> LeaderConfig {
    LeaderConfig { identity: identity.to_owned(), ..LeaderConfig::new(Some("lmcache"), "unused").unwrap() }
}

fn metrics() -> Metrics {
    Metrics::new("0", "0")
}

fn leads(metrics: &Metrics) -> bool {
    metrics.encode().lines().any(|line| line == "lmcache_operator_leader 1")
}

async fn lead(server: &Server, identity: &str, metrics: &Metrics) -> Leadership {
    let shutdown = CancellationToken::new();
    let acquire = Leadership::acquire(server.client(), config(identity), metrics.clone(), &shutdown);
    let Ok(leadership) = timeout(LIMIT, acquire).await else {
        let requests = server.take_requests();
        let last = requests.last().map(|(_, request)| request);
        panic!("{identity} does not lead after {LIMIT:?} and {} requests, the last {last:?}", requests.len());
    };
    leadership.unwrap()
}

async fn is_lost_within(leadership: &mut Leadership, patience: Duration) -> bool {
    timeout(patience, leadership.lost()).await.is_ok()
}

/// What a task that was spawned comes to.
async fn outcome<T>(task: JoinHandle<T>) -> T {
    timeout(LIMIT, task).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_free_lease_is_taken_and_renewed_with_one_request_each_two_seconds() {
    let (server, metrics) = (Server::default(), metrics());
    let mut leadership = lead(&server, "me", &metrics).await;
    let spec = server.spec();
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!("me"), &json!(15)), "{spec}");
    assert!(leads(&metrics));
    server.take_requests();
    let begun = Instant::now();
    assert!(!is_lost_within(&mut leadership, Duration::from_secs(61)).await);
    let requests = server.take_requests();
    assert!(requests.iter().all(|(_, request)| request.starts_with("PUT ")), "{requests:?}");
    let times: Vec<Duration> = requests.iter().map(|(at, _)| *at - begun).collect();
    assert_eq!(times, (1..=30).map(|nth| Duration::from_secs(2 * nth)).collect::<Vec<_>>());
    assert_eq!(server.spec()["leaseTransitions"], 0, "renewals are no transitions: {}", server.spec());
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_by_the_next_within_one_pause() {
    let (server, first_metrics, second_metrics) = (Server::default(), metrics(), metrics());
    let first = lead(&server, "first", &first_metrics).await;
    let second = tokio::spawn({
        let (server, metrics) = (server.clone(), second_metrics.clone());
        async move { lead(&server, "second", &metrics).await }
    });
    sleep(Duration::from_mins(1)).await;
    assert!(!second.is_finished() && server.holder() == "first", "{}", server.spec());
    assert!(leads(&first_metrics) && !leads(&second_metrics));

    timeout(LIMIT, first.release()).await.unwrap();
    assert_eq!(server.holder(), "");
    assert!(!leads(&first_metrics));
    let released = Instant::now();
    let _second = outcome(second).await;
    assert!(released.elapsed() <= Duration::from_millis(2500), "took {:?}", released.elapsed());
    assert_eq!((server.holder().as_str(), &server.spec()["leaseTransitions"]), ("second", &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn a_leadership_that_is_dropped_is_released() {
    let server = Server::default();
    drop(lead(&server, "me", &metrics()).await);
    sleep(Duration::from_millis(10)).await;
    assert_eq!(server.holder(), "");
}

#[rstest::rstest]
#[case::clock_far_behind("2001-01-01T00:00:00.000000Z")]
#[case::clock_far_ahead("2999-01-01T00:00:00.000000Z")]
#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_replaced_after_its_lease_duration_by_our_clock(#[case] renew_time: &str) {
    let server = Server::held_by_other(renew_time);
    let begun = Instant::now();
    let _leadership = lead(&server, "me", &metrics()).await;
    let took = begun.elapsed();
    assert!((Duration::from_secs(15)..Duration::from_secs(18)).contains(&took), "took {took:?}");
    assert_eq!(server.spec()["leaseTransitions"], 5, "{}", server.spec());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_renews_is_never_replaced_however_wrong_its_clock() {
    let server = Server::held_by_other("2001-01-01T00:00:00.000000Z");
    let shutdown = CancellationToken::new();
    let waiting = tokio::spawn({
        let (client, shutdown) = (server.client(), shutdown.clone());
        async move { Leadership::acquire(client, config("me"), metrics(), &shutdown).await }
    });
    for second in 1..30 {
        sleep(Duration::from_secs(10)).await;
        server.edit(|lease| lease["spec"]["renewTime"] = format!("2001-01-01T00:00:{second:02}.000000Z").into());
    }
    assert_eq!(server.holder(), "other");
    shutdown.cancel();
    assert!(outcome(waiting).await.is_none());
    assert_eq!(server.holder(), "other");
}

#[rstest::rstest]
#[case::an_error(500)]
#[case::no_answer(0)]
#[tokio::test(start_paused = true)]
async fn a_short_failure_loses_nothing_and_a_long_one_ends_leadership_before_others_may_take_over(#[case] code: u16) {
    let (server, metrics) = (Server::default(), metrics());
    let mut leadership = lead(&server, "me", &metrics).await;
    sleep(Duration::from_secs(5)).await;
    server.fail_with(Some(code));
    assert!(!is_lost_within(&mut leadership, Duration::from_secs(3)).await);
    server.fail_with(None);
    assert!(!is_lost_within(&mut leadership, Duration::from_mins(1)).await);

    server.fail_with(Some(code));
    let begun = Instant::now();
    assert!(is_lost_within(&mut leadership, LIMIT).await);
    assert!(begun.elapsed() <= Duration::from_secs(12), "took {:?}", begun.elapsed());
    assert!(!leads(&metrics));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_else_took_is_lost_at_the_next_renewal() {
    let server = Server::default();
    let mut leadership = lead(&server, "me", &metrics()).await;
    server.edit(|lease| lease["spec"]["holderIdentity"] = "thief".into());
    assert!(is_lost_within(&mut leadership, Duration::from_millis(2100)).await);
    timeout(LIMIT, leadership.release()).await.unwrap();
    assert_eq!(server.holder(), "thief");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_deleted_is_made_again() {
    let server = Server::default();
    let mut leadership = lead(&server, "me", &metrics()).await;
    server.delete();
    assert!(!is_lost_within(&mut leadership, Duration::from_secs(10)).await);
    assert_eq!(server.holder(), "me");
}

#[tokio::test(start_paused = true)]
async fn an_edit_of_the_lease_by_a_person_neither_loses_it_nor_is_lost() {
    let server = Server::default();
    let mut leadership = lead(&server, "me", &metrics()).await;
    server.edit(|lease| lease["metadata"]["annotations"] = json!({"note": "hands off"}));
    assert!(!is_lost_within(&mut leadership, Duration::from_secs(30)).await);
    let lease = server.0.lock().unwrap().lease.clone().unwrap();
    assert_eq!(lease["metadata"]["annotations"]["note"], "hands off", "{lease}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_waited_out_without_a_busy_loop() {
    let server = Server::default();
    server.fail_with(Some(403));
    let waiting = tokio::spawn({
        let server = server.clone();
        async move { lead(&server, "me", &metrics()).await }
    });
    sleep(Duration::from_mins(1)).await;
    let requests = server.take_requests().len();
    assert!((20..=31).contains(&requests), "{requests} requests in a minute");
    server.fail_with(None);
    advance(Duration::from_secs(3)).await;
    let _leadership = outcome(waiting).await;
    assert_eq!(server.holder(), "me");
}

#[test]
fn a_missing_permission_is_described_with_what_to_grant() {
    let denied = serde_json::from_value::<kube::core::Status>(status(403)).unwrap();
    let text = describe(&kube::Error::Api(Box::new(denied)));
    assert!(text.contains("grant get, create and update on leases.coordination.k8s.io"), "{text}");
}

#[test]
fn no_two_processes_share_an_identity() {
    let identities: std::collections::BTreeSet<String> = (0..100).map(|_| identity().unwrap()).collect();
    assert_eq!(identities.len(), 100, "{identities:?}");
}
