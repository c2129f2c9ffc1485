//! Environment of the engine container.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, SecretKeySelector};
use lmcache_crds::GpuVendor;

use super::context::Context;
use super::{auth, names, stored};

/// The operator's variables, then the user's. A user's entry takes the place of the operator's of that name (D65).
pub fn server_env(context: &Context<'_>) -> Vec<EnvVar> {
    stored::merge_env(operator_env(context), context.spec.workload.env.as_deref().unwrap_or_default())
}

fn operator_env(context: &Context<'_>) -> Vec<EnvVar> {
    let spec = context.spec;
    let mut env = vec![literal("LMCACHE_LOG_LEVEL", spec.workload.log_level().as_str())];
    if spec.gpu_vendor() == GpuVendor::Nvidia {
        env.push(literal("NVIDIA_VISIBLE_DEVICES", "all"));
        env.push(literal("NVIDIA_DRIVER_CAPABILITIES", "all"));
    }
    if spec.auth_secret_ref().is_some() {
        env.push(credential(context, "LMCACHE_RESP_PASSWORD", auth::PASSWORD, None));
        env.push(credential(context, "LMCACHE_RESP_USERNAME", auth::USERNAME, Some(true)));
    }
    if context.coordinator_url().is_some() && context.advertise_ip().is_none() {
        env.push(pod_field("LMCACHE_COORDINATOR_ADVERTISE_IP", "status.podIP"));
    }
    env
}

pub(super) fn literal(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

fn pod_field(name: &str, path: &str) -> EnvVar {
    let field = ObjectFieldSelector { api_version: None, field_path: path.to_owned() };
    from(name, EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() })
}

/// Always from the mirror, never from the Secret that the user named.
fn credential(context: &Context<'_>, name: &str, key: &str, optional: Option<bool>) -> EnvVar {
    let key = SecretKeySelector { key: key.to_owned(), name: names::credentials(context.identity.name), optional };
    from(name, EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() })
}

fn from(name: &str, source: EnvVarSource) -> EnvVar {
    EnvVar { name: name.to_owned(), value: None, value_from: Some(source) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::Resolved;
    use super::super::testing::{spec, with_context};
    use super::*;

    fn env(fields: Value) -> Value {
        with_context(&spec(fields), &Resolved::default(), |context| json!(server_env(&context)))
    }

    fn level(level: &str) -> Value {
        json!({"name": "LMCACHE_LOG_LEVEL", "value": level})
    }

    #[rstest]
    #[case(json!({"gpuVendor": "amd"}), json!([level("INFO")]))]
    #[case(json!({"gpuVendor": "amd", "logLevel": "WARNING"}), json!([level("WARNING")]))]
    #[case(
        json!({"runtimeClassName": ""}),
        json!([level("INFO"), {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}])
    )]
    #[case(
        json!({"gpuVendor": "amd", "l2Backend": {"resp": {"host": "r", "port": 1, "authSecretRef": {"name": "s"}}}}),
        json!([
            level("INFO"),
            {"name": "LMCACHE_RESP_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "c1-resp-auth", "key": "password"}}},
            {"name": "LMCACHE_RESP_USERNAME", "valueFrom": {"secretKeyRef": {"name": "c1-resp-auth", "key": "username", "optional": true}}},
        ])
    )]
    #[case(
        json!({"gpuVendor": "amd", "coordinator": {"url": "http://co:1", "advertiseIP": ""}}),
        json!([level("INFO"), {"name": "LMCACHE_COORDINATOR_ADVERTISE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}])
    )]
    #[case(json!({"gpuVendor": "amd", "coordinator": {"url": "http://co:1", "advertiseIP": "10.1.2.3"}}), json!([level("INFO")]))]
    fn the_operator_sets_what_the_spec_needs(#[case] fields: Value, #[case] expected: Value) {
        assert_eq!(env(fields), expected);
    }

    #[test]
    fn user_entries_replace_the_operators_in_place_and_others_follow() {
        let user = json!([{"name": "A", "value": "1"}, {"name": "LMCACHE_LOG_LEVEL", "value": "DEBUG"}, {"name": "A", "value": "2"}]);
        let expected = json!([level("DEBUG"), {"name": "A", "value": "2"}]);
        assert_eq!(env(json!({"gpuVendor": "amd", "env": user})), expected);
    }
}
