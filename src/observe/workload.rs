//! What the controllers of DaemonSets and Deployments report, in one form.

use serde::Deserialize;
use serde_json::Value;

/// The report of a workload's controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadStatus {
    /// `metadata.generation` that the counts speak of.
    pub observed_generation: i64,
    /// Instances that should run.
    pub desired: i32,
    /// Instances of the present template.
    pub updated: i32,
    /// Ready instances.
    pub ready: i32,
    /// Available instances.
    pub available: i32,
    /// Instances on nodes that should not run one.
    pub misscheduled: i32,
    /// Why pods of a Deployment cannot be created (condition `ReplicaFailure`). A DaemonSet tells it by Events only.
    pub creation_failure: Option<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DaemonSetStatus {
    observed_generation: i64,
    desired_number_scheduled: i32,
    updated_number_scheduled: i32,
    number_ready: i32,
    number_available: i32,
    number_misscheduled: i32,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStatus {
    observed_generation: i64,
    updated_replicas: i32,
    ready_replicas: i32,
    available_replicas: i32,
    conditions: Vec<DeploymentCondition>,
}

#[derive(Deserialize)]
struct DeploymentCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default)]
    message: String,
}

impl WorkloadStatus {
    /// Reads the status of `object`; `None` when it is no workload, or its controller has not reported yet.
    ///
    /// # Errors
    /// When a field has another type than it should.
    pub fn read(object: &Value, status: Value) -> Result<Option<Self>, serde_json::Error> {
        // The API server fills replicas in, and of the children only Deployments have it.
        if let Some(replicas) = object.pointer("/spec/replicas").and_then(Value::as_i64) {
            let status: DeploymentStatus =
                if status.is_null() { DeploymentStatus::default() } else { serde_json::from_value(status)? };
            return Ok(Some(Self::of_deployment(replicas, status)));
        }
        if status.get("desiredNumberScheduled").is_none() {
            return Ok(None);
        }
        let status: DaemonSetStatus = serde_json::from_value(status)?;
        Ok(Some(WorkloadStatus {
            observed_generation: status.observed_generation,
            desired: status.desired_number_scheduled,
            updated: status.updated_number_scheduled,
            ready: status.number_ready,
            available: status.number_available,
            misscheduled: status.number_misscheduled,
            creation_failure: None,
        }))
    }

    fn of_deployment(replicas: i64, status: DeploymentStatus) -> Self {
        let failure = status.conditions.into_iter().find(|c| c.type_ == "ReplicaFailure" && c.status == "True");
        WorkloadStatus {
            observed_generation: status.observed_generation,
            desired: i32::try_from(replicas).unwrap_or(i32::MAX),
            updated: status.updated_replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
            misscheduled: 0,
            creation_failure: failure.map(|condition| condition.message.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::nothing_reported_yet(json!({"spec": {"replicas": 2}}), Value::Null, Some((0, 2, 0, None)))]
    #[case::nothing_to_run(json!({"spec": {"replicas": 0}}), json!({"observedGeneration": 3}), Some((3, 0, 0, None)))]
    #[case::refused(
        json!({"spec": {"replicas": 1}}),
        json!({"observedGeneration": 1, "conditions": [{"type": "ReplicaFailure", "status": "True", "message": "quota"}]}),
        Some((1, 1, 0, Some("quota"))),
    )]
    #[case::a_deployment(json!({"spec": {"replicas": 1}}), json!({"observedGeneration": 1, "readyReplicas": 1}), Some((1, 1, 1, None)))]
    #[case::a_daemon_set(
        json!({"spec": {}}), json!({"observedGeneration": 2, "desiredNumberScheduled": 3, "numberReady": 1}), Some((2, 3, 1, None)),
    )]
    #[case::a_daemon_set_without_a_report(json!({"spec": {}}), json!({}), None)]
    #[case::no_workload(json!({"data": {}}), Value::Null, None)]
    fn reads_either_kind(
        #[case] object: Value,
        #[case] status: Value,
        #[case] expected: Option<(i64, i32, i32, Option<&str>)>,
    ) {
        let read = WorkloadStatus::read(&object, status).expect("it can be read");
        let read =
            read.as_ref().map(|it| (it.observed_generation, it.desired, it.ready, it.creation_failure.as_deref()));
        assert_eq!(read, expected);
    }
}
