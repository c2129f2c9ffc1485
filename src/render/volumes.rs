//! Volumes of the engine pods and their mounts in the engine container.

use k8s_openapi::api::core::v1::{HostPathVolumeSource, KeyToPath, SecretVolumeSource, Volume, VolumeMount};
use lmcache_crds::WorkloadSpec;

use super::adapter::{KEY_DIRECTORY, MASTER_KEY};
use super::context::Context;

/// Volume that shares `/dev/shm` with the node.
const SHARED_MEMORY: &str = "lmcache-dev-shm";
/// Where it is, on the node and in containers.
pub const SHARED_MEMORY_PATH: &str = "/dev/shm";
/// Volume with the master key of the second level.
const MASTER_KEY_VOLUME: &str = "l2-master-key";
/// Read by its owner only (0400).
const MASTER_KEY_MODE: i32 = 0o400;

/// The user's volumes, then the operator's.
pub fn volumes(context: &Context<'_>) -> Vec<Volume> {
    let mut volumes = context.spec.workload.volumes.clone().unwrap_or_default();
    if shares_memory(context) {
        let host_path =
            HostPathVolumeSource { path: SHARED_MEMORY_PATH.to_owned(), type_: Some("Directory".to_owned()) };
        volumes.push(Volume { name: SHARED_MEMORY.to_owned(), host_path: Some(host_path), ..Volume::default() });
    }
    if let Some(aesgcm) = context.spec.aesgcm() {
        let item = KeyToPath { key: MASTER_KEY.to_owned(), path: MASTER_KEY.to_owned(), mode: None };
        let secret = SecretVolumeSource {
            secret_name: Some(aesgcm.master_key_secret_ref.name.clone()),
            items: Some(vec![item]),
            default_mode: Some(MASTER_KEY_MODE),
            optional: None,
        };
        volumes.push(Volume { name: MASTER_KEY_VOLUME.to_owned(), secret: Some(secret), ..Volume::default() });
    }
    volumes
}

/// The user's mounts, then the operator's.
pub fn mounts(context: &Context<'_>) -> Vec<VolumeMount> {
    let mut mounts = context.spec.workload.volume_mounts.clone().unwrap_or_default();
    if shares_memory(context) {
        mounts.push(mount(SHARED_MEMORY, SHARED_MEMORY_PATH, None));
    }
    if context.spec.aesgcm().is_some() {
        mounts.push(mount(MASTER_KEY_VOLUME, KEY_DIRECTORY, Some(true)));
    }
    mounts
}

fn mount(name: &str, path: &str, read_only: Option<bool>) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), read_only, ..VolumeMount::default() }
}

/// Engine and vLLM exchange data through the node's `/dev/shm`, unless they do without, share the node's IPC namespace
/// anyway, or the user has arranged it. Volume and mount come together or not at all.
fn shares_memory(context: &Context<'_>) -> bool {
    !context.isolated_ipc && !context.host_ipc() && !arranges_shared_memory(&context.spec.workload)
}

/// Whether a volume or mount of the user takes the place of the operator's at `/dev/shm`.
pub fn arranges_shared_memory(spec: &WorkloadSpec) -> bool {
    let mounted = spec.volume_mounts.iter().flatten().any(|mount| mount.mount_path == SHARED_MEMORY_PATH);
    mounted || spec.volumes.iter().flatten().any(|volume| volume.name == SHARED_MEMORY)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::Resolved;
    use super::super::testing::{spec, with_context};
    use super::*;

    fn both(fields: Value) -> (Value, Value) {
        with_context(&spec(fields), &Resolved::default(), |context| (json!(volumes(&context)), json!(mounts(&context))))
    }

    fn shared() -> (Value, Value) {
        (
            json!({"name": "lmcache-dev-shm", "hostPath": {"path": "/dev/shm", "type": "Directory"}}),
            json!({"name": "lmcache-dev-shm", "mountPath": "/dev/shm"}),
        )
    }

    #[rstest]
    #[case::nvidia(json!({}))]
    #[case::amd_isolated(json!({"gpuVendor": "amd", "isolatedIPC": true, "hostIPC": true}))]
    #[case::host_ipc(json!({"gpuVendor": "amd", "hostIPC": true}))]
    fn nothing_is_shared_when_it_is_not_needed(#[case] fields: Value) {
        assert_eq!(both(fields), (json!([]), json!([])));
    }

    #[rstest]
    #[case::amd(json!({"gpuVendor": "amd"}))]
    #[case::nvidia_legacy(json!({"isolatedIPC": false}))]
    fn legacy_ipc_shares_the_memory_of_the_node(#[case] fields: Value) {
        let (volume, mount) = shared();
        assert_eq!(both(fields), (json!([volume]), json!([mount])));
    }

    #[rstest]
    #[case::mount(json!([{"name": "shm", "hostPath": {"path": "/dev/shm"}}]), json!([{"name": "shm", "mountPath": "/dev/shm"}]))]
    #[case::name(json!([{"name": "lmcache-dev-shm", "emptyDir": {}}]), json!([]))]
    fn a_users_own_arrangement_is_left_alone(#[case] volumes: Value, #[case] mounts: Value) {
        let fields = json!({"isolatedIPC": false, "volumes": volumes, "volumeMounts": mounts});
        assert_eq!(both(fields), (volumes, mounts));
    }

    #[test]
    fn the_users_come_first_then_shared_memory_then_the_key() {
        let (volume, mount) = shared();
        let (data, at) = (json!({"name": "data", "emptyDir": {}}), json!({"name": "data", "mountPath": "/data"}));
        let serde = json!({"aesgcm": {"masterKeySecretRef": {"name": "k"}}});
        let fields = json!({
            "isolatedIPC": false, "volumes": [data], "volumeMounts": [at],
            "l2Backend": {"raw": {"type": "fs"}, "serde": serde},
        });
        let secret = json!({"secretName": "k", "items": [{"key": "master", "path": "master"}], "defaultMode": 256});
        let key = json!({"name": "l2-master-key", "secret": secret});
        let key_mount = json!({"name": "l2-master-key", "mountPath": "/etc/lmcache/keys", "readOnly": true});
        assert_eq!(both(fields), (json!([data, volume, key]), json!([at, mount, key_mount])));
    }
}
