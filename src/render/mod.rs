//! Rendering: the spec of an engine -> the objects that it wants. Pure: values in, values out, no I/O and no clock.
//!
//! [`children`] is the entry for both engine kinds, [`coordinator_children`] that for coordinators. One module per object,
//! or per part of the pod; what the engine kinds do differently stands behind the trait [`Engine`].
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod adapter;
mod args;
mod auth;
mod child;
mod connection;
mod context;
mod coordinator;
mod daemonset;
mod engine;
mod env;
mod json;
mod labels;
mod names;
mod network_policy;
mod numbers;
mod pod;
mod probes;
mod quantity;
mod resources;
mod service_monitor;
mod services;
mod stored;
#[cfg(test)]
mod testing;
mod volumes;

pub use auth::{Credentials, HASH_ANNOTATION};
pub use child::{Child, ChildKind, Children};
pub use connection::{DECODER_DOCUMENT, DOCUMENT, PREFILLER_DOCUMENT};
pub use coordinator::children as coordinator_children;
pub use engine::{Connector, Decoder, Engine};
pub use labels::{Application, COMPONENT, INSTANCE, MANAGED_BY, NAME, OPERATOR};
pub use names::{
    connection as connection_name, credentials as credentials_name, metrics_service as metrics_service_name,
};
pub use volumes::{SHARED_MEMORY_PATH, arranges_shared_memory};

use context::Context;

/// What the operator was started with, as far as children depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// DNS domain of the cluster (`--cluster-domain`, D78).
    pub cluster_domain: String,
}

impl Default for Options {
    fn default() -> Self {
        Options { cluster_domain: "cluster.local".to_owned() }
    }
}

/// What was found out about the things that the spec names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// URL of the coordinator that `spec.coordinator.ref` names. `spec.coordinator.url` needs no resolving and wins.
    pub coordinator_url: Option<String>,
    /// Credentials from the Secret that `authSecretRef` names.
    pub credentials: Option<Credentials>,
    /// Whether the cluster has the `ServiceMonitor` API.
    pub service_monitor_api: bool,
}

/// Renders everything that an engine wants, and names what it does not want any more.
///
/// The spec must be valid and its dependencies resolved. With `authSecretRef` set but no credentials at hand the mirror
/// Secret is neither wanted nor unwanted; nor is the `ServiceMonitor` while the cluster has no such API.
pub fn children<E: Engine>(engine: &E, resolved: &Resolved, options: &Options) -> Children {
    let context = Context::new(engine, resolved, options);
    let mut children = Children::default();
    match (context.spec.auth_secret_ref(), &resolved.credentials) {
        (Some(_), Some(credentials)) => children.wanted.push(auth::mirror(&context, credentials)),
        (Some(_), None) => {}
        (None, _) => children.unwanted.push((ChildKind::Secret, credentials_name(context.identity.name))),
    }
    // Before the pods, so that none of them is ever open.
    if context.spec.network_policy_enabled() {
        children.wanted.push(network_policy::network_policy(&context));
    } else {
        children.unwanted.push((ChildKind::NetworkPolicy, context.identity.name.to_owned()));
    }
    children.wanted.push(daemonset::daemon_set(&context));
    children.wanted.push(services::lookup(&context));
    children.wanted.push(services::metrics(&context.identity, context.spec.workload.metrics_port()));
    children.wanted.push(connection::config_map(&context));
    service_monitor::decide(&context.identity, &context.spec.workload, resolved, &mut children);
    children
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::testing::{engine, rendered, spec};
    use super::*;

    fn names(children: &Children) -> Vec<String> {
        children.wanted.iter().map(|child| format!("{}/{}", child.kind, child.name)).collect()
    }

    fn everything() -> (Value, Resolved) {
        let fields = json!({
            "l2Backend": {"resp": {"host": "r", "port": 1, "authSecretRef": {"name": "s"}}},
            "prometheus": {"serviceMonitor": {"enabled": true}},
            "networkPolicy": {"enabled": true},
        });
        let credentials = Some(Credentials::new(b"p".to_vec(), None));
        (spec(fields), Resolved { credentials, service_monitor_api: true, ..Resolved::default() })
    }

    #[test]
    fn minimal_spec_wants_four_objects_and_the_optional_ones_gone() {
        let children = rendered(&spec(json!({})), &Resolved { service_monitor_api: true, ..Resolved::default() });
        assert_eq!(names(&children), ["DaemonSet/c1", "Service/c1", "Service/c1-metrics", "ConfigMap/c1-connection"]);
        let expected = [
            (ChildKind::Secret, "c1-resp-auth".to_owned()),
            (ChildKind::NetworkPolicy, "c1".to_owned()),
            (ChildKind::ServiceMonitor, "c1".to_owned()),
        ];
        assert_eq!(children.unwanted, expected);
    }

    #[test]
    fn what_others_need_comes_first() {
        let (spec, resolved) = everything();
        let children = rendered(&spec, &resolved);
        let expected = [
            "Secret/c1-resp-auth",
            "NetworkPolicy/c1",
            "DaemonSet/c1",
            "Service/c1",
            "Service/c1-metrics",
            "ConfigMap/c1-connection",
            "ServiceMonitor/c1",
        ];
        assert_eq!(names(&children), expected);
        assert_eq!(children.unwanted, []);
    }

    #[rstest]
    #[case::monitor_without_api(json!({"prometheus": {"serviceMonitor": {"enabled": true}}}), false, "ServiceMonitor")]
    #[case::no_monitor_without_api(json!({}), false, "ServiceMonitor")]
    #[case::unresolved_credentials(
        json!({"l2Backend": {"resp": {"host": "r", "port": 1, "authSecretRef": {"name": "s"}}}}), true, "Secret"
    )]
    fn what_cannot_be_decided_is_neither_wanted_nor_unwanted(
        #[case] fields: Value,
        #[case] api: bool,
        #[case] kind: &str,
    ) {
        let children = rendered(&spec(fields), &Resolved { service_monitor_api: api, ..Resolved::default() });
        assert!(names(&children).iter().all(|name| !name.starts_with(kind)), "{:?}", names(&children));
        assert!(children.unwanted.iter().all(|(unwanted, _)| unwanted.as_str() != kind), "{:?}", children.unwanted);
    }

    #[test]
    fn every_child_is_complete_and_owned_and_holds_nothing_empty() {
        let (spec, resolved) = everything();
        for child in rendered(&spec, &resolved).wanted {
            let object = &child.object;
            assert_eq!(
                (&object["apiVersion"], &object["kind"]),
                (&json!(child.kind.api_version()), &json!(child.kind.as_str()))
            );
            let owner = json!([{
                "apiVersion": "lmcache.lmcache.ai/v1alpha1", "kind": "LMCacheEngine", "name": "c1", "uid": "u-1",
                "controller": true, "blockOwnerDeletion": true,
            }]);
            let labels = json!(Application::Engine.standard_labels("c1"));
            assert_eq!(
                object["metadata"],
                json!({"name": child.name, "namespace": "ai", "labels": labels, "ownerReferences": owner}),
            );
            let mut pruned = object.clone();
            stored::prune(&mut pruned);
            assert_eq!(&pruned, object, "{} holds what the API server drops", child.kind);
        }
    }

    #[test]
    fn the_mirror_holds_the_credentials() {
        let (spec, resolved) = everything();
        let secret = rendered(&spec, &resolved).get(ChildKind::Secret, "c1-resp-auth").unwrap().object.clone();
        assert_eq!(secret["data"], json!({"password": "cA=="}));
    }

    #[test]
    fn rendering_does_not_depend_on_operator_defaults_being_filled_in() {
        for fields in [json!({}), json!({"gpuVendor": "amd"}), json!({"nodeSelector": {}})] {
            let raw = engine(&spec(fields.clone()));
            let mut defaulted = raw.clone();
            defaulted.spec = raw.spec.clone().with_defaults();
            let (resolved, options) = (Resolved::default(), Options::default());
            assert_eq!(children(&raw, &resolved, &options), children(&defaulted, &resolved, &options), "{fields}");
        }
    }
}
