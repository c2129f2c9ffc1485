//! The coordinator: one Deployment, and the Services around it.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use lmcache_crds::{HashAlgorithm, LMCacheCoordinator, LMCacheCoordinatorSpec};

use super::args::Args;
use super::context::Identity;
use super::labels::{self, Application};
use super::numbers::minimal;
use super::{Child, ChildKind, Children, Resolved, env, names, pod, service_monitor, services, stored};

/// Renders everything that a coordinator wants, and names what it does not want any more.
///
/// The spec must be valid. While the cluster has no such API the `ServiceMonitor` is neither wanted nor unwanted.
pub fn children(coordinator: &LMCacheCoordinator, resolved: &Resolved) -> Children {
    let spec = &coordinator.spec;
    let of = Identity::of(coordinator, Application::Coordinator);
    let mut children = Children::default();
    children.wanted.push(deployment(&of, spec));
    children.wanted.push(services::front(&of, spec.port()));
    let monitored = spec.workload.service_monitor_enabled();
    if monitored {
        children.wanted.push(services::metrics(&of, spec.workload.metrics_port()));
    } else {
        children.unwanted.push((ChildKind::Service, names::metrics_service(of.name)));
    }
    service_monitor::decide(&of, &spec.workload, resolved, &mut children);
    children
}

fn deployment(of: &Identity<'_>, spec: &LMCacheCoordinatorSpec) -> Child {
    let pod = PodSpec {
        node_selector: spec.workload.node_selector.clone(),
        containers: vec![container(spec)],
        volumes: spec.workload.volumes.clone(),
        ..PodSpec::default()
    };
    let object = Deployment {
        metadata: labels::object_meta(of, of.name.to_owned()),
        spec: Some(DeploymentSpec {
            replicas: Some(spec.replicas()),
            selector: labels::selector(of),
            strategy: Some(strategy(spec)),
            template: pod::template(of, &spec.workload, BTreeMap::new(), pod),
            ..DeploymentSpec::default()
        }),
        status: None,
    };
    Child::new(ChildKind::Deployment, of.name.to_owned(), &object)
}

/// A single registry must not run twice at a time: engines would report to the one that is about to go (D59). The type is
/// always rendered: what is left out would stay as it was.
fn strategy(spec: &LMCacheCoordinatorSpec) -> DeploymentStrategy {
    let type_ = if spec.replicas() == 1 { "Recreate" } else { "RollingUpdate" };
    DeploymentStrategy { type_: Some(type_.to_owned()), rolling_update: None }
}

fn container(spec: &LMCacheCoordinatorSpec) -> Container {
    let workload = &spec.workload;
    let metrics = spec.prometheus_enabled().then(|| (names::METRICS_PORT, workload.metrics_port()));
    let level = env::literal("LMCACHE_LOG_LEVEL", workload.log_level().as_str());
    Container {
        ports: Some(pod::ports([(names::HTTP_PORT, spec.port())].into_iter().chain(metrics))),
        env: Some(stored::merge_env(vec![level], workload.env.as_deref().unwrap_or_default())),
        resources: workload.resource_overrides.clone(),
        volume_mounts: workload.volume_mounts.clone(),
        startup_probe: Some(Probe { initial_delay_seconds: Some(5), ..health(spec, 5, 30) }),
        liveness_probe: Some(health(spec, 10, 3)),
        readiness_probe: Some(health(spec, 5, 3)),
        ..pod::container(names::COORDINATOR_CONTAINER, "coordinator", args(spec))
    }
}

fn health(spec: &LMCacheCoordinatorSpec, period_seconds: i32, failure_threshold: i32) -> Probe {
    let port = IntOrString::Int(spec.port());
    Probe {
        http_get: Some(HTTPGetAction { path: Some("/healthz".to_owned()), port, ..HTTPGetAction::default() }),
        period_seconds: Some(period_seconds),
        failure_threshold: Some(failure_threshold),
        ..Probe::default()
    }
}

/// The coordinator's command line. What the server knows by itself is left out where the reference leaves it out.
fn args(spec: &LMCacheCoordinatorSpec) -> Vec<String> {
    let mut args = Args(Vec::with_capacity(24));
    args.pair("--host", spec.host());
    args.pair("--port", spec.port().to_string());
    args.pair("--instance-timeout", minimal(spec.instance_timeout()));
    args.pair("--health-check-interval", minimal(spec.health_check_interval()));
    args.pair("--eviction-check-interval", minimal(spec.eviction_check_interval()));
    args.pair("--eviction-ratio", minimal(spec.eviction_ratio()));
    args.pair("--trigger-watermark", minimal(spec.trigger_watermark()));
    if let Some(tokens) = spec.blend_chunk_size {
        // The server does not know --blend-chunk-size and would not start (D76).
        args.pair("--chunk-size", tokens.to_string());
    }
    if let Some(tokens) = spec.blend_probe_stride {
        args.pair("--blend-probe-stride", tokens.to_string());
    }
    if spec.hash_algorithm() != HashAlgorithm::default() {
        args.pair("--hash-algorithm", spec.hash_algorithm().as_str());
    }
    args.switch("--enable-blend-lookup", spec.enable_blend_lookup());
    args.0.extend(spec.workload.extra_args.iter().flatten().cloned());
    args.0
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn rendered(spec: &Value, service_monitor_api: bool) -> Children {
        let object = json!({
            "apiVersion": "lmcache.lmcache.ai/v1alpha1", "kind": "LMCacheCoordinator",
            "metadata": {"name": "co", "namespace": "ai", "uid": "u-2"}, "spec": spec,
        });
        let coordinator: LMCacheCoordinator = serde_json::from_value(object).unwrap();
        children(&coordinator, &Resolved { service_monitor_api, ..Resolved::default() })
    }

    fn deployment(spec: &Value) -> Value {
        rendered(spec, false).get(ChildKind::Deployment, "co").unwrap().object["spec"].clone()
    }

    fn container(spec: &Value) -> Value {
        deployment(spec)["template"]["spec"]["containers"][0].clone()
    }

    #[rstest]
    #[case::one(json!({}), "Recreate")]
    #[case::none(json!({"replicas": 0}), "RollingUpdate")]
    #[case::several(json!({"replicas": 2}), "RollingUpdate")]
    fn a_single_coordinator_never_runs_twice_at_a_time(#[case] spec: Value, #[case] strategy: &str) {
        assert_eq!(deployment(&spec)["strategy"], json!({"type": strategy}));
    }

    #[rstest]
    #[case(json!({"blendChunkSize": 128}), &["--chunk-size", "128"])]
    #[case(json!({"blendProbeStride": 8}), &["--blend-probe-stride", "8"])]
    #[case(json!({"hashAlgorithm": "sha256_cbor"}), &["--hash-algorithm", "sha256_cbor"])]
    #[case(json!({"hashAlgorithm": "blake3"}), &[])]
    #[case(json!({"enableBlendLookup": true}), &["--enable-blend-lookup"])]
    #[case(json!({"enableBlendLookup": false, "extraArgs": ["--a", "b"]}), &["--a", "b"])]
    fn flags_follow_the_seven_that_are_always_there(#[case] spec: Value, #[case] expected: &[&str]) {
        let args = container(&spec)["args"].clone();
        let (always, more) = args.as_array().unwrap().split_at(14);
        assert_eq!(always.first(), Some(&json!("--host")));
        assert_eq!(more, expected.iter().map(|arg| json!(arg)).collect::<Vec<_>>());
    }

    #[rstest]
    #[case::unset(json!({}), &[("http", 9300)])]
    #[case::written(json!({"prometheus": {}}), &[("http", 9300), ("metrics", 9090)])]
    #[case::off(json!({"prometheus": {"enabled": false}}), &[("http", 9300)])]
    #[case::one_number(json!({"port": 9090, "prometheus": {}}), &[("http", 9090)])]
    fn the_metrics_port_is_declared_when_prometheus_is_written(#[case] spec: Value, #[case] expected: &[(&str, i32)]) {
        let ports: Vec<Value> = expected
            .iter()
            .map(|(name, number)| json!({"name": name, "containerPort": number, "protocol": "TCP"}))
            .collect();
        assert_eq!(container(&spec)["ports"], json!(ports));
    }

    #[rstest]
    #[case::monitored(true, true, &["Deployment/co", "Service/co", "Service/co-metrics", "ServiceMonitor/co"], &[])]
    #[case::without_the_api(true, false, &["Deployment/co", "Service/co", "Service/co-metrics"], &[])]
    #[case::not_monitored(false, true, &["Deployment/co", "Service/co"], &["Service/co-metrics", "ServiceMonitor/co"])]
    fn metrics_are_served_to_a_monitor_only(
        #[case] monitored: bool,
        #[case] api: bool,
        #[case] wanted: &[&str],
        #[case] unwanted: &[&str],
    ) {
        let spec = json!({"prometheus": {"serviceMonitor": {"enabled": monitored}}});
        let children = rendered(&spec, api);
        let names: Vec<String> = children.wanted.iter().map(|it| format!("{}/{}", it.kind, it.name)).collect();
        assert_eq!(names, wanted);
        let gone: Vec<String> = children.unwanted.iter().map(|(kind, name)| format!("{kind}/{name}")).collect();
        assert_eq!(gone, unwanted);
    }

    #[test]
    fn a_user_variable_takes_the_place_of_the_log_level() {
        let env = json!([{"name": "A", "value": "b"}, {"name": "LMCACHE_LOG_LEVEL", "value": "DEBUG"}]);
        let expected = json!([{"name": "LMCACHE_LOG_LEVEL", "value": "DEBUG"}, {"name": "A", "value": "b"}]);
        assert_eq!(container(&json!({"env": env}))["env"], expected);
    }
}
