//! The lookup Service and the metrics Service.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::context::Context;
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
    service(context, context.name.to_owned(), spec)
}

/// How Prometheus finds every instance. It is there even when metrics are off.
pub(super) fn metrics(context: &Context<'_>) -> Child {
    // The server publishes metrics on its HTTP port only (D83).
    let ports = vec![port(names::METRICS_PORT, context.spec.metrics_port(), names::HTTP_PORT)];
    let spec = ServiceSpec { cluster_ip: Some("None".to_owned()), ports: Some(ports), ..ServiceSpec::default() };
    service(context, names::metrics_service(context.name), spec)
}

fn service(context: &Context<'_>, name: String, spec: ServiceSpec) -> Child {
    let object = Service {
        metadata: labels::object_meta(context, name.clone()),
        spec: Some(ServiceSpec { selector: Some(labels::selector_labels(context.name)), ..spec }),
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
            "type": "ClusterIP", "internalTrafficPolicy": "Local", "selector": labels::selector_labels("c1"),
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
            json!({"clusterIP": "None", "selector": labels::selector_labels("c1"), "ports": ports})
        );
    }
}
