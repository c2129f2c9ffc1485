//! SIGKILL at random moments.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use lmcache_crds::PhaseTransition;
use lmcache_harness::{Harness, PhaseRecorder};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::common::{Bed, Operator, children, engine};
use crate::{bed, operator_for, spec, suite};

const ENGINES: usize = 5;
const ROLLOUTS: usize = 10;
/// Every engine has been rolled out this often besides the first time: fifty rollouts in all.
const LAST: usize = ROLLOUTS;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random_moments_it_ends_where_a_calm_operator_ends() {
    let bed = bed().await;
    let seed = seed();
    println!("seed {seed}; FAULTS_SEED={seed} repeats the moments");
    let suite = suite(bed.cluster.client(), "killed").await;
    let names: Vec<String> = (0..ENGINES).map(|index| format!("engine-{index}")).collect();
    let recorders = names.iter().map(|name| PhaseRecorder::start(suite.client(), suite.namespace(), name));
    let recorders = try_join_all(recorders).await.unwrap();

    let killer = Killer::start(bed, suite.namespace(), seed);
    try_join_all(names.iter().map(|name| roll_out(&suite, name))).await.unwrap();
    let kills = killer.end().await.unwrap();

    let operator = operator_for(bed, suite.namespace(), &[]).await.unwrap();
    try_join_all(names.iter().map(|name| suite.wait_ready(name))).await.unwrap();
    let (mut events, mut steps) = (0, 0);
    for (name, recorder) in names.iter().zip(recorders) {
        let recording = recorder.finish().await.unwrap();
        recording.assert_obeys_the_rules();
        steps += recording.steps().len();
        events += assert_no_event_twice(&suite, name, &recording.steps()).await;
    }
    assert_equals_calm(bed, &suite, &names).await;
    println!("{} rollouts, {kills} kills, {steps} steps, {events} Events", ENGINES * ROLLOUTS);
    assert!(kills >= 10, "only {kills} kills");
    drop(operator);
    suite.finish().await.unwrap();
}

async fn roll_out(suite: &Harness, name: &str) -> Result<()> {
    suite.apply_fixture(&engine(name, &spec(0))).await?;
    suite.wait_ready(name).await?;
    for rollout in 1..=LAST {
        suite.patch(name, json!({"spec": spec(rollout)})).await?;
        suite.wait_ready(name).await?;
    }
    Ok(())
}

/// Every Event about the engine tells a step of its own.
async fn assert_no_event_twice(suite: &Harness, name: &str, steps: &[PhaseTransition]) -> usize {
    let api = Api::<Event>::namespaced(suite.client(), suite.namespace());
    let mut events = api.list(&ListParams::default()).await.unwrap().items;
    events.retain(|event| {
        let regarding = event.regarding.clone().unwrap_or_default();
        regarding.kind.as_deref() == Some("LMCacheEngine") && regarding.name.as_deref() == Some(name)
    });
    let mut untold: BTreeMap<_, i32> = BTreeMap::new();
    for step in steps {
        let note = format!("{} to {}: {}", step.from, step.to, step.message);
        *untold.entry((step.reason.clone(), note)).or_default() += 1;
    }
    for event in &events {
        assert!(event.series.is_none(), "{} was repeated", event.name_any());
        let told = (event.reason.clone().unwrap_or_default(), event.note.clone().unwrap_or_default());
        let left = untold.entry(told.clone()).or_default();
        *left -= 1;
        assert!(*left >= 0, "{name}: an Event more than there were steps: {told:?}\nsteps: {steps:#?}");
    }
    events.len()
}

/// The same engines under an operator that nobody disturbs have the same children.
async fn assert_equals_calm(bed: &Bed, killed: &Harness, names: &[String]) {
    let calm = suite(bed.cluster.client(), "calm").await;
    let _operator = operator_for(bed, calm.namespace(), &[]).await.unwrap();
    for name in names {
        calm.apply_fixture(&engine(name, &spec(LAST))).await.unwrap();
    }
    for name in names {
        let ours = children_of(killed, name).await;
        calm.wait_ready(name).await.unwrap();
        let expected = children_of(&calm, name).await;
        let differences = children::differences(&expected, &ours);
        assert!(differences.is_empty(), "{name} (path, calm, killed): {differences:#?}");
    }
    calm.finish().await.unwrap();
}

async fn children_of(suite: &Harness, name: &str) -> serde_json::Value {
    let uid = suite.get(name).await.unwrap().uid().unwrap();
    let children = children::of(&suite.client(), suite.namespace(), &uid).await.unwrap();
    assert!(children.len() >= 4, "{name} has only {:?}", children.keys());
    json!(children)
}

/// Starts the operator and kills it, again and again.
struct Killer {
    enough: CancellationToken,
    task: JoinHandle<Result<usize>>,
}

impl Killer {
    fn start(bed: &'static Bed, namespace: &str, seed: u64) -> Self {
        let enough = CancellationToken::new();
        let (stop, own) = (enough.clone(), format!("--watch-namespaces={namespace}"));
        let log = namespace.to_owned();
        let task = tokio::spawn(async move {
            let (mut random, mut kills) = (Random(seed), 0);
            let kubeconfig = bed.cluster.operator_kubeconfig_path();
            while !stop.is_cancelled() {
                let mut operator = Operator::start(bed.cluster.state_dir(), &log, &kubeconfig, &[&own])?;
                // Long enough, most of the time, to fill the caches and get something done.
                let life = Duration::from_millis(200 + random.next() % 1800);
                let _ = tokio::time::timeout(life, stop.cancelled()).await;
                anyhow::ensure!(operator.program.exit_status().is_none(), "it ended:\n{}", operator.program.log());
                operator.program.kill();
                kills += 1;
            }
            Ok(kills)
        });
        Self { enough, task }
    }

    async fn end(self) -> Result<usize> {
        self.enough.cancel();
        self.task.await?
    }
}

/// `SplitMix64`: good enough to choose moments, and the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn seed() -> u64 {
    let given = std::env::var("FAULTS_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| RandomState::new().hash_one(0))
}
