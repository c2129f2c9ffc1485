//! A stand-in for kube-state-metrics: the few families that the Engine dashboard reads, from the API server's pods.

use std::fmt::Write as _;

use anyhow::Result;
use axum::Router;
use axum::routing::get;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

/// Serves `/metrics` for as long as the test runs; returns the address.
pub async fn serve(client: Client) -> Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let scrape = move || async move {
        let pods = Api::<Pod>::all(client).list(&ListParams::default()).await;
        // The API server is away for a moment: an empty scrape.
        pods.map(|pods| exposition(&pods.items)).unwrap_or_default()
    };
    let router = Router::new().route("/metrics", get(scrape));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

fn exposition(pods: &[Pod]) -> String {
    let mut text = String::new();
    for pod in pods {
        let id = format!(r#"namespace="{}",pod="{}""#, pod.namespace().unwrap_or_default(), pod.name_any());
        let node = pod.spec.as_ref().and_then(|it| it.node_name.clone()).unwrap_or_default();
        let owner = pod.owner_references().first().map(|it| (it.kind.clone(), it.name.clone())).unwrap_or_default();
        let status = pod.status.as_ref();
        let ready = status.and_then(|it| it.conditions.as_ref()?.iter().find(|it| it.type_ == "Ready"));
        let ready = u8::from(ready.is_some_and(|it| it.status == "True"));
        let (kind, name) = owner;
        let _ = writeln!(
            text,
            r#"kube_pod_info{{{id},node="{node}",created_by_kind="{kind}",created_by_name="{name}"}} 1"#
        );
        let _ = writeln!(text, r#"kube_pod_status_ready{{{id},condition="true"}} {ready}"#);
        let created = pod.creation_timestamp().map_or(0, |it| it.0.as_second());
        let _ = writeln!(text, "kube_pod_start_time{{{id}}} {created}");
        for container in status.into_iter().flat_map(|it| it.container_statuses.iter().flatten()) {
            let (name, count) = (&container.name, container.restart_count);
            let _ = writeln!(text, r#"kube_pod_container_status_restarts_total{{{id},container="{name}"}} {count}"#);
        }
    }
    text
}
