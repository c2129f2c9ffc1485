//! What a person would look up when a wait fails.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use lmcache_crds::PhaseRecord;

use crate::kind::{PhaseObject, instance_selector};

/// Whether the pod's condition Ready is True.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Everything about one resource.
pub(crate) async fn full<K: PhaseObject>(
    client: &Client,
    namespace: &str,
    name: &str,
    object: kube::Result<Option<K>>,
) -> String {
    let mut text = String::new();
    match object {
        Ok(Some(object)) => {
            let generation = object.meta().generation.unwrap_or_default();
            let _ = writeln!(text, "{} {namespace}/{name}, generation {generation}", K::kind(&()));
            match object.record() {
                Some(record) => text.push_str(&record_lines(record)),
                None => text.push_str("  no status\n"),
            }
        }
        Ok(None) => {
            let _ = writeln!(text, "{} {namespace}/{name} does not exist", K::kind(&()));
        }
        Err(error) => {
            let _ = writeln!(text, "{} {namespace}/{name} cannot be read: {error}", K::kind(&()));
        }
    }
    text.push_str(&events(client, namespace, name).await);
    text.push_str(&pods(client, namespace, &instance_selector::<K>(name)).await);
    text
}

/// Phase, history and conditions.
pub(crate) fn record_lines(record: &PhaseRecord) -> String {
    let mut text = String::new();
    let observed = record.observed_generation.map_or("none".to_owned(), |it| it.to_string());
    let (reason, message) = (record.reason.as_deref().unwrap_or("-"), record.message.as_deref().unwrap_or("-"));
    let _ = writeln!(text, "  phase {} of generation {observed}: {reason}: {message}", record.phase);
    for step in &record.phase_transitions {
        let _ = writeln!(
            text,
            "  {} {} -> {} ({}, generation {}): {}",
            step.time.0, step.from, step.to, step.reason, step.generation, step.message
        );
    }
    for it in &record.conditions {
        let _ = writeln!(
            text,
            "  {}={} since {} ({}): {}",
            it.type_, it.status, it.last_transition_time.0, it.reason, it.message
        );
    }
    text
}

/// Events about the resource, its workload and its pods, oldest first.
async fn events(client: &Client, namespace: &str, name: &str) -> String {
    let mut events = match Api::<Event>::namespaced(client.clone(), namespace).list(&ListParams::default()).await {
        Ok(events) => events.items,
        Err(error) => return format!("Events cannot be listed: {error}\n"),
    };
    let subject = |event: &Event| event.regarding.as_ref().and_then(|it| it.name.clone()).unwrap_or_default();
    events.retain(|event| {
        let subject = subject(event);
        subject == name || subject.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
    });
    events.sort_by_key(|event| event.metadata.creation_timestamp.clone());
    let mut text = format!("Events: {}\n", events.len());
    for event in &events {
        let kind = event.regarding.as_ref().and_then(|it| it.kind.as_deref()).unwrap_or_default();
        let _ = writeln!(
            text,
            "  {} {} {kind}/{}: {}",
            event.type_.as_deref().unwrap_or_default(),
            event.reason.as_deref().unwrap_or_default(),
            subject(event),
            event.note.as_deref().unwrap_or_default()
        );
    }
    text
}

/// Pods of a selection with their containers.
pub(crate) async fn pods(client: &Client, namespace: &str, selector: &str) -> String {
    let list = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default().labels(selector)).await;
    match list {
        Ok(pods) => pods.items.iter().fold(format!("Pods: {}\n", pods.items.len()), |text, pod| text + &pod_lines(pod)),
        Err(error) => format!("Pods cannot be listed: {error}\n"),
    }
}

/// One pod with its containers.
pub(crate) fn pod_lines(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let mut text = format!(
        "  {} on {}: {}{}{}\n",
        pod.name_any(),
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node"),
        status.phase.as_deref().unwrap_or("no phase"),
        if is_ready(pod) { ", ready" } else { ", not ready" },
        if pod.metadata.deletion_timestamp.is_some() { ", terminating" } else { "" },
    );
    let unmet = status.conditions.iter().flatten().filter(|it| it.status != "True" && it.message.is_some());
    for it in unmet {
        let _ = writeln!(text, "    {}={}: {}", it.type_, it.status, it.message.as_deref().unwrap_or_default());
    }
    for container in status.init_container_statuses.iter().chain(&status.container_statuses).flatten() {
        let _ = writeln!(text, "    {}", container_line(container));
    }
    text
}

fn container_line(container: &ContainerStatus) -> String {
    let state = container.state.clone().unwrap_or_default();
    let now = if let Some(waiting) = state.waiting {
        format!("waiting, {}: {}", waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default())
    } else if let Some(ended) = state.terminated {
        format!("ended with {}, {}", ended.exit_code, ended.reason.unwrap_or_default())
    } else if state.running.is_some() {
        format!("running, {}", if container.ready { "ready" } else { "not ready" })
    } else {
        "unknown".to_owned()
    };
    let last = container.last_state.as_ref().and_then(|it| it.terminated.as_ref());
    let last = last.map_or_else(String::new, |it| {
        format!("; before: ended with {}, {}", it.exit_code, it.reason.as_deref().unwrap_or_default())
    });
    format!("container {}: {now}; {} restarts{last}", container.name, container.restart_count)
}
