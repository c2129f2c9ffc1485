//! What runs the pods, in one form: a `DaemonSet` with its `ControllerRevision`s, or a Deployment with its `ReplicaSet`s.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

/// Labels by which the controllers of workloads name the template of a revision and of its pods: that of a `DaemonSet`, and
/// that of a Deployment.
const HASH_LABELS: [&str; 2] = ["controller-revision-hash", "pod-template-hash"];
/// Where a Deployment's controller numbers its `ReplicaSet`s.
const REVISION_ANNOTATION: &str = "deployment.kubernetes.io/revision";

/// An object that can be recorded.
pub trait Recorded:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}
impl<T> Recorded for T where
    T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// A kind that runs pods.
pub trait Workload: Recorded {
    /// What its controller keeps of each pod template.
    type Template: Template;

    /// Drops the pod template, which no rule reads.
    fn trim(&mut self);

    /// What it asks for, and how far its controller has come.
    fn state(&self) -> WorkloadState;
}

/// A kind that keeps a pod template of a [`Workload`].
pub trait Template: Recorded {
    /// Drops the template itself, which no rule reads.
    fn trim(&mut self);

    /// Its number: the newest has the highest. 0 while it has none.
    fn number(&self) -> i64;

    /// What the rules read of it.
    fn revision(&self) -> Revision {
        let hash = revision_hash(self).map(str::to_owned);
        Revision { kind: Self::kind(&()).into_owned(), name: self.name_any(), number: self.number(), hash }
    }
}

/// A workload as the rules of the phases judge it, of whatever kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkloadState {
    /// Its kind.
    pub kind: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// The generation that its controller speaks of.
    pub observed_generation: Option<i64>,
    /// Instances that should run.
    pub desired: i32,
    /// Instances of the newest template.
    pub updated: i32,
    /// Ready instances.
    pub ready: i32,
    /// Available instances.
    pub available: i32,
    /// Who wrote what of it, its status aside.
    pub writers: Vec<ManagedFieldsEntry>,
}

impl WorkloadState {
    /// Whether its controller speaks of its present generation.
    pub fn is_observed(&self) -> bool {
        self.observed_generation == Some(self.generation)
    }

    /// Whether something should run, and as much of it is updated and available. While an old instance is still there, more
    /// may be: instances themselves tell.
    pub fn is_complete(&self) -> bool {
        self.desired > 0 && self.updated >= self.desired && self.available >= self.desired
    }

    /// Who wrote it first, as far as this version tells.
    pub(crate) fn creator(&self) -> Option<&str> {
        self.writers.iter().min_by_key(|it| &it.time)?.manager.as_deref()
    }

    fn of(object: &impl Workload) -> Self {
        let meta = object.meta();
        let writers = meta.managed_fields.iter().flatten().filter(|it| it.subresource.is_none());
        Self {
            kind: kind(object),
            generation: meta.generation.unwrap_or_default(),
            writers: writers.cloned().collect(),
            ..Self::default()
        }
    }
}

fn kind<T: Workload>(_: &T) -> String {
    T::kind(&()).into_owned()
}

/// A revision of a workload's pod template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revision {
    /// Kind of the object that keeps it.
    pub kind: String,
    /// Name of that object.
    pub name: String,
    /// The newest has the highest.
    pub number: i64,
    /// The label that its pods carry.
    pub hash: Option<String>,
}

/// The template that a pod, or what keeps a revision, was made from.
pub(crate) fn revision_hash(object: &impl Resource) -> Option<&str> {
    let labels = object.meta().labels.as_ref()?;
    HASH_LABELS.iter().find_map(|label| labels.get(*label)).map(String::as_str)
}

impl Workload for DaemonSet {
    type Template = ControllerRevision;

    fn trim(&mut self) {
        if let Some(spec) = &mut self.spec {
            spec.template = PodTemplateSpec::default();
        }
    }

    fn state(&self) -> WorkloadState {
        let Some(status) = &self.status else { return WorkloadState::of(self) };
        WorkloadState {
            observed_generation: status.observed_generation,
            desired: status.desired_number_scheduled,
            updated: status.updated_number_scheduled.unwrap_or_default(),
            ready: status.number_ready,
            available: status.number_available.unwrap_or_default(),
            ..WorkloadState::of(self)
        }
    }
}

impl Template for ControllerRevision {
    fn trim(&mut self) {
        self.data = None;
    }

    fn number(&self) -> i64 {
        self.revision
    }
}

impl Workload for Deployment {
    type Template = ReplicaSet;

    fn trim(&mut self) {
        if let Some(spec) = &mut self.spec {
            spec.template = PodTemplateSpec::default();
        }
    }

    fn state(&self) -> WorkloadState {
        let desired = self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = self.status.clone().unwrap_or_default();
        WorkloadState {
            observed_generation: status.observed_generation,
            desired,
            updated: status.updated_replicas.unwrap_or_default(),
            ready: status.ready_replicas.unwrap_or_default(),
            available: status.available_replicas.unwrap_or_default(),
            ..WorkloadState::of(self)
        }
    }
}

impl Template for ReplicaSet {
    fn trim(&mut self) {
        self.spec = None;
        self.status = None;
    }

    fn number(&self) -> i64 {
        self.annotations().get(REVISION_ANNOTATION).and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn daemon_set(value: Value) -> WorkloadState {
        serde_json::from_value::<DaemonSet>(value).expect("a DaemonSet").state()
    }

    fn deployment(value: Value) -> WorkloadState {
        serde_json::from_value::<Deployment>(value).expect("a Deployment").state()
    }

    fn counts(state: &WorkloadState) -> (i32, i32, i32, i32) {
        (state.desired, state.updated, state.ready, state.available)
    }

    #[test]
    fn either_kind_is_read_into_the_same_form() {
        let set = daemon_set(json!({"metadata": {"generation": 3}, "status": {
            "observedGeneration": 2, "desiredNumberScheduled": 4, "currentNumberScheduled": 4, "numberMisscheduled": 0,
            "updatedNumberScheduled": 3, "numberReady": 2, "numberAvailable": 1}}));
        let deployment = deployment(
            json!({"metadata": {"generation": 3}, "spec": {"replicas": 4, "selector": {}, "template": {}},
            "status": {"observedGeneration": 2, "replicas": 5, "updatedReplicas": 3, "readyReplicas": 2, "availableReplicas": 1}}),
        );
        assert_eq!((set.kind.as_str(), deployment.kind.as_str()), ("DaemonSet", "Deployment"));
        assert_eq!(counts(&set), (4, 3, 2, 1));
        assert_eq!(WorkloadState { kind: set.kind.clone(), ..deployment }, set);
    }

    #[rstest]
    #[case::nothing_reported(json!({}), (false, false))]
    #[case::complete(json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}), (true, true))]
    #[case::not_observed(json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}), (false, true))]
    #[case::not_updated(json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 2}), (true, false))]
    #[case::not_available(json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}), (true, false))]
    #[case::an_old_one_is_left(json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3}), (true, true))]
    fn a_deployment_is_complete_when_every_replica_is_updated_and_available(
        #[case] status: Value,
        #[case] expected: (bool, bool),
    ) {
        let spec = json!({"replicas": 2, "selector": {}, "template": {}});
        let state = deployment(json!({"metadata": {"generation": 2}, "spec": spec, "status": status}));
        assert_eq!((state.is_observed(), state.is_complete()), expected, "{state:?}");
    }

    #[test]
    fn nothing_is_complete_that_should_not_run() {
        let spec = json!({"replicas": 0, "selector": {}, "template": {}});
        let state =
            deployment(json!({"metadata": {"generation": 1}, "spec": spec, "status": {"observedGeneration": 1}}));
        assert!(state.is_observed() && !state.is_complete(), "{state:?}");
    }

    #[test]
    fn revisions_of_either_kind_have_a_number_and_the_label_of_their_pods() {
        let kept: ControllerRevision = serde_json::from_value(
            json!({"metadata": {"name": "x-a", "labels": {"controller-revision-hash": "a"}}, "revision": 7}),
        )
        .expect("a ControllerRevision");
        let set: ReplicaSet =
            serde_json::from_value(json!({"metadata": {"name": "x-b", "labels": {"pod-template-hash": "b"},
            "annotations": {REVISION_ANNOTATION: "8"}}}))
            .expect("a ReplicaSet");
        let revision = |kind: &str, name: &str, number, hash: &str| Revision {
            kind: kind.to_owned(),
            name: name.to_owned(),
            number,
            hash: Some(hash.to_owned()),
        };
        assert_eq!(kept.revision(), revision("ControllerRevision", "x-a", 7, "a"));
        assert_eq!(set.revision(), revision("ReplicaSet", "x-b", 8, "b"));
        assert_eq!(ReplicaSet::default().number(), 0);
    }
}
