//! The certificate of the webhook server: where it comes from, how it is renewed, and how the API server comes to trust it.
//!
//! Either the operator keeps an authority of its own in a Secret ([`SelfManaged`]), or it reads what somebody else puts
//! into files ([`keep_files`]). Both put what is served into a [`ServedCertificate`], from which every new TLS connection
//! takes it; connections that are open do not notice a change. Private keys are never written to disk.

mod files;
mod keeper;
mod material;
mod plan;
mod published;
mod repairs;
mod seen;
mod served;

pub use files::{FilesError, keep_files};
pub use keeper::{KeeperError, SelfManaged};
pub use material::{AUTHORITIES, AUTHORITY_KEY, CERTIFICATE, CERTIFICATE_KEY, Material, MaterialError, PemError};
pub use plan::{Lifetimes, MAX_AUTHORITIES, Plan, Renewal, Serving, Stored, Validity, plan};
pub use served::ServedCertificate;

/// What `/readyz` waits for until a certificate is served and trusted.
pub const READINESS: &str = "webhook certificate";
