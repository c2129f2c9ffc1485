//! What somebody breaks is healed within seconds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::client::{bundle, connect};
use crate::common::{Bed, Operator, project};
use crate::{lenient_bed, operator_by_url, until_refused};

pub const PREFIX: &str = "lmcache-operator";
pub const SECRET: &str = "lmcache-operator-webhook-ca";
/// Within seconds.
const HEALED: Duration = Duration::from_secs(10);

/// The stored certificates.
pub async fn stored(bed: &Bed) -> Result<Option<BTreeMap<String, ByteString>>> {
    let secrets = Api::<Secret>::default_namespaced(bed.cluster.client());
    Ok(secrets.get_opt(SECRET).await?.map(|secret| secret.data.unwrap_or_default()))
}

/// Waits until the API server trusts what is served, and it is not what was there `before`.
async fn healed(bed: &Bed, operator: &Operator, before: Option<&[u8]>) -> Result<(Vec<u8>, Duration)> {
    let begun = Instant::now();
    let address = operator.address("Serving webhooks").await?;
    loop {
        let trusted = async {
            let bundle = bundle(&bed.cluster.client(), PREFIX).await?;
            connect(&address, "127.0.0.1", &bundle).await?;
            let stored = stored(bed).await?.unwrap_or_default();
            ensure!(stored.get("ca.crt").is_some_and(|found| found.0 == bundle), "the Secret has another bundle");
            anyhow::Ok(bundle)
        };
        let found = match trusted.await {
            Ok(bundle) if before != Some(bundle.as_slice()) => {
                until_refused(bed, operator).await?;
                return Ok((bundle, begun.elapsed()));
            }
            Ok(_) => anyhow::anyhow!("nothing has changed"),
            Err(error) => error,
        };
        ensure!(begun.elapsed() < HEALED, "{found:#}\n{}", operator.program.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_broken_heals_within_seconds() {
    let bed = lenient_bed("certificates").await.unwrap();
    let started = Instant::now();
    let operator = operator_by_url(&bed, "manager", &[]).await.unwrap();
    println!("{:?} after its start the operator's webhooks worked", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    let (mut trusted, _) = healed(&bed, &operator, None).await.unwrap();
    let data = stored(&bed).await.unwrap().unwrap();
    assert_eq!(data.keys().map(String::as_str).collect::<Vec<_>>(), ["ca.crt", "ca.key", "tls.crt", "tls.key"]);

    let secrets = Api::<Secret>::default_namespaced(bed.cluster.client());
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    let took;
    (trusted, took) = healed(&bed, &operator, Some(&trusted)).await.unwrap();
    println!("a deleted Secret was healed within {took:?}");

    for (what, data, is_new) in [
        ("an authority that is no certificate", json!({"ca.crt": "bm9uc2Vuc2U="}), true),
        ("a lost key of the authority", json!({"ca.key": null}), true),
        ("no data at all", json!({"ca.crt": null, "ca.key": null, "tls.crt": null, "tls.key": null}), true),
        ("a serving certificate that is none", json!({"tls.crt": "bm9uc2Vuc2U="}), false),
        ("a damaged serving key", json!({"tls.key": "bm9uc2Vuc2U="}), false),
    ] {
        let before = stored(&bed).await.unwrap().unwrap();
        let patch = Patch::Merge(json!({"data": data}));
        secrets.patch(SECRET, &PatchParams::default(), &patch).await.unwrap();
        let begun = Instant::now();
        // The bundle shows nothing where the authority stays.
        while stored(&bed).await.unwrap().unwrap_or_default().get("tls.crt") == before.get("tls.crt")
            || stored(&bed).await.unwrap().unwrap_or_default().len() < 4
        {
            if is_new && bundle(&bed.cluster.client(), PREFIX).await.is_ok_and(|found| found != trusted) {
                break;
            }
            assert!(begun.elapsed() < HEALED, "{what} stays:\n{}", operator.program.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        (trusted, _) = healed(&bed, &operator, is_new.then_some(trusted.as_slice())).await.unwrap();
        println!("{what} was healed within {:?}", begun.elapsed());
    }

    for kind in ["mutating", "validating"] {
        let resource = format!("{kind}webhookconfiguration/{PREFIX}-{kind}-webhook-configuration");
        let path = "/webhooks/0/clientConfig/caBundle";
        for patch in [
            json!([{"op": "replace", "path": path, "value": foreign_bundle()}]),
            json!([{"op": "remove", "path": path}]),
        ] {
            bed.cluster.kubectl(&["patch", &resource, "--type=json", "-p", &patch.to_string()]).await.unwrap();
            let (found, took) = healed(&bed, &operator, None).await.unwrap();
            assert_eq!(found, trusted);
            println!("caBundle of the {kind} configuration was healed within {took:?}");
        }
        bed.cluster.kubectl(&["delete", &resource]).await.unwrap();
        let (found, took) = healed(&bed, &operator, None).await.unwrap();
        assert_eq!(found, trusted);
        println!("the deleted {kind} configuration was registered again within {took:?}");
    }
    let log = operator.program.log();
    assert!(!log.contains("PRIVATE KEY") && !log.contains("panicked"), "{log}");
    bed.cluster.stop().await;
}

/// Another authority, as somebody else's tool would put it there.
fn foreign_bundle() -> Value {
    let pem = std::fs::read(project().join("tests/fixtures/foreign/authority.pem")).unwrap();
    json!(ByteString(pem))
}
