//! The senses of the operator: logging, traces and the metric registry.
//!
//! No other crate registers a metric or installs a subscriber. Everything is bounded: what would grow without limit
//! (messages, pod names) is never a label, and an object that is deleted takes its series with it.
#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod api_requests;
mod engines;
mod labels;
mod log_traces;
mod logging;
mod metrics;
mod process;
pub mod traces;

pub use api_requests::{ApiRequestsLayer, ApiRequestsService};
pub use labels::{ApplyOutcome, ReconcileResult, RolloutEnd, WebhookOutcome};
pub use logging::{DEFAULT_FILTER, LogFormat, LoggingError, init_logging};
pub use metrics::{Metrics, ReconcileInFlight};
