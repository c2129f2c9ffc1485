//! A certificate in files that somebody else renews: cert-manager, or the one who installs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use lmcache_observability::Metrics;
use tokio::time::sleep;

use super::material::{PemError, certified_key};
use super::served::ServedCertificate;
use crate::cli::CertificateFiles;

/// How often the files are looked at. A kubelet takes up to a minute to bring a changed Secret, so this adds little.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The same while there is no usable certificate, or files changed in the middle of a look.
const LOOK_SOON: Duration = Duration::from_secs(1);

/// Why files cannot be used. Never holds a key.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Their content is no certificate and its key.
    #[error("cannot use {}: {source}", path.display())]
    Content {
        /// The certificate's file.
        path: PathBuf,
        /// What is wrong with it.
        source: PemError,
    },
}

/// The files' content, to see whether it changed.
#[derive(PartialEq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Content {
    fn read(files: &CertificateFiles) -> Result<Self, FilesError> {
        let read = |path: &Path| fs::read(path).map_err(|source| FilesError::Read { path: path.to_owned(), source });
        Ok(Content { certificate: read(&files.certificate)?, key: read(&files.key)? })
    }
}

/// Never returns: serves what the files hold, and follows every change. Files that are not there yet are waited for, and
/// a pair that cannot be used leaves the old one in use. `arrived` is called when the first certificate is served.
pub async fn keep_files(
    files: CertificateFiles,
    served: ServedCertificate,
    metrics: Metrics,
    arrived: impl Fn() + Send + Sync,
) {
    let mut current = None;
    let mut told = String::new();
    loop {
        match look(&files, &mut current, &served, &metrics) {
            Ok(()) => {
                arrived();
                told.clear();
            }
            Err(error) => {
                let text = error.to_string();
                if text != told {
                    let what = if current.is_some() { "the old one stays in use" } else { "waiting for it" };
                    tracing::warn!(%error, "Failed to read the webhook certificate (--webhook-cert-path); {what}");
                    told = text;
                }
            }
        }
        sleep(if told.is_empty() { LOOK_AGAIN } else { LOOK_SOON }).await;
    }
}

fn look(
    files: &CertificateFiles,
    current: &mut Option<Content>,
    served: &ServedCertificate,
    metrics: &Metrics,
) -> Result<(), FilesError> {
    let content = Content::read(files)?;
    if current.as_ref() == Some(&content) {
        return Ok(());
    }
    let key = certified_key(&content.certificate, &content.key)
        .map_err(|source| FilesError::Content { path: files.certificate.clone(), source })?;
    served.replace(&Arc::new(key), metrics);
    *current = Some(content);
    Ok(())
}

#[cfg(test)]
mod tests;
