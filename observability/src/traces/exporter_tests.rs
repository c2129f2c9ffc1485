use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rstest::rstest;

use super::connection::LastFailure;
use super::exporter::exporter;
use super::settings::{OtlpFlags, TraceSettings};

const TRUST: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
const KEY: &str = "OTEL_EXPORTER_OTLP_CLIENT_KEY";

/// A folder of its own, removed when it is dropped, with a pair in `own.crt` and `own.key`, a key that belongs to neither in
/// `other.key`, and files that are no PEM, or hold no certificate in it.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("otlp-files-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&folder.0).unwrap();
        let own = rcgen::generate_simple_self_signed(["collector".to_owned()]).unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (file, text) in [
            ("own.crt", own.cert.pem()),
            ("own.key", own.signing_key.serialize_pem()),
            ("other.key", rcgen::KeyPair::generate().unwrap().serialize_pem()),
            ("prose.crt", "trust me".to_owned()),
            ("empty.crt", String::new()),
            ("broken.crt", broken.to_owned()),
            ("cut.crt", broken[..40].to_owned()),
        ] {
            std::fs::write(folder.0.join(file), text).unwrap();
        }
        folder
    }

    /// What it says to an exporter with these files, over one of the protocols.
    fn error(&self, protocol: &str, files: &[(&str, &str)]) -> Option<String> {
        let path = |file: &str| self.0.join(file).display().to_string();
        let mut environment = vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317".to_owned()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
        ];
        environment.extend(files.iter().map(|(name, file)| (*name, path(file))));
        let find = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
        let settings = TraceSettings::read(&OtlpFlags::default(), find).unwrap().unwrap();
        exporter(&settings, &LastFailure::default()).err().map(|error| error.to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[rstest]
#[case::no_authority_file(&[(TRUST, "absent.crt")], "absent.crt", "No such file")]
#[case::authority_is_prose(&[(TRUST, "prose.crt")], "prose.crt", "no certificate in PEM")]
#[case::authority_is_empty(&[(TRUST, "empty.crt")], "empty.crt", "no certificate in PEM")]
#[case::authority_is_a_key(&[(TRUST, "own.key")], "own.key", "no certificate in PEM")]
#[case::authority_is_broken(&[(TRUST, "broken.crt")], "broken.crt", "certificate")]
#[case::authority_is_cut(&[(TRUST, "cut.crt")], "cut.crt", "end")]
#[case::no_certificate_file(&[(CERTIFICATE, "absent.crt"), (KEY, "own.key")], "absent.crt", "No such file")]
#[case::no_key_file(&[(CERTIFICATE, "own.crt"), (KEY, "absent.key")], "absent.key", "No such file")]
#[case::certificate_is_prose(&[(CERTIFICATE, "prose.crt"), (KEY, "own.key")], "prose.crt", "no certificate in PEM")]
#[case::key_is_a_certificate(&[(CERTIFICATE, "own.crt"), (KEY, "own.crt")], "own.crt", "no items found")]
#[case::key_of_another(&[(CERTIFICATE, "own.crt"), (KEY, "other.key")], "other.key", "KeyMismatch")]
#[tokio::test]
async fn a_file_that_cannot_be_used_is_named(
    #[case] files: &[(&str, &str)],
    #[case] named: &str,
    #[case] why: &str,
    #[values("grpc", "http/protobuf")] protocol: &str,
) {
    let folder = Folder::create();
    // The system's authorities are not asked for.
    let trust: &[(&str, &str)] = if files[0].0 == TRUST { &[] } else { &[(TRUST, "own.crt")] };
    let error = folder.error(protocol, &[trust, files].concat()).expect("it is refused");
    let path = folder.0.join(named).display().to_string();
    assert!(error.contains(&path) && error.contains(why), "{path}, {why:?}: {error}");
    assert!(!error.contains("PRIVATE KEY"), "{error}");
}

#[rstest]
#[tokio::test]
async fn files_that_can_be_used_make_an_exporter(#[values("grpc", "http/protobuf")] protocol: &str) {
    let folder = Folder::create();
    let files = [(TRUST, "own.crt"), (CERTIFICATE, "own.crt"), (KEY, "own.key")];
    assert_eq!(folder.error(protocol, &files), None);
}
