//! The manifests that an installation applies.

use common::project;
use rstest::rstest;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{common, shared};

/// As `kubectl apply -k` would apply them.
async fn rendered(folder: &str) -> Vec<Value> {
    let path = project().join("deploy").join(folder);
    let text = shared().await.0.cluster.kubectl(&["kustomize", path.to_str().unwrap()]).await.unwrap();
    serde_norway::Deserializer::from_str(&text).map(|it| Value::deserialize(it).unwrap()).collect()
}

#[rstest]
#[case::base("base")]
#[case::cert_manager("overlays/cert-manager")]
#[case::namespaced("overlays/namespaced")]
#[tokio::test(flavor = "multi_thread")]
async fn the_injectors_leave_the_namespace_alone_that_the_operator_is_installed_in(#[case] folder: &str) {
    let objects = rendered(folder).await;
    let of = |kind: &str| objects.iter().find(|it| it["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    let own = &of("Deployment")["metadata"]["namespace"];
    let webhooks = of("MutatingWebhookConfiguration")["webhooks"].as_array().unwrap();
    assert_eq!(webhooks.len(), 2, "{webhooks:#?}");
    for webhook in webhooks {
        let left_alone = &webhook["namespaceSelector"]["matchExpressions"][0];
        assert_eq!(left_alone["operator"], "NotIn", "{webhook:#}");
        assert_eq!(left_alone["values"], serde_json::json!(["kube-system", "kube-public", own]), "{webhook:#}");
    }
}
