//! Instances from pods of a Deployment `co`, told as short stories.

use rstest::rstest;
use serde_json::{Value, json};

use super::super::live::Live;
use super::super::testing::told;
use super::super::views::EventView;
use super::*;
use lmcache_crds::{Report, kubernetes_time};
use lmcache_states::{ProblemKind, Workload};

const NOW: &str = "2026-01-01T01:00:00Z";

/// `name:revision:state` for a pod; a state is `ready`, `wait`, `leaving` or `failed`.
fn pod(text: &str) -> Arc<PodView> {
    let parts: Vec<&str> = text.split(':').collect();
    let [name, revision, state] = parts[..] else { panic!("{text}") };
    let mut pod: PodView = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "ai", "uid": name, "creationTimestamp": "2026-01-01T00:01:00Z",
            "deletionTimestamp": (state == "leaving").then_some(NOW),
            "labels": {"pod-template-hash": format!("h{revision}")},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("co-h{revision}"),
                "uid": format!("rs{revision}"), "controller": true}]},
        "spec": {"nodeName": "n"},
        "status": {"phase": if state == "failed" { "Failed" } else { "Running" },
            "conditions": [{"type": "Ready", "status": if state == "ready" { "True" } else { "False" }}]}
    }))
    .expect("pod");
    pod.trim();
    Arc::new(pod)
}

fn replica_set(revision: &str, owner: &str, replicas: i32) -> Arc<ReplicaSetView> {
    let object = json!({"spec": {"replicas": replicas}, "metadata": {"name": format!("co-h{revision}"), "namespace": "ai", "uid": format!("rs{revision}"),
        "labels": {"pod-template-hash": format!("h{revision}")},
        "annotations": {REVISION_ANNOTATION: revision},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "co", "uid": owner, "controller": true}]}});
    Arc::new(serde_json::from_value(object).expect("ReplicaSet"))
}

fn deployment(revision: &str, replicas: i32, conditions: &Value) -> Live {
    Live::try_from(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": replicas},
        "metadata": {"name": "co", "namespace": "ai", "uid": "d", "generation": 1,
            "annotations": {REVISION_ANNOTATION: revision}},
        "status": {"conditions": conditions}}))
    .expect("Deployment")
}

/// What was remembered: `name:revision:ready` or `name:revision:lost`.
fn remembered(endpoints: &[&str]) -> Report {
    let endpoints = endpoints.iter().map(|text| {
        let parts: Vec<&str> = text.split(':').collect();
        Endpoint {
            node_name: "n".to_owned(),
            pod_name: parts[0].to_owned(),
            revision: Some(format!("h{}", parts[1])),
            ready: parts[2] == "ready",
            lost_since: (parts[2] == "lost").then(|| kubernetes_time("2026-01-01T00:30:00Z".parse().expect("time"))),
            ..Endpoint::default()
        }
    });
    Report { endpoints: endpoints.collect(), ..Report::default() }
}

fn derive(workload: &Live, replicas: i32, pods: &[&str], before: &Report) -> (Vec<Instance>, Vec<Endpoint>) {
    let pods: Vec<Arc<PodView>> = pods.iter().map(|text| pod(text)).collect();
    let events: [Arc<EventView>; 0] = [];
    let sources = Sources {
        workload,
        counts: Workload { observed: true, desired: replicas, updated: 0, ready: 0, available: 0, misscheduled: 0 },
        pods: &pods,
        node: &|_| None,
        events: &events,
        before,
        ports: (9300, 9090),
        now: NOW.parse().expect("time"),
    };
    // Revision 4 has been scaled down.
    let sets = [("1", "d", 1), ("2", "d", 1), ("4", "d", 0), ("9", "other", 1)];
    sources.as_replicas(&sets.map(|(revision, owner, replicas)| replica_set(revision, owner, replicas)))
}

#[rstest]
#[case::first_start("1", 1, &["a:1:wait"], &[], &["a: current"])]
#[case::came_up("1", 1, &["a:1:ready"], &[], &["a: current, ready"])]
#[case::settled("1", 1, &["a:1:ready"], &["a:1:ready"], &["a: current, ready, was ready"])]
#[case::readiness_lost("1", 1, &["a:1:wait"], &["a:1:ready"], &["a: current, was ready"])]
#[case::replaced("1", 1, &["a:1:leaving", "b:1:wait"], &["a:1:ready"], &["b: current, was ready"])]
#[case::still_not_replaced("1", 1, &["b:1:wait"], &["b:1:lost"], &["b: current, was ready"])]
#[case::replaced_and_ready("1", 1, &["b:1:ready"], &["a:1:ready"], &["b: current, ready"])]
#[case::gone_without_a_replacement("1", 1, &[], &["a:1:ready"], &["a: no pod, current, was ready"])]
#[case::one_of_two_gone("1", 2, &["b:1:ready"], &["a:1:ready", "b:1:ready"], &["a: no pod, current, was ready", "b: current, ready, was ready"])]
#[case::scaled_down("1", 1, &["b:1:ready"], &["a:1:ready", "b:1:ready"], &["b: current, ready, was ready"])]
#[case::scaled_up("1", 2, &["a:1:ready", "b:1:wait"], &["a:1:ready"], &["a: current, ready, was ready", "b: current"])]
#[case::new_template("2", 1, &["a:1:leaving", "b:2:wait"], &["a:1:ready"], &["b: current"])]
#[case::new_template_before_its_pods("2", 1, &["a:1:leaving"], &["a:1:ready"], &[])]
#[case::old_pods_go_before_the_new_template_has_a_set("4", 1, &["a:4:leaving"], &["a:4:ready"], &[])]
#[case::old_pods_are_gone_before_the_new_template_has_a_set("4", 1, &[], &["a:4:ready"], &[])]
#[case::scaled_to_zero("4", 0, &["a:4:leaving"], &["a:4:ready"], &[])]
#[case::rolling("2", 2, &["a:1:ready", "b:2:wait"], &["a:1:ready", "c:1:ready"], &["a: ready", "b: current"])]
#[case::evicted_and_replaced("1", 1, &["a:1:failed", "b:1:wait"], &["a:1:ready"], &["b: current, was ready"])]
#[case::of_another_owner("1", 1, &["a:9:ready"], &[], &[])]
#[case::unknown_revision("3", 1, &["a:1:ready"], &["a:1:ready"], &["a: ready"])]
fn replicas_know_what_they_were(
    #[case] revision: &str,
    #[case] replicas: i32,
    #[case] pods: &[&str],
    #[case] before: &[&str],
    #[case] expected: &[&str],
) {
    let workload = deployment(revision, replicas, &json!([]));
    let (instances, _) = derive(&workload, replicas, pods, &remembered(before));
    assert_eq!(instances.iter().map(told).collect::<Vec<_>>(), expected);
}

#[test]
fn a_loss_is_handed_on_with_its_beginning() {
    let workload = deployment("1", 1, &json!([]));
    let (_, endpoints) = derive(&workload, 1, &["b:1:wait"], &remembered(&["a:1:lost"]));
    let since = kubernetes_time("2026-01-01T00:30:00Z".parse().expect("time"));
    let seen: Vec<_> = endpoints.iter().map(|e| (e.pod_name.as_str(), e.lost_since.clone())).collect();
    assert_eq!(seen, [("b", Some(since))]);
}

#[test]
fn a_pod_that_cannot_be_created_is_told_with_the_reason() {
    let failure = json!([{"type": "ReplicaFailure", "status": "True", "message": "pods \"co\" is forbidden: quota"}]);
    let (instances, endpoints) = derive(&deployment("1", 1, &failure), 1, &[], &remembered(&[]));
    let problem = instances[0].problem.as_ref().expect("a problem");
    assert_eq!(
        (problem.kind, problem.message.as_str()),
        (ProblemKind::AdmissionRefused, "FailedCreate: pods \"co\" is forbidden: quota")
    );
    assert_eq!((instances.len(), endpoints.len()), (1, 0));
}
