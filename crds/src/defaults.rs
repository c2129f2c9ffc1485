//! Operator defaults: in memory, after reading and before validation. The resource itself is never rewritten.

use std::collections::BTreeMap;

use crate::{
    LMCacheEngineSpec,
    spec::{EngineSpec, GpuVendor, LogLevel},
};

/// Label that nodes with NVIDIA GPUs carry (set by GPU feature discovery).
pub const NVIDIA_NODE_LABEL: (&str, &str) = ("nvidia.com/gpu.present", "true");

impl EngineSpec {
    /// This spec with the operator's defaults filled in: `logLevel`, `gpuVendor`, and `nodeSelector` where it is unset
    /// (not merely empty) and the vendor is NVIDIA. Everything else keeps unset and empty apart. Idempotent.
    #[must_use]
    pub fn with_defaults(mut self) -> Self {
        self.log_level.get_or_insert(LogLevel::Info);
        let vendor = *self.gpu_vendor.get_or_insert(GpuVendor::Nvidia);
        if vendor == GpuVendor::Nvidia && self.node_selector.is_none() {
            let (key, value) = NVIDIA_NODE_LABEL;
            self.node_selector = Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
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
