//! Missing permissions: verb, resource and what to grant are named, in the log and in the status.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use lmcache_crds::LMCacheEngine;
use lmcache_harness::Judgement;
use serde_json::{Value, json};

use crate::common::{Bed, Operator, engine, project};
use crate::http::get;
use crate::{assert_calm, bed, ended, lines_within, spec, suite, token_kubeconfig};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_may_not_be_applied_is_named_with_what_to_grant() {
    let bed = bed().await;
    let suite = suite(bed.cluster.client(), "unpatched").await;
    let account = Account::create(bed, suite.namespace()).await.unwrap();
    account.grant_without("daemonsets", &["patch"]).await.unwrap();
    let mut operator = account.operator(&[]).unwrap();
    operator.wait_for_log("Started the controllers").await.unwrap();
    suite.apply_fixture(&engine("cache", &spec(0))).await.unwrap();
    let forbidden = |engine: &LMCacheEngine| {
        let record = engine.status.as_ref().map(|status| &status.record);
        Judgement::from(record.is_some_and(|it| it.reason.as_deref() == Some("Forbidden")))
    };
    let seen = suite.wait("cache", "Forbidden", forbidden).await.unwrap().status.unwrap().record;
    let message = seen.message.clone().unwrap_or_default();
    for text in ["DaemonSet", "cannot patch resource \"daemonsets\"", "grant the verb patch on daemonsets"] {
        assert!(message.contains(text), "want {text:?} in {message:?}");
    }
    let applied = seen.conditions.iter().find(|it| it.type_ == "Applied").unwrap();
    assert_eq!((applied.status.as_str(), applied.reason.as_str()), ("False", "Forbidden"), "{applied:?}");
    // D10: what may be applied is.
    Api::<Service>::namespaced(suite.client(), suite.namespace()).get("cache").await.unwrap();
    let lines = lines_within(&operator, Duration::from_secs(5)).await;
    assert!(lines <= 20, "{lines} lines in 5 s:\n{}", operator.program.log());

    account.grant_without("daemonsets", &[]).await.unwrap();
    suite.patiently().wait_ready("cache").await.unwrap();
    assert_calm(&mut operator);
    suite.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_not_allowed_is_named_with_what_to_grant() {
    let bed = bed().await;
    let suite = suite(bed.cluster.client(), "unlisted").await;
    let account = Account::create(bed, suite.namespace()).await.unwrap();
    account.grant_without("pods", &["list", "watch"]).await.unwrap();
    let mut operator = account.operator(&[]).unwrap();
    let line = operator.wait_for_log("Failed to watch pods").await.unwrap();
    for text in [r#"cannot watch resource \"pods\""#, "grant the verbs list and watch on pods"] {
        assert!(line.contains(text), "want {text:?} in {line}");
    }
    let health = operator.address("Serving health probes").await.unwrap();
    let (code, answer) = get(&health, "/readyz").await.unwrap();
    assert!(code == 503 && answer.contains("waiting for caches"), "{answer}");
    let lines = lines_within(&operator, Duration::from_secs(5)).await;
    assert!(lines <= 10, "{lines} lines in 5 s:\n{}", operator.program.log());

    account.grant_without("pods", &[]).await.unwrap();
    operator.wait_for_log("Started the controllers").await.unwrap();
    suite.apply_fixture(&engine("cache", &spec(0))).await.unwrap();
    suite.wait_ready("cache").await.unwrap();
    assert_calm(&mut operator);
    suite.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_refuses_the_credentials_is_named_and_asked_with_patience() {
    let bed = bed().await;
    let kubeconfig = token_kubeconfig(bed, "refused", "not-a-token").unwrap();
    let mut operator = Operator::start(bed.cluster.state_dir(), "refused", &kubeconfig, &[]).unwrap();
    operator.wait_for_log("the API server does not accept the credentials").await.unwrap();
    let lines = lines_within(&operator, Duration::from_secs(5)).await;
    println!("{lines} lines in 5 s with refused credentials");
    assert!(lines <= 10, "{lines} lines in 5 s:\n{}", operator.program.log());
    assert_calm(&mut operator);
    assert!(!operator.program.log().contains("not-a-token"), "the token is in the log");
    operator.program.terminate();
    let (code, _) = ended(&mut operator, Duration::from_secs(10)).await.unwrap();
    assert_eq!(code, Some(0), "{}", operator.program.log());
}

/// A ServiceAccount with the operator's role, or a part of it.
struct Account<'a> {
    bed: &'a Bed,
    namespace: String,
    kubeconfig: PathBuf,
}

impl<'a> Account<'a> {
    async fn create(bed: &'a Bed, namespace: &str) -> Result<Self> {
        let kubectl = &bed.cluster;
        kubectl.kubectl(&["create", "serviceaccount", "operator", "-n", namespace]).await?;
        let token = kubectl.kubectl(&["create", "token", "operator", "-n", namespace]).await?;
        let kubeconfig = token_kubeconfig(bed, namespace, token.trim())?;
        Ok(Self { bed, namespace: namespace.to_owned(), kubeconfig })
    }

    /// Grants the shipped role but for these verbs on this resource.
    async fn grant_without(&self, resource: &str, verbs: &[&str]) -> Result<()> {
        let shipped = std::fs::read_to_string(project().join("deploy/base/manager_role.yaml"))?;
        let mut role: Value = serde_norway::from_str(&shipped)?;
        let name = format!("operator-{}", self.namespace);
        role["metadata"] = json!({"name": name});
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        role["rules"] = rules.iter().flat_map(|rule| split(rule, resource, verbs)).collect();
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": self.namespace}],
        });
        self.bed.cluster.apply_yaml(&format!("{role:#}\n---\n{binding:#}")).await
    }

    fn operator(&self, flags: &[&str]) -> Result<Operator> {
        let own = format!("--watch-namespaces={}", self.namespace);
        let flags = [&[own.as_str()], flags].concat();
        Operator::start(self.bed.cluster.state_dir(), &self.namespace, &self.kubeconfig, &flags)
    }
}

/// One rule of the role as one rule for each resource, without these verbs on this one.
fn split(rule: &Value, resource: &str, verbs: &[&str]) -> Vec<Value> {
    let resources = rule["resources"].as_array().cloned().unwrap_or_default();
    let of = |it: Value| {
        let mut rule = rule.clone();
        if it == resource
            && let Some(granted) = rule["verbs"].as_array_mut()
        {
            granted.retain(|verb| !verbs.iter().any(|it| verb == it));
        }
        rule["resources"] = json!([it]);
        rule
    };
    resources.into_iter().map(of).filter(|rule| rule["verbs"] != json!([])).collect()
}
