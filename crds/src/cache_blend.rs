//! `CacheBlendEngine`: one cache server on every GPU node, for reuse of text that is no prefix.
#![allow(clippy::doc_markdown, reason = "the text is printed by kubectl explain, where backticks are noise")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::EngineStatus;
use crate::spec::{BlendSpec, CacheBlendInjectionSpec, CudagraphMode, EngineSpec, PayloadImageSpec};

/// A fleet of CacheBlend servers, one on every node that nodeSelector selects, and how vLLM finds them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "lmcache.lmcache.ai",
    version = "v1alpha1",
    kind = "CacheBlendEngine",
    plural = "cacheblendengines",
    singular = "cacheblendengine",
    shortname = "cbe",
    category = "lmcache",
    namespaced,
    status = "EngineStatus",
    derive = "PartialEq",
    doc = "CacheBlendEngine runs a CacheBlend server on every selected GPU node and publishes how vLLM connects to them."
)]
#[serde(rename_all = "camelCase")]
pub struct CacheBlendEngineSpec {
    /// What every engine kind has.
    #[serde(flatten)]
    pub common: EngineSpec,

    /// How cached chunks that are no prefix of a prompt are blended into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blend: Option<BlendSpec>,

    /// How vLLM pods that opt in by label are connected to this engine. Its payloadImage is required, unless pd is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injection: Option<CacheBlendInjectionSpec>,
}

impl CacheBlendEngineSpec {
    /// `blend.checkLayer`, by default 1.
    pub fn check_layer(&self) -> i32 {
        self.blend.as_ref().and_then(|blend| blend.check_layer).unwrap_or(1)
    }

    /// `blend.recompRatio`, a share, by default 0.15.
    pub fn recomp_ratio(&self) -> f64 {
        self.blend.as_ref().and_then(|blend| blend.recomp_ratio).unwrap_or(0.15)
    }

    /// `blend.partialBucket`, if set.
    pub fn partial_bucket(&self) -> Option<i32> {
        self.blend.as_ref()?.partial_bucket
    }

    /// `injection.cudagraph`, by default `eager`.
    pub fn cudagraph(&self) -> CudagraphMode {
        self.injection.as_ref().map(CacheBlendInjectionSpec::cudagraph).unwrap_or_default()
    }

    /// The image to stage into injected pods, if there is a usable one (see [`PayloadImageSpec::is_unset`]).
    pub fn payload_image(&self) -> Option<&PayloadImageSpec> {
        self.injection.as_ref()?.common.payload_image()
    }

    /// Whether the pods share the IPC namespace of the node: `hostIPC`, since this kind never isolates IPC.
    pub fn host_ipc(&self) -> bool {
        self.common.host_ipc.unwrap_or(false)
    }
}
