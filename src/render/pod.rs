//! What the pods of every kind have in common.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use lmcache_crds::WorkloadSpec;

use super::context::Identity;
use super::{labels, stored};

/// A pod template: what the kind decides, completed with what users pass through.
pub(super) fn template(
    of: &Identity<'_>,
    workload: &WorkloadSpec,
    annotations: BTreeMap<String, String>,
    pod: PodSpec,
) -> PodTemplateSpec {
    let text = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
    let mut spec = PodSpec {
        service_account_name: text(&workload.service_account_name),
        priority_class_name: text(&workload.priority_class_name),
        affinity: workload.affinity.clone(),
        tolerations: workload.tolerations.clone(),
        image_pull_secrets: workload.image_pull_secrets.clone(),
        security_context: workload.pod_security_context.clone(),
        ..pod
    };
    for container in &mut spec.containers {
        container.image = Some(workload.image_reference());
        container.image_pull_policy = Some(workload.pull_policy().as_str().to_owned());
    }
    stored::normalise_pod(&mut spec);
    let mut all = workload.pod_annotations.clone().unwrap_or_default();
    all.extend(annotations);
    let metadata = ObjectMeta {
        labels: Some(labels::pod_labels(of, workload.pod_labels.as_ref())),
        annotations: Some(all),
        ..ObjectMeta::default()
    };
    PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) }
}

/// A container that runs one of the server's commands.
pub(super) fn container(name: &str, subcommand: &str, args: Vec<String>) -> Container {
    Container {
        name: name.to_owned(),
        command: Some(vec!["/opt/venv/bin/lmcache".to_owned(), subcommand.to_owned()]),
        args: Some(args),
        ..Container::default()
    }
}

/// Named TCP ports. The list is keyed by port number, so a number that is taken is not listed again: the metrics port may
/// be the HTTP port.
pub(super) fn ports<'n>(wanted: impl IntoIterator<Item = (&'n str, i32)>) -> Vec<ContainerPort> {
    let mut ports: Vec<ContainerPort> = Vec::with_capacity(3);
    for (name, number) in wanted {
        if ports.iter().all(|port| port.container_port != number) {
            ports.push(ContainerPort {
                name: Some(name.to_owned()),
                container_port: number,
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            });
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::ChildKind;
    use super::super::testing::{object, spec};

    #[test]
    fn the_security_context_is_passed_through_and_is_not_there_unless_given() {
        let rendered = |fields: Value| {
            let daemonset = object(&spec(fields), ChildKind::DaemonSet, "c1");
            daemonset["spec"]["template"]["spec"]["securityContext"].clone()
        };
        let given = json!({"fsGroup": 1000, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(rendered(json!({"podSecurityContext": given})), given);
        assert_eq!(rendered(json!({})), Value::Null);
    }
}
