//! Who may scrape: the API server says whose token it is and whether that user may get `/metrics`.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use ring::digest;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

const PATH: &str = "/metrics";

/// How long an answer holds: long enough for several scrapes, short enough that a withdrawn permission soon counts.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
const DENIED_FOR: Duration = Duration::from_secs(10);

/// How many answers are kept; a flood of made-up tokens pushes out old answers, not memory.
const MAX_ANSWERS: usize = 256;

/// How many questions are asked at once, and how long one may take.
const MAX_QUESTIONS: usize = 4;
const QUESTION_TIMEOUT: Duration = Duration::from_secs(10);

/// What the API server says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The user may get `/metrics`.
    Allowed,
    /// There is no token, or nobody's.
    Unauthenticated,
    /// The user may not.
    Forbidden {
        /// Whose token it is.
        user: String,
    },
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthorizationError {
    #[error("cannot create {resource}: {source}")]
    Review { resource: &'static str, source: kube::Error },
    #[error("the API server did not answer within {} s", QUESTION_TIMEOUT.as_secs())]
    Timeout,
}

/// Answers are kept under the digest of method and token, so that no token stays in memory.
type Key = [u8; digest::SHA256_OUTPUT_LEN];

/// Asks, and remembers the answers for a short time.
pub(super) struct Authorizer {
    client: kube::Client,
    answers: Mutex<HashMap<Key, (Verdict, Instant)>>,
    questions: Semaphore,
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").finish_non_exhaustive()
    }
}

impl Authorizer {
    pub(super) fn new(client: kube::Client) -> Self {
        Authorizer { client, answers: Mutex::default(), questions: Semaphore::new(MAX_QUESTIONS) }
    }

    /// Whether a request with these headers may have `/metrics`.
    pub(super) async fn check(&self, method: &Method, headers: &HeaderMap) -> Result<Verdict, AuthorizationError> {
        let Some(token) = bearer(headers) else { return Ok(Verdict::Unauthenticated) };
        let verb = method.as_str().to_ascii_lowercase();
        let key = key(&verb, token);
        if let Some(verdict) = self.remembered(&key) {
            return Ok(verdict);
        }
        let asked = timeout(QUESTION_TIMEOUT, async {
            // The semaphore is never closed; if it were, asking without a permit would still be right.
            let _permit = self.questions.acquire().await.ok();
            match self.remembered(&key) {
                Some(verdict) => Ok(verdict),
                None => self.ask(&verb, token).await,
            }
        });
        let verdict = asked.await.map_err(|_| AuthorizationError::Timeout)??;
        if let Verdict::Forbidden { user } = &verdict {
            tracing::warn!(user, "Denied a metrics request: grant get on the non-resource URL {PATH}");
        }
        self.remember(key, verdict.clone());
        Ok(verdict)
    }

    async fn ask(&self, verb: &str, token: &str) -> Result<Verdict, AuthorizationError> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), audiences: None },
            ..TokenReview::default()
        };
        let status = self.create("tokenreviews", &review).await?.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Verdict::Unauthenticated);
        };
        let name = user.username.clone().unwrap_or_default();
        let review = access_review(user, verb);
        let allowed = self.create("subjectaccessreviews", &review).await?.status.is_some_and(|status| status.allowed);
        Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden { user: name } })
    }

    async fn create<K>(&self, resource: &'static str, review: &K) -> Result<K, AuthorizationError>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let api = Api::<K>::all(self.client.clone());
        api.create(&PostParams::default(), review)
            .await
            .map_err(|source| AuthorizationError::Review { resource, source })
    }

    fn remembered(&self, key: &Key) -> Option<Verdict> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(key).filter(|(_, until)| Instant::now() < *until).map(|(verdict, _)| verdict.clone())
    }

    fn remember(&self, key: Key, verdict: Verdict) {
        let now = Instant::now();
        let holds = if verdict == Verdict::Allowed { ALLOWED_FOR } else { DENIED_FOR };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|_, (_, until)| now < *until);
        if answers.len() >= MAX_ANSWERS {
            let first_to_end = answers.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| *key);
            first_to_end.map(|key| answers.remove(&key));
        }
        answers.insert(key, (verdict, now + holds));
    }
}

fn access_review(user: UserInfo, verb: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(PATH.to_owned()),
                verb: Some(verb.to_owned()),
            }),
            resource_attributes: None,
        },
        ..SubjectAccessReview::default()
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn key(verb: &str, token: &str) -> Key {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(verb.as_bytes());
    context.update(b"\0");
    context.update(token.as_bytes());
    let mut key = Key::default();
    key.copy_from_slice(context.finish().as_ref());
    key
}

#[cfg(test)]
mod tests;
