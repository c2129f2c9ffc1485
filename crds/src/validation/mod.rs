//! What a spec must fulfil: one pure function for admission and reconciler, so that both say the same.

mod bounds;
mod clashes;
mod engine;
mod field_error;
mod name;
mod shape;

pub(crate) use clashes::{KEY_PATH, KEY_VOLUME};
pub use field_error::{BadValue, FieldError, join_errors};
pub use name::MAX_NAME_LENGTH;
pub(crate) use name::NAME_DETAIL;
pub use shape::malformed;

use crate::LMCacheEngineSpec;
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
    engine::memory_and_server(&mut findings, &spec.common);
    engine::second_level(&mut findings, &spec.common);
    engine::coordinator(&mut findings, &spec.common);
    bounds::payload_image(&mut findings, &spec.common);
    bounds::numbers(&mut findings, &spec.common);
    bounds::formats(&mut findings, &spec.common);
    clashes::ports(&mut findings, &spec.common);
    name::name(&mut findings, name);
    clashes::raw_type(&mut findings, &spec.common);
    clashes::key_volume(&mut findings, &spec.common);
    findings.into_errors()
}
