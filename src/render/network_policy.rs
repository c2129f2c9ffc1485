//! Who may reach the engine over the network (D84).

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::context::Context;
use super::{Child, ChildKind, labels, names};

/// Lets the peers of the spec, by default the pods of the engine's namespace, reach the server's two ports and nobody
/// reach anything else. Network plugins do not apply policies to pods that use the network of their node.
pub(super) fn network_policy(context: &Context<'_>) -> Child {
    let object = NetworkPolicy {
        metadata: labels::object_meta(&context.identity, context.identity.name.to_owned()),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(labels::selector(&context.identity)),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: ingress(context),
            egress: None,
        }),
    };
    Child::new(ChildKind::NetworkPolicy, context.identity.name.to_owned(), &object)
}

/// No rule at all for an empty list of peers: a rule without peers would let everybody in.
fn ingress(context: &Context<'_>) -> Option<Vec<NetworkPolicyIngressRule>> {
    let written = context.spec.network_policy.as_ref().and_then(|policy| policy.from.clone());
    let peers = written.unwrap_or_else(|| vec![same_namespace()]);
    if peers.is_empty() {
        return None;
    }
    let ports = [names::SERVER_PORT, names::HTTP_PORT].map(port).to_vec();
    Some(vec![NetworkPolicyIngressRule { from: Some(peers), ports: Some(ports) }])
}

fn same_namespace() -> NetworkPolicyPeer {
    NetworkPolicyPeer { pod_selector: Some(LabelSelector::default()), ..NetworkPolicyPeer::default() }
}

/// By name, so that every pod is covered at the ports that it has while they change.
fn port(name: &str) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::String(name.to_owned())),
        protocol: Some("TCP".to_owned()),
        end_port: None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{object, spec};
    use super::*;

    fn policy(fields: Value) -> Value {
        let mut policy = fields;
        policy["enabled"] = true.into();
        object(&spec(json!({"networkPolicy": policy})), ChildKind::NetworkPolicy, "c1")["spec"].clone()
    }

    #[rstest]
    #[case(json!({}), json!([{"podSelector": {}}]))]
    #[case(json!({"from": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]}), json!([{"namespaceSelector": {"matchLabels": {"a": "b"}}}]))]
    #[case(json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}, {"podSelector": {}}]}), json!([{"ipBlock": {"cidr": "10.0.0.0/8"}}, {"podSelector": {}}]))]
    fn peers_reach_the_two_server_ports(#[case] fields: Value, #[case] from: Value) {
        let ports = json!([{"port": "server", "protocol": "TCP"}, {"port": "http", "protocol": "TCP"}]);
        let expected = json!({
            "podSelector": {"matchLabels": labels::Application::Engine.selector_labels("c1")},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": from, "ports": ports}],
        });
        assert_eq!(policy(fields), expected);
    }

    #[test]
    fn an_empty_list_of_peers_lets_nobody_in() {
        let expected = json!({"podSelector": {"matchLabels": labels::Application::Engine.selector_labels("c1")}, "policyTypes": ["Ingress"]});
        assert_eq!(policy(json!({"from": []})), expected);
    }
}
