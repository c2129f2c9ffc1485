//! `AdmissionReview` v1: what the API server asks, what it is answered, and who answers.

use futures::future::BoxFuture;
use json_patch::Patch;
use k8s_openapi::ByteString;
use lmcache_observability::WebhookOutcome;
use serde::Deserialize;
use serde_json::{Value, json};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// Answers the questions of one webhook.
pub trait Handler: Send + Sync + 'static {
    /// Name of the webhook, as metrics and logs show it.
    fn webhook(&self) -> &'static str;

    /// The answer. It is given up after a few seconds, and may panic: [`Handler::failed`] is the answer then.
    fn handle<'a>(&'a self, request: &'a AdmissionRequest) -> BoxFuture<'a, Response>;

    /// The answer when there is none: the object passes as it is (D21). `what` went wrong, for a person; `reason` is a
    /// metric label.
    fn failed(&self, _request: &AdmissionRequest, reason: &'static str, what: &str) -> Response {
        Response::error(reason, format!("webhook {} failed ({what}); the object was let through", self.webhook()))
    }
}

/// A question. Objects are raw: fields that this build does not know are still there.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest {
    /// Identifies question and answer.
    pub uid: String,
    /// Kind of the object.
    #[serde(default)]
    pub kind: GroupVersionKind,
    /// Subresource, such as `status`; empty for the object itself.
    #[serde(default)]
    pub sub_resource: String,
    /// Name of the object; empty when the API server is to make one.
    #[serde(default)]
    pub name: String,
    /// Namespace of the object; empty where it has none.
    #[serde(default)]
    pub namespace: String,
    /// What is done to the object.
    pub operation: Operation,
    /// Who does it.
    #[serde(default)]
    pub user_info: UserInfo,
    /// The object as it would be stored; null on DELETE.
    #[serde(default)]
    pub object: Value,
    /// The object as it is stored; null on CREATE.
    #[serde(default)]
    pub old_object: Value,
    /// Whether nothing will be stored: then nothing may be done beside answering.
    #[serde(default)]
    pub dry_run: bool,
}

/// A kind, with its group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupVersionKind {
    /// API group; empty for the core.
    pub group: String,
    /// Version in the group.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// Who asks for something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// Name of the user.
    pub username: String,
}

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
    /// Something is connected to it.
    Connect,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// Whether the object may pass.
    pub allowed: bool,
    /// What a person is told: with a refusal why, otherwise a word for the audit log. Empty for none.
    pub message: String,
    /// HTTP code that goes with it: 200, or that of a refusal.
    pub code: u16,
    /// Warnings for the person who sent the object, one line each.
    pub warnings: Vec<String>,
    /// Changes of the object; none and empty are the same.
    pub patch: Option<Patch>,
    /// What came of it, for metrics.
    pub outcome: WebhookOutcome,
    /// Why, for metrics: one of a fixed list of words.
    pub reason: &'static str,
}

impl Response {
    /// The object passes as it is.
    pub fn allowed(outcome: WebhookOutcome, reason: &'static str) -> Self {
        Response {
            allowed: true,
            message: String::new(),
            code: 200,
            warnings: Vec::new(),
            patch: None,
            outcome,
            reason,
        }
    }

    /// The object passes as it is, although something went wrong, and its sender is told.
    pub fn error(reason: &'static str, warning: String) -> Self {
        Response { warnings: vec![warning], ..Response::allowed(WebhookOutcome::Error, reason) }
    }

    /// The object is refused as invalid.
    pub fn invalid(reason: &'static str, message: String) -> Self {
        Response { allowed: false, message, code: 422, ..Response::allowed(WebhookOutcome::Denied, reason) }
    }

    /// The answer to the question of that `uid`, as the API server reads it.
    pub fn encode(&self, uid: &str) -> Vec<u8> {
        let mut response = json!({"uid": uid, "allowed": self.allowed});
        if !self.allowed || !self.message.is_empty() {
            response["status"] = json!({"code": self.code, "message": self.message});
            if self.code == 422 {
                response["status"]["reason"] = "Invalid".into();
            }
        }
        if !self.warnings.is_empty() {
            response["warnings"] = self.warnings.as_slice().into();
        }
        if let Some(patch) = self.patch.as_ref().filter(|patch| !patch.0.is_empty()) {
            // Operations of plain JSON values always have a text.
            let text = serde_json::to_vec(patch).unwrap_or_else(|_| b"[]".to_vec());
            response["patchType"] = "JSONPatch".into();
            response["patch"] = json!(ByteString(text));
        }
        json!({"apiVersion": API_VERSION, "kind": KIND, "response": response}).to_string().into_bytes()
    }
}

/// Why a body is no question.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// It is not JSON.
    #[error("the body is not JSON: {0}")]
    NotJson(#[source] serde_json::Error),
    /// It is JSON of another kind.
    #[error("want {API_VERSION} {KIND}, got {0}")]
    OtherKind(String),
    /// It has no request, or a request lacks what every one has.
    #[error("the {KIND} has no usable request: {0}")]
    NoRequest(String),
}

impl AdmissionRequest {
    /// Reads the question in a body.
    pub fn decode(body: &[u8]) -> Result<Self, ReviewError> {
        let review: Review = serde_json::from_slice(body).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => ReviewError::NoRequest(error.to_string()),
            _ => ReviewError::NotJson(error),
        })?;
        if (review.api_version.as_str(), review.kind.as_str()) != (API_VERSION, KIND) {
            let shown = |text: &str| text.chars().take(80).collect::<String>();
            let other = format!("{:?} {:?}", shown(&review.api_version), shown(&review.kind));
            return Err(ReviewError::OtherKind(other));
        }
        review.request.ok_or_else(|| ReviewError::NoRequest("it is not there".to_owned()))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Review {
    api_version: String,
    kind: String,
    request: Option<AdmissionRequest>,
}

#[cfg(test)]
mod tests;
