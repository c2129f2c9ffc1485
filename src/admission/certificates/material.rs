//! Certificates and keys: read from a Secret, made, and written back. Nothing here shows a key in a text.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::plan::{Lifetimes, Renewal, Serving, Stored, Validity, after};

/// Key of the Secret with the trusted authorities, the newest first.
pub const AUTHORITIES: &str = "ca.crt";
/// Key of the Secret with the private key of the newest authority.
pub const AUTHORITY_KEY: &str = "ca.key";
/// Key of the Secret with the serving certificate.
pub const CERTIFICATE: &str = "tls.crt";
/// Key of the Secret with the private key of the serving certificate.
pub const CERTIFICATE_KEY: &str = "tls.key";

/// Why a certificate could not be made. Never holds a key.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    /// The library refuses.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A time is out of range.
    #[error("cannot make a certificate that is valid from {0}")]
    Time(Timestamp),
    /// Nothing can sign: the plan asked for a certificate of an authority that has no key.
    #[error("cannot sign a certificate: the authority has no key")]
    NoSigner,
    /// What was made cannot be used.
    #[error("cannot use the certificate that was made: {0}")]
    Unusable(#[from] rustls::Error),
}

/// What a Secret holds, as far as it can be used.
#[derive(Default)]
pub struct Material {
    /// Trusted authorities, the newest first.
    authorities: Vec<CertificateDer<'static>>,
    /// Key of the newest.
    signer: Option<KeyPair>,
    /// What is served.
    serving: Option<Arc<CertifiedKey>>,
    /// Its key, to be stored.
    serving_key: String,
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").field("authorities", &self.authorities.len()).finish_non_exhaustive()
    }
}

impl Material {
    /// Reads what can be read; what is damaged is not there.
    pub fn read(data: &BTreeMap<String, ByteString>) -> Self {
        let entry = |key: &str| data.get(key).map(|value| value.0.as_slice()).unwrap_or_default();
        let authorities: Vec<_> = CertificateDer::pem_slice_iter(entry(AUTHORITIES))
            .filter_map(Result::ok)
            .filter(|der| parse(der).is_some_and(|it| it.is_ca()))
            .collect();
        let signer = std::str::from_utf8(entry(AUTHORITY_KEY)).ok().and_then(|pem| KeyPair::from_pem(pem).ok());
        let signer = signer.filter(|key| authorities.first().is_some_and(|newest| belongs(key, newest)));
        let serving = certified_key(entry(CERTIFICATE), entry(CERTIFICATE_KEY)).ok().map(Arc::new);
        let serving_key = String::from_utf8_lossy(entry(CERTIFICATE_KEY)).into_owned();
        Material { authorities, signer, serving, serving_key }
    }

    /// What a plan needs to know. `names` are those that the server is called by: DNS names and IP addresses.
    pub fn stored(&self, names: &[String]) -> Stored {
        let parsed: Vec<_> = self.authorities.iter().filter_map(|der| parse(der)).collect();
        let serving = self.serving.as_ref().and_then(|key| {
            let certificate = parse(key.end_entity_cert().ok()?)?;
            let issuer = parsed.iter().position(|authority| {
                let key = Some(authority.public_key());
                authority.subject() == certificate.issuer() && certificate.verify_signature(key).is_ok()
            })?;
            let named = names.iter().all(|name| has_name(&certificate, name));
            Some(Serving { validity: validity(&certificate), issuer, named })
        });
        Stored { authorities: parsed.iter().map(validity).collect(), signs: self.signer.is_some(), serving }
    }

    /// Carries out a plan.
    pub fn renew(
        self,
        renewal: &Renewal,
        now: Timestamp,
        lifetimes: Lifetimes,
        names: &[String],
    ) -> Result<Self, MaterialError> {
        let mut kept = self.authorities.into_iter().enumerate();
        let mut authorities: Vec<_> =
            kept.by_ref().filter(|(index, _)| renewal.keep.contains(index)).map(|(_, der)| der).collect();
        let mut material = Material {
            signer: self.signer,
            serving: self.serving,
            serving_key: self.serving_key,
            ..Material::default()
        };
        if renewal.authority {
            let (der, key) = make_authority(now, lifetimes)?;
            authorities.insert(0, der);
            material.signer = Some(key);
        }
        material.authorities = authorities;
        if renewal.serving {
            material.sign(now, lifetimes, names)?;
        }
        Ok(material)
    }

    fn sign(&mut self, now: Timestamp, lifetimes: Lifetimes, names: &[String]) -> Result<(), MaterialError> {
        let (Some(newest), Some(signer)) = (self.authorities.first(), &self.signer) else {
            return Err(MaterialError::NoSigner);
        };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = params(now, after(now, lifetimes.serving()), lifetimes, "LMCache operator webhooks")?;
        if let Some(end) = parse(newest).map(|it| it.validity().not_after.to_datetime()) {
            params.not_after = params.not_after.min(end);
        }
        params.subject_alt_names = CertificateParams::new(names)?.subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &Issuer::from_ca_cert_der(newest, signer)?)?;
        self.serving_key = key.serialize_pem();
        let private = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let chain = vec![certificate.der().clone()];
        self.serving = Some(Arc::new(CertifiedKey::from_der(chain, private, &ring::default_provider())?));
        Ok(())
    }

    /// As a Secret holds it.
    pub fn data(&self) -> BTreeMap<String, ByteString> {
        let certificate =
            self.serving.as_ref().and_then(|key| key.end_entity_cert().ok()).map(to_pem).unwrap_or_default();
        let signer = self.signer.as_ref().map(KeyPair::serialize_pem).unwrap_or_default();
        let entries = [
            (AUTHORITIES, self.bundle()),
            (AUTHORITY_KEY, signer.into_bytes()),
            (CERTIFICATE, certificate.into_bytes()),
            (CERTIFICATE_KEY, self.serving_key.clone().into_bytes()),
        ];
        entries.map(|(key, value)| (key.to_owned(), ByteString(value))).into()
    }

    /// What an API server has to trust, in PEM.
    pub fn bundle(&self) -> Vec<u8> {
        self.authorities.iter().map(to_pem).collect::<String>().into_bytes()
    }

    /// What is to be served.
    pub fn serving(&self) -> Option<&Arc<CertifiedKey>> {
        self.serving.as_ref()
    }
}

/// A certificate chain and its key, both in PEM; refused when they do not belong together.
pub fn certified_key(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, PemError> {
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>().map_err(PemError::certificate)?;
    if chain.is_empty() {
        return Err(PemError::NoSection { wanted: "certificate", reason: "no section found".to_owned() });
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(PemError::key)?;
    Ok(CertifiedKey::from_der(chain, key, &ring::default_provider())?)
}

/// Why a certificate and its key cannot be read. Never holds a key.
#[derive(Debug, thiserror::Error)]
pub enum PemError {
    /// There is no such section.
    #[error("no {wanted} in PEM format: {reason}")]
    NoSection {
        /// Certificate or private key.
        wanted: &'static str,
        /// What the parser says.
        reason: String,
    },
    /// They do not belong together, or their kind is not supported.
    #[error("unusable certificate: {0}")]
    Unusable(#[from] rustls::Error),
}

impl PemError {
    #[allow(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
    fn certificate(error: rustls::pki_types::pem::Error) -> Self {
        PemError::NoSection { wanted: "certificate", reason: error.to_string() }
    }

    #[allow(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
    fn key(error: rustls::pki_types::pem::Error) -> Self {
        PemError::NoSection { wanted: "private key", reason: error.to_string() }
    }
}

/// When the certificate that is served ends.
pub fn expiry(key: &CertifiedKey) -> Option<Timestamp> {
    Some(validity(&parse(key.end_entity_cert().ok()?)?).not_after)
}

fn make_authority(now: Timestamp, lifetimes: Lifetimes) -> Result<(CertificateDer<'static>, KeyPair), MaterialError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    // Authorities are told apart by their names, also where a verifier looks at nothing else.
    let id = key.public_key_raw().iter().rev().take(4).fold(0_u32, |id, byte| id << 8 | u32::from(*byte));
    let name = format!("LMCache operator webhook CA {id:08x}");
    let mut params = params(now, after(now, lifetimes.authority()), lifetimes, &name)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let certificate = params.self_signed(&key)?;
    Ok((certificate.der().clone(), key))
}

fn params(
    from: Timestamp,
    to: Timestamp,
    lifetimes: Lifetimes,
    name: &str,
) -> Result<CertificateParams, MaterialError> {
    let skew = i64::try_from(lifetimes.skew().as_secs()).unwrap_or_default();
    let time = |second: i64| OffsetDateTime::from_unix_timestamp(second).map_err(|_| MaterialError::Time(from));
    let mut params = CertificateParams::default();
    params.not_before = time(from.as_second() - skew)?;
    params.not_after = time(to.as_second())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate)
}

fn validity(certificate: &X509Certificate<'_>) -> Validity {
    let validity = certificate.validity();
    let time = |second: i64, otherwise| Timestamp::from_second(second).unwrap_or(otherwise);
    Validity {
        not_before: time(validity.not_before.timestamp(), Timestamp::MIN),
        not_after: time(validity.not_after.timestamp(), Timestamp::MAX),
    }
}

fn belongs(key: &KeyPair, certificate: &CertificateDer<'_>) -> bool {
    use rcgen::PublicKeyData as _;
    parse(certificate).is_some_and(|it| it.public_key().raw == key.subject_public_key_info())
}

fn has_name(certificate: &X509Certificate<'_>, wanted: &str) -> bool {
    let address = wanted.parse::<IpAddr>().ok().map(|address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    });
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    names.value.general_names.iter().any(|name| match (name, &address) {
        (GeneralName::IPAddress(found), Some(address)) => *found == address.as_slice(),
        (GeneralName::DNSName(found), None) => *found == wanted,
        _ => false,
    })
}

fn to_pem(der: &CertificateDer<'_>) -> String {
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new("CERTIFICATE", der.to_vec()), lines)
}

#[cfg(test)]
mod tests;
