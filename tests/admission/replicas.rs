//! Several replicas, one authority; and the way with a Service, in which somebody else registers the webhooks.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use lmcache_operator::admission::registration::{self, Address};

use crate::certificates::{PREFIX, SECRET, stored};
use crate::client::{authorities, bundle, connect};
use crate::common::{Bed, Operator};
use crate::{lenient_bed, start_with_webhooks};

const REPLICAS: usize = 3;
const SERVICE: &str = "lmcache-operator-webhook-service";
const FOREIGN: &str = "release";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_start_at_once_agree_on_one_authority() {
    let bed = lenient_bed("replicas").await.unwrap();
    register(&bed, PREFIX, "default").await;
    // This one belongs to an operator elsewhere.
    register(&bed, FOREIGN, "elsewhere").await;
    let replicas: Vec<_> =
        (0..REPLICAS).map(|index| start_with_webhooks(&bed, &format!("replica-{index}"), &[]).unwrap()).collect();
    let first = all_trusted(&bed, &replicas, &[]).await;
    assert_eq!(authorities(&first).len(), 1, "they have not agreed at once");
    assert_eq!(renewals(&replicas), 1, "one has made it, the others have taken it over");

    let secrets = Api::<Secret>::default_namespaced(bed.cluster.client());
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    let second = all_trusted(&bed, &replicas, &first).await;
    assert_eq!(authorities(&second).len(), 1);
    assert_eq!(renewals(&replicas), 2);
    let quiet = stored(&bed).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(stored(&bed).await.unwrap(), quiet, "they do not settle");
    let foreign = bundle(&bed.cluster.client(), FOREIGN).await.unwrap();
    assert!(foreign.is_empty(), "webhooks of another operator were touched");
    bed.cluster.stop().await;
}

/// As `deploy/base` does it.
async fn register(bed: &Bed, prefix: &str, namespace: &str) {
    let address = Address::Service { namespace: namespace.to_owned(), name: format!("{prefix}-webhook-service") };
    let mutating = registration::mutating(format!("{prefix}-mutating-webhook-configuration"), &address, None);
    let validating = registration::validating(format!("{prefix}-validating-webhook-configuration"), &address, None);
    let (client, params) = (bed.cluster.client(), PostParams::default());
    Api::all(client.clone()).create(&params, &mutating).await.unwrap();
    Api::all(client).create(&params, &validating).await.unwrap();
}

/// Waits until every replica serves what the configurations trust, and that is not what was there before.
async fn all_trusted(bed: &Bed, replicas: &[Operator], before: &[u8]) -> Vec<u8> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let name = format!("{SERVICE}.default.svc");
    loop {
        let bundle = bundle(&bed.cluster.client(), PREFIX).await.unwrap_or_default();
        let mut missing = BTreeSet::new();
        for (index, replica) in replicas.iter().enumerate() {
            let address = replica.address("Serving webhooks").await.unwrap();
            if connect(&address, &name, &bundle).await.is_err() {
                missing.insert(index);
            }
        }
        if missing.is_empty() && !bundle.is_empty() && bundle != before {
            return bundle;
        }
        let logs = || replicas.iter().map(|replica| replica.program.log()).collect::<Vec<_>>().join("\n");
        assert!(Instant::now() < deadline, "not trusted: {missing:?}\n{}", logs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn renewals(replicas: &[Operator]) -> usize {
    replicas.iter().map(|replica| replica.program.log().matches("Renewed webhook certificates").count()).sum()
}
