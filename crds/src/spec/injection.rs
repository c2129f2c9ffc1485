//! How vLLM pods are connected to an engine.

use k8s_openapi::api::core::v1::LocalObjectReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PayloadImageSpec;

/// How vLLM pods that opt in are connected to an engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectionSpec {
    /// Image whose /payload is staged into the pod and put on PYTHONPATH. Default none: nothing is staged.
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
