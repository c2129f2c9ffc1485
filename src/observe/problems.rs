//! What keeps a pod from being ready, in the words a person would search for.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus};
use lmcache_states::{Problem, ProblemKind};

use super::views::{EventView, NodeView, PodView};

/// The first trouble of a pod that is not ready; `events` are those about it.
pub fn problem_of(pod: &PodView, node: Option<&NodeView>, events: &[Arc<EventView>]) -> Option<Problem> {
    if pod.ready() {
        return None;
    }
    node_trouble(node)
        .or_else(|| refusal(pod))
        .or_else(|| unschedulable(pod))
        .or_else(|| container_trouble(pod, events))
        .or_else(|| mount_trouble(pod, events))
}

fn problem(kind: ProblemKind, message: String) -> Problem {
    Problem { kind, message }
}

fn node_trouble(node: Option<&NodeView>) -> Option<Problem> {
    let message = node?.not_ready()?;
    Some(problem(ProblemKind::NodeNotReady, format!("the node is not ready: {}", or_unknown(message))))
}

/// A kubelet that refuses a pod at admission marks the whole pod as failed; an eviction is replaced without help.
fn refusal(pod: &PodView) -> Option<Problem> {
    let status = &pod.status;
    let reason = status.reason.as_deref().filter(|reason| *reason != "Evicted")?;
    if status.phase.as_deref() != Some("Failed") {
        return None;
    }
    let message = status.message.as_deref().unwrap_or_default();
    Some(problem(
        ProblemKind::AdmissionRefused,
        format!("the kubelet refused the pod: {reason}: {}", or_unknown(message)),
    ))
}

fn unschedulable(pod: &PodView) -> Option<Problem> {
    let condition = pod.condition("PodScheduled").filter(|c| c.status == "False")?;
    let reason = condition.reason.as_deref().filter(|reason| *reason != "SchedulingGated").unwrap_or("Unschedulable");
    let message = condition.message.as_deref().unwrap_or_default();
    Some(problem(ProblemKind::Unschedulable, format!("{reason}: {}", or_unknown(message))))
}

fn container_trouble(pod: &PodView, events: &[Arc<EventView>]) -> Option<Problem> {
    let containers = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    containers.filter(|c| !c.ready).find_map(|container| {
        let state = container.state.as_ref()?;
        waiting(pod, container, state, events).or_else(|| ended(pod, container, state, events))
    })
}

fn waiting(
    pod: &PodView,
    container: &ContainerStatus,
    state: &ContainerState,
    events: &[Arc<EventView>],
) -> Option<Problem> {
    let waiting = state.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    let name = &container.name;
    let message = waiting.message.as_deref().unwrap_or_default();
    match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "ImageInspectError"
        | "RegistryUnavailable"
        | "SignatureValidationFailed" => Some(problem(
            ProblemKind::ImagePull,
            format!(
                "container {name}: {reason}: {} (image {}); check spec.image and spec.imagePullSecrets",
                or_unknown(message),
                container.image
            ),
        )),
        "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "PreCreateHookError"
        | "PreStartHookError"
        | "PostStartHookError" => {
            Some(problem(ProblemKind::ContainerCreate, format!("container {name}: {reason}: {}", or_unknown(message))))
        }
        "CrashLoopBackOff" => Some(crash(pod, container, last_end(container), "CrashLoopBackOff", events)),
        _ => None,
    }
}

/// A container that has just ended, or runs again after having ended more than once.
fn ended(
    pod: &PodView,
    container: &ContainerStatus,
    state: &ContainerState,
    events: &[Arc<EventView>],
) -> Option<Problem> {
    if let Some(end) = state.terminated.as_ref().filter(|end| end.exit_code != 0) {
        return Some(crash(pod, container, Some(end), "Terminated", events));
    }
    let end = last_end(container).filter(|end| end.exit_code != 0)?;
    let again = container.restart_count >= 2 || startup_failure(pod, Some(end), events).is_some();
    if state.running.is_none() || !again {
        return None;
    }
    Some(crash(pod, container, Some(end), "restarting", events))
}

fn last_end(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.last_state.as_ref()?.terminated.as_ref()
}

fn crash(
    pod: &PodView,
    container: &ContainerStatus,
    end: Option<&ContainerStateTerminated>,
    state: &str,
    events: &[Arc<EventView>],
) -> Problem {
    let (name, restarts) = (&container.name, container.restart_count);
    let exit = end.map_or_else(|| "an unknown exit code".to_owned(), |end| format!("exit code {}", end.exit_code));
    if end.and_then(|end| end.reason.as_deref()) == Some("OOMKilled") {
        return problem(
            ProblemKind::OomKilled,
            format!(
                "container {name}: OOMKilled with {exit}, {restarts} restarts; raise spec.resourceOverrides.limits.memory (an engine: or lower spec.l1.sizeGB)"
            ),
        );
    }
    if let Some(event) = startup_failure(pod, end, events) {
        let said = last_line(&event.message);
        return problem(
            ProblemKind::StartupProbe,
            format!(
                "container {name}: {said}; killed with {exit}, {restarts} restarts; the server did not listen in time"
            ),
        );
    }
    let said =
        end.and_then(|end| end.message.as_deref()).map(|text| format!(": {}", last_line(text))).unwrap_or_default();
    let log = format!(
        "kubectl logs -n {} {} -c {name} --previous",
        pod.metadata.namespace.as_deref().unwrap_or_default(),
        pod.metadata.name.as_deref().unwrap_or_default()
    );
    problem(
        ProblemKind::CrashLoop,
        format!("container {name}: {state} with {exit}, {restarts} restarts{said}; see {log}"),
    )
}

/// A container that was ended by a signal after its startup probe had failed: a slow start alone fails some probes too.
fn startup_failure<'a>(
    pod: &'a PodView,
    end: Option<&ContainerStateTerminated>,
    events: &'a [Arc<EventView>],
) -> Option<&'a EventView> {
    end.filter(|end| end.exit_code > 128)?;
    about(pod, events, "Unhealthy").find(|event| event.message.starts_with(STARTUP_FAILURE))
}

/// How the kubelet begins the Event of a failed startup probe.
pub const STARTUP_FAILURE: &str = "Startup probe";

fn mount_trouble(pod: &PodView, events: &[Arc<EventView>]) -> Option<Problem> {
    let started = pod.status.container_statuses.iter().any(|c| c.started == Some(true));
    let event = about(pod, events, "FailedMount").max_by_key(|event| event.seen()).filter(|_| !started)?;
    Some(problem(ProblemKind::VolumeMount, format!("FailedMount: {}", or_unknown(&event.message))))
}

fn about<'a>(
    pod: &'a PodView,
    events: &'a [Arc<EventView>],
    reason: &'static str,
) -> impl Iterator<Item = &'a EventView> {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    events.iter().map(AsRef::as_ref).filter(move |e| e.reason == reason && e.involved_object.uid == uid)
}

fn or_unknown(message: &str) -> &str {
    if message.is_empty() { "no message" } else { message }
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn pod(status: &Value) -> PodView {
        let mut pod: PodView = serde_json::from_value(
            json!({"metadata": {"name": "x-abc", "namespace": "ai", "uid": "1"}, "status": status}),
        )
        .expect("pod");
        pod.trim();
        pod
    }

    fn container(state: &Value, last: &Value, restarts: i32) -> Value {
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}],
               "containerStatuses": [{"name": "lmcache", "image": "i:1", "imageID": "", "ready": false,
                                      "restartCount": restarts, "state": state, "lastState": last}]})
    }

    #[rstest]
    #[case::image(container(&json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"i:1\""}}), &json!({}), 0),
        ProblemKind::ImagePull, "container lmcache: ImagePullBackOff: Back-off pulling image \"i:1\" (image i:1)")]
    #[case::key(container(&json!({"waiting": {"reason": "CreateContainerConfigError", "message": "couldn't find key password in Secret ai/s"}}), &json!({}), 0),
        ProblemKind::ContainerCreate, "container lmcache: CreateContainerConfigError: couldn't find key password in Secret ai/s")]
    #[case::crash(container(&json!({"waiting": {"reason": "CrashLoopBackOff"}}), &json!({"terminated": {"exitCode": 2, "reason": "Error"}}), 4),
        ProblemKind::CrashLoop, "container lmcache: CrashLoopBackOff with exit code 2, 4 restarts; see kubectl logs -n ai x-abc -c lmcache --previous")]
    #[case::oom(container(&json!({"waiting": {"reason": "CrashLoopBackOff"}}), &json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), 4),
        ProblemKind::OomKilled, "container lmcache: OOMKilled with exit code 137, 4 restarts")]
    #[case::oom_now(container(&json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}), &json!({}), 0),
        ProblemKind::OomKilled, "container lmcache: OOMKilled with exit code 137, 0 restarts")]
    #[case::flapping(container(&json!({"running": {}}), &json!({"terminated": {"exitCode": 1, "reason": "Error"}}), 2),
        ProblemKind::CrashLoop, "container lmcache: restarting with exit code 1, 2 restarts")]
    #[case::unschedulable(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient memory."}]}),
        ProblemKind::Unschedulable, "Unschedulable: 0/3 nodes are available: 3 Insufficient memory.")]
    #[case::kubelet(json!({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "device plugin"}),
        ProblemKind::AdmissionRefused, "the kubelet refused the pod: UnexpectedAdmissionError: device plugin")]
    fn names_the_trouble(#[case] status: Value, #[case] kind: ProblemKind, #[case] message: &str) {
        let found = problem_of(&pod(&status), None, &[]).expect("a problem");
        assert_eq!(found.kind, kind, "{found:?}");
        assert!(found.message.starts_with(message), "{found:?}");
    }

    #[rstest]
    #[case::starting(container(&json!({"running": {}}), &json!({}), 0))]
    #[case::pulling(container(&json!({"waiting": {"reason": "ContainerCreating"}}), &json!({}), 0))]
    #[case::first_restart(container(&json!({"running": {}}), &json!({"terminated": {"exitCode": 1}}), 1))]
    #[case::evicted(json!({"phase": "Failed", "reason": "Evicted"}))]
    #[case::ready(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}))]
    fn a_pod_on_its_way_has_no_problem(#[case] status: Value) {
        assert_eq!(problem_of(&pod(&status), None, &[]), None);
    }

    #[rstest]
    #[case::killed_for_it("Startup probe failed: connection refused", 137, ProblemKind::StartupProbe)]
    #[case::ended_by_itself("Startup probe failed: connection refused", 2, ProblemKind::CrashLoop)]
    #[case::another_probe("Readiness probe failed: connection refused", 137, ProblemKind::CrashLoop)]
    fn events_tell_a_startup_probe_from_a_crash(#[case] message: &str, #[case] exit: i32, #[case] kind: ProblemKind) {
        let event: EventView =
            serde_json::from_value(json!({"metadata": {"name": "e"}, "reason": "Unhealthy", "message": message,
            "involvedObject": {"kind": "Pod", "name": "x-abc", "uid": "1"}}))
            .expect("event");
        let status = container(
            &json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            &json!({"terminated": {"exitCode": exit}}),
            3,
        );
        assert_eq!(problem_of(&pod(&status), None, &[Arc::new(event)]).map(|p| p.kind), Some(kind));
    }

    #[test]
    fn a_volume_that_cannot_be_mounted_is_told_from_the_event() {
        let event: EventView = serde_json::from_value(json!({"metadata": {"name": "e"}, "reason": "FailedMount",
            "message": "MountVolume.SetUp failed: references non-existent secret key: master",
            "involvedObject": {"kind": "Pod", "name": "x-abc", "uid": "1"}}))
        .expect("event");
        let status = container(&json!({"waiting": {"reason": "ContainerCreating"}}), &json!({}), 0);
        let found = problem_of(&pod(&status), None, &[Arc::new(event)]).expect("a problem");
        assert_eq!(found.kind, ProblemKind::VolumeMount);
        assert!(found.message.contains("non-existent secret key"), "{found:?}");
    }

    #[test]
    fn a_node_that_does_not_report_comes_first() {
        let node: NodeView = serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions":
            [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}]}}))
        .expect("node");
        let found = problem_of(&pod(&json!({})), Some(&node), &[]).expect("a problem");
        assert_eq!(found.kind, ProblemKind::NodeNotReady);
    }
}
