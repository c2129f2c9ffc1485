//! Annotations that the KWOK stages in `stages/` read from pods and nodes.

/// How long after its containers started a pod gets ready: a Go duration such as `2s`. Without it, a pod is ready at once.
pub const READY_AFTER: &str = "testbed.lmcache.ai/ready-after";
/// `"true"`: the pod runs and does not get ready until the annotation is removed from it.
pub const HOLD: &str = "testbed.lmcache.ai/hold";
/// `"true"` on a live pod: it is no longer ready, until the annotation is removed.
pub const LOSE: &str = "testbed.lmcache.ai/lose";
/// The pod fails like this until the annotation is removed: one of [`fail`], or any other waiting reason of a container.
pub const FAIL: &str = "testbed.lmcache.ai/fail";
/// Replaces the message of the waiting container of a failing pod.
pub const MESSAGE: &str = "testbed.lmcache.ai/message";
/// Exit code of a container in `CrashLoopBackOff`; 1 without it.
pub const EXIT_CODE: &str = "testbed.lmcache.ai/exit-code";
/// How long a deleted pod stays terminating: a Go duration. Without it, it is gone at once.
pub const TERMINATE_AFTER: &str = "testbed.lmcache.ai/terminate-after";
/// `"true"` on a node: its kubelet no longer reports. See [`Cluster::set_node_ready`](crate::Cluster::set_node_ready).
pub const NODE_NOT_READY: &str = "testbed.lmcache.ai/not-ready";

/// Values of [`FAIL`] with container statuses as a kubelet writes them.
pub mod fail {
    /// The image could not be pulled, and the kubelet waits before it tries again.
    pub const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
    /// The image could not be pulled just now.
    pub const ERR_IMAGE_PULL: &str = "ErrImagePull";
    /// The container ends again and again ([`EXIT_CODE`](super::EXIT_CODE)).
    pub const CRASH_LOOP_BACK_OFF: &str = "CrashLoopBackOff";
    /// As a crash loop, but the kernel killed the container for its memory limit (exit code 137).
    pub const OOM_KILLED: &str = "OOMKilled";
    /// A `Secret` or `ConfigMap`, or a key in it, is missing.
    pub const CREATE_CONTAINER_CONFIG_ERROR: &str = "CreateContainerConfigError";
    /// The startup probe gave up: the container was killed (137) and has been started again.
    pub const STARTUP_PROBE: &str = "StartupProbe";
}
