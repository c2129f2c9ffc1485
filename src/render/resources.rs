//! Requests and limits of the engine container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use lmcache_crds::EngineSpec;

use super::quantity;

/// Memory that the server needs beside the first level, in GB.
const OVERHEAD_GB: f64 = 5.0;
/// Memory limit per requested memory.
const LIMIT_FACTOR: f64 = 1.5;
/// Requested CPUs.
const CPUS: &str = "4";

/// The overrides of the spec, whole; otherwise computed from the size of the first level.
pub fn server_resources(spec: &EngineSpec) -> ResourceRequirements {
    if let Some(overrides) = &spec.workload.resource_overrides {
        return overrides.clone();
    }
    let request = (spec.l1.size_gb + OVERHEAD_GB).ceil();
    let limit = (request * LIMIT_FACTOR).ceil();
    let memory = |gib: f64| ("memory".to_owned(), gibibytes(gib));
    ResourceRequirements {
        requests: Some(BTreeMap::from([("cpu".to_owned(), Quantity(CPUS.to_owned())), memory(request)])),
        limits: Some(BTreeMap::from([memory(limit)])),
        claims: None,
    }
}

fn gibibytes(count: f64) -> Quantity {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive whole number; the cast saturates"
    )]
    quantity::gibibytes(count as u64)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn spec(value: serde_json::Value) -> EngineSpec {
        serde_json::from_value(value).unwrap()
    }

    #[rstest]
    #[case(0.5, "6Gi", "9Gi")]
    #[case(8.0, "13Gi", "20Gi")]
    #[case(10.0, "15Gi", "23Gi")]
    #[case(10.1, "16Gi", "24Gi")]
    #[case(60.0, "65Gi", "98Gi")]
    #[case(100.0, "105Gi", "158Gi")]
    #[case(1019.0, "1Ti", "1536Gi")]
    fn memory_follows_the_first_level(#[case] size: f64, #[case] request: &str, #[case] limit: &str) {
        let resources = server_resources(&spec(json!({"l1": {"sizeGB": size}})));
        let expected = json!({"requests": {"cpu": "4", "memory": request}, "limits": {"memory": limit}});
        assert_eq!(json!(resources), expected, "{size} GB");
    }

    #[rstest]
    #[case(json!({}))]
    #[case(json!({"requests": {"cpu": "1"}}))]
    #[case(json!({"limits": {"nvidia.com/gpu": "1"}}))]
    fn overrides_are_used_whole(#[case] overrides: serde_json::Value) {
        let resources = server_resources(&spec(json!({"l1": {"sizeGB": 10}, "resourceOverrides": overrides})));
        assert_eq!(json!(resources), overrides);
    }
}
