//! What the machine is told: one observation of a resource, its children and its instances.

use std::time::Duration;

use jiff::Timestamp;

/// One observation. Everything the machine decides is decided from this and the last [`PhaseRecord`](lmcache_crds::PhaseRecord).
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// `metadata.generation` of the custom resource.
    pub generation: i64,
    /// Field errors of the spec, each `path: detail`; empty when the spec is valid.
    pub spec_errors: Vec<String>,
    /// What the spec refers to and cannot have; empty when all is there.
    pub dependencies: Vec<DependencyIssue>,
    /// How applying the children of this generation went.
    pub children: Children,
    /// What the workload controller reports; `None` while the workload does not exist.
    pub workload: Option<Workload>,
    /// One per node (or replica): its pod and its trouble.
    pub instances: Vec<Instance>,
    /// The counts in the last written status; more updated or available instances than that is progress.
    pub previous: Counts,
    /// The time of this observation.
    pub now: Timestamp,
    /// How long a rollout may go without progress.
    pub progress_deadline: Duration,
    /// What the kind calls what it runs.
    pub wording: Wording,
    /// What is legal and surely not meant; each becomes a condition and never moves the phase.
    pub advisories: Vec<Advisory>,
}

/// What a kind calls what it runs, and by what rule their number is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wording {
    /// Instances, one on every node that matches.
    #[default]
    Instances,
    /// Replicas, as many as the spec says.
    Replicas,
}

impl Wording {
    /// The noun, in the plural.
    pub const fn plural(self) -> &'static str {
        match self {
            Wording::Instances => "instances",
            Wording::Replicas => "replicas",
        }
    }

    /// The noun, in the singular.
    pub const fn singular(self) -> &'static str {
        match self {
            Wording::Instances => "instance",
            Wording::Replicas => "replica",
        }
    }
}

/// A finding beside the phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advisory {
    /// What was looked at.
    pub kind: AdvisoryKind,
    /// What is not as it should be, and what to do; `None` when all is well.
    pub concern: Option<String>,
}

/// What an advisory is about; each is a condition type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdvisoryKind {
    /// Engine and coordinator cut and hash tokens alike (D77).
    CoordinatorCompatible,
    /// One coordinator process knows every engine: its registry is not split over replicas (D59).
    RegistryConsistent,
    /// The pods that were connected to the engine have the connection that it publishes today (D80).
    InjectionCurrent,
}

impl AdvisoryKind {
    /// Every kind, in the order in which their conditions are listed.
    pub const ALL: [AdvisoryKind; 3] =
        [AdvisoryKind::CoordinatorCompatible, AdvisoryKind::RegistryConsistent, AdvisoryKind::InjectionCurrent];

    /// The condition type.
    pub const fn as_str(self) -> &'static str {
        match self {
            AdvisoryKind::CoordinatorCompatible => "CoordinatorCompatible",
            AdvisoryKind::RegistryConsistent => "RegistryConsistent",
            AdvisoryKind::InjectionCurrent => "InjectionCurrent",
        }
    }

    /// The condition's message when all is well.
    pub const fn all_well(self) -> &'static str {
        match self {
            AdvisoryKind::CoordinatorCompatible => "Chunk size and hash algorithm are those of the coordinator",
            AdvisoryKind::RegistryConsistent => "There is one registry, and every engine is in it",
            AdvisoryKind::InjectionCurrent => "Every injected pod has the connection of today",
        }
    }

    /// The condition's reason.
    pub const fn reason(self, holds: bool) -> &'static str {
        match (self, holds) {
            (AdvisoryKind::CoordinatorCompatible, true) => "SettingsAgree",
            (AdvisoryKind::CoordinatorCompatible, false) => "SettingsDiffer",
            (AdvisoryKind::RegistryConsistent, true) => "OneRegistry",
            (AdvisoryKind::RegistryConsistent, false) => "SeveralReplicas",
            (AdvisoryKind::InjectionCurrent, true) => "PodsCurrent",
            (AdvisoryKind::InjectionCurrent, false) => "PodsOutdated",
        }
    }
}

/// Instance counts that progress is measured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instances that should run.
    pub desired: i32,
    /// Instances of the current revision.
    pub updated: i32,
    /// Available instances.
    pub available: i32,
}

/// A referenced object that is missing or unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DependencyIssue {
    /// What is wrong with it.
    pub kind: DependencyKind,
    /// The object, and what to do about it.
    pub message: String,
}

/// What can be wrong with a dependency, the one that names the phase first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DependencyKind {
    /// The Secret does not exist.
    SecretNotFound,
    /// The Secret lacks a key, or its value is empty.
    SecretKeyMissing,
    /// The Secret is in another namespace and not shared with this one (D14).
    SecretNotShared,
    /// The coordinator does not exist.
    CoordinatorNotFound,
}

/// How applying the children of the observed generation went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Children {
    /// Nothing was applied: the spec is invalid or a dependency is missing.
    Withheld,
    /// Every child agrees with this generation.
    Applied,
    /// These could not be applied; never empty.
    Failed(Vec<ChildFailure>),
}

/// A child that could not be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildFailure {
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// Why not.
    pub kind: FailureKind,
    /// What the API server said, or who owns the object.
    pub message: String,
    /// How many reconciles in a row have failed this way, this one included.
    pub attempts: u32,
}

/// Why a child could not be applied, the one that names the phase first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// Someone else controls an object of that name (D01).
    Conflict,
    /// The operator lacks a permission.
    Forbidden,
    /// The API server refused the object as invalid, or a policy did.
    Rejected,
    /// The API server could not be reached, timed out or failed; trying again may help.
    Unavailable,
}

/// What the `DaemonSet` or Deployment controller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Whether the report speaks of the workload's present generation. If not, only `ready` and `available` mean anything.
    pub observed: bool,
    /// Instances that should run.
    pub desired: i32,
    /// Instances of the current revision.
    pub updated: i32,
    /// Ready instances of any revision.
    pub ready: i32,
    /// Available instances of any revision.
    pub available: i32,
    /// Instances on nodes where none should run.
    pub misscheduled: i32,
}

/// One instance: a node (or replica) and the pod that serves there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Node name; for a pod that has no node yet, the node it waits for, or else the pod's name.
    pub location: String,
    /// The pod; `None` when none could be created.
    pub pod: Option<String>,
    /// Whether the pod was made from the current revision of the template.
    pub current: bool,
    /// Whether the pod is ready now.
    pub ready: bool,
    /// Whether an instance of the current revision had been ready here before.
    pub was_ready: bool,
    /// What keeps it from being ready, if anything a person should look at.
    pub problem: Option<Problem>,
}

/// What would make a person run `kubectl describe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its kind; gives the reason of the phase.
    pub kind: ProblemKind,
    /// Container and cause, in the words that a person would search for.
    pub message: String,
}

/// Kinds of trouble that an instance can have, the one that names the phase first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The pod was refused at admission: `RuntimeClass` not found, Pod Security, quota.
    AdmissionRefused,
    /// The image cannot be pulled.
    ImagePull,
    /// A container cannot be created: a Secret or `ConfigMap`, or a key in it, is missing.
    ContainerCreate,
    /// A volume cannot be mounted.
    VolumeMount,
    /// The kernel killed the container for its memory limit.
    OomKilled,
    /// The startup probe gave up and the kubelet killed the container.
    StartupProbe,
    /// The container ends again and again.
    CrashLoop,
    /// No node takes the pod.
    Unschedulable,
    /// The node does not report to the control plane.
    NodeNotReady,
}
