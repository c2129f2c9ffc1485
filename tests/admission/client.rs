//! A client that trusts what a webhook configuration says, as an API server does.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::{Api, Client};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What both configurations trust; fails when their webhooks do not all trust the same.
pub async fn bundle(client: &Client, prefix: &str) -> Result<Vec<u8>> {
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone());
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let mutating = mutating.get(&format!("{prefix}-mutating-webhook-configuration")).await?;
    let validating = validating.get(&format!("{prefix}-validating-webhook-configuration")).await?;
    let clients = mutating.webhooks.into_iter().flatten().map(|it| it.client_config);
    let clients = clients.chain(validating.webhooks.into_iter().flatten().map(|it| it.client_config));
    let mut bundles: Vec<_> = clients.map(|client| client.ca_bundle.map(|it| it.0).unwrap_or_default()).collect();
    bundles.dedup();
    let [bundle] = bundles.try_into().map_err(|found| anyhow::anyhow!("different bundles: {found:?}"))?;
    Ok(bundle)
}

/// The authorities in a bundle.
pub fn authorities(bundle: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok).collect()
}

/// A connection to a webhook server at `127.0.0.1`; fails when it is not trusted by that name.
pub async fn connect(address: &str, name: &str, bundle: &[u8]) -> Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for authority in authorities(bundle) {
        roots.add(authority)?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned())?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

/// Sends a head and a body and reads the whole answer: status code and text.
pub async fn post(
    mut stream: TlsStream<TcpStream>,
    path: &str,
    content_type: &str,
    body: &[u8],
) -> Result<(u16, String)> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: webhooks\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    // A server that refuses early does not read everything.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await?;
    let answer = String::from_utf8(answer)?;
    let code = answer.split_whitespace().nth(1).context("no status line")?.parse()?;
    Ok((code, answer))
}
