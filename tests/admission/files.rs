//! Certificates that somebody else puts into files.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::client::connect;
use crate::http::get;
use crate::{shared, start_with_webhooks};

/// Writes a certificate for `localhost` and its key; the certificate is what is to be trusted.
fn write_pair(folder: &Path) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    made.cert.pem().into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_waited_for_served_and_followed() {
    let (bed, _) = shared().await;
    let folder = bed.cluster.state_dir().join("webhook-certificates");
    std::fs::create_dir(&folder).unwrap();
    let path = format!("--webhook-cert-path={}", folder.display());
    // The webhooks of the other operator are none of its business, and neither are its engines.
    let flags = [path.as_str(), "--webhook-certs=cert-manager", "--watch-namespaces=kube-public"];
    let operator = start_with_webhooks(bed, "files", &flags).unwrap();
    operator.wait_for_log("Started the controllers").await.unwrap();
    let health = operator.address("Serving health probes").await.unwrap();
    let (code, answer) = get(&health, "/readyz").await.unwrap();
    assert!(code == 503 && answer.ends_with("waiting for webhook certificate"), "{answer}");
    operator.wait_for_log("Failed to read the webhook certificate").await.unwrap();

    let address = operator.address("Serving webhooks").await.unwrap();
    for what in ["the first", "another"] {
        let trusted = write_pair(&folder);
        let begun = Instant::now();
        while let Err(error) = connect(&address, "localhost", &trusted).await {
            assert!(begun.elapsed() < Duration::from_secs(20), "{error:#}\n{}", operator.program.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        println!("{what} certificate was served after {:?}", begun.elapsed());
    }
    let (code, answer) = get(&health, "/readyz").await.unwrap();
    assert_eq!(code, 200, "{answer}");
}
