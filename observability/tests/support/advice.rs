//! What a person does about each reason. A reason that is added does not compile until it is told here.

use lmcache_states::Reason;

/// One or two sentences for the person on call; empty where nothing needs to be done.
pub const fn advice(reason: Reason) -> &'static str {
    match reason {
        Reason::Applying
        | Reason::SpecApplied
        | Reason::InstancesStarting
        | Reason::RollingUpdate
        | Reason::ScaledToZero
        | Reason::AllInstancesReady => "",
        Reason::InvalidSpec => "Correct the fields that condition `ConfigValid` lists. What ran before still runs.",
        Reason::SecretNotFound => "Create the Secret that the message names, or correct the reference.",
        Reason::SecretKeyMissing => "Add the key that the message names to the Secret; its value must not be empty.",
        Reason::SecretNotShared => {
            "Let the owner of the Secret annotate it with `lmcache.ai/share-with`, or copy it into the engine's namespace."
        }
        Reason::CoordinatorNotFound => {
            "Create the LMCacheCoordinator that the message names, or correct `spec.coordinator`."
        }
        Reason::Conflict => {
            "Rename the engine, delete the object that the message names, or hand it over with the annotation \
             `lmcache.ai/adopt: \"true\"`."
        }
        Reason::Forbidden => {
            "Compare the operator's ClusterRole with `deploy/base/manager_role.yaml`; the message names what is refused."
        }
        Reason::Rejected => {
            "Read the API server's words in the message: a policy, a quota or a field that it does not accept."
        }
        Reason::ApplyFailed => "Look at the health of the API server. The operator tries again by itself.",
        Reason::WaitingForWorkload => {
            "If it stays for more than a few seconds, look at the kube-controller-manager: it does not work on the DaemonSet."
        }
        Reason::NoMatchingNodes => {
            "Compare `spec.nodeSelector` with the labels of the nodes (`kubectl get nodes --show-labels`)."
        }
        Reason::NodesJoining | Reason::ScalingUp | Reason::InstancesReturning => {
            "Nothing, unless it stays: then as for `InstancesStarting`."
        }
        Reason::AdmissionRefused => {
            "The message has the API server's words: create the RuntimeClass, or change Pod Security or the quota of the namespace."
        }
        Reason::ImagePullFailed => {
            "Check `spec.image`, and the pull secret or the registry that the message names. Unreachable from one node only: that node."
        }
        Reason::ContainerCreateFailed => "Create what the container refers to; the message names it.",
        Reason::VolumeMountFailed => {
            "Create the volume's source, or look at its CSI driver on the node that the message names."
        }
        Reason::OomKilled => "Raise the memory limit in `spec.resourceOverrides`, or lower `spec.l1.sizeGB`.",
        Reason::StartupProbeFailed => {
            "Read the server's log: it did not listen within 5 s for every 5 GB of `spec.l1.sizeGB` (at least 150 s)."
        }
        Reason::CrashLooping => {
            "Read the log of the last run with the command in the message (`kubectl logs --previous`)."
        }
        Reason::Unschedulable => "Make room as the scheduler's words in the message say: GPU, memory, taints.",
        Reason::NodeNotReady => "Look at the node that the message names; the engine heals when it is back or removed.",
        Reason::InstanceLost => "Look at the pod on the node that the message names: why did it stop being ready?",
        Reason::ProgressDeadlineExceeded => {
            "Look at what the message waits for. If it only needs longer, raise `spec.progressDeadlineSeconds`."
        }
    }
}
