//! What stands in the way of an injection.

use rstest::rstest;
use serde_json::{Value, json};

use super::super::testing::*;
use super::super::*;

use Injector::{CacheBlend, LmCache};

/// The engine with a payload image.
fn staging(injector: Injector) -> EngineLookup {
    found(EngineView { payload_image: Some(payload_image()), ..engine(injector) })
}

#[rstest]
#[case::volume(json!({}), json!({"volumes": [{"name": "$volume", "hostPath": {"path": "/x"}}]}))]
#[case::volume_in_memory(json!({}), json!({"volumes": [{"name": "$volume", "emptyDir": {"medium": "Memory"}}]}))]
#[case::volume_with_limit(json!({}), json!({"volumes": [{"name": "$volume", "emptyDir": {"sizeLimit": "1Mi"}}]}))]
#[case::volume_of_nothing(json!({}), json!({"volumes": [{"name": "$volume"}]}))]
#[case::mount_elsewhere(json!({"volumeMounts": [{"name": "$volume", "mountPath": "/x"}]}), json!({}))]
#[case::mount_writable(json!({"volumeMounts": [{"name": "$volume", "mountPath": "$path"}]}), json!({}))]
#[case::mount_in_part(
    json!({"volumeMounts": [{"name": "$volume", "mountPath": "$path", "readOnly": true, "subPath": "x"}]}), json!({}))]
#[case::other_mount(json!({"volumeMounts": [{"name": "data", "mountPath": "$path"}]}), json!({}))]
#[case::other_mount_longer(json!({"volumeMounts": [{"name": "data", "mountPath": "/.$path//"}]}), json!({}))]
#[case::device(json!({"volumeDevices": [{"name": "data", "devicePath": "$path"}]}), json!({}))]
#[case::stage(json!({}), json!({"initContainers": [{"name": "$stage", "image": "other"}]}))]
#[case::stage_with_command(json!({}), json!({"initContainers": [{
    "name": "$stage", "image": "r/p:1", "command": ["x"], "env": [{"name": "SHARED_DIR", "value": "$path"}],
    "volumeMounts": [{"name": "$volume", "mountPath": "$path"}]}]}))]
#[case::container_of_that_name(json!({}), json!({"containers": [{"name": "vllm"}, {"name": "$stage", "image": "r/p:1"}]}))]
fn a_thing_in_our_place_is_a_reason(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[case] container: Value,
    #[case] spec: Value,
) {
    let names = injector.names();
    let filled = |value: &Value| -> Value {
        let text = value.to_string().replace("$volume", names.payload_volume).replace("$path", names.payload_path);
        serde_json::from_str(&text.replace("$stage", names.payload_stage)).unwrap()
    };
    let (reason, message) = skipped(&pod(injector, &filled(&container), &filled(&spec)), injector, &staging(injector));
    assert_eq!(reason, SkipReason::NameConflict);
    let named = [names.payload_volume, names.payload_path, names.payload_stage];
    assert!(named.iter().any(|name| message.contains(name)), "{message}");
    // Without a payload nothing of this is in the way.
    if injector == LmCache {
        injected(&pod(injector, &filled(&container), &filled(&spec)), injector, engine(injector));
    }
}

#[rstest]
#[case::other_source(json!({}), json!({"volumes": [{"name": "lmcache-dev-shm", "emptyDir": {}}]}))]
#[case::other_path(json!({}), json!({"volumes": [{"name": "lmcache-dev-shm", "hostPath": {"path": "/tmp"}}]}))]
#[case::mounted_elsewhere(
    json!({"volumeMounts": [{"name": "lmcache-dev-shm", "mountPath": "/x"}]}), json!({}))]
fn another_volume_of_the_name_for_shared_memory_is_a_reason(
    #[values(true, false)] isolated: bool,
    #[case] container: Value,
    #[case] spec: Value,
) {
    let engine = found(EngineView { isolated_ipc: isolated, ..engine(LmCache) });
    assert_eq!(skipped(&pod(LmCache, &container, &spec), LmCache, &engine).0, SkipReason::NameConflict);
}

#[rstest]
#[case::memory("/dev/shm", json!({"emptyDir": {"medium": "Memory"}}), json!({}), false)]
#[case::longer_path("//dev/./shm/", json!({"emptyDir": {}}), json!({}), false)]
#[case::other_directory("/dev/shm", json!({"hostPath": {"path": "/tmp"}}), json!({}), false)]
#[case::in_part("/dev/shm", json!({"hostPath": {"path": "/dev/shm"}}), json!({"subPath": "x"}), false)]
#[case::the_nodes("/dev/shm", json!({"hostPath": {"path": "/dev/shm"}}), json!({}), true)]
#[case::the_nodes_longer("/dev/shm/", json!({"hostPath": {"path": "/dev/shm/", "type": ""}}), json!({}), true)]
#[case::elsewhere("/dev/shm2", json!({"emptyDir": {}}), json!({}), true)]
fn shared_memory_of_the_node_must_not_be_covered(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[values(true, false)] host_ipc: bool,
    #[case] path: &str,
    #[case] source: Value,
    #[case] more: Value,
    #[case] fine: bool,
) {
    let (mut mount, mut volume) = (more, source);
    mount["name"] = json!("s");
    mount["mountPath"] = json!(path);
    volume["name"] = json!("s");
    let pod = pod(injector, &json!({"volumeMounts": [mount]}), &json!({"volumes": [volume]}));
    let mut engine = engine(injector);
    engine.host_ipc = host_ipc;
    engine.isolated_ipc = false;
    if fine {
        injected(&pod, injector, engine);
    } else {
        let (reason, message) = skipped(&pod, injector, &found(engine));
        assert_eq!(reason, SkipReason::DevShmConflict);
        assert!(message.contains("\"vllm\"") && message.contains("\"s\""), "{message}");
    }
}

#[test]
fn with_isolated_ipc_any_shared_memory_will_do() {
    let container = json!({"volumeMounts": [{"name": "s", "mountPath": "/dev/shm/"}]});
    let spec = json!({"volumes": [{"name": "s", "emptyDir": {}}]});
    let (result, _) = injected(&pod(LmCache, &container, &spec), LmCache, engine(LmCache));
    assert_eq!(result["spec"]["volumes"], spec["volumes"]);
    assert_eq!(result["spec"]["containers"][0]["volumeMounts"], container["volumeMounts"]);
}

#[rstest]
fn a_python_path_from_elsewhere_is_a_reason(#[values(CacheBlend, LmCache)] injector: Injector) {
    let from = json!({"configMapKeyRef": {"name": "c", "key": "k"}});
    let pod = pod(injector, &json!({"env": [{"name": "PYTHONPATH", "valueFrom": from}]}), &json!({}));
    assert_eq!(skipped(&pod, injector, &staging(injector)).0, SkipReason::PythonpathValueFrom);
    if injector == LmCache {
        injected(&pod, injector, engine(injector));
    }
}
