#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex as StdMutex};

use ::http::{HeaderValue, Request, Response};
use kube::client::Body;
use rstest::rstest;
use serde_json::{Value, json};
use tower::BoxError;

use super::*;

/// Tokens `good` and `poor` are alice's and bob's; only alice may scrape.
fn api_server(asked: &Arc<StdMutex<Vec<Value>>>) -> kube::Client {
    let asked = Arc::clone(asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let asked = Arc::clone(&asked);
        async move {
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut review: Value = serde_json::from_slice(&body).unwrap();
            asked.lock().unwrap().push(review.clone());
            review["status"] = match (review["kind"].as_str(), review["spec"]["token"].as_str()) {
                (Some("TokenReview"), Some("good")) => json!({"authenticated": true, "user": {
                    "username": "alice", "uid": "1", "groups": ["scrapers"], "extra": {"scope": ["all"]}}}),
                (Some("TokenReview"), Some("poor")) => json!({"authenticated": true, "user": {"username": "bob"}}),
                (Some("TokenReview"), Some("broken")) => return Err(BoxError::from("connection refused")),
                (Some("TokenReview"), _) => json!({"authenticated": false, "error": "invalid bearer token"}),
                _ => json!({"allowed": review["spec"]["user"] == "alice"}),
            };
            Ok::<_, BoxError>(Response::new(Body::from(review.to_string().into_bytes())))
        }
    });
    kube::Client::new(service, "default")
}

fn bearing(authorization: &str) -> HeaderMap {
    let value = HeaderValue::from_str(authorization).unwrap();
    HeaderMap::from_iter([(AUTHORIZATION, value)])
}

#[rstest]
#[case::allowed("Bearer good", Verdict::Allowed, 2)]
#[case::scheme_in_lower_case("bearer  good ", Verdict::Allowed, 2)]
#[case::not_allowed("Bearer poor", Verdict::Forbidden { user: "bob".to_owned() }, 2)]
#[case::nobodys_token("Bearer stolen", Verdict::Unauthenticated, 1)]
#[case::empty_token("Bearer ", Verdict::Unauthenticated, 0)]
#[case::another_scheme("Basic Z29vZA==", Verdict::Unauthenticated, 0)]
#[tokio::test]
async fn the_api_server_decides_who_may_scrape(
    #[case] authorization: &str,
    #[case] expected: Verdict,
    #[case] questions: usize,
) {
    let asked = Arc::default();
    let authorizer = Authorizer::new(api_server(&asked));
    let verdict = authorizer.check(&Method::GET, &bearing(authorization)).await.unwrap();
    assert_eq!(verdict, expected, "{authorization}");
    assert_eq!(asked.lock().unwrap().len(), questions, "{:?}", asked.lock().unwrap());
}

#[tokio::test]
async fn a_request_without_a_token_asks_nobody() {
    let asked = Arc::default();
    let verdict = Authorizer::new(api_server(&asked)).check(&Method::GET, &HeaderMap::new()).await.unwrap();
    assert_eq!((verdict, asked.lock().unwrap().len()), (Verdict::Unauthenticated, 0));
}

#[tokio::test]
async fn the_access_review_speaks_of_the_whole_user_and_of_metrics_only() {
    let asked = Arc::default();
    let _ = Authorizer::new(api_server(&asked)).check(&Method::GET, &bearing("Bearer good")).await;
    let expected = json!({"user": "alice", "uid": "1", "groups": ["scrapers"], "extra": {"scope": ["all"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
    assert_eq!(asked.lock().unwrap()[1]["spec"], expected);
}

#[tokio::test(start_paused = true)]
async fn an_answer_holds_for_a_short_time_only() {
    let asked = Arc::default();
    let authorizer = Authorizer::new(api_server(&asked));
    for (after, authorization, questions) in [
        (0, "Bearer good", 2),
        (59, "Bearer good", 2),
        (2, "Bearer good", 4),
        (0, "Bearer poor", 6),
        (11, "Bearer poor", 8),
    ] {
        tokio::time::advance(Duration::from_secs(after)).await;
        authorizer.check(&Method::GET, &bearing(authorization)).await.unwrap();
        assert_eq!(asked.lock().unwrap().len(), questions, "after {after} s more with {authorization}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_tokens_does_not_grow_the_memory_of_answers() {
    let asked = Arc::default();
    let authorizer = Authorizer::new(api_server(&asked));
    for number in 0..2 * MAX_ANSWERS {
        let headers = bearing(&format!("Bearer made-up-{number}"));
        assert_eq!(authorizer.check(&Method::GET, &headers).await.unwrap(), Verdict::Unauthenticated);
    }
    assert_eq!(authorizer.answers.lock().unwrap().len(), MAX_ANSWERS);
}

#[tokio::test]
async fn a_failure_is_no_verdict_is_not_remembered_and_does_not_tell_the_token() {
    let asked = Arc::default();
    let authorizer = Authorizer::new(api_server(&asked));
    for _ in 0..2 {
        let error = authorizer.check(&Method::GET, &bearing("Bearer broken")).await.unwrap_err();
        let text = format!("{error} {error:?} {authorizer:?}");
        assert!(text.contains("tokenreviews") && !text.contains("Bearer"), "{text}");
    }
    assert_eq!(asked.lock().unwrap().len(), 2);
}
