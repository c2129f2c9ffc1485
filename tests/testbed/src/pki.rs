//! The certificates of one cluster: an authority, the API server's own, and one per client.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

use crate::files::private_file;

/// A certificate and its key, in files.
pub(crate) struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The authority of one cluster and what it signs, all in one folder.
pub(crate) struct Pki {
    folder: PathBuf,
    authority: Issuer<'static, KeyPair>,
}

impl Pki {
    /// Makes a new authority and writes its certificate to `ca.crt`.
    pub fn create(folder: &Path) -> Result<Self> {
        let mut params = subject("testbed-ca", None)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        private_file(&folder.join("ca.crt"), &certificate.pem())?;
        Ok(Self { folder: folder.to_owned(), authority: Issuer::new(params, key) })
    }

    /// The authority's certificate.
    pub fn authority_file(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// The serving certificate of the API server.
    pub fn server(&self) -> Result<Identity> {
        let names =
            ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", "10.96.0.1"];
        let mut params = CertificateParams::new(names.map(String::from))?;
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign("apiserver", params)
    }

    /// The certificate of a client: the common name is its user, the organisation its group.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = subject(user, group)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(user, params)
    }

    /// The key pair that signs service account tokens, as (private, public).
    pub fn service_account_keys(&self) -> Result<(PathBuf, PathBuf)> {
        let key = KeyPair::generate()?;
        let files = (self.folder.join("service-account.key"), self.folder.join("service-account.pub"));
        private_file(&files.0, &key.serialize_pem())?;
        private_file(&files.1, &key.public_key_pem())?;
        Ok(files)
    }

    fn sign(&self, name: &str, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.authority).with_context(|| format!("cannot sign for {name}"))?;
        let file = |suffix: &str| self.folder.join(format!("{}.{suffix}", name.replace(':', "-")));
        let identity = Identity { certificate: file("crt"), key: file("key") };
        private_file(&identity.certificate, &certificate.pem())?;
        private_file(&identity.key, &key.serialize_pem())?;
        Ok(identity)
    }
}

fn subject(common_name: &str, organisation: Option<&str>) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(organisation) = organisation {
        params.distinguished_name.push(DnType::OrganizationName, organisation);
    }
    Ok(params)
}
