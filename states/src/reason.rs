//! The closed vocabulary of phase reasons.

use std::fmt;

/// Why a resource is in its phase: one CamelCase word, the same in `status.reason`, in the history, in conditions and in
/// Events. The set is closed, so it can be a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The first apply has not been tried yet.
    Applying,
    /// The spec does not pass validation.
    InvalidSpec,
    /// A referenced Secret does not exist.
    SecretNotFound,
    /// A referenced Secret lacks a key, or its value is empty.
    SecretKeyMissing,
    /// A referenced Secret is in another namespace and not shared with this one (D14).
    SecretNotShared,
    /// The referenced coordinator does not exist.
    CoordinatorNotFound,
    /// An object of a child's name is controlled by someone else (D01).
    Conflict,
    /// The operator lacks a permission.
    Forbidden,
    /// The API server or a policy refused a child.
    Rejected,
    /// The API server could not be reached, timed out or failed.
    ApplyFailed,
    /// Every child of a new generation was applied.
    SpecApplied,
    /// The workload does not exist yet, or its controller has not reported on its present generation.
    WaitingForWorkload,
    /// The workload controller found no node to run on.
    NoMatchingNodes,
    /// The spec asks for no replica.
    ScaledToZero,
    /// Instances come up for the first time.
    InstancesStarting,
    /// Instances of an old revision are being replaced.
    RollingUpdate,
    /// Nodes joined an engine that was ready, and their instances come up.
    NodesJoining,
    /// More replicas are wanted than there were, and they come up.
    ScalingUp,
    /// Instances that had been ready before are brought up again.
    InstancesReturning,
    /// Every desired instance runs the current revision and is available.
    AllInstancesReady,
    /// A pod was refused at admission.
    AdmissionRefused,
    /// An image cannot be pulled.
    ImagePullFailed,
    /// A container cannot be created.
    ContainerCreateFailed,
    /// A volume cannot be mounted.
    VolumeMountFailed,
    /// A container was killed for its memory limit.
    OomKilled,
    /// The startup probe gave up.
    StartupProbeFailed,
    /// A container ends again and again.
    CrashLooping,
    /// No node takes a pod.
    Unschedulable,
    /// A node does not report to the control plane.
    NodeNotReady,
    /// An instance that had been ready is not.
    InstanceLost,
    /// A rollout came no further for longer than the progress deadline.
    ProgressDeadlineExceeded,
}

impl Reason {
    /// Every reason, in the order of declaration.
    pub const ALL: [Reason; 31] = [
        Reason::Applying,
        Reason::InvalidSpec,
        Reason::SecretNotFound,
        Reason::SecretKeyMissing,
        Reason::SecretNotShared,
        Reason::CoordinatorNotFound,
        Reason::Conflict,
        Reason::Forbidden,
        Reason::Rejected,
        Reason::ApplyFailed,
        Reason::SpecApplied,
        Reason::WaitingForWorkload,
        Reason::NoMatchingNodes,
        Reason::ScaledToZero,
        Reason::InstancesStarting,
        Reason::RollingUpdate,
        Reason::NodesJoining,
        Reason::ScalingUp,
        Reason::InstancesReturning,
        Reason::AllInstancesReady,
        Reason::AdmissionRefused,
        Reason::ImagePullFailed,
        Reason::ContainerCreateFailed,
        Reason::VolumeMountFailed,
        Reason::OomKilled,
        Reason::StartupProbeFailed,
        Reason::CrashLooping,
        Reason::Unschedulable,
        Reason::NodeNotReady,
        Reason::InstanceLost,
        Reason::ProgressDeadlineExceeded,
    ];

    /// The word as it stands in the status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Applying => "Applying",
            Reason::InvalidSpec => "InvalidSpec",
            Reason::SecretNotFound => "SecretNotFound",
            Reason::SecretKeyMissing => "SecretKeyMissing",
            Reason::SecretNotShared => "SecretNotShared",
            Reason::CoordinatorNotFound => "CoordinatorNotFound",
            Reason::Conflict => "Conflict",
            Reason::Forbidden => "Forbidden",
            Reason::Rejected => "Rejected",
            Reason::ApplyFailed => "ApplyFailed",
            Reason::SpecApplied => "SpecApplied",
            Reason::WaitingForWorkload => "WaitingForWorkload",
            Reason::NoMatchingNodes => "NoMatchingNodes",
            Reason::ScaledToZero => "ScaledToZero",
            Reason::InstancesStarting => "InstancesStarting",
            Reason::RollingUpdate => "RollingUpdate",
            Reason::NodesJoining => "NodesJoining",
            Reason::ScalingUp => "ScalingUp",
            Reason::InstancesReturning => "InstancesReturning",
            Reason::AllInstancesReady => "AllInstancesReady",
            Reason::AdmissionRefused => "AdmissionRefused",
            Reason::ImagePullFailed => "ImagePullFailed",
            Reason::ContainerCreateFailed => "ContainerCreateFailed",
            Reason::VolumeMountFailed => "VolumeMountFailed",
            Reason::OomKilled => "OOMKilled",
            Reason::StartupProbeFailed => "StartupProbeFailed",
            Reason::CrashLooping => "CrashLooping",
            Reason::Unschedulable => "Unschedulable",
            Reason::NodeNotReady => "NodeNotReady",
            Reason::InstanceLost => "InstanceLost",
            Reason::ProgressDeadlineExceeded => "ProgressDeadlineExceeded",
        }
    }

    /// The reason that is written as `word`; `None` when there is none.
    pub fn parse(word: &str) -> Option<Reason> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }

    /// Whether waiting does not heal it: someone has to change the spec, an object or a permission, or look at a rollout
    /// that is stuck. Degraded for such a reason sets condition `Stalled`.
    pub const fn stalls(self) -> bool {
        matches!(
            self,
            Reason::InvalidSpec
                | Reason::Conflict
                | Reason::Forbidden
                | Reason::Rejected
                | Reason::ProgressDeadlineExceeded
        )
    }

    /// Whether it keeps the children of the spec from being applied.
    pub const fn blocks_apply(self) -> bool {
        matches!(
            self,
            Reason::Applying
                | Reason::InvalidSpec
                | Reason::SecretNotFound
                | Reason::SecretKeyMissing
                | Reason::SecretNotShared
                | Reason::CoordinatorNotFound
                | Reason::Conflict
                | Reason::Forbidden
                | Reason::Rejected
                | Reason::ApplyFailed
        )
    }

    /// Whether it says why instances are coming up.
    pub(crate) const fn explains_rolling(self) -> bool {
        matches!(
            self,
            Reason::InstancesStarting
                | Reason::RollingUpdate
                | Reason::NodesJoining
                | Reason::ScalingUp
                | Reason::InstancesReturning
        )
    }

    /// Whether a phase on the way may rest there for ever because the spec says so.
    pub(crate) const fn is_at_rest(self) -> bool {
        matches!(self, Reason::ScaledToZero)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
