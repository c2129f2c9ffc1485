//! Ready is never claimed too early, measured.

use std::collections::BTreeSet;

use lmcache_crds::Phase;
use lmcache_harness::PhaseRecorder;
use lmcache_testbed::annotation::READY_AFTER;
use serde_json::{Value, json};

use crate::common::engine;
use crate::{bed, operator_for, spec, suite};

const NAME: &str = "honest";
const ROLLOUTS: usize = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_rollouts_never_claim_ready_too_early() {
    let bed = bed().await;
    let suite = suite(bed.cluster.client(), "honesty").await;
    let _operator = operator_for(bed, suite.namespace(), &[]).await.unwrap();
    let recorder = PhaseRecorder::start(suite.client(), suite.namespace(), NAME).await.unwrap();
    suite.apply_fixture(&engine(NAME, &slow(0))).await.unwrap();
    suite.wait_ready(NAME).await.unwrap();
    for rollout in 1..=ROLLOUTS {
        suite.patch(NAME, json!({"spec": slow(rollout)})).await.unwrap();
        suite.wait_ready(NAME).await.unwrap();
    }

    let recording = recorder.finish().await.unwrap();
    let lives = recording.lives();
    let statuses: Vec<_> = lives.iter().flatten().collect();
    let claims = statuses.iter().filter(|status| status.record.phase == Phase::Ready);
    let ready: BTreeSet<_> = claims.clone().filter_map(|status| status.record.observed_generation).collect();
    let violations = recording.violations();
    println!(
        "{ROLLOUTS} rollouts of 3 instances: {} statuses, {} claim Ready, {} violations, {} could not be checked",
        statuses.len(),
        claims.count(),
        violations.len(),
        recording.unverified()
    );
    recording.assert_obeys_the_rules();
    assert_eq!(recording.unverified(), 0, "{}", recording.timeline());
    assert_eq!(ready.len(), ROLLOUTS + 1, "generations that were Ready: {ready:?}");
    suite.finish().await.unwrap();
}

/// Instances that take a moment to get ready, so that claiming too early is possible at all.
fn slow(rollout: usize) -> Value {
    let mut spec = spec(rollout);
    spec["podAnnotations"] = json!({READY_AFTER: "200ms"});
    spec
}
