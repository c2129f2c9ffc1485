//! Scrape configuration for the Prometheus operator.

use lmcache_crds::WorkloadSpec;
use serde_json::{Value, json};

use super::context::Identity;
use super::{Child, ChildKind, Children, Resolved, labels, names};

/// Wants the monitor when the spec does, and wants it gone otherwise; says nothing while the cluster has no such API.
pub(super) fn decide(of: &Identity<'_>, workload: &WorkloadSpec, resolved: &Resolved, children: &mut Children) {
    match (workload.service_monitor_enabled(), resolved.service_monitor_api) {
        (true, true) => children.wanted.push(service_monitor(of, workload)),
        (false, true) => children.unwanted.push((ChildKind::ServiceMonitor, of.name.to_owned())),
        (_, false) => {}
    }
}

/// Scrapes the metrics Service: only that one has a port of this name.
fn service_monitor(of: &Identity<'_>, workload: &WorkloadSpec) -> Child {
    let mut metadata = labels::object_meta(of, of.name.to_owned());
    // The user's labels go over ours: a Prometheus may select monitors by any label.
    let user = workload.service_monitor_labels().into_iter().flatten();
    metadata.labels.get_or_insert_default().extend(user.map(|(key, value)| (key.clone(), value.clone())));
    let object: Value = json!({
        "apiVersion": ChildKind::ServiceMonitor.api_version(),
        "kind": ChildKind::ServiceMonitor.as_str(),
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": of.selector_labels()},
            "endpoints": [{"port": names::METRICS_PORT, "interval": workload.service_monitor_interval()}],
        },
    });
    Child::new(ChildKind::ServiceMonitor, of.name.to_owned(), &object)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{object, spec};
    use super::*;

    #[test]
    fn scrapes_the_metrics_port_every_30_seconds_by_default() {
        let spec = spec(json!({"prometheus": {"serviceMonitor": {"enabled": true}}}));
        let monitor = object(&spec, ChildKind::ServiceMonitor, "c1");
        assert_eq!(monitor["metadata"]["labels"], json!(labels::Application::Engine.standard_labels("c1")));
        let expected = json!({
            "selector": {"matchLabels": labels::Application::Engine.selector_labels("c1")},
            "endpoints": [{"port": "metrics", "interval": "30s"}],
        });
        assert_eq!(monitor["spec"], expected);
    }

    #[test]
    fn user_labels_go_over_the_standard_ones() {
        let monitor = json!({"enabled": true, "interval": "15s", "labels": {"release": "kps", labels::NAME: "over"}});
        let spec = spec(json!({"prometheus": {"serviceMonitor": monitor}}));
        let object = object(&spec, ChildKind::ServiceMonitor, "c1");
        let mut expected = json!(labels::Application::Engine.standard_labels("c1"));
        expected["release"] = "kps".into();
        expected[labels::NAME] = "over".into();
        assert_eq!(object["metadata"]["labels"], expected);
        assert_eq!(object["spec"]["endpoints"][0]["interval"], "15s");
        assert_eq!(object["spec"]["selector"]["matchLabels"], json!(labels::Application::Engine.selector_labels("c1")));
    }
}
