//! A cluster without the custom resource definitions.

use std::time::Duration;

use lmcache_testbed::{Cluster, ClusterOptions};

use crate::common::{Bed, Operator, engine, project};
use crate::http::get;
use crate::{add_nodes, assert_calm, lines_within, spec, suite};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_definitions_it_says_so_waits_and_goes_on() {
    let options = ClusterOptions { name: "bare".to_owned(), ..ClusterOptions::default() };
    let bed = Bed { cluster: Cluster::start(options).await.unwrap() };
    bed.cluster.create_runtime_class("nvidia").await.unwrap();
    let role = std::fs::read_to_string(project().join("deploy/base/manager_role.yaml")).unwrap();
    bed.cluster.grant_operator(&role).await.unwrap();
    add_nodes(&bed).await.unwrap();
    let kubeconfig = bed.cluster.operator_kubeconfig_path();
    let mut operator = Operator::start(bed.cluster.state_dir(), "manager", &kubeconfig, &[]).unwrap();
    let line = operator.wait_for_log("does not serve lmcacheengines").await.unwrap();
    assert!(line.contains("apply the CustomResourceDefinitions (crds/manifests); waiting for them"), "{line}");
    let health = operator.address("Serving health probes").await.unwrap();
    assert_eq!(get(&health, "/healthz").await.unwrap().0, 200);
    let lines = lines_within(&operator, Duration::from_secs(5)).await;
    assert!(lines <= 10, "{lines} lines in 5 s:\n{}", operator.program.log());
    assert_calm(&mut operator);

    for crd in lmcache_crds::crds() {
        bed.cluster.apply_yaml(&serde_json::to_string(&crd).unwrap()).await.unwrap();
    }
    let suite = suite(bed.cluster.client(), "defined").await;
    suite.apply_fixture(&engine("cache", &spec(0))).await.unwrap();
    suite.wait_ready("cache").await.unwrap();
    assert_calm(&mut operator);
    bed.cluster.stop().await;
}
