//! How vLLM pods are connected to an engine.

use k8s_openapi::api::core::v1::LocalObjectReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PayloadImageSpec;

/// How vLLM pods that opt in are connected to an engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectionSpec {
    /// Image whose /payload is staged into the pod and put on PYTHONPATH. Default none: nothing is staged. A
    /// CacheBlendEngine needs one, unless pd is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_image: Option<PayloadImageSpec>,

    /// Secrets with registry credentials for payloadImage, added to the injected pod; they must exist in the pod's
    /// namespace. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,

    /// Name of the container that runs vLLM. Default, also for an empty string: the pod's first container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_container: Option<String>,
}

impl InjectionSpec {
    /// The image to stage into injected pods, if there is a usable one (see [`PayloadImageSpec::is_unset`]).
    pub fn payload_image(&self) -> Option<&PayloadImageSpec> {
        self.payload_image.as_ref().filter(|image| !image.is_unset())
    }
}

/// How much of vLLM is captured in CUDA graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CudagraphMode {
    /// Nothing: vLLM runs with `--enforce-eager`.
    #[default]
    Eager,
    /// What vLLM captures when it is told nothing.
    Piecewise,
    /// Whole decode steps, and nothing else (vLLM's `FULL_DECODE_ONLY`).
    FullDecodeOnly,
}

impl CudagraphMode {
    /// The name as it stands in `injection.cudagraph`.
    pub const fn as_str(self) -> &'static str {
        match self {
            CudagraphMode::Eager => "eager",
            CudagraphMode::Piecewise => "piecewise",
            CudagraphMode::FullDecodeOnly => "full_decode_only",
        }
    }
}

/// How vLLM pods that opt in are connected to a `CacheBlendEngine`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CacheBlendInjectionSpec {
    /// What every engine kind has.
    #[serde(flatten)]
    pub common: InjectionSpec,

    /// How much of vLLM is captured in CUDA graphs: eager (nothing), piecewise (what vLLM captures when it is told
    /// nothing) or full_decode_only (whole decode steps only). Default eager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "eager"))]
    pub cudagraph: Option<CudagraphMode>,
}

impl CacheBlendInjectionSpec {
    /// `cudagraph`, by default `eager`.
    pub fn cudagraph(&self) -> CudagraphMode {
        self.cudagraph.unwrap_or_default()
    }
}
