//! What holds for every pod and every engine.

use std::cell::RefCell;
use std::collections::BTreeMap;

use json_patch::{Patch, PatchOperation};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::Value;

use super::super::*;
use super::generators;

/// How many pods the rules are held against.
const CASES: u32 = 10_000;
/// How many pods are made for the rules beside them.
const FEWER: u32 = 2_500;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

struct Outcome {
    decision: Decision,
    operations: Patch,
    result: Value,
}

fn outcome(pod: &Value, injector: Injector, lookup: &EngineLookup) -> Result<Outcome, TestCaseError> {
    let decision = decide(pod, Some("ai"), injector, lookup);
    let operations = patch(pod, &decision);
    let mut result = pod.clone();
    json_patch::patch(&mut result, &operations)
        .map_err(|error| TestCaseError::fail(format!("{error}: {operations} on {pod}")))?;
    Ok(Outcome { decision, operations, result })
}

/// A second run changes nothing.
fn settles(outcome: &Outcome, injector: Injector, lookup: &EngineLookup) -> Result<(), TestCaseError> {
    let again = decide(&outcome.result, Some("ai"), injector, lookup);
    let expected = match &outcome.decision {
        Decision::Skip(_) => outcome.decision.clone(),
        _ => Decision::AlreadyInjected,
    };
    prop_assert_eq!(&again, &expected);
    let operations = patch(&outcome.result, &again);
    prop_assert!(operations.is_empty(), "{}", operations);
    Ok(())
}

/// Everything of `before` is in `after`, lists in front of what was added; but for these pointers.
fn kept(before: &Value, after: &Value, path: &str, but: &dyn Fn(&str) -> bool) -> Result<(), TestCaseError> {
    if but(path) {
        return Ok(());
    }
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                let path = format!("{path}/{key}");
                match after.get(key) {
                    Some(after) => kept(value, after, &path, but)?,
                    None => prop_assert!(but(&path), "{} is gone", path),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            prop_assert!(before.len() <= after.len(), "{} is shorter", path);
            for (at, (before, after)) in before.iter().zip(after).enumerate() {
                kept(before, after, &format!("{path}/{at}"), but)?;
            }
        }
        // Null is the same as absent.
        (Value::Null, _) => {}
        _ => prop_assert_eq!(before, after, "{}", path),
    }
    Ok(())
}

/// The pod is as it was, but for what injection is about.
fn nothing_is_lost(pod: &Value, outcome: &Outcome, plan: &Plan) -> Result<(), TestCaseError> {
    let container = format!("/spec/containers/{}", plan.container);
    let python_paths: Vec<String> = plan
        .env
        .iter()
        .filter_map(|change| match change {
            environment::EnvChange::Value { at, .. } => Some(format!("{container}/env/{at}/value")),
            environment::EnvChange::Append(_) => None,
        })
        .collect();
    let stamp = |path: &str| {
        [plan.injector.names().injected, plan.injector.names().skip_reason, CONFIG_HASH]
            .iter()
            .any(|name| path == format!("/metadata/annotations/{name}"))
    };
    let args = format!("{container}/args");
    let but = |path: &str| {
        path == "/spec/hostIPC" || path == args || stamp(path) || python_paths.iter().any(|python| path == python)
    };
    kept(pod, &outcome.result, "", &but)?;

    // Other containers are the very same, and so are fields that nobody knows.
    let (before, after) = (&pod["spec"], &outcome.result["spec"]);
    let same_init = before["initContainers"].as_array().into_iter().flatten().enumerate();
    for (at, container) in same_init {
        prop_assert_eq!(container, &after["initContainers"][at]);
    }
    for (at, other) in before["containers"].as_array().into_iter().flatten().enumerate() {
        if at != plan.container {
            prop_assert_eq!(other, &after["containers"][at]);
        }
    }
    let new = |value: &Value| value.get("newField").cloned();
    prop_assert_eq!(new(pod), new(&outcome.result));
    prop_assert_eq!(new(before), new(after));
    prop_assert_eq!(new(&before["containers"][plan.container]), new(&after["containers"][plan.container]));
    user_arguments_keep_their_order(pod, outcome, &container)?;
    names_stay_unique(before, after, plan)
}

fn user_arguments_keep_their_order(pod: &Value, outcome: &Outcome, container: &str) -> Result<(), TestCaseError> {
    let args =
        |pod: &Value| pod.pointer(&format!("{container}/args")).and_then(Value::as_array).cloned().unwrap_or_default();
    let replaced = |at: usize| {
        let path = format!("{container}/args/{at}");
        outcome.operations.iter().any(|it| matches!(it, PatchOperation::Replace(_)) && it.path().as_str() == path)
    };
    let after = args(&outcome.result);
    let mut rest = after.iter();
    for (at, arg) in args(pod).iter().enumerate().filter(|(at, _)| !replaced(*at)) {
        prop_assert!(rest.any(|it| it == arg), "{} at {} is gone or moved: {:?}", arg, at, after);
    }
    Ok(())
}

/// No name and no mount path comes up twice that did not before: the API server would refuse the pod.
fn names_stay_unique(before: &Value, after: &Value, plan: &Plan) -> Result<(), TestCaseError> {
    let twice = |spec: &Value| {
        let list = |list: &Value, key: &str| -> Vec<String> {
            list.as_array().into_iter().flatten().map(|it| it[key].to_string()).collect()
        };
        let container = &spec["containers"][plan.container];
        let containers = [list(&spec["containers"], "name"), list(&spec["initContainers"], "name")].concat();
        let lists = [
            list(&spec["volumes"], "name"),
            containers,
            list(&spec["imagePullSecrets"], "name"),
            list(&container["volumeMounts"], "mountPath"),
            list(&container["env"], "name"),
        ];
        lists.map(|mut names| {
            let all = names.len();
            names.sort();
            names.dedup();
            all - names.len()
        })
    };
    prop_assert_eq!(twice(before), twice(after));
    Ok(())
}

/// A skip leaves everything but its stamp as it was.
fn only_stamped(pod: &Value, outcome: &Outcome, skip: &Skip) -> Result<(), TestCaseError> {
    let without = |pod: &Value| {
        let mut pod = pod.clone();
        if let Some(notes) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            notes.remove(skip.injector.names().skip_reason);
        }
        for (parent, key) in [("/metadata", "annotations"), ("", "metadata")] {
            let parent = pod.pointer_mut(parent).and_then(Value::as_object_mut);
            if let Some(parent) = parent
                && parent
                    .get(key)
                    .is_some_and(|it| it.is_null() || it.as_object().is_some_and(serde_json::Map::is_empty))
            {
                parent.remove(key);
            }
        }
        pod
    };
    prop_assert_eq!(without(pod), without(&outcome.result));
    Ok(())
}

#[test]
fn every_pod_is_injected_once_or_left_as_it_is() {
    let seen = RefCell::new(BTreeMap::<String, usize>::new());
    let cases = (generators::injector(), generators::pod(), generators::state());
    let result = TestRunner::new(config(CASES)).run(&cases, |(injector, pod, state)| {
        let lookup = state.lookup(injector);
        let outcome = outcome(&pod, injector, &lookup)?;
        settles(&outcome, injector, &lookup)?;
        let kind = match &outcome.decision {
            Decision::AlreadyInjected => {
                prop_assert_eq!(&outcome.result, &pod);
                "already injected".to_owned()
            }
            Decision::Skip(skip) => {
                only_stamped(&pod, &outcome, skip)?;
                skip.reason.to_string()
            }
            Decision::Inject(plan) => {
                nothing_is_lost(&pod, &outcome, plan)?;
                "injected".to_owned()
            }
        };
        *seen.borrow_mut().entry(kind).or_default() += 1;
        Ok(())
    });
    println!("{:?}", seen.borrow());
    result.unwrap();
    // The generator must reach what it is for.
    let seen = seen.into_inner();
    assert!(seen["injected"] > CASES as usize / 20, "{seen:?}");
    for reason in ["name-conflict", "dev-shm-conflict", "command-override", "pythonpath-value-from"] {
        assert!(seen.get(reason).is_some_and(|count| *count > 5), "{reason}: {seen:?}");
    }
}

proptest! {
    #![proptest_config(config(FEWER))]

    #[test]
    fn both_injectors_settle_on_one_pod(
        pod in generators::pod(),
        blend in generators::state(),
        cache in generators::state(),
    ) {
        let (blend, cache) = (blend.lookup(Injector::CacheBlend), cache.lookup(Injector::LmCache));
        let first = outcome(&pod, Injector::CacheBlend, &blend)?;
        let second = outcome(&first.result, Injector::LmCache, &cache)?;
        if let Decision::Inject(plan) = &second.decision {
            nothing_is_lost(&first.result, &second, plan)?;
        }
        settles(&second, Injector::LmCache, &cache)?;
        if let Decision::Inject(_) = first.decision {
            let again = decide(&second.result, Some("ai"), Injector::CacheBlend, &blend);
            prop_assert_eq!(again, Decision::AlreadyInjected);
        }
    }

    #[test]
    fn nothing_makes_it_panic(
        injector in generators::injector(),
        pod in generators::damaged(),
        state in generators::state(),
    ) {
        let lookup = state.lookup(injector);
        let outcome = outcome(&pod, injector, &lookup)?;
        settles(&outcome, injector, &lookup)?;
    }
}
