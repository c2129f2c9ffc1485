//! Many pods at once while the operator is down, starting, and renewing its certificate: none is refused.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Result;
use lmcache_operator::admission::injection::Injector;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::common::{Operator, engine};
use crate::vllm::{connection, create, is_injected, pod, until, until_injected};
use crate::{Bed, lenient_bed, start_with_webhooks};

/// Pods that are on their way at a time.
const IN_FLIGHT: usize = 50;
/// From one burst to the next, unless there is little time.
const PAUSE: Duration = Duration::from_millis(700);
/// Certificates of ten seconds are followed after two thirds of that.
const FLAGS: [&str; 2] = ["--webhook-url=https://127.0.0.1:0", "--webhook-cert-validity=10s"];

const ROTATING: &str = "rotating";
const ROTATING_AGAIN: &str = "rotating again";

/// What came of the pods that were sent in a time.
#[derive(Debug, Default)]
struct Tally {
    created: usize,
    injected: usize,
    refused: Vec<String>,
    slowest: Duration,
}

/// The present time of the story, and what came of each.
struct Storm<'a> {
    bed: &'a Bed,
    now: Mutex<&'static str>,
    tallies: Mutex<BTreeMap<&'static str, Tally>>,
    over: CancellationToken,
}

impl Storm<'_> {
    fn enter(&self, time: &'static str) {
        *self.now.lock().unwrap() = time;
    }

    /// Creates bursts of pods until it is over.
    async fn blow(&self) {
        let client = self.bed.cluster.client();
        let mut number = 0;
        while !self.over.is_cancelled() {
            let burst = (0..IN_FLIGHT).map(|index| self.one(&client, number + index));
            futures::future::join_all(burst).await;
            number += IN_FLIGHT;
            if !matches!(*self.now.lock().unwrap(), "stopping" | "starting") {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn one(&self, client: &kube::Client, number: usize) {
        let (begun, before) = (Instant::now(), *self.now.lock().unwrap());
        let result = create(client, "default", &pod(Injector::LmCache, &format!("p-{number}"), "cache"), false).await;
        let after = *self.now.lock().unwrap();
        // With a pod that is on its way when the operator is told to stop, anything may happen.
        let time = if before == ROTATING && before != after { "stopping" } else { before };
        let mut tallies = self.tallies.lock().unwrap();
        let tally = tallies.entry(time).or_default();
        tally.slowest = tally.slowest.max(begun.elapsed());
        match result {
            Ok(stored) => {
                tally.created += 1;
                tally.injected += usize::from(is_injected(&stored, Injector::LmCache));
            }
            Err(error) => tally.refused.push(format!("{error:#}")),
        }
    }
}

async fn rotates(operator: &Operator, times: usize) -> Result<()> {
    let renewed = || operator.program.log().matches("Serving a new webhook certificate").count();
    let wanted = renewed() + times;
    until("the certificate is renewed", async || Ok((renewed() >= wanted).then_some(()))).await
}

async fn story(storm: &Storm<'_>, mut operator: Operator) -> Result<()> {
    rotates(&operator, 2).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    storm.enter("stopping");
    operator.program.stop(Duration::from_secs(15)).await;
    storm.enter("down");
    tokio::time::sleep(Duration::from_secs(2)).await;
    storm.enter("starting");
    let operator = start_with_webhooks(storm.bed, "second", &FLAGS)?;
    let took = until_injected(storm.bed, &operator, "cache").await?;
    println!("pods are injected {took:?} after the second start");
    tokio::time::sleep(Duration::from_millis(500)).await;
    storm.enter(ROTATING_AGAIN);
    rotates(&operator, 1).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_refused_while_the_operator_restarts_and_its_certificate_rotates() {
    let bed = lenient_bed("storm").await.unwrap();
    let operator = start_with_webhooks(&bed, "first", &FLAGS).unwrap();
    bed.cluster.apply_yaml(&engine("cache", &json!({"l1": {"sizeGB": 1}}))).await.unwrap();
    connection(&bed.cluster.client(), "default", "cache").await.unwrap();
    until_injected(&bed, &operator, "cache").await.unwrap();
    let storm =
        Storm { bed: &bed, now: Mutex::new(ROTATING), tallies: Mutex::default(), over: CancellationToken::new() };
    let told = async {
        let told = story(&storm, operator).await;
        storm.over.cancel();
        told
    };
    let ((), told) = tokio::join!(storm.blow(), told);
    told.unwrap();
    let tallies = storm.tallies.into_inner().unwrap();
    let mut created = 0;
    for (time, tally) in &tallies {
        let Tally { created: made, injected, slowest, refused } = tally;
        println!("{time:15} {made:4} created, {injected:4} injected, slowest {slowest:?}");
        assert!(refused.is_empty(), "{time}: {refused:#?}");
        assert!(*slowest < Duration::from_secs(10), "{time}: a pod took {slowest:?}");
        created += made;
    }
    for time in [ROTATING, ROTATING_AGAIN] {
        let tally = &tallies[time];
        assert_eq!(tally.injected, tally.created, "{time}: a pod was not asked about");
    }
    let times = [ROTATING, "stopping", "down", "starting", ROTATING_AGAIN];
    assert!(times.iter().all(|time| tallies.get(time).is_some_and(|tally| tally.created > 0)), "{tallies:#?}");
    assert!(created > 500, "only {created} pods were created");
    bed.cluster.stop().await;
}
