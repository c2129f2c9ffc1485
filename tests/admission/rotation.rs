//! Certificates change while requests come in.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube::Api;
use lmcache_crds::LMCacheEngine;

use crate::certificates::PREFIX;
use crate::client::{authorities, bundle};
use crate::{lenient_bed, operator_by_url, would_be_let_in};

const WORKERS: usize = 4;
/// Longer than an authority of ten-second certificates stays: it is followed after two thirds of 40 s.
const PERIOD: Duration = Duration::from_secs(45);

/// Every request must reach the webhook: one that did not would be let in, since failures are ignored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_under_load_drops_nothing() {
    let bed = lenient_bed("rotation").await.unwrap();
    let operator = operator_by_url(&bed, "manager", &["--webhook-cert-validity=10s"]).await.unwrap();
    let end = Instant::now() + PERIOD;
    let (asked, dropped) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let load = (0..WORKERS).map(|_| async {
        let engines = Api::<LMCacheEngine>::default_namespaced(bed.cluster.client());
        while Instant::now() < end {
            asked.fetch_add(1, Ordering::Relaxed);
            if would_be_let_in(&engines).await.unwrap() {
                dropped.fetch_add(1, Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    });
    let seen = async {
        let mut seen = BTreeSet::new();
        let mut most = 0;
        while Instant::now() < end {
            // Between two writes the two configurations may differ.
            let trusted = bundle(&bed.cluster.client(), PREFIX).await.unwrap_or_default();
            most = most.max(authorities(&trusted).len());
            seen.extend(authorities(&trusted).into_iter().map(|it| it.to_vec()));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        (seen.len(), most)
    };
    let (_, (seen, most)) = tokio::join!(futures::future::join_all(load), seen);
    let log = operator.program.log();
    let served = log.matches("Serving a new webhook certificate").count();
    let (asked, dropped) = (asked.into_inner(), dropped.into_inner());
    println!("{asked} requests during {served} certificates of {seen} authorities, at most {most} at a time");
    assert_eq!(dropped, 0, "{dropped} of {asked} requests did not reach the webhook:\n{log}");
    assert!(asked > 300 && served >= 5 && seen == 2 && most == 2, "{asked} {served} {seen} {most}\n{log}");
    bed.cluster.stop().await;
}
