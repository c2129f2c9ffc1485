//! What a spec must fulfil: one pure function per kind for admission and reconciler, so that both say the same.

mod blend;
mod bounds;
mod clashes;
mod coordinator;
mod engine;
mod field_error;
mod name;
mod payload;
mod shape;

pub(crate) use blend::CHUNK_SIZE_DETAIL;
pub(crate) use clashes::{KEY_PATH, KEY_VOLUME};
pub use field_error::{BadValue, FieldError, join_errors};
pub use name::MAX_NAME_LENGTH;
pub(crate) use name::NAME_DETAIL;
pub(crate) use payload::NEEDED_DETAIL;
pub use shape::malformed;

use crate::{
    CacheBlendEngineSpec, LMCacheCoordinatorSpec, LMCacheEngineSpec,
    spec::{EngineSpec, InjectionSpec},
};
use field_error::Findings;

/// A Prometheus duration, as the `ServiceMonitor` API itself demands it.
pub(crate) const PROMETHEUS_DURATION: &str =
    "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$";

/// An image digest: algorithm, colon, hexadecimal digits.
pub(crate) const IMAGE_DIGEST: &str = "^[a-z0-9]+([+._-][a-z0-9]+)*:[0-9a-f]{32,128}$";

/// Everything that is wrong with an `LMCacheEngine` of this name, in the order of the rules; empty if nothing is.
///
/// First the rules of the existing operator with its wording (`noop` is accepted, D04), then those that it lacks: D15,
/// D17, D18, D19, D24, D43. Right before and after [`LMCacheEngineSpec::with_defaults`].
pub fn validate(name: &str, spec: &LMCacheEngineSpec) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let injection = spec.injection.as_ref();
    engine::memory_and_server(&mut findings, &spec.common);
    engine::connections(&mut findings, &spec.common);
    payload::repository(&mut findings, injection);
    stricter(&mut findings, name, &spec.common, injection);
    findings.into_errors()
}

/// Everything that is wrong with a `CacheBlendEngine` of this name, see [`validate`]. An image to stage is required
/// unless `pd` is set (D16); the server's own image is none (D15).
pub fn validate_cache_blend(name: &str, spec: &CacheBlendEngineSpec) -> Vec<FieldError> {
    let mut findings = Findings::default();
    let injection = spec.injection.as_ref().map(|injection| &injection.common);
    engine::memory_and_server(&mut findings, &spec.common);
    blend::chunk_size(&mut findings, &spec.common);
    blend::blend(&mut findings, spec.blend.as_ref());
    payload::needed(&mut findings, injection, spec.common.pd.is_some());
    payload::repository(&mut findings, injection);
    engine::connections(&mut findings, &spec.common);
    stricter(&mut findings, name, &spec.common, injection);
    findings.into_errors()
}

/// Everything that is wrong with an `LMCacheCoordinator` of this name, in the order of the rules; empty if nothing is.
///
/// First the rules of the existing operator with its wording, then those that it lacks: D17, D19, D62. Right before and
/// after [`LMCacheCoordinatorSpec::with_defaults`].
pub fn validate_coordinator(name: &str, spec: &LMCacheCoordinatorSpec) -> Vec<FieldError> {
    let mut findings = Findings::default();
    coordinator::coordinator(&mut findings, spec);
    bounds::workload(&mut findings, &spec.workload);
    name::name(&mut findings, name);
    findings.into_errors()
}

/// What the existing operator does not check of an engine.
fn stricter(findings: &mut Findings, name: &str, spec: &EngineSpec, injection: Option<&InjectionSpec>) {
    bounds::numbers(findings, spec);
    bounds::workload(findings, &spec.workload);
    payload::digest(findings, injection);
    clashes::ports(findings, spec);
    name::name(findings, name);
    clashes::raw_type(findings, spec);
    clashes::key_volume(findings, spec);
}
