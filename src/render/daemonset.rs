//! The `DaemonSet`: one cache server on every matching node.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec, SecurityContext};

use super::context::Context;
use super::{Child, ChildKind, args, auth, env, labels, names, pod, probes, resources, volumes};

pub(super) fn daemon_set(context: &Context<'_>) -> Child {
    let object = DaemonSet {
        metadata: labels::object_meta(&context.identity, context.identity.name.to_owned()),
        spec: Some(DaemonSetSpec {
            selector: labels::selector(&context.identity),
            template: pod::template(&context.identity, &context.spec.workload, annotations(context), pod_spec(context)),
            ..DaemonSetSpec::default()
        }),
        status: None,
    };
    Child::new(ChildKind::DaemonSet, context.identity.name.to_owned(), &object)
}

/// What a rotation of the credentials changes (D12).
fn annotations(context: &Context<'_>) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::new();
    if let (Some(_), Some(credentials)) = (context.spec.auth_secret_ref(), &context.resolved.credentials) {
        let scope = format!("{}/{}", context.identity.namespace, context.identity.name);
        annotations.insert(auth::HASH_ANNOTATION.to_owned(), credentials.hash(&scope));
    }
    annotations
}

fn pod_spec(context: &Context<'_>) -> PodSpec {
    let spec = context.spec;
    PodSpec {
        host_ipc: context.host_ipc().then_some(true),
        host_network: context.host_network.then_some(true),
        dns_policy: context.host_network.then(|| "ClusterFirstWithHostNet".to_owned()),
        runtime_class_name: spec.runtime_class_name().map(str::to_owned),
        node_selector: Some(spec.node_selector().into_owned()),
        init_containers: Some(context.init_containers.to_vec()),
        containers: vec![container(context)],
        volumes: Some(volumes::volumes(context)),
        ..PodSpec::default()
    }
}

fn container(context: &Context<'_>) -> Container {
    let spec = context.spec;
    let metrics = spec.prometheus_enabled().then(|| (names::METRICS_PORT, spec.workload.metrics_port()));
    let ports = [(names::SERVER_PORT, spec.server_port()), (names::HTTP_PORT, spec.http_port())];
    Container {
        ports: Some(pod::ports(ports.into_iter().chain(metrics))),
        env: Some(env::server_env(context)),
        resources: Some(resources::server_resources(spec)),
        security_context: Some(SecurityContext { privileged: Some(spec.privileged()), ..SecurityContext::default() }),
        volume_mounts: Some(volumes::mounts(context)),
        startup_probe: Some(probes::startup(spec)),
        liveness_probe: Some(probes::liveness(spec)),
        readiness_probe: Some(probes::readiness(spec)),
        ..pod::container(names::CONTAINER, "server", args::server_args(context))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{container, object, rendered, spec};
    use super::super::{Credentials, Resolved};
    use super::*;

    fn template(fields: Value) -> Value {
        object(&spec(fields), ChildKind::DaemonSet, "c1")["spec"]["template"].clone()
    }

    #[test]
    fn minimal_spec_gives_a_pod_without_empty_fields() {
        let template = template(json!({}));
        assert_eq!(template["metadata"], json!({"labels": labels::Application::Engine.standard_labels("c1")}));
        let mut fields: Vec<&String> = template["spec"].as_object().unwrap().keys().collect();
        fields.sort();
        assert_eq!(fields, ["containers", "nodeSelector", "runtimeClassName"]);
    }

    #[rstest]
    #[case(json!({}), json!({"nvidia.com/gpu.present": "true"}), json!("nvidia"))]
    #[case(json!({"nodeSelector": {}, "runtimeClassName": ""}), Value::Null, Value::Null)]
    #[case(json!({"nodeSelector": {"pool": "gpu"}, "runtimeClassName": "own"}), json!({"pool": "gpu"}), json!("own"))]
    #[case(json!({"gpuVendor": "amd"}), Value::Null, Value::Null)]
    #[case(json!({"gpuVendor": "amd", "runtimeClassName": "own"}), Value::Null, json!("own"))]
    fn vendor_decides_nodes_and_runtime_class_unless_written(
        #[case] fields: Value,
        #[case] nodes: Value,
        #[case] class: Value,
    ) {
        let spec = template(fields)["spec"].clone();
        assert_eq!((&spec["nodeSelector"], &spec["runtimeClassName"]), (&nodes, &class));
    }

    #[rstest]
    #[case(json!({"hostIPC": true}), Value::Null)]
    #[case(json!({"hostIPC": true, "isolatedIPC": false}), json!(true))]
    #[case(json!({"hostIPC": true, "gpuVendor": "amd"}), json!(true))]
    #[case(json!({"gpuVendor": "amd"}), Value::Null)]
    fn host_ipc_counts_only_without_isolation(#[case] fields: Value, #[case] expected: Value) {
        assert_eq!(template(fields)["spec"]["hostIPC"], expected);
    }

    #[test]
    fn host_network_changes_the_dns_policy() {
        let spec = template(json!({"hostNetwork": true}))["spec"].clone();
        assert_eq!((&spec["hostNetwork"], &spec["dnsPolicy"]), (&json!(true), &json!("ClusterFirstWithHostNet")));
    }

    #[rstest]
    #[case(json!({}), json!([["server", 5555], ["http", 8080], ["metrics", 9090]]))]
    #[case(json!({"prometheus": {"enabled": false}}), json!([["server", 5555], ["http", 8080]]))]
    #[case(json!({"prometheus": {"port": 8080}}), json!([["server", 5555], ["http", 8080]]))]
    fn ports_are_listed_in_order_and_once(#[case] fields: Value, #[case] expected: Value) {
        let ports = container(&spec(fields))["ports"].clone();
        let found: Vec<Value> =
            ports.as_array().unwrap().iter().map(|port| json!([port["name"], port["containerPort"]])).collect();
        assert_eq!(json!(found), expected, "{ports}");
    }

    #[rstest]
    #[case(json!({}), "lmcache/vllm-openai:latest", "IfNotPresent")]
    #[case(json!({"repository": "r:5000/a", "tag": "v1", "pullPolicy": "Always"}), "r:5000/a:v1", "Always")]
    #[case(
        json!({"tag": "latest", "digest": "sha256:00000000000000000000000000000000"}),
        "lmcache/vllm-openai@sha256:00000000000000000000000000000000",
        "IfNotPresent"
    )]
    fn image_is_repository_and_tag_or_digest(#[case] image: Value, #[case] reference: &str, #[case] policy: &str) {
        let container = container(&spec(json!({"image": image})));
        assert_eq!((&container["image"], &container["imagePullPolicy"]), (&json!(reference), &json!(policy)));
    }

    #[rstest]
    #[case(json!({}), false)]
    #[case(json!({"privileged": true}), true)]
    fn privilege_is_always_stated(#[case] fields: Value, #[case] privileged: bool) {
        assert_eq!(container(&spec(fields))["securityContext"], json!({"privileged": privileged}));
    }

    #[test]
    fn a_rotation_of_the_credentials_changes_the_template_and_nothing_is_added_without_them() {
        let fields = spec(json!({
            "podAnnotations": {"a": "b"},
            "l2Backend": {"resp": {"host": "r", "port": 1, "authSecretRef": {"name": "s"}}},
        }));
        let annotations = |password: &str| {
            let resolved =
                Resolved { credentials: Some(Credentials::new(password.into(), None)), ..Resolved::default() };
            let children = rendered(&fields, &resolved);
            children.get(ChildKind::DaemonSet, "c1").unwrap().object["spec"]["template"]["metadata"]["annotations"]
                .clone()
        };
        let (old, new) = (annotations("old"), annotations("new"));
        assert_ne!(old[auth::HASH_ANNOTATION], new[auth::HASH_ANNOTATION]);
        assert_eq!((&old["a"], old.as_object().unwrap().len()), (&json!("b"), 2));
        assert_eq!(template(json!({"podAnnotations": {"a": "b"}}))["metadata"]["annotations"], json!({"a": "b"}));
    }
}
