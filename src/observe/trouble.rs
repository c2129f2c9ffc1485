//! What to say when a watch breaks, and how long to wait.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Error;
use kube::core::Status;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher;
use lmcache_observability::Metrics;
use tracing::{debug, warn};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How often the same trouble is told while it lasts.
const REPEAT: Duration = Duration::from_secs(30);

/// Pauses between attempts: 0.5 s, doubling up to 15 s, with a tenth of jitter.
pub fn backoff() -> Pauses {
    Pauses { next: FIRST_PAUSE }
}

/// See [`backoff`].
pub struct Pauses {
    next: Duration,
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST_PAUSE);
        Some(crate::controllers::jittered(pause, 0.1))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        self.next = FIRST_PAUSE;
    }
}

/// Counts the break and says what a person should do about it; the same advice once in half a minute, for an API server
/// that is gone breaks all watches and every attempt to open one again.
pub fn report(resource: &'static str, error: &watcher::Error, metrics: &Metrics) {
    static TOLD: Mutex<Told> = Mutex::new(Told(Vec::new()));
    let (cause, advice) = explain(resource, error);
    metrics.watch_restarted(resource, cause);
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    match advice {
        Some(advice) if told.is_news(&advice, Instant::now()) => {
            warn!(resource, cause, "Failed to watch {resource}: {advice}");
        }
        _ => debug!(resource, cause, %error, "Watch ended, starting again"),
    }
}

/// What was told lately, and when.
struct Told(Vec<(String, Instant)>);

impl Told {
    fn is_news(&mut self, advice: &str, now: Instant) -> bool {
        self.0.retain(|(_, at)| now.duration_since(*at) < REPEAT);
        let is_news = self.0.iter().all(|(told, _)| told != advice);
        if is_news {
            self.0.push((advice.to_owned(), now));
        }
        is_news
    }
}

/// The cause as a bounded label, and advice unless the break is ordinary.
pub fn explain(resource: &str, error: &watcher::Error) -> (&'static str, Option<String>) {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => explain_request(resource, error),
        watcher::Error::WatchError(status) if status.code == 410 => ("expired", None),
        watcher::Error::WatchError(status) => explain_status(resource, status),
        watcher::Error::NoResourceVersion => ("protocol", Some("the answer has no resourceVersion".to_owned())),
    }
}

fn explain_request(resource: &str, error: &Error) -> (&'static str, Option<String>) {
    match error {
        Error::Api(status) => explain_status(resource, status),
        Error::HyperError(_) | Error::Service(_) => {
            ("unreachable", Some(format!("the API server cannot be reached, trying again: {}", chain(error))))
        }
        Error::ReadEvents(_) => ("disconnected", None),
        Error::Auth(_) => ("unauthenticated", Some(format!("the credentials cannot be used: {}", chain(error)))),
        _ => ("protocol", Some(chain(error))),
    }
}

fn explain_status(resource: &str, status: &Status) -> (&'static str, Option<String>) {
    match status.code {
        401 => ("unauthenticated", Some("the API server does not accept the credentials".to_owned())),
        403 => (
            "forbidden",
            Some(format!(
                "not allowed: {}; grant the verbs list and watch on {resource} to the operator's ServiceAccount",
                status.message
            )),
        ),
        404 => (
            "not-served",
            Some(format!(
                "the API server does not serve {resource}: apply the CustomResourceDefinitions (crds/manifests); waiting for them"
            )),
        ),
        429 | 500..=599 => {
            ("server-error", Some(format!("the API server answers {}: {}", status.code, status.message)))
        }
        _ => ("refused", Some(format!("the API server answers {}: {}", status.code, status.message))),
    }
}

/// An error with all its causes; the outermost alone often says nothing.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        // The client's own text for an answer of the API server repeats the whole Status.
        let answer = match error.downcast_ref::<Error>() {
            Some(Error::Api(status)) => Some(&status.message),
            _ => None,
        };
        let words = answer.cloned().unwrap_or_else(|| error.to_string());
        if !text.contains(&words) {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&words);
        }
        next = if answer.is_some() { None } else { error.source() };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn answer(code: u16, message: &str) -> Error {
        Error::Api(Box::new(Status::failure(message, "Reason").with_code(code)))
    }

    #[rstest]
    #[case(403, "forbidden", "grant the verbs list and watch on pods")]
    #[case(404, "not-served", "does not serve pods: apply the CustomResourceDefinitions")]
    #[case(401, "unauthenticated", "does not accept the credentials")]
    #[case(500, "server-error", "answers 500: oops")]
    fn a_broken_watch_says_what_to_do(#[case] code: u16, #[case] cause: &str, #[case] advice: &str) {
        let (found, text) = explain("pods", &watcher::Error::InitialListFailed(answer(code, "oops")));
        assert_eq!(found, cause);
        assert!(text.as_deref().is_some_and(|text| text.contains(advice)), "{text:?}");
    }

    #[test]
    fn the_same_advice_is_told_again_only_after_a_while() {
        let (mut told, now) = (Told(Vec::new()), Instant::now());
        assert!(told.is_news("unreachable", now));
        assert!(!told.is_news("unreachable", now + REPEAT / 2));
        assert!(told.is_news("forbidden", now + REPEAT / 2));
        assert!(told.is_news("unreachable", now + REPEAT));
        assert_eq!(told.0.len(), 2, "what was told before is forgotten");
    }

    #[test]
    fn an_expired_watch_is_ordinary() {
        let status = Status::failure("too old resource version", "Expired").with_code(410);
        assert_eq!(explain("pods", &watcher::Error::WatchError(Box::new(status))), ("expired", None));
    }

    #[test]
    fn an_answer_of_the_api_server_is_told_once() {
        assert_eq!(chain(&answer(409, "the object has been modified")), "the object has been modified");
    }

    #[test]
    fn pauses_grow_and_start_again_after_a_success() {
        let mut pauses = backoff();
        let first = pauses.next();
        assert!(pauses.nth(8).is_some_and(|pause| pause >= LONGEST_PAUSE && pause <= LONGEST_PAUSE * 2));
        pauses.reset();
        assert!(pauses.next() < first.map(|pause| pause * 2));
    }
}
