//! Scrape configuration for the Prometheus operator.

use serde_json::{Value, json};

use super::context::Context;
use super::{Child, ChildKind, labels, names};

/// Scrapes the metrics Service: only that one has a port of this name.
pub(super) fn service_monitor(context: &Context<'_>) -> Child {
    let mut metadata = labels::object_meta(context, context.name.to_owned());
    // The user's labels go over ours: a Prometheus may select monitors by any label.
    let user = context.spec.service_monitor_labels().into_iter().flatten();
    metadata.labels.get_or_insert_default().extend(user.map(|(key, value)| (key.clone(), value.clone())));
    let object: Value = json!({
        "apiVersion": ChildKind::ServiceMonitor.api_version(),
        "kind": ChildKind::ServiceMonitor.as_str(),
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": labels::selector_labels(context.name)},
            "endpoints": [{"port": names::METRICS_PORT, "interval": context.spec.service_monitor_interval()}],
        },
    });
    Child::new(ChildKind::ServiceMonitor, context.name.to_owned(), &object)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{object, spec};
    use super::*;

    #[test]
    fn scrapes_the_metrics_port_every_30_seconds_by_default() {
        let spec = spec(json!({"prometheus": {"serviceMonitor": {"enabled": true}}}));
        let monitor = object(&spec, ChildKind::ServiceMonitor, "c1");
        assert_eq!(monitor["metadata"]["labels"], json!(labels::standard_labels("c1")));
        let expected = json!({
            "selector": {"matchLabels": labels::selector_labels("c1")},
            "endpoints": [{"port": "metrics", "interval": "30s"}],
        });
        assert_eq!(monitor["spec"], expected);
    }

    #[test]
    fn user_labels_go_over_the_standard_ones() {
        let monitor = json!({"enabled": true, "interval": "15s", "labels": {"release": "kps", labels::NAME: "over"}});
        let spec = spec(json!({"prometheus": {"serviceMonitor": monitor}}));
        let object = object(&spec, ChildKind::ServiceMonitor, "c1");
        let mut expected = json!(labels::standard_labels("c1"));
        expected["release"] = "kps".into();
        expected[labels::NAME] = "over".into();
        assert_eq!(object["metadata"]["labels"], expected);
        assert_eq!(object["spec"]["endpoints"][0]["interval"], "15s");
        assert_eq!(object["spec"]["selector"]["matchLabels"], json!(labels::selector_labels("c1")));
    }
}
