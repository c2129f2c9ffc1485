//! An operator that is away, or on its way, keeps nobody from anything.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::engine;
use crate::{Bed, invalid, is_let_in, lenient_bed, operator_by_url, start_with_webhooks};

/// A pod that both injectors are asked about.
fn pod(name: &str) -> String {
    let labels = json!({"lmcache.ai/cacheblend-inject": "true", "lmcache.ai/lmcache-inject": "true"});
    let annotations = json!({"lmcache.ai/cacheblend-engine": "none", "lmcache.ai/lmcache-engine": "none"});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "vllm", "image": "vllm"}]},
    })
    .to_string()
}

async fn accepts(bed: &Bed, when: &str, engine: String) {
    for (kind, object) in [("engine", engine), ("pod", pod(when))] {
        let begun = Instant::now();
        let (accepted, text) = bed.cluster.kubectl_says(&["apply", "-f", "-"], &object).await.unwrap();
        assert!(accepted, "{kind} while the operator is {when}: {text}");
        println!("{kind} while the operator is {when}: accepted after {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(15), "{kind} while {when}: {:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_kept_out_while_the_operator_is_away() {
    let bed = lenient_bed("outage").await.unwrap();
    let mut operator = operator_by_url(&bed, "first", &[]).await.unwrap();
    let took = operator.program.stop(Duration::from_secs(15)).await;
    println!("it stopped within {took:?}");
    assert!(took < Duration::from_secs(10), "it stopped after {took:?}:\n{}", operator.program.log());
    accepts(&bed, "down", invalid("down")).await;

    let operator = start_with_webhooks(&bed, "second", &["--webhook-url=https://127.0.0.1:0"]).unwrap();
    let (begun, mut round) = (Instant::now(), 0);
    while is_let_in(&bed).await.unwrap() {
        round += 1;
        let name = format!("starting-{round}");
        accepts(&bed, &name, engine(&name, &json!({"l1": {"sizeGB": 1}}))).await;
        assert!(begun.elapsed() < Duration::from_secs(30), "{}", operator.program.log());
    }
    println!("its webhooks worked again after {:?}", begun.elapsed());
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switched_off_nothing_is_served_and_nothing_is_registered() {
    let bed = lenient_bed("switched-off").await.unwrap();
    let operator = bed.operator("manager", &["--webhook-url=https://127.0.0.1:0"]).await.unwrap();
    accepts(&bed, "without", invalid("without")).await;
    let (_, text) =
        bed.cluster.kubectl_says(&["get", "secrets,validatingwebhookconfigurations", "-o", "name"], "").await.unwrap();
    assert!(!text.contains("lmcache-operator"), "{text}");
    assert!(!operator.program.log().contains("Serving webhooks"), "{}", operator.program.log());
    bed.cluster.stop().await;
}
