//! The contract of the `LMCache` operator: custom resources of group `lmcache.lmcache.ai/v1alpha1`,
//! their defaults and validation, and the status they carry.
#![deny(missing_docs)]

mod cache_blend;
mod coordinator;
mod defaults;
mod engine;
mod resolve;
mod schema;
mod spec;
mod status;
mod validation;

pub use cache_blend::{CacheBlendEngine, CacheBlendEngineSpec};
pub use coordinator::{LMCacheCoordinator, LMCacheCoordinatorSpec};
pub use defaults::NVIDIA_NODE_LABEL;
pub use engine::{LMCacheEngine, LMCacheEngineSpec};
pub use resolve::{
    DEFAULT_CHUNK_SIZE, DEFAULT_COORDINATOR_PORT, DEFAULT_HTTP_PORT, DEFAULT_METRICS_PORT, DEFAULT_REPOSITORY,
    DEFAULT_SERVER_PORT, DEFAULT_TAG, STARTUP_PROBE_SECONDS,
};
pub use schema::{crds, reference_markdown};
pub use spec::*;
pub use status::{
    CacheStatus, CoordinatorStatus, Endpoint, EngineStatus, MAX_ENDPOINTS, MAX_TRANSITIONS, Phase, PhaseRecord,
    PhaseTransition, Report, RolloutOutcome, RolloutTrace, kubernetes_time,
};
pub use validation::{
    BadValue, FieldError, MAX_NAME_LENGTH, join_errors, malformed, validate, validate_cache_blend, validate_coordinator,
};
