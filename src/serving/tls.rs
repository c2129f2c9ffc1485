//! The certificate of the metrics server: from files that are read again when they change, or self-signed in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use axum_server::tls_rustls::RustlsConfig;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::cli::CertificateFiles;

/// How often the files are looked at. A kubelet takes up to a minute to bring a changed Secret, so this adds little.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Why a certificate cannot be used. Never holds a key.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {} (--metrics-cert-path): {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file holds no PEM section of that kind.
    #[error("no {wanted} in PEM format in {}: {reason}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Certificate or private key.
        wanted: &'static str,
        /// What the parser says.
        reason: String,
    },
    /// Certificate and key do not fit together, or their kind is not supported.
    #[error("unusable certificate: {0}")]
    Unusable(#[from] rustls::Error),
    /// No certificate could be made.
    #[error("cannot make a self-signed certificate: {0}")]
    SelfSigned(#[from] rcgen::Error),
}

/// The certificate in use.
pub(super) struct Certificate {
    config: RustlsConfig,
    source: Option<(CertificateFiles, Pem)>,
    http2: bool,
}

/// The files' content, to see whether it changed.
#[derive(PartialEq)]
struct Pem {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Certificate {
    /// From `files`, or self-signed for `localhost` without any.
    pub(super) fn load(files: Option<CertificateFiles>, http2: bool) -> Result<Self, CertificateError> {
        let (config, source) = match files {
            Some(files) => {
                let pem = Pem::read(&files)?;
                (pem.server_config(&files, http2)?, Some((files, pem)))
            }
            None => (self_signed(http2)?, None),
        };
        Ok(Certificate { config: RustlsConfig::from_config(Arc::new(config)), source, http2 })
    }

    /// What the acceptor takes for each new connection; it follows every reload.
    pub(super) fn acceptor_config(&self) -> RustlsConfig {
        self.config.clone()
    }

    /// Never returns: takes over what changes in the files. A pair that cannot be used leaves the old one in use.
    pub(super) async fn keep_current(mut self) {
        loop {
            tokio::time::sleep(LOOK_AGAIN).await;
            match self.reload() {
                Ok(true) => tracing::info!("Reloaded the metrics certificate"),
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(%error, "Failed to reload the metrics certificate; the old one stays in use");
                }
            }
        }
    }

    /// Whether there was something new.
    fn reload(&mut self) -> Result<bool, CertificateError> {
        let Some((files, current)) = &mut self.source else { return Ok(false) };
        let pem = Pem::read(files)?;
        if pem == *current {
            return Ok(false);
        }
        self.config.reload_from_config(Arc::new(pem.server_config(files, self.http2)?));
        *current = pem;
        Ok(true)
    }
}

impl Pem {
    fn read(files: &CertificateFiles) -> Result<Self, CertificateError> {
        let read =
            |path: &Path| fs::read(path).map_err(|source| CertificateError::Read { path: path.to_owned(), source });
        Ok(Pem { certificate: read(&files.certificate)?, key: read(&files.key)? })
    }

    fn server_config(&self, files: &CertificateFiles, http2: bool) -> Result<ServerConfig, CertificateError> {
        let not_pem =
            |path: &Path, wanted, reason: String| CertificateError::Pem { path: path.to_owned(), wanted, reason };
        let chain = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| not_pem(&files.certificate, "certificate", error.to_string()))?;
        if chain.is_empty() {
            return Err(not_pem(&files.certificate, "certificate", "no section found".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| not_pem(&files.key, "private key", error.to_string()))?;
        server_config(chain, key, http2)
    }
}

fn self_signed(http2: bool) -> Result<ServerConfig, CertificateError> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    server_config(vec![made.cert.der().clone()], key, http2)
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    http2: bool,
) -> Result<ServerConfig, CertificateError> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = if http2 { vec![b"h2".to_vec(), b"http/1.1".to_vec()] } else { vec![b"http/1.1".to_vec()] };
    Ok(config)
}
