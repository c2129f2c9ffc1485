#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn write_pair(folder: &Path) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().to_vec()
}

static ARRIVED: AtomicUsize = AtomicUsize::new(0);

#[tokio::test(start_paused = true)]
async fn files_are_waited_for_followed_and_kept_when_they_break() {
    let folder = std::env::temp_dir().join(format!("lmcache-operator-webhook-files-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    for name in ["tls.crt", "tls.key"] {
        let _ = fs::remove_file(folder.join(name));
    }
    let files = CertificateFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key") };
    let (served, metrics) = (ServedCertificate::default(), Metrics::new("0", "0"));
    let arrived = || {
        ARRIVED.fetch_add(1, Ordering::Relaxed);
    };
    let keeping = tokio::spawn(keep_files(files, served.clone(), metrics.clone(), arrived));
    let in_use = || served.current().map(|key| key.cert[0].to_vec());

    sleep(Duration::from_secs(5)).await;
    assert_eq!((in_use(), ARRIVED.load(Ordering::Relaxed)), (None, 0));
    assert!(!metrics.encode().contains("webhook_certificate_expiry_timestamp_seconds "), "{}", metrics.encode());
    let first = write_pair(&folder);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(in_use(), Some(first.clone()));
    assert!(ARRIVED.load(Ordering::Relaxed) > 0);
    assert!(metrics.encode().contains("lmcache_operator_webhook_certificate_expiry_timestamp_seconds"));
    fs::write(folder.join("tls.crt"), "half a file").unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(in_use(), Some(first.clone()), "a broken pair is not taken over");
    let second = write_pair(&folder);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(in_use(), Some(second));
    keeping.abort();
    fs::remove_dir_all(folder).unwrap();
}
