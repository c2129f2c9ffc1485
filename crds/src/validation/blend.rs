//! Rules of the existing operator for what only a `CacheBlendEngine` has, in its order and wording.

use super::field_error::Findings;
use crate::{
    DEFAULT_CHUNK_SIZE,
    spec::{BlendSpec, EngineSpec},
};

/// The only chunk size that `CacheBlend` works with.
pub(crate) const CHUNK_SIZE_DETAIL: &str = "must be 256 for CacheBlend (chunk_size == block_size 64 * 4)";

/// The chunk size, which is no choice.
pub(super) fn chunk_size(findings: &mut Findings, spec: &EngineSpec) {
    let found = spec.chunk_size();
    if found != DEFAULT_CHUNK_SIZE {
        findings.invalid("spec.server.chunkSize", found, CHUNK_SIZE_DETAIL);
    }
}

/// How chunks are blended.
pub(super) fn blend(findings: &mut Findings, blend: Option<&BlendSpec>) {
    let Some(blend) = blend else { return };
    findings.at_least("spec.blend.checkLayer", blend.check_layer, 0);
    findings.share("spec.blend.recompRatio", blend.recomp_ratio);
    findings.at_least("spec.blend.partialBucket", blend.partial_bucket, 1);
}
