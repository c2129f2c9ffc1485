//! Receivers that speak TLS: whom the operator trusts, and as whom it shows itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lmcache_harness::Harness;
use lmcache_testbed::jaeger::{Jaeger, ReceiverTls};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rstest::rstest;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::collector::{EXPORTED, FAILURES};
use crate::common::Operator;
use crate::{DELIVERY, NAME, Place, create, metric, place, rises, slow, trace};

const TRUST: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
const KEY: &str = "OTEL_EXPORTER_OTLP_CLIENT_KEY";

/// Two more Jaegers, one for everybody and one for those it knows, and what belongs to them.
struct Secured {
    open: Jaeger,
    mutual: Jaeger,
    /// The authority of the receivers.
    authority: PathBuf,
    /// Another one, which has signed nothing that they show.
    other: PathBuf,
    /// Signed by the authority of clients.
    client: Pair,
    /// Signed by nobody they know.
    stranger: Pair,
}

impl Secured {
    /// To the receiver that asks for a certificate, with this one.
    fn shown<'a>(&'a self, pair: &'a Pair, protocol: &'a str) -> Way<'a> {
        let files = vec![(TRUST, self.authority.as_path()), (CERTIFICATE, &pair.certificate), (KEY, &pair.key)];
        Way { jaeger: &self.mutual, protocol, files }
    }
}

/// Files of a certificate and its key.
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

async fn secured(place: &Place) -> &'static Secured {
    static SECURED: OnceCell<Secured> = OnceCell::const_new();
    let start = || async {
        let folder = place.bed.cluster.state_dir().join("tls");
        std::fs::create_dir_all(&folder)?;
        let receivers = Authority::create(&folder, "receivers")?;
        let clients = Authority::create(&folder, "clients")?;
        let other = Authority::create(&folder, "other")?;
        let shown = receivers.sign("jaeger", ExtendedKeyUsagePurpose::ServerAuth)?;
        let open = ReceiverTls { certificate: shown.certificate, key: shown.key, client_authority: None };
        let mutual = ReceiverTls { client_authority: Some(clients.file.clone()), ..open.clone() };
        let (open_dir, mutual_dir) = (folder.join("open"), folder.join("mutual"));
        let (open, mutual) =
            tokio::try_join!(Jaeger::start_with_tls(&open_dir, &open), Jaeger::start_with_tls(&mutual_dir, &mutual))?;
        let client = clients.sign("operator", ExtendedKeyUsagePurpose::ClientAuth)?;
        let stranger = other.sign("stranger", ExtendedKeyUsagePurpose::ClientAuth)?;
        anyhow::Ok(Secured { open, mutual, authority: receivers.file, other: other.file, client, stranger })
    };
    SECURED.get_or_try_init(start).await.unwrap()
}

struct Authority {
    folder: PathBuf,
    file: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn create(folder: &Path, name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate()?;
        let file = folder.join(format!("{name}.crt"));
        std::fs::write(&file, params.self_signed(&key)?.pem())?;
        Ok(Authority { folder: folder.to_owned(), file, issuer: Issuer::new(params, key) })
    }

    fn sign(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Result<Pair> {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let file = |suffix: &str| self.folder.join(format!("{name}.{suffix}"));
        let pair = Pair { certificate: file("crt"), key: file("key") };
        std::fs::write(&pair.certificate, params.signed_by(&key, &self.issuer)?.pem())?;
        std::fs::write(&pair.key, key.serialize_pem())?;
        Ok(pair)
    }
}

/// A receiver, how it is spoken to, and the files that are shown or trusted.
struct Way<'a> {
    jaeger: &'a Jaeger,
    protocol: &'a str,
    files: Vec<(&'static str, &'a Path)>,
}

impl Way<'_> {
    fn endpoint(&self) -> String {
        if self.protocol == "grpc" { self.jaeger.otlp_grpc() } else { self.jaeger.otlp_http() }
    }

    /// An operator that exports this way, as its environment says.
    async fn operator(&self, place: &Place, suite: &Harness) -> Result<Operator> {
        let endpoint = self.endpoint();
        let files: Vec<_> = self.files.iter().map(|(name, path)| (*name, path.display().to_string())).collect();
        let mut all =
            vec![("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", self.protocol)];
        all.extend(files.iter().map(|(name, path)| (*name, path.as_str())));
        place.operator(suite, &[], &all).await
    }
}

/// A rollout arrives, and nothing of it is lost on the way.
async fn ensure_arrives(prefix: &str, way: &Way<'_>) -> Result<()> {
    let place = place().await;
    let suite = place.suite(prefix).await?;
    let operator = way.operator(place, &suite).await?;
    create(&suite, &slow("0s", 0)).await?;
    let engine = suite.wait_ready(NAME).await?;
    let told = way.jaeger.wait_for_span(&trace(&engine)?.trace_id, "rollout", DELIVERY).await;
    told.with_context(|| operator.program.log())?;
    let (exported, failures) = (metric(&operator, EXPORTED).await?, metric(&operator, FAILURES).await?);
    ensure!(exported > 0.0 && failures == 0.0, "{exported} {failures}\n{}", operator.program.log());
    suite.finish().await
}

/// Nothing arrives: the log says once why, every failure is counted, and rollouts reach their end all the same.
async fn ensure_refused(prefix: &str, way: &Way<'_>, why: &str) -> Result<()> {
    let place = place().await;
    let suite = place.suite(prefix).await?;
    let operator = way.operator(place, &suite).await?;
    let mut before = 0.0;
    for rollout in 0..2 {
        create(&suite, &slow("0s", rollout)).await?;
        let engine = suite.wait_ready(NAME).await?;
        rises(&operator, FAILURES, before).await?;
        before = metric(&operator, FAILURES).await?;
        let spans = way.jaeger.trace(&trace(&engine)?.trace_id).await?;
        ensure!(spans.is_empty(), "{spans:#?}");
    }
    ensure!(metric(&operator, EXPORTED).await? == 0.0, "{}", operator.program.log());
    let log = operator.program.log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("Failed to export traces")).collect();
    let [line] = told[..] else { anyhow::bail!("it is told once, not {} times:\n{log}", told.len()) };
    let line: Value = serde_json::from_str(line)?;
    let endpoint = line["endpoint"].as_str().context("the endpoint is named")?;
    ensure!(endpoint.starts_with(&way.endpoint()), "{line:#}");
    let message = line["message"].as_str().context("a message")?;
    ensure!(message.contains(why) && message.contains(endpoint), "{why:?} is not said: {line:#}");
    suite.finish().await
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_arrives_over_tls_when_the_receivers_authority_is_given(
    #[values("grpc", "http/protobuf")] protocol: &str,
) {
    let secured = secured(place().await).await;
    let way = Way { jaeger: &secured.open, protocol, files: vec![(TRUST, &secured.authority)] };
    ensure_arrives("tls", &way).await.unwrap();
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_arrives_with_the_client_certificate_that_the_receiver_demands(
    #[values("grpc", "http/protobuf")] protocol: &str,
) {
    let secured = secured(place().await).await;
    ensure_arrives("mutual", &secured.shown(&secured.client, protocol)).await.unwrap();
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_of_an_unknown_authority_is_told_once_and_holds_nothing_up(
    #[values("grpc", "http/protobuf")] protocol: &str,
) {
    let secured = secured(place().await).await;
    let way = Way { jaeger: &secured.open, protocol, files: vec![(TRUST, &secured.other)] };
    ensure_refused("untrusted", &way, "invalid peer certificate: UnknownIssuer").await.unwrap();
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_client_certificate_is_told_once_and_holds_nothing_up(
    #[values("grpc", "http/protobuf")] protocol: &str,
) {
    let secured = secured(place().await).await;
    let way = Way { jaeger: &secured.mutual, protocol, files: vec![(TRUST, &secured.authority)] };
    ensure_refused("anonymous", &way, "received fatal alert: CertificateRequired").await.unwrap();
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_of_an_unknown_authority_is_told_once_and_holds_nothing_up(
    #[values("grpc", "http/protobuf")] protocol: &str,
) {
    let secured = secured(place().await).await;
    ensure_refused("stranger", &secured.shown(&secured.stranger, protocol), "received fatal alert: UnknownCA")
        .await
        .unwrap();
}

#[rstest]
#[case::absent("absent.crt", "No such file")]
#[case::no_pem("prose.crt", "no certificate in PEM")]
#[tokio::test(flavor = "multi_thread")]
async fn an_authority_that_cannot_be_read_ends_the_operator_at_once(#[case] name: &str, #[case] why: &str) {
    let place = place().await;
    let file = place.bed.cluster.state_dir().join(name);
    if name == "prose.crt" {
        std::fs::write(&file, "trust me").unwrap();
    }
    let trust = file.display().to_string();
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:4318"), (TRUST, trust.as_str())];
    let kubeconfig = place.bed.cluster.operator_kubeconfig_path();
    let state = place.bed.cluster.state_dir();
    let mut operator = Operator::start_with(state, name, &kubeconfig, &[], &environment).unwrap();
    let deadline = tokio::time::Instant::now() + DELIVERY;
    let status = loop {
        if let Some(status) = operator.program.exit_status() {
            break status;
        }
        assert!(tokio::time::Instant::now() < deadline, "it runs on:\n{}", operator.program.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let log = operator.program.log();
    assert!(!status.success() && log.contains(&trust) && log.contains(why), "{status}:\n{log}");
    assert!(!log.contains("Started the controllers"), "{log}");
}
