//! Operator defaults: in memory, after reading and before validation. The resource itself is never rewritten.

use std::collections::BTreeMap;

use crate::{
    CacheBlendEngineSpec, LMCacheCoordinatorSpec, LMCacheEngineSpec,
    resolve::{DEFAULT_CHUNK_SIZE, DEFAULT_TAG},
    spec::{CudagraphMode, EngineSpec, GpuVendor, LogLevel, PullPolicy},
};

/// Label that nodes with NVIDIA GPUs carry (set by GPU feature discovery).
pub const NVIDIA_NODE_LABEL: (&str, &str) = ("nvidia.com/gpu.present", "true");

impl EngineSpec {
    /// This spec with the operator's defaults filled in: `logLevel`, `gpuVendor`, and `nodeSelector` where it is unset
    /// (not merely empty) and the vendor is NVIDIA. Everything else keeps unset and empty apart. Idempotent.
    #[must_use]
    pub fn with_defaults(mut self) -> Self {
        self.workload.log_level.get_or_insert(LogLevel::Info);
        let vendor = *self.gpu_vendor.get_or_insert(GpuVendor::Nvidia);
        if vendor == GpuVendor::Nvidia && self.workload.node_selector.is_none() {
            let (key, value) = NVIDIA_NODE_LABEL;
            self.workload.node_selector = Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
        }
        self
    }
}

impl LMCacheEngineSpec {
    /// This spec with the operator's defaults filled in, see [`EngineSpec::with_defaults`].
    #[must_use]
    pub fn with_defaults(mut self) -> Self {
        self.common = self.common.with_defaults();
        self
    }
}

impl CacheBlendEngineSpec {
    /// This spec with the operator's defaults filled in: those of [`EngineSpec::with_defaults`], `server.chunkSize`,
    /// `blend` without `partialBucket`, `injection.cudagraph`, and `tag` and `pullPolicy` of a payload image that is set.
    #[must_use]
    pub fn with_defaults(mut self) -> Self {
        self.common = self.common.with_defaults();
        self.common.server.get_or_insert_default().chunk_size.get_or_insert(DEFAULT_CHUNK_SIZE);
        let (check_layer, recomp_ratio) = (self.check_layer(), self.recomp_ratio());
        let blend = self.blend.get_or_insert_default();
        blend.check_layer = Some(check_layer);
        blend.recomp_ratio = Some(recomp_ratio);
        let injection = self.injection.get_or_insert_default();
        injection.cudagraph.get_or_insert(CudagraphMode::Eager);
        if let Some(image) = &mut injection.common.payload_image {
            image.tag.get_or_insert_with(|| DEFAULT_TAG.to_owned());
            image.pull_policy.get_or_insert(PullPolicy::IfNotPresent);
        }
        self
    }
}

impl LMCacheCoordinatorSpec {
    /// This spec with the operator's defaults filled in: `logLevel` and `replicas`. Idempotent.
    #[must_use]
    pub fn with_defaults(mut self) -> Self {
        self.workload.log_level.get_or_insert(LogLevel::Info);
        self.replicas.get_or_insert(1);
        self
    }
}
