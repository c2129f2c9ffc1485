//! One test for every row of the table of answers.

use rstest::rstest;
use serde_json::{Value, json};

use super::super::testing::*;
use super::super::*;

use Injector::{CacheBlend, LmCache};

fn plain(injector: Injector) -> Value {
    pod(injector, &json!({"args": ["m1"]}), &json!({}))
}

/// The engine after a change.
fn with(injector: Injector, change: impl FnOnce(&mut EngineView)) -> EngineLookup {
    let mut engine = engine(injector);
    change(&mut engine);
    found(engine)
}

#[rstest]
fn what_is_not_opted_in_says_so(#[values(CacheBlend, LmCache)] injector: Injector) {
    let mut pod = plain(injector);
    pod["metadata"]["annotations"][injector.names().engine] = json!("  ");
    let (reason, message) = skipped(&pod, injector, &EngineLookup::NotFound);
    assert_eq!(reason, SkipReason::NotOptedIn);
    assert!(message.contains(injector.names().label) && message.contains(injector.names().engine), "{message}");
}

#[rstest]
fn an_injected_pod_is_left_alone(#[values(CacheBlend, LmCache)] injector: Injector) {
    let pod = annotated(plain(injector), injector.names().injected, "true");
    let (decision, result) = run(&pod, injector, &EngineLookup::NotFound);
    assert_eq!((decision, result), (Decision::AlreadyInjected, pod));
}

#[rstest]
#[case("c1", "there is no")]
#[case("ai/c1", "there is no")]
#[case("a/b/c", "names no")]
fn an_engine_that_is_absent_is_not_made_up(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[case] reference: &str,
    #[case] text: &str,
) {
    let pod = annotated(plain(injector), injector.names().engine, reference);
    let (reason, message) = skipped(&pod, injector, &EngineLookup::NotFound);
    assert_eq!(reason, SkipReason::EngineNotFound);
    assert!(message.contains(text) && message.contains(injector.names().kind), "{message}");
}

#[rstest]
fn an_engine_that_goes_or_is_invalid_takes_no_pods(#[values(CacheBlend, LmCache)] injector: Injector) {
    let pod = plain(injector);
    let terminating = with(injector, |engine| engine.terminating = true);
    assert_eq!(skipped(&pod, injector, &terminating).0, SkipReason::EngineTerminating);
    let invalid = with(injector, |engine| engine.invalid = Some("spec.l1.sizeGB: must be positive".into()));
    let (reason, message) = skipped(&pod, injector, &invalid);
    assert_eq!(reason, SkipReason::EngineInvalid);
    assert!(message.contains("ai/c1") && message.contains("spec.l1.sizeGB"), "{message}");
}

#[rstest]
#[case(None, false)]
#[case(Some(""), false)]
#[case(Some("b,c"), false)]
#[case(Some("ai"), true)]
#[case(Some("b, ai ,c"), true)]
#[case(Some("*"), true)]
#[case(Some("aix"), false)]
fn an_engine_of_another_namespace_must_be_shared(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[case] share_with: Option<&str>,
    #[case] expected: bool,
) {
    let pod = annotated(plain(injector), injector.names().engine, "other/c1");
    let mut engine = engine(injector);
    engine.namespace = "other".into();
    engine.share_with = share_with.map(str::to_owned);
    if expected {
        injected(&pod, injector, engine);
    } else {
        // Nothing else is told of an engine that is not shared.
        engine.terminating = true;
        let (reason, message) = skipped(&pod, injector, &found(engine));
        assert_eq!(reason, SkipReason::EngineNotShared);
        assert!(message.contains("other/c1") && message.contains("lmcache.ai/share-with"), "{message}");
    }
}

#[rstest]
fn the_connection_must_be_there_and_the_engines_own(#[values(CacheBlend, LmCache)] injector: Injector) {
    let pod = plain(injector);
    let absent = with(injector, |engine| engine.connection = None);
    let (reason, message) = skipped(&pod, injector, &absent);
    assert_eq!(reason, SkipReason::EngineNotFound);
    assert!(message.contains("c1-connection"), "{message}");
    let foreign = with(injector, |engine| engine.connection.as_mut().unwrap().controlled = false);
    assert_eq!(skipped(&pod, injector, &foreign).0, SkipReason::ConfigNotOwned);
}

#[rstest]
#[case(None, "kv-transfer-config.json")]
#[case(Some("prefiller"), "kv-transfer-config-prefiller.json")]
#[case(Some("decoder"), "kv-transfer-config-decoder.json")]
fn a_document_that_is_absent_or_empty_is_a_reason(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[values(true, false)] absent: bool,
    #[case] role: Option<&str>,
    #[case] key: &str,
) {
    let pod = role.map_or_else(|| plain(injector), |role| annotated(plain(injector), PD_ROLE, role));
    let engine = with(injector, |engine| {
        engine.pd = Some(Pd { nixl_port: 5558 });
        let data = &mut engine.connection.as_mut().unwrap().data;
        if absent {
            data.remove(key)
        } else {
            data.insert(key.to_owned(), String::new())
        };
    });
    let (reason, message) = skipped(&pod, injector, &engine);
    assert_eq!(reason, SkipReason::ConfigKeyMissing);
    assert!(message.ends_with(&format!("has no {key}")), "{message}");
}

#[rstest]
#[case("prefiller")]
#[case("both")]
fn a_role_that_the_engine_does_not_know_is_a_warning(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[case] role: &str,
) {
    let (without, _) = injected(&plain(injector), injector, engine(injector));
    let (mut result, warnings) = injected(&annotated(plain(injector), PD_ROLE, role), injector, engine(injector));
    result["metadata"]["annotations"].as_object_mut().unwrap().remove(PD_ROLE);
    assert_eq!(result, without);
    assert!(matches!(&warnings[..], [warning] if warning.contains(PD_ROLE) && warning.contains(role)), "{warnings:?}");
}

#[rstest]
fn a_role_that_nobody_knows_is_a_reason(#[values(CacheBlend, LmCache)] injector: Injector) {
    let engine = with(injector, |engine| engine.pd = Some(Pd { nixl_port: 5558 }));
    let (reason, message) = skipped(&annotated(plain(injector), PD_ROLE, "both"), injector, &engine);
    assert_eq!(reason, SkipReason::UnknownPdRole);
    assert!(message.contains("\"both\""), "{message}");
}

#[rstest]
fn a_pod_without_role_has_no_side_channel(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[values(None, Some(" "))] role: Option<&str>,
) {
    let mut disaggregated = engine(injector);
    disaggregated.pd = Some(Pd { nixl_port: 5558 });
    let pod = role.map_or_else(|| plain(injector), |role| annotated(plain(injector), PD_ROLE, role));
    let (result, _) = injected(&pod, injector, disaggregated);
    let (plain, _) = injected(&pod, injector, engine(injector));
    assert_eq!(result, plain);
}

#[rstest]
#[case(json!({"containers": []}), None, None)]
#[case(json!({"containers": null}), None, None)]
#[case(json!({}), Some("nope"), None)]
#[case(json!({}), None, Some("nope"))]
#[case(json!({"initContainers": [{"name": "nope"}]}), Some("nope"), Some("vllm"))]
fn a_container_that_is_not_there_is_a_reason(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[case] spec: Value,
    #[case] of_pod: Option<&str>,
    #[case] of_engine: Option<&str>,
) {
    let mut pod = pod(injector, &json!({}), &spec);
    if let Some(name) = of_pod {
        pod = annotated(pod, injector.names().container, name);
    }
    let engine = with(injector, |engine| engine.target_container = of_engine.map(str::to_owned));
    assert_eq!(skipped(&pod, injector, &engine).0, SkipReason::TargetContainerNotFound);
}

#[rstest]
#[case(json!({}), true)]
#[case(json!({"command": []}), true)]
#[case(json!({"command": null}), true)]
#[case(json!({"command": ["vllm", "serve", "m1"]}), true)]
#[case(json!({"command": ["/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server"]}), true)]
#[case(json!({"command": ["/bin/sh", "-c"], "args": ["exec vllm serve m1"]}), false)]
#[case(json!({"command": ["numactl", "vllm", "serve"]}), false)]
fn only_vllms_own_commands_are_injected(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[case] container: Value,
    #[case] expected: bool,
) {
    let pod = pod(injector, &container, &json!({}));
    if expected {
        let (result, _) = injected(&pod, injector, engine(injector));
        assert_eq!(result["spec"]["containers"][0]["command"], pod["spec"]["containers"][0]["command"]);
    } else {
        assert_eq!(skipped(&pod, injector, &found(engine(injector))).0, SkipReason::CommandOverride);
    }
}

#[rstest]
#[case(CacheBlend, None, false)]
#[case(CacheBlend, Some("prefiller"), false)]
#[case(CacheBlend, Some("decoder"), true)]
#[case(LmCache, None, true)]
#[case(LmCache, Some("prefiller"), true)]
fn only_a_pod_that_blends_needs_a_payload(#[case] injector: Injector, #[case] role: Option<&str>, #[case] fine: bool) {
    let pod = role.map_or_else(|| plain(injector), |role| annotated(plain(injector), PD_ROLE, role));
    let mut engine = engine(injector);
    engine.pd = Some(Pd { nixl_port: 5558 });
    engine.payload_image = None;
    if fine {
        let (result, _) = injected(&pod, injector, engine);
        assert_eq!(result["spec"].get("initContainers"), None);
    } else {
        assert_eq!(skipped(&pod, injector, &found(engine)).0, SkipReason::PayloadImageUnset);
    }
}

#[rstest]
fn success_is_stamped_and_takes_an_old_reason_away(#[values(CacheBlend, LmCache)] injector: Injector) {
    let names = injector.names();
    let pod = annotated(plain(injector), names.skip_reason, "engine-not-found");
    let (result, warnings) = injected(&pod, injector, engine(injector));
    assert_eq!(
        result["metadata"]["annotations"],
        json!({names.engine: "c1", names.injected: "true", CONFIG_HASH: config_hash(DOCUMENT)})
    );
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[rstest]
#[case(json!({"args": ["m1", "--kv-transfer-config", "{}"]}))]
#[case(json!({"args": ["m1", "--kv_transfer_config={}"]}))]
#[case(json!({"command": ["vllm", "serve", "m1", "--kv-transfer-config={}"]}))]
fn a_pods_own_connector_is_left_alone_and_all_else_is_done(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[case] container: Value,
) {
    let names = injector.names();
    let before = pod(injector, &container, &json!({}));
    let pod = annotated(before.clone(), CONFIG_HASH, "of-another-injector");
    let (result, warnings) = injected(&pod, injector, engine(injector));
    let annotations = &result["metadata"]["annotations"];
    assert_eq!(annotations[names.injected], "true");
    assert_eq!(annotations[names.skip_reason], "kv-transfer-config-present");
    // No document was injected, so there is nothing to compare later.
    assert_eq!(annotations[CONFIG_HASH], "of-another-injector");
    assert!(warnings[0].contains("kv-transfer-config"), "{warnings:?}");
    let args = result["spec"]["containers"][0]["args"].to_string();
    assert!(!args.contains("kv_both"), "{args}");
    assert_ne!(result["spec"]["volumes"], Value::Null);
}

#[rstest]
#[case(json!("text"), false)]
#[case(json!({"metadata": "text", "spec": {}}), false)]
#[case(json!({"metadata": {"annotations": []}, "spec": {}}), false)]
#[case(json!({"spec": []}), true)]
#[case(json!({"metadata": {}, "spec": {"containers": {}}}), true)]
#[case(json!({"metadata": null, "spec": {"volumes": "x"}}), true)]
fn what_is_no_pod_is_an_error_and_stamped_where_it_can_be(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[case] pod: Value,
    #[case] has_place: bool,
) {
    let (decision, result) = run(&pod, injector, &EngineLookup::NotFound);
    assert_eq!(decision.reason(), Some(SkipReason::InternalError));
    assert_eq!(decision.warnings().len(), 1);
    if has_place {
        assert_eq!(result["metadata"]["annotations"], json!({injector.names().skip_reason: "internal-error"}));
    } else {
        assert_eq!(result, pod);
    }
}

#[rstest]
#[case("command", json!("vllm"))]
#[case("args", json!([1]))]
#[case("args", json!({}))]
#[case("env", json!({}))]
#[case("volumeMounts", json!(1))]
#[case("securityContext", json!([]))]
fn a_container_that_cannot_be_read_is_an_error(
    #[values(CacheBlend, LmCache)] injector: Injector,
    #[case] field: &str,
    #[case] value: Value,
) {
    let (reason, message) =
        skipped(&pod(injector, &json!({field: value}), &json!({})), injector, &found(engine(injector)));
    assert_eq!(reason, SkipReason::InternalError);
    assert!(message.contains(&format!("spec.containers[0].{field}")), "{message}");
}

#[test]
fn an_error_of_the_caller_is_stamped_too() {
    let pod = plain(LmCache);
    let decision = Decision::Skip(Skip::internal_error(LmCache, "the API server did not answer"));
    let mut result = pod.clone();
    json_patch::patch(&mut result, &patch(&pod, &decision)).unwrap();
    assert_eq!(result, annotated(pod, LmCache.names().skip_reason, "internal-error"));
    assert_eq!(decision.warnings(), ["lmcache injection skipped (internal-error): the API server did not answer"]);
}
