//! The certificate in use, exchanged without a connection noticing.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use lmcache_observability::Metrics;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::material::expiry;

/// What new TLS connections are answered with. A clone speaks of the same certificate.
#[derive(Clone, Default)]
pub struct ServedCertificate(Arc<RwLock<Option<Arc<CertifiedKey>>>>);

impl fmt::Debug for ServedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedCertificate").field("present", &self.current().is_some()).finish()
    }
}

impl ServedCertificate {
    /// What is served; `None` until there is something, and handshakes fail until then.
    pub fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves this from now on. `false` when it is served already.
    pub fn replace(&self, key: &Arc<CertifiedKey>, metrics: &Metrics) -> bool {
        let expires = expiry(key);
        if let Some(expires) = expires {
            metrics.webhook_certificate_expires(expires);
        }
        let before = self.0.write().unwrap_or_else(PoisonError::into_inner).replace(key.clone());
        let news = before.is_none_or(|before| before.cert != key.cert);
        if news {
            let expires = expires.map(|at| at.to_string());
            tracing::info!(expires, "Serving a new webhook certificate");
        }
        news
    }

    /// How the webhook server speaks TLS: 1.2 and 1.3, HTTP/2 where it is wanted.
    pub fn server_config(&self, http2: bool) -> Result<ServerConfig, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        // An API server keeps its connections; memory for sessions to resume would be for nothing.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let protocols: &[&[u8]] = if http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}
