//! What an injected pod looks like, rule by rule.

use rstest::rstest;
use serde_json::{Value, json};

use super::super::testing::*;
use super::super::*;

use Injector::{CacheBlend, LmCache};

/// The vLLM container and the spec of the pod that comes of an injection.
fn after(injector: Injector, container: &Value, spec: &Value, change: impl FnOnce(&mut EngineView)) -> (Value, Value) {
    let mut engine = engine(injector);
    change(&mut engine);
    let (result, _) = injected(&pod(injector, container, spec), injector, engine);
    (result["spec"]["containers"][0].clone(), result["spec"].clone())
}

fn memory() -> Value {
    json!({"name": "lmcache-dev-shm", "emptyDir": {"medium": "Memory"}})
}

fn of_node() -> Value {
    json!({"name": "lmcache-dev-shm", "hostPath": {"path": "/dev/shm", "type": "Directory"}})
}

#[rstest]
#[case::isolated(true, false, json!({}), json!([memory()]), Value::Null)]
#[case::isolated_wins(true, true, json!({}), json!([memory()]), Value::Null)]
#[case::host(false, true, json!({}), Value::Null, json!(true))]
#[case::host_again(false, true, json!({"hostIPC": true}), Value::Null, json!(true))]
#[case::host_after_all(false, true, json!({"hostIPC": false}), Value::Null, json!(true))]
#[case::legacy(false, false, json!({}), json!([of_node()]), Value::Null)]
#[case::never_reset(true, false, json!({"hostIPC": true}), Value::Null, json!(true))]
#[case::legacy_in_host(false, false, json!({"hostIPC": true}), Value::Null, json!(true))]
fn memory_is_shared_as_the_engine_wants(
    #[case] isolated_ipc: bool,
    #[case] host_ipc: bool,
    #[case] spec: Value,
    #[case] volumes: Value,
    #[case] expected: Value,
) {
    let (container, spec) = after(LmCache, &json!({}), &spec, |engine| {
        engine.isolated_ipc = isolated_ipc;
        engine.host_ipc = host_ipc;
    });
    assert_eq!((&spec["volumes"], &spec["hostIPC"]), (&volumes, &expected));
    let mount = json!([{"name": "lmcache-dev-shm", "mountPath": "/dev/shm"}]);
    assert_eq!(container["volumeMounts"], if volumes.is_null() { Value::Null } else { mount });
}

#[rstest]
#[case(true, memory())]
#[case(false, of_node())]
#[case(false, json!({"name": "lmcache-dev-shm", "hostPath": {"path": "/dev/shm/"}}))]
fn a_volume_of_ours_is_mounted_and_not_added_twice(#[case] isolated_ipc: bool, #[case] volume: Value) {
    let volumes = json!([volume]);
    let (container, spec) =
        after(LmCache, &json!({}), &json!({"volumes": volumes}), |engine| engine.isolated_ipc = isolated_ipc);
    assert_eq!(spec["volumes"], volumes);
    assert_eq!(container["volumeMounts"], json!([{"name": "lmcache-dev-shm", "mountPath": "/dev/shm"}]));
}

#[rstest]
#[case::pods_choice(Some("b"), Some("c"), 1)]
#[case::engines_choice(None, Some("c"), 2)]
#[case::first(None, None, 0)]
#[case::empty_is_none(Some(" "), Some(""), 0)]
fn the_container_is_the_pods_choice_then_the_engines_then_the_first(
    #[case] of_pod: Option<&str>,
    #[case] of_engine: Option<&str>,
    #[case] index: usize,
) {
    let containers = json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]});
    let mut pod = pod(LmCache, &json!({}), &containers);
    if let Some(name) = of_pod {
        pod = annotated(pod, LmCache.names().container, name);
    }
    let mut engine = engine(LmCache);
    engine.target_container = of_engine.map(str::to_owned);
    let (result, _) = injected(&pod, LmCache, engine);
    let changed: Vec<bool> =
        result["spec"]["containers"].as_array().unwrap().iter().map(|it| it.get("args").is_some()).collect();
    assert_eq!(changed, [index == 0, index == 1, index == 2]);
}

#[rstest]
#[case(json!(null), json!([{"name": "PYTHONHASHSEED", "value": "0"}]))]
#[case(json!([{"name": "A", "value": "a"}]), json!([{"name": "A", "value": "a"}, {"name": "PYTHONHASHSEED", "value": "0"}]))]
#[case(json!([{"name": "PYTHONHASHSEED", "value": "7"}]), json!([{"name": "PYTHONHASHSEED", "value": "7"}]))]
#[case(json!([{"name": "PYTHONHASHSEED", "valueFrom": {}}]), json!([{"name": "PYTHONHASHSEED", "valueFrom": {}}]))]
fn the_hash_seed_is_set_unless_the_pod_says_otherwise(#[case] env: Value, #[case] expected: Value) {
    assert_eq!(after(LmCache, &json!({"env": env}), &json!({}), |_| {}).0["env"], expected);
}

#[rstest]
#[case::absent(json!([]), json!({"name": "PYTHONPATH", "value": "/lmcache-payload"}))]
#[case::given(json!([{"name": "PYTHONPATH", "value": "/x:/y"}]), json!({"name": "PYTHONPATH", "value": "/lmcache-payload:/x:/y"}))]
#[case::empty(json!([{"name": "PYTHONPATH", "value": ""}]), json!({"name": "PYTHONPATH", "value": "/lmcache-payload"}))]
#[case::no_value(json!([{"name": "PYTHONPATH"}]), json!({"name": "PYTHONPATH", "value": "/lmcache-payload"}))]
#[case::null_source(json!([{"name": "PYTHONPATH", "value": "/x", "valueFrom": null}]),
    json!({"name": "PYTHONPATH", "value": "/lmcache-payload:/x", "valueFrom": null}))]
#[case::there_already(json!([{"name": "PYTHONPATH", "value": "/lmcache-payload:/x"}]), json!({"name": "PYTHONPATH", "value": "/lmcache-payload:/x"}))]
fn the_payload_comes_first_on_the_python_path(#[case] env: Value, #[case] expected: Value) {
    let (container, _) =
        after(LmCache, &json!({"env": env}), &json!({}), |engine| engine.payload_image = Some(payload_image()));
    let env = container["env"].as_array().unwrap();
    let found: Vec<&Value> = env.iter().filter(|entry| entry["name"] == "PYTHONPATH").collect();
    assert_eq!(found, [&expected]);
}

#[test]
fn of_two_python_paths_the_one_that_counts_is_changed() {
    let env = json!([{"name": "PYTHONPATH", "valueFrom": {}}, {"name": "PYTHONPATH", "value": "/x"}]);
    let (container, _) = after(CacheBlend, &json!({"env": env}), &json!({}), |_| {});
    assert_eq!(container["env"][0], env[0]);
    assert_eq!(container["env"][1]["value"], "/cb-plugin:/x");
}

#[rstest]
fn a_payload_is_staged_before_vllm_starts(#[values(CacheBlend, LmCache)] injector: Injector) {
    let names = injector.names();
    let (volume, path) = (names.payload_volume, names.payload_path);
    let spec = json!({"initContainers": [{"name": "first"}]});
    let (container, spec) = after(injector, &json!({}), &spec, |engine| engine.payload_image = Some(payload_image()));
    assert_eq!(spec["volumes"][1], json!({"name": volume, "emptyDir": {}}));
    assert_eq!(container["volumeMounts"][1], json!({"name": volume, "mountPath": path, "readOnly": true}));
    assert_eq!(
        spec["initContainers"],
        json!([{"name": "first"}, {
            "name": names.payload_stage,
            "image": "r/p:1",
            "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "SHARED_DIR", "value": path}],
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [{"name": volume, "mountPath": path}],
        }])
    );
}

#[rstest]
#[case::pod(json!({}), json!({"runAsNonRoot": true, "runAsUser": 7}), json!({"runAsNonRoot": true}))]
#[case::container(json!({"runAsNonRoot": true, "runAsUser": 7, "runAsGroup": 8, "privileged": false}), json!({}),
    json!({"runAsNonRoot": true, "runAsUser": 7, "runAsGroup": 8}))]
#[case::nobody(json!({"runAsNonRoot": false, "runAsUser": 7}), json!({"fsGroup": 1}), json!({}))]
fn the_stage_avoids_root_when_the_pod_does(#[case] container: Value, #[case] pod: Value, #[case] expected: Value) {
    let (container, pod) = (json!({"securityContext": container}), json!({"securityContext": pod}));
    let (_, spec) = after(CacheBlend, &container, &pod, |_| {});
    let mut security = spec["initContainers"][0]["securityContext"].as_object().unwrap().clone();
    security.retain(|key, _| key.starts_with("runAs"));
    assert_eq!(Value::Object(security), expected);
}

#[rstest]
fn what_is_staged_already_is_used(#[values(CacheBlend, LmCache)] injector: Injector) {
    let mut engine = engine(injector);
    engine.payload_image = Some(payload_image());
    let names = injector.names();
    let (mut result, _) = injected(&pod(injector, &json!({}), &json!({})), injector, engine.clone());
    // As a pod that was cloned from an injected one, after the API server filled in its defaults.
    result["metadata"]["annotations"].as_object_mut().unwrap().remove(names.injected);
    result["spec"]["initContainers"][0]["resources"] = json!({});
    result["spec"]["initContainers"][0]["volumeMounts"].as_array_mut().unwrap().push(json!({"name": "token"}));
    let (again, _) = injected(&result, injector, engine);
    assert_eq!(again["spec"], result["spec"]);
}

#[rstest]
#[case::engines(None, json!(null), json!([{"name": "s"}, {"name": "t"}]))]
#[case::added(None, json!([{"name": "t"}, {"name": "own"}]), json!([{"name": "t"}, {"name": "own"}, {"name": "s"}]))]
#[case::pods(Some(" a, ,b,a "), json!(null), json!([{"name": "a"}, {"name": "b"}]))]
#[case::blank(Some("  "), json!(null), json!([{"name": "s"}, {"name": "t"}]))]
#[case::none_after_all(Some(","), json!([{"name": "own"}]), json!([{"name": "own"}]))]
fn pull_secrets_are_the_pods_or_the_engines(#[case] list: Option<&str>, #[case] own: Value, #[case] expected: Value) {
    let mut pod = pod(CacheBlend, &json!({}), &json!({"imagePullSecrets": own}));
    if let Some(list) = list {
        pod = annotated(pod, CacheBlend.names().pull_secrets, list);
    }
    let mut engine = engine(CacheBlend);
    engine.pull_secrets = vec!["s".into(), "t".into(), "s".into()];
    assert_eq!(injected(&pod, CacheBlend, engine).0["spec"]["imagePullSecrets"], expected);
}

#[test]
fn without_a_payload_pull_secrets_stay_away() {
    let (_, spec) = after(LmCache, &json!({}), &json!({}), |engine| engine.pull_secrets = vec!["s".into()]);
    assert_eq!(spec.get("imagePullSecrets"), None);
}

fn side_channel(port: &str) -> [Value; 2] {
    let host = json!({"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
    [host, json!({"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": port})]
}

#[rstest]
#[case(LmCache, "prefiller", "{prefiller}")]
#[case(LmCache, "decoder", "{decoder}")]
#[case(CacheBlend, "prefiller", "{prefiller}")]
#[case(CacheBlend, " decoder ", "{decoder}")]
fn a_role_brings_its_document_and_a_side_channel(
    #[case] injector: Injector,
    #[case] role: &str,
    #[case] document: &str,
) {
    let mut engine = engine(injector);
    engine.pd = Some(Pd { nixl_port: 6000 });
    let pod = annotated(pod(injector, &json!({}), &json!({})), PD_ROLE, role);
    let (result, _) = injected(&pod, injector, engine);
    let container = &result["spec"]["containers"][0];
    assert_eq!(container["args"][1], document);
    let env = container["env"].as_array().unwrap();
    let [host, port] = side_channel("6000");
    assert!(env.contains(&host) && env.contains(&port), "{env:?}");
    assert_eq!(result["metadata"]["annotations"][CONFIG_HASH], config_hash(document));
}

#[test]
fn a_side_channel_of_the_pod_wins() {
    let env = json!([{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "value": "h"}, {"name": "VLLM_NIXL_SIDE_CHANNEL_PORT", "value": "1"}]);
    let pod = annotated(pod(CacheBlend, &json!({"env": env}), &json!({})), PD_ROLE, "decoder");
    let mut engine = engine(CacheBlend);
    engine.pd = Some(Pd { nixl_port: 6000 });
    let (result, _) = injected(&pod, CacheBlend, engine);
    let after = result["spec"]["containers"][0]["env"].as_array().unwrap();
    assert_eq!(after[..2], env.as_array().unwrap()[..]);
    assert_eq!(after.len(), 3, "{after:?}");
}

#[test]
fn a_decoder_of_a_cache_blend_engine_gets_the_connection_and_nothing_else() {
    let mut engine = engine(CacheBlend);
    engine.pd = Some(Pd { nixl_port: 5558 });
    engine.host_ipc = true;
    engine.pull_secrets = vec!["s".into()];
    let container = json!({"args": ["m1"], "volumeMounts": [{"name": "s", "mountPath": "/dev/shm"}]});
    let spec = json!({"volumes": [{"name": "s", "emptyDir": {}}, {"name": "cb-plugin", "hostPath": {"path": "/x"}}]});
    let before = annotated(pod(CacheBlend, &container, &spec), PD_ROLE, "decoder");
    let (result, _) = injected(&before, CacheBlend, engine);
    let mut expected = before;
    let [host, port] = side_channel("5558");
    expected["spec"]["containers"][0]["args"] = json!(["m1", "--kv-transfer-config", "{decoder}"]);
    expected["spec"]["containers"][0]["env"] = json!([host, port, {"name": "PYTHONHASHSEED", "value": "0"}]);
    assert_eq!(result["spec"], expected["spec"]);
}

#[rstest]
#[case(Cudagraph::Eager, json!(["m1"]), json!(["--enforce-eager"]), 0)]
#[case(Cudagraph::Piecewise, json!(["m1"]), json!([]), 0)]
#[case(Cudagraph::FullDecodeOnly, json!(["m1"]), json!(["--compilation-config", "{\"cudagraph_mode\":\"FULL_DECODE_ONLY\"}"]), 0)]
#[case(Cudagraph::Piecewise, json!(["--enforce-eager"]), json!([]), 1)]
#[case(Cudagraph::FullDecodeOnly, json!(["--enforce-eager"]), json!(["--compilation-config", "{\"cudagraph_mode\":\"FULL_DECODE_ONLY\"}"]), 1)]
#[case(Cudagraph::Eager, json!(["--no-enforce-eager"]), json!(["--enforce-eager"]), 1)]
#[case(Cudagraph::Piecewise, json!(["--enforce-eager", "--no-enforce-eager"]), json!([]), 0)]
fn cuda_graphs_are_captured_as_the_engine_wants(
    #[case] mode: Cudagraph,
    #[case] args: Value,
    #[case] expected: Value,
    #[case] warnings: usize,
) {
    let mut engine = engine(CacheBlend);
    engine.cudagraph = mode;
    let (result, told) = injected(&pod(CacheBlend, &json!({"args": args}), &json!({})), CacheBlend, engine);
    let ours = ["--kv-transfer-config", DOCUMENT, "--no-enable-chunked-prefill", "--pipeline-parallel-size", "1"];
    let all = [args.as_array().unwrap().clone(), ours.map(Value::from).to_vec(), expected.as_array().unwrap().clone()];
    assert_eq!(result["spec"]["containers"][0]["args"], json!(all.concat()));
    assert_eq!(told.len(), warnings, "{told:?}");
}

#[test]
fn what_blending_cannot_do_is_overruled_with_a_warning() {
    let args = json!(["m1", "--pipeline_parallel_size=4", "--enable-chunked-prefill"]);
    let (result, warnings) =
        injected(&pod(CacheBlend, &json!({"args": args}), &json!({})), CacheBlend, engine(CacheBlend));
    assert_eq!(
        result["spec"]["containers"][0]["args"],
        json!([
            "m1",
            "--pipeline_parallel_size=1",
            "--enable-chunked-prefill",
            "--kv-transfer-config",
            DOCUMENT,
            "--no-enable-chunked-prefill",
            "--enforce-eager",
        ])
    );
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("--enable-chunked-prefill") && warnings[1].contains("\"4\""), "{warnings:?}");
}

#[test]
fn both_injectors_share_one_pod() {
    let mut pod = pod(CacheBlend, &json!({"args": ["m1"]}), &json!({}));
    pod = annotated(pod, LmCache.names().engine, "c1");
    let (first, _) = injected(&pod, CacheBlend, engine(CacheBlend));
    let mut other = engine(LmCache);
    other.payload_image = Some(payload_image());
    let (second, _) = injected(&first, LmCache, other);
    let container = &second["spec"]["containers"][0];
    assert_eq!(container["args"], first["spec"]["containers"][0]["args"]);
    assert_eq!(container["env"][0], json!({"name": "PYTHONPATH", "value": "/lmcache-payload:/cb-plugin"}));
    let names: Vec<&Value> = second["spec"]["volumes"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["lmcache-dev-shm", "cb-plugin", "lmcache-payload"]);
    let annotations = &second["metadata"]["annotations"];
    assert_eq!(annotations[CacheBlend.names().injected], "true");
    assert_eq!(annotations[LmCache.names().skip_reason], "kv-transfer-config-present");
    assert_eq!(annotations[CONFIG_HASH], config_hash(DOCUMENT));
}
