//! Instances from pods, told as stories of three nodes `a`, `b` and `c`.

use std::sync::Arc;

use lmcache_crds::{MAX_ENDPOINTS, Report, kubernetes_time};
use lmcache_states::{ProblemKind, Workload};
use rstest::rstest;
use serde_json::json;

use super::super::instances::limit;
use super::super::live::Live;
use super::super::testing::told;
use super::super::views::EventView;
use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

/// `node:generation:ready` for a pod, with `-` at the end for one that is on its way out.
fn pod(text: &str) -> Arc<PodView> {
    let (text, leaving) = text.strip_suffix('-').map_or((text, false), |text| (text, true));
    let parts: Vec<&str> = text.split(':').collect();
    let [node, generation, ready] = parts[..] else { panic!("{text}") };
    let mut pod: PodView = serde_json::from_value(json!({
        "metadata": {"name": format!("x-{node}{generation}"), "namespace": "ai", "uid": format!("{node}{generation}"),
            "creationTimestamp": format!("2026-01-01T00:0{generation}:00Z"),
            "deletionTimestamp": leaving.then_some(NOW),
            "labels": {"pod-template-generation": generation, "controller-revision-hash": format!("h{generation}")},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "ds", "controller": true}]},
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": if ready == "ready" { "True" } else { "False" }}]}
    }))
    .expect("pod");
    pod.trim();
    Arc::new(pod)
}

fn daemonset(generation: &str) -> Live {
    Live::try_from(json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "x", "namespace": "ai", "uid": "ds", "generation": 1,
            "annotations": {"deprecated.daemonset.template.generation": generation}}}))
    .expect("DaemonSet")
}

/// What was remembered: `node:generation:ready` or `node:generation:lost`.
fn remembered(endpoints: &[&str]) -> Report {
    let endpoints = endpoints.iter().map(|text| {
        let parts: Vec<&str> = text.split(':').collect();
        Endpoint {
            node_name: parts[0].to_owned(),
            pod_name: format!("x-{}{}", parts[0], parts[1]),
            revision: Some(format!("h{}", parts[1])),
            ready: parts[2] == "ready",
            lost_since: (parts[2] == "lost").then(|| kubernetes_time("2026-01-01T00:30:00Z".parse().expect("time"))),
            ..Endpoint::default()
        }
    });
    let record = lmcache_crds::PhaseRecord { phase: Phase::Ready, ..Default::default() };
    Report { record, endpoints: endpoints.collect(), ..Report::default() }
}

fn derive(
    generation: &str,
    desired: i32,
    pods: &[&str],
    before: &Report,
    nodes: &[&str],
    events: &[Arc<EventView>],
) -> (Vec<Instance>, Vec<Endpoint>) {
    let pods: Vec<Arc<PodView>> = pods.iter().map(|text| pod(text)).collect();
    let workload = daemonset(generation);
    let counts = Workload { observed: true, desired, updated: 0, ready: 0, available: 0, misscheduled: 0 };
    let node = |name: &str| {
        let node = json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        nodes.contains(&name).then(|| Arc::new(serde_json::from_value(node).expect("node")))
    };
    let sources = Sources {
        workload: &workload,
        counts,
        pods: &pods,
        node: &node,
        events,
        before,
        ports: (5555, 9090),
        now: NOW.parse().expect("time"),
    };
    sources.on_nodes()
}

#[rstest]
#[case::first_start("1", &["b:1:wait", "a:1:ready"], &[], &["a: current, ready", "b: current"])]
#[case::settled("1", &["a:1:ready"], &["a:1:ready"], &["a: current, ready, was ready"])]
#[case::readiness_lost("1", &["a:1:wait", "b:1:ready"], &["a:1:ready", "b:1:ready"], &["a: current, was ready", "b: current, ready, was ready"])]
#[case::still_lost("1", &["a:1:wait", "b:1:ready"], &["a:1:lost", "b:1:ready"], &["a: current, was ready", "b: current, ready, was ready"])]
#[case::pod_replaced_outside_of_a_rollout("1", &["a:1:wait", "b:1:ready"], &["a:1:ready", "b:1:ready"], &["a: current, was ready", "b: current, ready, was ready"])]
#[case::old_pods_of_a_new_template("2", &["a:1:ready", "b:1:ready"], &["a:1:ready", "b:1:ready"], &["a: ready", "b: ready"])]
#[case::rolling("2", &["a:2:wait", "b:1:ready"], &["a:1:ready", "b:1:ready"], &["a: current", "b: ready"])]
#[case::rolled("2", &["a:2:ready", "b:2:ready"], &["a:2:ready", "b:1:ready"], &["a: current, ready, was ready", "b: current, ready"])]
#[case::between_two_pods_of_a_rollout("2", &["a:1:ready-", "b:2:ready"], &["a:1:ready", "b:2:ready"], &["b: current, ready, was ready"])]
#[case::pod_gone("1", &["a:1:ready-", "b:1:ready"], &["a:1:ready", "b:1:ready"], &["a: no pod, current, was ready", "b: current, ready, was ready"])]
#[case::restarted("2", &["a:1:ready-", "b:1:ready"], &["a:1:ready", "b:1:ready"], &["b: ready"])]
#[case::restarted_alone("2", &["a:1:ready-"], &["a:1:ready"], &[])]
#[case::deleted_alone("1", &["a:1:ready-"], &["a:1:ready"], &["a: no pod, current, was ready"])]
#[case::all_gone("1", &[], &["a:1:ready", "b:1:ready"], &["a: no pod, current, was ready", "b: no pod, current, was ready"])]
#[case::joined("1", &["a:1:ready", "b:1:wait"], &["a:1:ready"], &["a: current, ready, was ready", "b: current"])]
fn instances_know_what_they_were(
    #[case] template: &str,
    #[case] pods: &[&str],
    #[case] before: &[&str],
    #[case] expected: &[&str],
) {
    let (instances, _) = derive(template, 2, pods, &remembered(before), &["a", "b"], &[]);
    assert_eq!(instances.iter().map(told).collect::<Vec<_>>(), expected);
}

#[test]
fn a_node_that_has_left_is_no_loss() {
    let before = remembered(&["a:1:ready", "b:1:ready"]);
    let (instances, endpoints) = derive("1", 1, &["b:1:ready"], &before, &["b"], &[]);
    assert_eq!(instances.iter().map(told).collect::<Vec<_>>(), ["b: current, ready, was ready"]);
    assert_eq!(endpoints.len(), 1);
}

#[test]
fn a_loss_keeps_its_beginning_until_it_is_over() {
    let (_, endpoints) = derive("1", 1, &["a:1:wait"], &remembered(&["a:1:lost"]), &["a"], &[]);
    assert_eq!(endpoints[0].lost_since, Some(kubernetes_time("2026-01-01T00:30:00Z".parse().expect("time"))));
    let (_, endpoints) = derive("1", 1, &["a:1:wait"], &remembered(&["a:1:ready"]), &["a"], &[]);
    assert_eq!(endpoints[0].lost_since, Some(kubernetes_time(NOW.parse().expect("time"))));
    let (_, endpoints) = derive("1", 1, &["a:1:ready"], &remembered(&["a:1:lost"]), &["a"], &[]);
    assert_eq!(endpoints[0].lost_since, None);
}

#[rstest]
#[case::before_any_pod(&[], "2026-01-01T00:00:30Z", true)]
#[case::after_the_newest_pod(&["a:1:ready"], "2026-01-01T00:05:00Z", true)]
#[case::pods_were_created_since(&["a:1:ready"], "2026-01-01T00:00:30Z", false)]
fn a_refusal_counts_until_a_pod_is_created(#[case] pods: &[&str], #[case] seen: &str, #[case] counts: bool) {
    let event: EventView = serde_json::from_value(json!({"metadata": {"name": "e"}, "reason": "FailedCreate",
        "message": "pod rejected: RuntimeClass \"nvidia\" not found", "lastTimestamp": seen,
        "involvedObject": {"kind": "DaemonSet", "name": "x", "uid": "ds"}}))
    .expect("event");
    let (instances, _) = derive("1", 2, pods, &remembered(&[]), &["a"], &[Arc::new(event)]);
    let refused = instances.iter().filter_map(|i| i.problem.as_ref()).any(|p| p.kind == ProblemKind::AdmissionRefused);
    assert_eq!(refused, counts, "{instances:?}");
}

#[test]
fn a_pod_of_another_owner_is_not_listed() {
    let workload = daemonset("1");
    let mut stranger = Arc::unwrap_or_clone(pod("a:1:ready"));
    stranger.metadata.owner_references.iter_mut().flatten().for_each(|owner| owner.uid = "other".to_owned());
    let before = Report::default();
    let sources = Sources {
        workload: &workload,
        counts: Workload { observed: true, desired: 0, updated: 0, ready: 0, available: 0, misscheduled: 0 },
        pods: &[Arc::new(stranger)],
        node: &|_| None,
        events: &[],
        before: &before,
        ports: (5555, 9090),
        now: NOW.parse().expect("time"),
    };
    assert_eq!(sources.on_nodes(), (Vec::new(), Vec::new()));
}

#[test]
fn a_long_list_keeps_those_that_are_not_ready_and_says_how_many_it_left_out() {
    let endpoints: Vec<Endpoint> = (0..300)
        .map(|i| Endpoint { node_name: format!("n{i:03}"), ready: i != 299, ..Endpoint::default() })
        .rev()
        .collect();
    let (kept, left_out) = limit(endpoints);
    assert_eq!((kept.len(), left_out), (MAX_ENDPOINTS, Some(44)));
    assert!(kept.is_sorted_by(|a, b| a.node_name < b.node_name));
    assert!(kept.iter().any(|e| e.node_name == "n299"), "the one that is not ready is listed");
}

#[test]
fn beyond_the_limit_a_pod_older_than_readiness_had_been_ready() {
    let mut before = remembered(&["b:1:ready"]);
    before.endpoints_truncated = Some(1);
    before.record.phase_transitions.push(lmcache_crds::PhaseTransition {
        from: Phase::Rolling,
        to: Phase::Ready,
        reason: "AllInstancesReady".to_owned(),
        message: String::new(),
        generation: 1,
        time: kubernetes_time("2026-01-01T00:10:00Z".parse().expect("time")),
    });
    let (instances, _) = derive("1", 2, &["a:1:wait", "b:1:ready"], &before, &["a", "b"], &[]);
    assert_eq!(told(&instances[0]), "a: current, was ready");
}
