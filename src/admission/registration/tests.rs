#![allow(clippy::unwrap_used)]

use rstest::rstest;
use serde::Deserialize as _;

use super::*;

const NAMESPACE: &str = "lmcache-operator-system";
const MANIFESTS: &str = include_str!("../../../deploy/base/webhooks.yaml");

fn names() -> Names {
    Names { prefix: "lmcache-operator".to_owned(), namespace: NAMESPACE.to_owned() }
}

fn service() -> Address {
    Address::Service { namespace: NAMESPACE.to_owned(), name: names().service() }
}

/// The shipped object of that kind, as kustomize renders it.
fn shipped(kind: &str) -> Value {
    let mut documents = serde_norway::Deserializer::from_str(MANIFESTS).map(|it| Value::deserialize(it).unwrap());
    let mut object = documents.find(|object| object["kind"] == kind).unwrap();
    object["metadata"]["name"] = format!("lmcache-operator-{}", object["metadata"]["name"].as_str().unwrap()).into();
    object["metadata"].as_object_mut().unwrap().remove("labels");
    for webhook in object["webhooks"].as_array_mut().unwrap() {
        let service = &mut webhook["clientConfig"]["service"];
        service["name"] = format!("lmcache-operator-{}", service["name"].as_str().unwrap()).into();
        assert_eq!(service["namespace"], "system");
        service["namespace"] = NAMESPACE.into();
        if let Some(own) = webhook.pointer_mut("/namespaceSelector/matchExpressions/0/values/2") {
            assert_eq!(*own, "system");
            *own = NAMESPACE.into();
        }
    }
    object
}

#[test]
fn what_is_shipped_is_what_is_registered_by_url() {
    let ours = mutating(names().mutating(), &service(), None);
    assert_eq!(serde_json::to_value(ours).unwrap(), shipped("MutatingWebhookConfiguration"));
    let ours = validating(names().validating(), &service(), None);
    assert_eq!(serde_json::to_value(ours).unwrap(), shipped("ValidatingWebhookConfiguration"));
}

#[test]
fn everything_is_called_after_the_prefix() {
    let names = Names { prefix: "release".to_owned(), namespace: "ai".to_owned() };
    assert_eq!(names.service(), "release-webhook-service");
    assert_eq!(names.secret(), "release-webhook-ca");
    assert_eq!(names.mutating(), "release-mutating-webhook-configuration");
    assert_eq!(names.validating(), "release-validating-webhook-configuration");
    let dns = ["release-webhook-service.ai.svc", "release-webhook-service.ai.svc.corp.local"];
    assert_eq!(names.dns_names("corp.local"), dns);
}

#[rstest]
#[case::service(service(), service(), true)]
#[case::other_namespace(service(), Address::Service { namespace: "default".into(), name: names().service() }, false)]
#[case::other_service(service(), Address::Service { namespace: NAMESPACE.into(), name: "other".into() }, false)]
#[case::url(Address::Url("https://h:1".into()), Address::Url("https://h:1".into()), true)]
#[case::longer_port(Address::Url("https://h:1".into()), Address::Url("https://h:19".into()), false)]
#[case::url_for_service(service(), Address::Url("https://h:1".into()), false)]
fn only_webhooks_that_call_this_operator_are_touched(
    #[case] own: Address,
    #[case] registered: Address,
    #[case] touched: bool,
) {
    let configuration = mutating(names().mutating(), &registered, Some(b"foreign"));
    assert_eq!(trust(&configuration, &own, b"ours").is_some(), touched, "{own:?} {registered:?}");
}

#[test]
fn a_patch_holds_what_differs_and_the_version_that_was_seen() {
    let mut configuration = mutating(names().mutating(), &service(), Some(b"ours"));
    configuration.metadata.resource_version = Some("7".to_owned());
    assert_eq!(trust(&configuration, &service(), b"ours"), None);
    configuration.webhooks.as_mut().unwrap()[1].client_config.ca_bundle = None;
    let expected = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": "b3Vycw=="},
    ]);
    assert_eq!(trust(&configuration, &service(), b"ours"), Some(expected));
}

#[test]
fn namespaces_of_the_system_and_of_the_operator_are_left_out() {
    let address = Address::Service { namespace: "ai".to_owned(), name: "x".to_owned() };
    let configuration = serde_json::to_value(mutating("m".to_owned(), &address, None)).unwrap();
    for webhook in configuration["webhooks"].as_array().unwrap() {
        let values = &webhook["namespaceSelector"]["matchExpressions"][0]["values"];
        assert_eq!(*values, json!(["kube-system", "kube-public", "ai"]));
    }
}
