//! `--watch-namespaces`.

use kube::ResourceExt as _;

use crate::common::{children, engine};
use crate::{assert_calm, bed, operator_for, spec, suite};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_of_other_namespaces_stay_untouched() {
    let bed = bed().await;
    let (ours, also_ours) = (suite(bed.cluster.client(), "ours").await, suite(bed.cluster.client(), "ours").await);
    let foreign = suite(bed.cluster.client(), "foreign").await;
    foreign.apply_fixture(&engine("cache", &spec(0))).await.unwrap();
    let both = format!("{},{}", ours.namespace(), also_ours.namespace());
    let mut operator = operator_for(bed, &both, &[]).await.unwrap();
    for suite in [&ours, &also_ours] {
        suite.apply_fixture(&engine("cache", &spec(0))).await.unwrap();
        suite.wait_ready("cache").await.unwrap();
    }
    let untouched = foreign.get("cache").await.unwrap();
    let status = untouched.status.clone().unwrap_or_default().record;
    assert!(status.conditions.is_empty() && status.observed_generation.is_none(), "{status:?}");
    let uid = untouched.uid().unwrap();
    let made = children::of(&foreign.client(), foreign.namespace(), &uid).await.unwrap();
    assert!(made.is_empty(), "{:?}", made.keys());
    assert_calm(&mut operator);
    for suite in [ours, also_ours, foreign] {
        suite.finish().await.unwrap();
    }
}
