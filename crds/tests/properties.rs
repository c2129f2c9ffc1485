//! What always holds, for specs of every kind made from the kind's own schema.

use std::fmt::Debug;

use lmcache_crds::{
    CacheBlendEngineSpec, FieldError, LMCacheCoordinatorSpec, LMCacheEngineSpec, malformed, validate,
    validate_cache_blend, validate_coordinator,
};
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

/// A spec type with what the operator does to it.
trait Spec: Clone + Debug + PartialEq + Serialize + DeserializeOwned {
    const KIND: &'static str;
    fn defaulted(self) -> Self;
    fn errors(&self) -> Vec<FieldError>;
}

impl Spec for LMCacheEngineSpec {
    const KIND: &'static str = "LMCacheEngine";
    fn defaulted(self) -> Self {
        self.with_defaults()
    }
    fn errors(&self) -> Vec<FieldError> {
        validate("c1", self)
    }
}

impl Spec for CacheBlendEngineSpec {
    const KIND: &'static str = "CacheBlendEngine";
    fn defaulted(self) -> Self {
        self.with_defaults()
    }
    fn errors(&self) -> Vec<FieldError> {
        validate_cache_blend("c1", self)
    }
}

impl Spec for LMCacheCoordinatorSpec {
    const KIND: &'static str = "LMCacheCoordinator";
    fn defaulted(self) -> Self {
        self.with_defaults()
    }
    fn errors(&self) -> Vec<FieldError> {
        validate_coordinator("c1", self)
    }
}

/// Fields of core types with required fields of their own, which stay empty here.
const CORE_LISTS: &[&str] =
    &["env", "from", "imagePullSecrets", "initContainers", "tolerations", "volumeMounts", "volumes"];
const CORE_OBJECTS: &[&str] = &["affinity", "resourceOverrides"];

fn schema_of(kind: &str) -> Value {
    let crd = lmcache_crds::crds().into_iter().find(|crd| crd.spec.names.kind == kind).expect("the kind exists");
    let crd = serde_json::to_value(crd).expect("a CRD is JSON");
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
}

/// Specs whose types are right; the numbers may be out of bounds.
fn specs(kind: &str) -> BoxedStrategy<Value> {
    values("spec", &schema_of(kind))
}

fn values(name: &str, schema: &Value) -> BoxedStrategy<Value> {
    if let Some(words) = schema["enum"].as_array() {
        return prop::sample::select(words.clone()).boxed();
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => prop::sample::select(vec![-1, 0, 1, 256, 5555, 8080, 65536]).prop_map(Value::from).boxed(),
        Some("number") => prop::sample::select(vec![-1.0, 0.0, 0.15, 1.0, 60.5]).prop_map(Value::from).boxed(),
        Some("array") if CORE_LISTS.contains(&name) => Just(json!([])).boxed(),
        Some("array") => prop::collection::vec(values("", &schema["items"]), 0..3).prop_map(Value::from).boxed(),
        Some("object") if CORE_OBJECTS.contains(&name) => Just(json!({})).boxed(),
        Some("object") if schema.get("properties").is_some() => objects(schema),
        Some("object") => maps(&schema["additionalProperties"]),
        Some("string") => texts(),
        _ => prop::sample::select(vec![json!(9_007_199_254_740_993_i64), json!({"a": [null]}), json!("")]).boxed(),
    }
}

fn texts() -> BoxedStrategy<Value> {
    prop::sample::select(vec!["", "a", "lmcache/vllm-openai", "30s"]).prop_map(Value::from).boxed()
}

fn maps(schema: &Value) -> BoxedStrategy<Value> {
    let entries = prop::collection::btree_map("[a-z]{1,3}", values("", schema), 0..3);
    entries.prop_map(|entries| Value::Object(entries.into_iter().collect())).boxed()
}

/// Every field is there or not, but for the required ones and the name of a reference, which the API server fills in.
fn objects(schema: &Value) -> BoxedStrategy<Value> {
    let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|it| it == name));
    let mut object = Just(Map::new()).boxed();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let value = values(name, field);
        let field = if required(name) || field["default"] == "" {
            value.prop_map(Some).boxed()
        } else {
            prop::option::of(value).boxed()
        };
        let name = name.clone();
        object = (object, field)
            .prop_map(move |(mut object, value)| {
                object.extend(value.map(|value| (name.clone(), value)));
                object
            })
            .boxed();
    }
    object.prop_map(Value::Object).boxed()
}

fn decode<S: Spec>(document: &Value) -> S {
    serde_json::from_value(document.clone()).unwrap_or_else(|error| panic!("{document}: {error}"))
}

/// A document is written back as it was read: unset stays unset, empty stays empty, numbers keep their value.
fn check_round_trip<S: Spec>(document: &Value) {
    let spec: S = decode(document);
    let written = serde_json::to_value(&spec).expect("a spec is JSON");
    assert_eq!(&written, document, "written back differently");
    assert_eq!(decode::<S>(&written), spec);
}

/// Defaults add and never change; a second time they do nothing; and the verdict on the spec is the same.
fn check_defaults<S: Spec>(document: &Value) {
    let spec: S = decode(document);
    let defaulted = spec.clone().defaulted();
    assert_eq!(defaulted.clone().defaulted(), defaulted, "defaults are idempotent");
    assert_eq!(defaulted.errors(), spec.errors(), "defaults change the verdict");
    let filled = serde_json::to_value(&defaulted).expect("a spec is JSON");
    assert!(contains(&filled, document), "defaults changed a written field: {document} became {filled}");
}

fn contains(all: &Value, part: &Value) -> bool {
    match (all, part) {
        (Value::Object(all), Value::Object(part)) => {
            part.iter().all(|(name, part)| all.get(name).is_some_and(|all| contains(all, part)))
        }
        _ => all == part,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn what_can_be_decoded_is_not_malformed(
        engine in specs(LMCacheEngineSpec::KIND),
        cache_blend in specs(CacheBlendEngineSpec::KIND),
        coordinator in specs(LMCacheCoordinatorSpec::KIND),
    ) {
        prop_assert_eq!(malformed(LMCacheEngineSpec::KIND, &engine), Vec::new());
        prop_assert_eq!(malformed(CacheBlendEngineSpec::KIND, &cache_blend), Vec::new());
        prop_assert_eq!(malformed(LMCacheCoordinatorSpec::KIND, &coordinator), Vec::new());
    }
}

proptest! {
    #[test]
    fn an_lmcache_engine_is_written_back_as_it_was_read(document in specs(LMCacheEngineSpec::KIND)) {
        check_round_trip::<LMCacheEngineSpec>(&document);
    }

    #[test]
    fn a_cache_blend_engine_is_written_back_as_it_was_read(document in specs(CacheBlendEngineSpec::KIND)) {
        check_round_trip::<CacheBlendEngineSpec>(&document);
    }

    #[test]
    fn a_coordinator_is_written_back_as_it_was_read(document in specs(LMCacheCoordinatorSpec::KIND)) {
        check_round_trip::<LMCacheCoordinatorSpec>(&document);
    }

    #[test]
    fn defaults_of_an_lmcache_engine_only_add(document in specs(LMCacheEngineSpec::KIND)) {
        check_defaults::<LMCacheEngineSpec>(&document);
    }

    #[test]
    fn defaults_of_a_cache_blend_engine_only_add(document in specs(CacheBlendEngineSpec::KIND)) {
        check_defaults::<CacheBlendEngineSpec>(&document);
    }

    #[test]
    fn defaults_of_a_coordinator_only_add(document in specs(LMCacheCoordinatorSpec::KIND)) {
        check_defaults::<LMCacheCoordinatorSpec>(&document);
    }
}
