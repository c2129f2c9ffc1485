//! SIGTERM.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use lmcache_crds::LMCacheEngine;
use serde_json::json;

use crate::common::{Operator, engine};
use crate::{assert_calm, bed, ended, operator_for, suite};

const ENGINES: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sigterm_reconciles_under_way_end_and_the_exit_code_is_zero() {
    let bed = bed().await;
    let suite = suite(bed.cluster.client(), "stop").await;
    let engines = Api::<LMCacheEngine>::namespaced(suite.client(), suite.namespace());
    let spec = json!({"l1": {"sizeGB": 1}, "nodeSelector": {"nobody": "has-it"}});
    for index in 0..ENGINES {
        let engine = serde_json::from_str(&engine(&format!("engine-{index}"), &spec)).unwrap();
        engines.create(&PostParams::default(), &engine).await.unwrap();
    }
    let own = format!("--watch-namespaces={}", suite.namespace());
    let kubeconfig = bed.cluster.operator_kubeconfig_path();
    let mut operator = Operator::start(bed.cluster.state_dir(), suite.namespace(), &kubeconfig, &[&own]).unwrap();
    operator.wait_for_log("Created DaemonSet").await.unwrap();
    operator.program.terminate();
    let (code, took) = ended(&mut operator, Duration::from_secs(15)).await.unwrap();
    let log = operator.program.log();
    assert_eq!(code, Some(0), "{log}");
    assert!(took < Duration::from_secs(10), "it took {took:?}\n{log}");
    for text in ["Stopping", "Stopped"] {
        assert!(log.contains(&format!("\"{text}\"")), "the log does not say {text}:\n{log}");
    }
    for text in ["panicked", "Gave up", "\"level\":\"error\""] {
        assert!(!log.contains(text), "{log}");
    }

    // Whoever has been begun has been finished.
    let sets = Api::<DaemonSet>::namespaced(suite.client(), suite.namespace());
    let begun: BTreeSet<_> =
        sets.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    let applied: BTreeSet<_> = engines
        .list(&ListParams::default())
        .await
        .unwrap()
        .iter()
        .filter(|engine| is_applied(engine))
        .map(ResourceExt::name_any)
        .collect();
    println!("stopped in {took:?} with {} of {ENGINES} engines applied", applied.len());
    assert_eq!(begun, applied, "engines with a DaemonSet, and engines whose status says Applied\n{log}");

    // And the next process does the rest.
    let mut operator = operator_for(bed, suite.namespace(), &[]).await.unwrap();
    for index in 0..ENGINES {
        suite.wait_reconciled(&format!("engine-{index}")).await.unwrap();
    }
    assert_calm(&mut operator);
    suite.finish().await.unwrap();
}

fn is_applied(engine: &LMCacheEngine) -> bool {
    let conditions = engine.status.iter().flat_map(|status| &status.record.conditions);
    conditions.into_iter().any(|it| it.type_ == "Applied" && it.status == "True")
}
