//! How `CacheBlend` reuses chunks that are no prefix.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How cached chunks that are no prefix of a prompt are blended into it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlendSpec {
    /// Layer of the model at which the tokens to compute anew are chosen, counted from 0; at least 0. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 1))]
    pub check_layer: Option<i32>,

    /// Share of the tokens that are computed anew, greater than 0 and at most 1. Default 0.15.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0.15, "minimum" = 0, "exclusiveMinimum" = true, "maximum" = 1))]
    pub recomp_ratio: Option<f64>,

    /// The connector's cb.partial_bucket, at least 1. Unset: left out, so that the connector's own default holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub partial_bucket: Option<i32>,
}
