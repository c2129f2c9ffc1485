//! Flags of the webhook server.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::CertificateFiles;
use super::values::{self, Bind, ListenAddress};

/// Where the reference looks for a certificate, below the folder for temporary files.
const DEFAULT_FOLDER: &str = "k8s-webhook-server/serving-certs";

/// The webhook server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookOptions {
    /// Where it listens.
    pub address: ListenAddress,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Where its certificate comes from.
    pub certificates: WebhookCertificates,
    /// What the names of Service, Secret and configurations begin with.
    pub prefix: String,
}

/// Where the certificate of the webhook server comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookCertificates {
    /// From an authority of the operator's own.
    SelfManaged {
        /// Lifetime of a serving certificate.
        validity: Duration,
        /// Where the API server is told to call, `https://host:port`; `None` means through the Service. Port 0 stands for
        /// the one that the server listens on.
        url: Option<String>,
    },
    /// From files that somebody else renews.
    Files(CertificateFiles),
}

/// The flags as clap reads them.
#[derive(Debug, Args)]
#[allow(clippy::struct_field_names, reason = "a field is called as its flag")]
pub(super) struct WebhookFlags {
    /// Address of the webhook server as host:port or :port; 0 switches the webhooks off
    #[arg(long, value_name = "ADDRESS", default_value = ":9443", value_parser = values::bind)]
    webhook_bind_address: Bind,
    /// self-managed (an authority of the operator's own, in a Secret), cert-manager or path (both: files in
    /// --webhook-cert-path), or a folder; by default path if --webhook-cert-path is given, otherwise self-managed
    #[arg(long, value_name = "WAY", value_parser = way)]
    webhook_certs: Option<Way>,
    /// Folder of the webhook certificate; by default k8s-webhook-server/serving-certs in the folder for temporary files
    #[arg(long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    webhook_cert_path: OsString,
    /// File name of the webhook certificate
    #[arg(long, value_name = "FILE", default_value = "tls.crt", value_parser = NonEmptyStringValueParser::new())]
    webhook_cert_name: String,
    /// File name of the webhook key
    #[arg(long, value_name = "FILE", default_value = "tls.key", value_parser = NonEmptyStringValueParser::new())]
    webhook_cert_key: String,
    /// Lifetime of a self-managed certificate, such as 90d or 2160h, at least 10s; its authority lives four times as long,
    /// and both are renewed after two thirds
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = values::validity)]
    webhook_cert_validity: Duration,
    /// For development outside of the cluster: register the webhooks at this URL, as https://host:port, instead of waiting
    /// for somebody to register them with a Service. Port 0 stands for the one that is listened on. They stay registered
    /// when the operator ends: pods and resources are then admitted as they are
    #[arg(long, value_name = "URL", value_parser = values::webhook_url)]
    webhook_url: Option<String>,
    /// What the names of the webhooks' Service, Secret and configurations begin with
    #[arg(long, value_name = "PREFIX", default_value = "lmcache-operator", value_parser = values::name_prefix)]
    webhook_prefix: String,
}

#[derive(Clone, Debug)]
enum Way {
    SelfManaged,
    Files,
    Folder(PathBuf),
}

fn way(text: &str) -> Result<Way, String> {
    match text {
        "self-managed" => Ok(Way::SelfManaged),
        "cert-manager" | "path" => Ok(Way::Files),
        folder if folder.contains('/') => Ok(Way::Folder(folder.into())),
        _ => Err("want self-managed, cert-manager, path or a folder such as /certs".to_owned()),
    }
}

impl WebhookFlags {
    /// `None` when they are switched off by address. The error says which flags contradict each other.
    pub(super) fn into_options(
        self,
        http2: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Option<WebhookOptions>, String> {
        let given = (!self.webhook_cert_path.is_empty()).then(|| PathBuf::from(&self.webhook_cert_path));
        let folder = match (self.webhook_certs, given) {
            (Some(Way::SelfManaged), Some(_)) => {
                let text = "Flag --webhook-cert-path has no effect with --webhook-certs=self-managed";
                warnings.push(text.to_owned());
                None
            }
            (Some(Way::SelfManaged) | None, None) => None,
            (Some(Way::Folder(folder)), _) | (_, Some(folder)) => Some(folder),
            (Some(Way::Files), None) => Some(std::env::temp_dir().join(DEFAULT_FOLDER)),
        };
        let certificates = match (folder, self.webhook_url) {
            (Some(_), Some(_)) => {
                return Err(
                    "--webhook-url needs --webhook-certs=self-managed: the API server must be told whom to trust"
                        .to_owned(),
                );
            }
            (Some(folder), None) => WebhookCertificates::Files(CertificateFiles {
                certificate: folder.join(self.webhook_cert_name),
                key: folder.join(self.webhook_cert_key),
            }),
            (None, url) => WebhookCertificates::SelfManaged { validity: self.webhook_cert_validity, url },
        };
        let Bind::At(address) = self.webhook_bind_address else { return Ok(None) };
        Ok(Some(WebhookOptions { address, http2, certificates, prefix: self.webhook_prefix }))
    }
}
