//! The lookup Service and the metrics Service.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::context::{Context, Identity};
use super::{Child, ChildKind, labels, names};

/// How vLLM finds the instance of its own node.
pub(super) fn lookup(context: &Context<'_>) -> Child {
    // Port names as targets: while ports change, every pod is reached at the port that it has (D64).
    let ports = vec![
        port(names::SERVER_PORT, context.spec.server_port(), names::SERVER_PORT),
        port(names::HTTP_PORT, context.spec.http_port(), names::HTTP_PORT),
    ];
    let spec = ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        internal_traffic_policy: Some("Local".to_owned()),
        ports: Some(ports),
        ..ServiceSpec::default()
    };
    service(&context.identity, context.identity.name.to_owned(), spec)
}

/// How engines find their coordinator.
pub(super) fn front(of: &Identity<'_>, number: i32) -> Child {
    let ports = vec![port(names::HTTP_PORT, number, names::HTTP_PORT)];
    let spec = ServiceSpec { type_: Some("ClusterIP".to_owned()), ports: Some(ports), ..ServiceSpec::default() };
    service(of, of.name.to_owned(), spec)
}

/// How Prometheus finds every instance. Servers publish metrics on their HTTP port only (D38 D83).
pub(super) fn metrics(of: &Identity<'_>, number: i32) -> Child {
    let ports = vec![port(names::METRICS_PORT, number, names::HTTP_PORT)];
    let spec = ServiceSpec { cluster_ip: Some("None".to_owned()), ports: Some(ports), ..ServiceSpec::default() };
    service(of, names::metrics_service(of.name), spec)
}

fn service(of: &Identity<'_>, name: String, spec: ServiceSpec) -> Child {
    let object = Service {
        metadata: labels::object_meta(of, name.clone()),
        spec: Some(ServiceSpec { selector: Some(of.selector_labels()), ..spec }),
        status: None,
    };
    Child::new(ChildKind::Service, name, &object)
}

fn port(name: &str, port: i32, target: &str) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::String(target.to_owned())),
        ..ServicePort::default()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{object, spec};
    use super::*;

    #[test]
    fn lookup_stays_on_the_node_and_targets_ports_by_name() {
        let service = object(&spec(json!({"server": {"port": 7000}})), ChildKind::Service, "c1");
        let expected = json!({
            "type": "ClusterIP", "internalTrafficPolicy": "Local", "selector": labels::Application::Engine.selector_labels("c1"),
            "ports": [
                {"name": "server", "port": 7000, "protocol": "TCP", "targetPort": "server"},
                {"name": "http", "port": 8080, "protocol": "TCP", "targetPort": "http"},
            ],
        });
        assert_eq!(service["spec"], expected);
    }

    #[rstest]
    #[case(json!({}), 9090)]
    #[case(json!({"prometheus": {"port": 9191}}), 9191)]
    #[case(json!({"prometheus": {"enabled": false}}), 9090)]
    fn metrics_service_is_headless_and_points_at_the_http_port(#[case] fields: Value, #[case] port: i32) {
        let service = object(&spec(fields), ChildKind::Service, "c1-metrics");
        let ports = json!([{"name": "metrics", "port": port, "protocol": "TCP", "targetPort": "http"}]);
        assert_eq!(
            service["spec"],
            json!({"clusterIP": "None", "selector": labels::Application::Engine.selector_labels("c1"), "ports": ports})
        );
    }
}
