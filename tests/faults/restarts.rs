//! The API server goes away and comes back.

use std::time::{Duration, Instant};

use kube::Api;
use kube::api::PostParams;
use lmcache_crds::{LMCacheEngine, Phase};
use lmcache_harness::{Harness, Judgement, PhaseRecorder};
use lmcache_testbed::annotation::{FAIL, fail};
use serde_json::json;

use crate::common::{Bed, Operator, engine};
use crate::{add_nodes, assert_calm, lines_within, spec, suite};

const ROUNDS: usize = 3;

/// One control plane for both: first there is no API server when the operator starts, then it goes away under it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_breaks_loses_nothing() {
    let bed = Bed::start("restarts").await.unwrap();
    add_nodes(&bed).await.unwrap();
    bed.cluster.stop_apiserver().await.unwrap();
    let kubeconfig = bed.cluster.operator_kubeconfig_path();
    let mut operator = Operator::start(bed.cluster.state_dir(), "manager", &kubeconfig, &[]).unwrap();
    says_unreachable(&mut operator).await;
    bed.cluster.start_apiserver().await.unwrap();
    operator.wait_for_log("Started the controllers").await.unwrap();

    let suite = suite(bed.cluster.client(), "restarts").await;
    for name in ["settled", "changed", "failing"] {
        suite.apply_fixture(&engine(name, &spec(0))).await.unwrap();
    }
    for name in ["settled", "changed", "failing"] {
        suite.wait_ready(name).await.unwrap();
    }
    let recorder = PhaseRecorder::start(suite.client(), suite.namespace(), "settled").await.unwrap();
    let pid = operator.program.pid();
    for round in 1..=ROUNDS {
        let started = Instant::now();
        restart(&bed, &suite, round).await;
        println!("round {round}: everything had converged after {:?}", started.elapsed());
        assert_eq!(operator.program.pid(), pid);
        assert_calm(&mut operator);
    }
    recorder.finish().await.unwrap().assert_obeys_the_rules();
    suite.finish().await.unwrap();
    bed.cluster.stop().await;
}

async fn says_unreachable(operator: &mut Operator) {
    let line = operator.wait_for_log("the API server cannot be reached").await.unwrap();
    assert!(line.contains("Connection refused"), "{line}");
    let lines = lines_within(operator, Duration::from_secs(5)).await;
    println!("{lines} lines in 5 s without an API server");
    assert!(lines <= 10, "{lines} lines in 5 s:\n{}", operator.program.log());
    assert_calm(operator);
}

/// An engine is created and one is changed, and a pod fails, right before the API server goes and right after it is back.
async fn restart(bed: &Bed, suite: &Harness, round: usize) {
    let pod = suite.first_ready_pod("failing").await.unwrap();
    let (early, late) = (format!("early-{round}"), format!("late-{round}"));
    create(suite, &early).await;
    suite.patch("changed", json!({"spec": spec(round * 2 - 1)})).await.unwrap();
    if !round.is_multiple_of(2) {
        break_pod(bed, suite, &pod).await;
    }
    bed.cluster.kill_apiserver().unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    bed.cluster.start_apiserver().await.unwrap();
    create(suite, &late).await;
    suite.patch("changed", json!({"spec": spec(round * 2)})).await.unwrap();
    if round.is_multiple_of(2) {
        break_pod(bed, suite, &pod).await;
    }

    let broken = |engine: &LMCacheEngine| {
        let record = engine.status.as_ref().map(|status| &status.record);
        Judgement::from(
            record.is_some_and(|it| it.phase == Phase::Degraded && it.reason.as_deref() == Some("CrashLooping")),
        )
    };
    suite.wait("failing", "CrashLooping", broken).await.unwrap();
    bed.cluster.annotate_pod(suite.namespace(), &pod, FAIL, None).await.unwrap();
    for name in [&early, &late, "settled", "changed", "failing"] {
        suite.wait_ready(name).await.unwrap();
    }
}

async fn create(suite: &Harness, name: &str) {
    let engine = serde_json::from_str(&engine(name, &spec(0))).unwrap();
    let api = Api::<LMCacheEngine>::namespaced(suite.client(), suite.namespace());
    api.create(&PostParams::default(), &engine).await.unwrap();
}

async fn break_pod(bed: &Bed, suite: &Harness, pod: &str) {
    bed.cluster.annotate_pod(suite.namespace(), pod, FAIL, Some(fail::CRASH_LOOP_BACK_OFF)).await.unwrap();
}
