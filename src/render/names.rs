//! Names of children and of what is inside of them.

/// Service for metrics.
pub fn metrics_service(engine: &str) -> String {
    format!("{engine}-metrics")
}

/// `ConfigMap` with the connection documents.
pub fn connection(engine: &str) -> String {
    format!("{engine}-connection")
}

/// Mirror of the credentials of a RESP store.
pub fn credentials(engine: &str) -> String {
    format!("{engine}-resp-auth")
}

/// Container that runs the server.
pub const CONTAINER: &str = "lmcache";
/// Container that runs the coordinator.
pub const COORDINATOR_CONTAINER: &str = "coordinator";
/// Port of the cache protocol.
pub const SERVER_PORT: &str = "server";
/// Port of the HTTP frontend.
pub const HTTP_PORT: &str = "http";
/// Port that the metrics Service offers.
pub const METRICS_PORT: &str = "metrics";
