//! How vLLM shares memory with the engine on its node.

use serde_json::{Value, json};

use super::pod::{Pod, Target, name_of};
use super::presence::{is_host_path, missing_mount, missing_volume, path_of, text};
use super::reason::{Skip, SkipReason, shown};
use super::{EngineView, Injector};

/// Volume at [`SHM`].
const VOLUME: &str = "lmcache-dev-shm";
/// Where shared memory lives.
const SHM: &str = "/dev/shm";

/// What a pod needs to share memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ipc {
    /// The pod must join the node's IPC namespace.
    pub join_host: bool,
    pub volume: Option<Value>,
    pub mount: Option<Value>,
}

pub(super) fn plan(injector: Injector, engine: &EngineView, pod: &Pod<'_>, target: &Target<'_>) -> Result<Ipc, Skip> {
    let own = target.mounts.iter().find(|mount| path_of(mount).as_deref() == Some(SHM));
    if !engine.isolated_ipc
        && let Some(own) = own
        && !is_the_nodes(pod, own)
    {
        let (container, volume) = (shown(target.name), shown(name_of(own).unwrap_or_default()));
        let message = format!(
            "the engine shares {SHM} of the node, but container {container} mounts volume {volume} there, which is another one"
        );
        return Err(Skip { injector, reason: SkipReason::DevShmConflict, message });
    }
    let host_ipc = engine.host_ipc && !engine.isolated_ipc;
    if host_ipc || pod.host_ipc || own.is_some() {
        return Ok(Ipc { join_host: host_ipc && !pod.host_ipc, ..Ipc::default() });
    }
    let volume = if engine.isolated_ipc {
        json!({"name": VOLUME, "emptyDir": {"medium": "Memory"}})
    } else {
        json!({"name": VOLUME, "hostPath": {"path": SHM, "type": "Directory"}})
    };
    Ok(Ipc {
        join_host: false,
        volume: missing_volume(injector, pod, volume)?,
        mount: missing_mount(injector, target, json!({"name": VOLUME, "mountPath": SHM}))?,
    })
}

/// Whether a mount is the node's whole /dev/shm.
fn is_the_nodes(pod: &Pod<'_>, mount: &Value) -> bool {
    let volume = pod.volumes.iter().find(|volume| name_of(volume).is_some() && name_of(volume) == name_of(mount));
    let whole = ["subPath", "subPathExpr"].iter().all(|part| text(mount, part).is_none_or(str::is_empty));
    whole && is_host_path(volume, SHM)
}
