#![allow(clippy::unwrap_used)]

use std::time::Duration;

use rstest::rstest;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{ServerName, UnixTime};

use super::super::plan::{Plan, plan};
use super::*;

const HOSTS: [&str; 4] = ["hooks.ai.svc", "hooks.ai.svc.cluster.local", "127.0.0.1", "::1"];

fn hosts() -> Vec<String> {
    HOSTS.map(str::to_owned).to_vec()
}

fn lifetimes() -> Lifetimes {
    Lifetimes::new(Duration::from_mins(10))
}

fn now() -> Timestamp {
    Timestamp::from_second(2_000_000_000).unwrap()
}

fn later(seconds: u64) -> Timestamp {
    after(now(), Duration::from_secs(seconds))
}

/// Carries out what is planned; the data as it is stored then.
fn settled(data: &BTreeMap<String, ByteString>, at: Timestamp) -> BTreeMap<String, ByteString> {
    let material = Material::read(data);
    match plan(at, &material.stored(&hosts()), lifetimes()) {
        Plan::Keep { .. } => data.clone(),
        Plan::Renew(renewal) => {
            let renewed = material.renew(&renewal, at, lifetimes(), &hosts()).unwrap().data();
            let stored = Material::read(&renewed).stored(&hosts());
            assert!(matches!(plan(at, &stored, lifetimes()), Plan::Keep { .. }), "{renewal:?} led to {stored:?}");
            renewed
        }
    }
}

fn fresh() -> BTreeMap<String, ByteString> {
    settled(&BTreeMap::new(), now())
}

/// As an API server would judge.
fn is_trusted(bundle: &[u8], data: &BTreeMap<String, ByteString>, host: &str, at: Timestamp) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let material = Material::read(data);
    let key = material.serving().unwrap();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at.as_second()).unwrap()));
    let verdict = verifier.verify_server_cert(key.end_entity_cert().unwrap(), &[], &name, &[], at);
    verdict.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn a_fresh_certificate_is_trusted_by_every_name_and_by_no_other() {
    let data = fresh();
    let bundle = Material::read(&data).bundle();
    for host in HOSTS {
        is_trusted(&bundle, &data, host, now()).unwrap_or_else(|error| panic!("{host}: {error}"));
    }
    for (host, at) in [("other.ai.svc", now()), ("127.0.0.1", later(601))] {
        assert!(is_trusted(&bundle, &data, host, at).is_err(), "{host} at {at} is trusted");
    }
    assert!(is_trusted(&bundle, &data, HOSTS[0], Timestamp::from_second(1_999_999_950).unwrap()).is_ok(), "skew");
    let other = Material::read(&fresh()).bundle();
    assert!(is_trusted(&other, &data, HOSTS[0], now()).is_err(), "another authority is believed");
}

#[test]
fn a_change_of_authority_goes_through_three_stored_contents_that_trust_each_other() {
    let first = settled(&fresh(), later(1100));
    let renewed = settled(&first, later(1580));
    let (before, with_successor) = (Material::read(&first), Material::read(&renewed));
    assert_eq!(with_successor.authorities.len(), 2);
    assert_eq!(before.serving().unwrap().cert, with_successor.serving().unwrap().cert, "nothing else is served yet");
    let switched = settled(&renewed, later(1641));
    assert!(is_trusted(&with_successor.bundle(), &switched, HOSTS[0], later(1641)).is_ok());
    assert!(is_trusted(&Material::read(&switched).bundle(), &renewed, HOSTS[0], later(1641)).is_ok(), "a late replica");
    let alone = settled(&switched, later(1881));
    assert_eq!(Material::read(&alone).authorities.len(), 1);
    assert!(is_trusted(&Material::read(&alone).bundle(), &alone, HOSTS[0], later(1881)).is_ok());
    assert!(is_trusted(&before.bundle(), &alone, HOSTS[0], later(1881)).is_err());
}

#[rstest]
fn whatever_is_damaged_is_made_anew(
    #[values(AUTHORITIES, AUTHORITY_KEY, CERTIFICATE, CERTIFICATE_KEY)] key: &str,
    #[values("", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "\u{0}\u{1}")]
    value: &str,
) {
    let mut data = fresh();
    data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
    let healed = settled(&data, later(1));
    assert_ne!(healed, data, "{key} stays damaged");
    is_trusted(&Material::read(&healed).bundle(), &healed, HOSTS[0], later(1)).unwrap();
    data.remove(key);
    let healed = settled(&data, later(1));
    is_trusted(&Material::read(&healed).bundle(), &healed, HOSTS[0], later(1)).unwrap();
}

#[rstest]
#[case::key_of_another(CERTIFICATE_KEY)]
#[case::certificate_of_another(CERTIFICATE)]
#[case::authority_of_another(AUTHORITIES)]
#[case::authority_key_of_another(AUTHORITY_KEY)]
fn parts_that_do_not_belong_together_are_made_anew(#[case] key: &str) {
    let (mut data, other) = (fresh(), fresh());
    data.insert(key.to_owned(), other[key].clone());
    let healed = settled(&data, later(1));
    assert_ne!(healed, data);
    is_trusted(&Material::read(&healed).bundle(), &healed, HOSTS[0], later(1)).unwrap();
}

#[test]
fn a_serving_certificate_is_no_authority() {
    let mut data = fresh();
    let both = [data[CERTIFICATE].0.clone(), data[AUTHORITIES].0.clone()].concat();
    data.insert(AUTHORITIES.to_owned(), ByteString(both));
    assert_eq!(Material::read(&data).authorities.len(), 1);
}

#[test]
fn a_certificate_of_a_short_lived_authority_ends_with_it() {
    let data = fresh();
    let long = Lifetimes::new(Duration::from_hours(24));
    let renewal = Renewal { authority: false, serving: true, keep: vec![0] };
    let renewed = Material::read(&data).renew(&renewal, later(1), long, &hosts()).unwrap();
    let stored = renewed.stored(&hosts());
    assert_eq!(stored.serving.unwrap().validity.not_after, stored.authorities[0].not_after);
}

#[test]
fn a_name_that_is_new_makes_a_new_certificate_of_the_same_authority() {
    let data = fresh();
    let more = [hosts(), vec!["new.example".to_owned()]].concat();
    let stored = Material::read(&data).stored(&more);
    let Plan::Renew(renewal) = plan(later(1), &stored, lifetimes()) else { panic!("{stored:?}") };
    assert_eq!((renewal.authority, renewal.serving), (false, true));
}

#[test]
fn nothing_shows_a_key() {
    let data = fresh();
    let material = Material::read(&data);
    let text = format!("{material:?}");
    let body = String::from_utf8(data[AUTHORITY_KEY].0.clone()).unwrap();
    let secret = body.lines().nth(1).unwrap();
    assert!(!text.contains(secret) && !text.contains("PRIVATE"), "{text}");
    let error = certified_key(&data[CERTIFICATE].0, &data[AUTHORITY_KEY].0).unwrap_err();
    assert!(!error.to_string().contains(secret), "{error}");
}
