#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rstest::rstest;

use super::*;

fn question() -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "ai",
            "operation": "CREATE",
            "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
            "object": {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"fieldOfTheFuture": [1.50]}},
            "oldObject": null,
            "dryRun": true,
            "options": {"kind": "CreateOptions"},
        },
    })
}

#[test]
fn a_question_is_read_with_its_raw_object() {
    let request = AdmissionRequest::decode(question().to_string().as_bytes()).unwrap();
    assert_eq!((request.uid.as_str(), request.namespace.as_str(), request.name.as_str()), ("u-1", "ai", ""));
    assert_eq!((request.operation, request.dry_run), (Operation::Create, true));
    assert_eq!(request.kind.kind, "Pod");
    assert_eq!(request.user_info.username, "jane");
    assert_eq!(request.object["spec"]["fieldOfTheFuture"], json!([1.5]));
    assert!(request.old_object.is_null());
}

#[rstest]
#[case::empty("", "not JSON")]
#[case::cut(r#"{"apiVersion": "admission"#, "not JSON")]
#[case::text("hello", "not JSON")]
#[case::too_deep(&format!(r#"{{"request": {{"object": {}"#, "[".repeat(100_000)), "recursion limit exceeded")]
#[case::list("[1]", "no usable request")]
#[case::pod(r#"{"apiVersion": "v1", "kind": "Pod"}"#, r#"want admission.k8s.io/v1 AdmissionReview, got "v1" "Pod""#)]
#[case::old(r#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}"#, "v1beta1")]
#[case::no_request(r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#, "it is not there")]
#[case::no_uid(
    r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"operation": "CREATE"}}"#,
    "missing field `uid`"
)]
#[case::operation(
    r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u", "operation": "EAT"}}"#,
    "unknown variant `EAT`"
)]
fn what_is_no_question_is_refused_with_a_reason(#[case] body: &str, #[case] expected: &str) {
    let error = AdmissionRequest::decode(body.as_bytes()).unwrap_err().to_string();
    assert!(error.contains(expected) && error.len() < 300, "want {expected:?} in {error}");
}

fn answer(response: &Response) -> Value {
    let review: Value = serde_json::from_slice(&response.encode("u-1")).unwrap();
    assert_eq!((&review["apiVersion"], &review["kind"]), (&json!("admission.k8s.io/v1"), &json!("AdmissionReview")));
    review["response"].clone()
}

#[test]
fn an_object_that_passes_needs_few_words() {
    let response = Response::allowed(WebhookOutcome::Allowed, "valid");
    assert_eq!(answer(&response), json!({"uid": "u-1", "allowed": true}));
    let response = Response { message: "already injected".to_owned(), ..response };
    let expected = json!({"uid": "u-1", "allowed": true, "status": {"code": 200, "message": "already injected"}});
    assert_eq!(answer(&response), expected);
}

#[test]
fn a_refusal_says_why_and_an_error_lets_pass_with_a_warning() {
    let refused = answer(&Response::invalid("invalid", "spec.x: Required value: must be set".to_owned()));
    let status = json!({"code": 422, "reason": "Invalid", "message": "spec.x: Required value: must be set"});
    assert_eq!(refused, json!({"uid": "u-1", "allowed": false, "status": status}));
    let passed = answer(&Response::error("panic", "let through".to_owned()));
    assert_eq!(passed, json!({"uid": "u-1", "allowed": true, "warnings": ["let through"]}));
}

#[test]
fn a_patch_is_encoded_and_an_empty_one_is_none() {
    let patch = |operations: Value| Some(serde_json::from_value(operations).unwrap());
    let add = json!([{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]);
    let injected = Response { patch: patch(add.clone()), ..Response::allowed(WebhookOutcome::Injected, "") };
    let answer = |response: &Response| answer(response);
    assert_eq!(answer(&injected)["patchType"], "JSONPatch");
    let encoded: ByteString = serde_json::from_value(answer(&injected)["patch"].clone()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&encoded.0).unwrap(), add);
    let empty = Response { patch: patch(json!([])), ..injected };
    assert_eq!(answer(&empty), json!({"uid": "u-1", "allowed": true}));
}

proptest! {
    #[test]
    fn no_body_makes_the_decoder_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = AdmissionRequest::decode(&body);
    }

    #[test]
    fn a_question_that_is_cut_anywhere_is_refused(cut in 0_usize..400) {
        let body = question().to_string();
        if cut < body.len() {
            prop_assert!(AdmissionRequest::decode(&body.as_bytes()[..cut]).is_err());
        }
    }
}
