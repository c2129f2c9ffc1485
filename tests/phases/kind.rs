//! The kinds, and where they differ for somebody who only looks at them.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use lmcache_crds::{CacheBlendEngine, Endpoint, LMCacheCoordinator, LMCacheEngine, Report};
use lmcache_harness::PhaseObject;
use lmcache_states::Wording;
use serde_json::{Value, json};

use crate::children::Child;
use crate::common::project;
use crate::scene::NAME;

/// What the scenarios need to know about a kind.
pub trait Kind: PhaseObject {
    /// What it calls what it runs.
    const WORDING: Wording;
    /// The child that runs the pods.
    const WORKLOAD: Child;
    /// Every child that it can have, those of the fixture `everything`.
    const CHILDREN: &'static [Child];
    /// Those that it always has.
    const ALWAYS: &'static [Child];
    /// The container of its pods.
    const CONTAINER: &'static str;
    /// Port of the server.
    const PORT: i32;
    /// Ready instances of three while the first pod of a new template does not come up.
    const KEPT_OF_THREE: usize;
    /// Everything that is wrong with the fixture `invalid`.
    const ERRORS: [&'static str; 2];

    /// The fixture of this name: a resource called [`NAME`] of so many instances, and whatever it needs.
    fn fixture(name: &str, instances: usize) -> Result<String>;

    /// How many nodes a resource of so many instances needs.
    fn nodes(instances: usize) -> usize;

    /// What the fixture `invalid` lacks to be valid.
    fn corrected() -> Value;

    /// What takes the fixture `invalid` back to the children of `minimal`.
    fn as_before() -> Value;

    /// A change of the spec that alters no child.
    fn alters_no_child() -> Value;

    /// What it says of itself.
    fn report(&self) -> Report;

    /// What its messages call the instance of an endpoint: its node, or its pod where nodes do not matter.
    fn location(endpoint: &Endpoint) -> &str;

    /// The same for a pod.
    fn location_of_pod(pod: &Pod) -> String;

    /// `kind/name` of the workload, for kubectl.
    fn workload() -> String {
        format!("{}/{NAME}", Self::WORKLOAD.resource().kind.to_lowercase())
    }
}

/// A kind of engine: an instance on every node that matches.
pub trait EngineKind: Kind {}

impl EngineKind for LMCacheEngine {}
impl EngineKind for CacheBlendEngine {}

fn read(folder: &str, name: &str) -> Result<String> {
    let path = project().join(format!("tests/fixtures/{folder}/{name}.yaml"));
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The two kinds of engines differ in the text of a fixture only.
macro_rules! engine_kind {
    ($kind:ty, $fixture:expr) => {
        impl Kind for $kind {
            const WORDING: Wording = Wording::Instances;
            const WORKLOAD: Child = Child::DaemonSet;
            const CHILDREN: &'static [Child] = &[
                Child::DaemonSet,
                Child::Service,
                Child::MetricsService,
                Child::Connection,
                Child::Credentials,
                Child::ServiceMonitor,
                Child::NetworkPolicy,
            ];
            const ALWAYS: &'static [Child] =
                &[Child::DaemonSet, Child::Service, Child::MetricsService, Child::Connection];
            const CONTAINER: &'static str = "lmcache";
            const PORT: i32 = 5555;
            // One instance at a time is taken down for its successor.
            const KEPT_OF_THREE: usize = 2;
            const ERRORS: [&'static str; 2] = [
                "spec.l2Backend.serde: Invalid value: \"\": cannot be combined with a raw adapter that sets a 'serde' config key",
                "spec.l2Backend.raw.config: Invalid value: \"\": must not hold a 'type' key: use spec.l2Backend.raw.type",
            ];

            fn fixture(name: &str, _: usize) -> Result<String> {
                read("engines", name).map($fixture)
            }

            fn nodes(instances: usize) -> usize {
                instances
            }

            fn corrected() -> Value {
                json!({"l2Backend": {"raw": {"config": {"type": null, "serde": null}}}})
            }

            fn as_before() -> Value {
                json!({"l2Backend": null})
            }

            fn alters_no_child() -> Value {
                json!({"progressDeadlineSeconds": 900, "injection": {"targetContainer": "vllm"}})
            }

            fn report(&self) -> Report {
                self.status.as_ref().map(Report::from).unwrap_or_default()
            }

            fn location(endpoint: &Endpoint) -> &str {
                &endpoint.node_name
            }

            fn location_of_pod(pod: &Pod) -> String {
                pod.spec.as_ref().and_then(|it| it.node_name.clone()).unwrap_or_default()
            }
        }
    };
}

engine_kind!(LMCacheEngine, std::convert::identity);
engine_kind!(CacheBlendEngine, |text: String| {
    let payload = "spec:\n  injection: {payloadImage: {repository: registry.example/payload}}\n";
    text.replace("kind: LMCacheEngine", "kind: CacheBlendEngine").replacen("spec:\n", payload, 1)
});

impl Kind for LMCacheCoordinator {
    const WORDING: Wording = Wording::Replicas;
    const WORKLOAD: Child = Child::Deployment;
    const CHILDREN: &'static [Child] =
        &[Child::Deployment, Child::Service, Child::MetricsService, Child::ServiceMonitor];
    const ALWAYS: &'static [Child] = &[Child::Deployment, Child::Service];
    const CONTAINER: &'static str = "coordinator";
    const PORT: i32 = 9300;
    // A successor comes up beside those that serve.
    const KEPT_OF_THREE: usize = 3;
    const ERRORS: [&'static str; 2] = [
        "spec.instanceTimeout: Invalid value: 0: must be greater than 0",
        "spec.evictionRatio: Invalid value: 1.5: must be in [0.0, 1.0]",
    ];

    fn fixture(name: &str, instances: usize) -> Result<String> {
        Ok(read("coordinators", name)?.replace("__INSTANCES__", &instances.to_string()))
    }

    fn nodes(_: usize) -> usize {
        1
    }

    fn corrected() -> Value {
        json!({"instanceTimeout": null, "evictionRatio": null})
    }

    fn as_before() -> Value {
        Self::corrected()
    }

    fn alters_no_child() -> Value {
        json!({"progressDeadlineSeconds": 900})
    }

    fn report(&self) -> Report {
        self.status.as_ref().map(Report::from).unwrap_or_default()
    }

    fn location(endpoint: &Endpoint) -> &str {
        &endpoint.pod_name
    }

    fn location_of_pod(pod: &Pod) -> String {
        pod.name_any()
    }
}
