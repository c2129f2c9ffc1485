//! Pods and engines of every shape: with what injection adds already there in part, and with fields that no release knows.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::testing::{engine, found, payload_image};
use super::super::*;

fn one_of(known: &'static [&'static str]) -> BoxedStrategy<String> {
    prop::sample::select(known).prop_map(str::to_owned).boxed()
}

/// Texts of a pattern, which is read once and not for every case.
fn text(pattern: &str) -> BoxedStrategy<String> {
    prop::string::string_regex(pattern).unwrap().boxed()
}

/// JSON that no release gives a meaning to.
fn unknown() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text("[a-z~/\\\\\" é]{0,6}").prop_map(Value::from),
    ];
    let nested = leaf.clone().prop_map(|it| json!({"a/b~c": [it, {"": 1}]}));
    prop_oneof![3 => leaf, 1 => nested].boxed()
}

/// An object of fields that are there or not.
fn object(fields: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let field = |(key, value): (&'static str, BoxedStrategy<Value>)| {
        prop_oneof![4 => value.prop_map(Some), 1 => Just(Some(Value::Null)), 3 => Just(None)]
            .prop_map(move |value| value.map(|value| (key.to_owned(), value)))
            .boxed()
    };
    let fields: Vec<_> = fields.into_iter().map(field).collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect::<Map<_, _>>())).boxed()
}

/// A list of named things; names may come twice only where the API server lets them.
fn list(name: BoxedStrategy<String>, item: BoxedStrategy<Value>, unique: bool) -> BoxedStrategy<Value> {
    let item = (name, item).prop_map(|(name, mut item)| {
        item["name"] = name.into();
        item
    });
    prop::collection::vec(item, 0..4)
        .prop_map(move |mut items| {
            if unique {
                let mut seen = std::collections::BTreeSet::new();
                items.retain(|item| seen.insert(item["name"].to_string()));
            }
            items.into()
        })
        .boxed()
}

const VOLUMES: &[&str] = &["lmcache-dev-shm", "lmcache-payload", "cb-plugin", "data", "s", "t", "u", "v", "w"];
const PATHS: &[&str] = &["/dev/shm", "/dev/shm/", "/lmcache-payload", "/cb-plugin/.", "/data", "/a", "/b", "/c", "/d"];
const CONTAINERS: &[&str] = &["vllm", "vllm", "vllm", "side", "other", "cb-plugin-stage"];
const INIT_CONTAINERS: &[&str] = &["first", "second", "lmcache-payload-stage", "cb-plugin-stage"];
const VARIABLES: &[&str] = &["PYTHONPATH", "PYTHONHASHSEED", "VLLM_NIXL_SIDE_CHANNEL_PORT", "A"];
const ARGUMENTS: &[&str] = &[
    "m1",
    "--port",
    "8000",
    "-pp",
    "4",
    "--pipeline_parallel_size=2",
    "--enable-chunked-prefill",
    "--enforce-eager",
    "--no-enforce-eager",
    "-cc",
    "{\"mode\":3}",
    "--kv_transfer_config={}",
    "--",
    "-O3",
    "",
    "é",
];

fn volumes() -> BoxedStrategy<Value> {
    let source = prop_oneof![
        Just(json!({"emptyDir": {}})),
        Just(json!({"emptyDir": {"medium": "Memory"}})),
        Just(json!({"hostPath": {"path": "/dev/shm", "type": "Directory"}})),
        Just(json!({"hostPath": {"path": "/x"}})),
        unknown().prop_map(|it| json!({"newSource": it})),
    ];
    list(one_of(VOLUMES), source.boxed(), true)
}

fn mounts() -> BoxedStrategy<Value> {
    let mount = (one_of(PATHS), any::<bool>(), unknown())
        .prop_map(|(path, read_only, new)| json!({"mountPath": path, "readOnly": read_only, "newField": new}));
    list(one_of(VOLUMES), mount.boxed(), false)
}

fn env() -> BoxedStrategy<Value> {
    let text = prop_oneof![Just(json!("")), Just(json!("/x:/y")), Just(json!("/cb-plugin:/x"))];
    let source = Just(json!({"fieldRef": {"fieldPath": "status.podIP"}}));
    let entry = prop_oneof![
        5 => text.prop_map(|text| json!({"value": text})),
        4 => source.prop_map(|source| json!({"valueFrom": source})),
        1 => Just(json!({})),
    ];
    list(one_of(VARIABLES), entry.boxed(), false)
}

fn texts(known: &'static [&'static str], most: usize) -> BoxedStrategy<Value> {
    let item = prop_oneof![9 => one_of(known), 1 => text("[ -~]{0,8}")];
    prop::collection::vec(item, 0..most).prop_map(Value::from).boxed()
}

fn command() -> BoxedStrategy<Value> {
    prop_oneof![
        5 => Just(json!([])),
        3 => Just(json!(["vllm", "serve"])),
        1 => Just(json!(["/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server", "-pp", "3"])),
        1 => texts(&["vllm", "serve", "/bin/sh", "-c", "python3", "-m"], 4),
    ]
    .boxed()
}

fn containers(names: &'static [&'static str]) -> BoxedStrategy<Value> {
    let security = object(vec![("runAsNonRoot", Just(json!(true)).boxed()), ("runAsUser", Just(json!(7)).boxed())]);
    let container = object(vec![
        ("image", Just(json!("r/p:1")).boxed()),
        ("command", command()),
        ("args", texts(ARGUMENTS, 7)),
        ("env", env()),
        ("volumeMounts", mounts()),
        ("securityContext", security),
        ("newField", unknown()),
    ]);
    list(one_of(names), container, true)
}

fn metadata() -> BoxedStrategy<Value> {
    const REASONS: &[&str] = &["engine-not-found", "kv-transfer-config-present"];
    let notes = |texts: &'static [&'static str]| one_of(texts).prop_map(Value::from).boxed();
    let (blend, cache) = (Injector::CacheBlend.names(), Injector::LmCache.names());
    let annotations = object(vec![
        (cache.container, notes(&["vllm", "vllm", "side", ""])),
        (cache.skip_reason, notes(REASONS)),
        (blend.skip_reason, notes(REASONS)),
        (blend.pull_secrets, notes(&["a, ,b", "s", " "])),
        (blend.injected, notes(&["false", "false", "false", "true"])),
        (PD_ROLE, notes(&["prefiller", "decoder", "decoder", "both", "", ""])),
        ("a.b/c~d", notes(&["kept"])),
    ]);
    let engine = prop::sample::select(&["c1", "c1", "c1", "c1", "c1", " c1 ", "ai/c1", "ai/c1", "", "a/b/c"][..]);
    let opted_in = (annotations, engine).prop_map(move |(mut annotations, engine)| {
        annotations[blend.engine] = engine.into();
        annotations[cache.engine] = engine.into();
        json!({"annotations": annotations, "name": "p"})
    });
    let bare = object(vec![("annotations", Just(json!({})).boxed()), ("newField", unknown())]);
    prop_oneof![9 => opted_in, 1 => bare].boxed()
}

/// A pod as an API server could send it.
pub fn pod() -> BoxedStrategy<Value> {
    let secrets = list(one_of(&["s", "own"]), Just(json!({})).boxed(), true);
    let spec = object(vec![
        ("initContainers", containers(INIT_CONTAINERS)),
        ("volumes", volumes()),
        ("imagePullSecrets", secrets),
        ("hostIPC", any::<bool>().prop_map(Value::from).boxed()),
        ("securityContext", Just(json!({"runAsNonRoot": true})).boxed()),
        ("newField", unknown()),
    ]);
    (metadata(), spec, containers(CONTAINERS), unknown())
        .prop_map(|(metadata, mut spec, containers, new)| {
            spec["containers"] = containers;
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "newField": new})
        })
        .boxed()
}

/// A pod with anything in one place.
pub fn damaged() -> BoxedStrategy<Value> {
    const PLACES: &[&str] = &[
        "",
        "/metadata",
        "/metadata/annotations",
        "/spec",
        "/spec/containers",
        "/spec/containers/0",
        "/spec/containers/0/args",
        "/spec/containers/0/args/0",
        "/spec/containers/0/command",
        "/spec/containers/0/env",
        "/spec/containers/0/env/0",
        "/spec/containers/0/volumeMounts",
        "/spec/containers/0/volumeMounts/0",
        "/spec/containers/0/name",
        "/spec/volumes",
        "/spec/volumes/0",
        "/spec/initContainers",
        "/spec/initContainers/0",
        "/spec/imagePullSecrets",
        "/spec/imagePullSecrets/0",
        "/spec/hostIPC",
        "/spec/securityContext",
    ];
    let anything = prop_oneof![unknown(), Just(json!([])), Just(json!({})), Just(json!([[1], {"name": 1}, null]))];
    (pod(), prop::sample::select(PLACES), anything)
        .prop_map(|(mut pod, place, anything)| {
            if let Some(slot) = pod.pointer_mut(place) {
                *slot = anything;
            }
            pod
        })
        .boxed()
}

pub fn injector() -> BoxedStrategy<Injector> {
    prop::sample::select(&Injector::ALL[..]).boxed()
}

/// An engine in any state, or none.
#[derive(Clone, Debug)]
pub struct State {
    ipc: [bool; 2],
    pd: bool,
    payload: bool,
    target: bool,
    cudagraph: Cudagraph,
    flaw: u32,
}

pub fn state() -> BoxedStrategy<State> {
    let modes = [Cudagraph::Eager, Cudagraph::Piecewise, Cudagraph::FullDecodeOnly];
    let choices = any::<[bool; 4]>();
    (choices, 0..4, prop::sample::select(modes.to_vec()), 0..30_u32)
        .prop_map(|([isolated_ipc, host_ipc, pd, target], payload, cudagraph, flaw)| State {
            ipc: [isolated_ipc, host_ipc],
            pd,
            payload: payload > 0,
            target,
            cudagraph,
            flaw,
        })
        .boxed()
}

impl State {
    /// What is found of an engine of this injector's kind.
    pub fn lookup(&self, injector: Injector) -> EngineLookup {
        let mut engine = engine(injector);
        engine.isolated_ipc &= self.ipc[0];
        engine.host_ipc = self.ipc[1];
        engine.pd = self.pd.then_some(Pd { nixl_port: 5558 });
        engine.payload_image = self.payload.then(payload_image);
        engine.target_container = self.target.then(|| "vllm".to_owned());
        engine.pull_secrets = vec!["s".into(), "t".into()];
        engine.cudagraph = self.cudagraph;
        match self.flaw {
            0 => return EngineLookup::NotFound,
            1 => engine.terminating = true,
            2 => engine.invalid = Some("spec".into()),
            3 => engine.connection = None,
            4 => engine.connection = Some(Connection { controlled: true, ..Connection::default() }),
            _ => {}
        }
        found(engine)
    }
}
