//! Where a test plays: a namespace, nodes that only its pods run on, and a recorder.

use std::collections::BTreeMap;
use std::sync::Mutex;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use lmcache_crds::{LMCacheCoordinator, LMCacheEngine, Phase, PhaseRecord};
use lmcache_harness::{Harness, Judgement, PhaseRecorder, Recording, instance_selector};
use lmcache_states::{Reason, Wording};
use lmcache_testbed::Cluster;
use serde_json::{Value, json};

use crate::children::Child;
use crate::common::{Operator, project, shared, stored};
use crate::kind::Kind;
use crate::watch::{self, PATIENCE};

/// Name of the resource in every fixture.
pub const NAME: &str = "cache";
/// Label of a scene's nodes, with the scene's namespace as its value; the fixtures select by it.
pub const SCENE_LABEL: &str = "phases.lmcache.ai/scene";

/// A namespace and nodes of a test's own.
pub struct Scene<K> {
    /// Works on the resource.
    pub harness: Harness<K>,
    /// How many instances the resource of a fixture has.
    instances: usize,
    nodes: Mutex<Vec<String>>,
}

/// Plays a test with a resource of so many instances: sets the scene, records, and asserts the rules of the phases in the end. A failure shows everything that
/// was recorded.
pub async fn play<K: Kind>(
    name: &str,
    instances: usize,
    body: impl AsyncFnOnce(&Scene<K>) -> Result<()>,
) -> Result<Recording<K>> {
    let scene = Scene::<K>::set(name, instances).await?;
    let recorder = PhaseRecorder::start_kind(scene.client(), scene.namespace(), NAME).await?;
    let outcome = body(&scene).await;
    let recording = recorder.finish().await?;
    outcome.with_context(|| format!("{}\n\n{}", scene.namespace(), recording.timeline()))?;
    recording.assert_obeys_the_rules();
    scene.strike().await?;
    Ok(recording)
}

impl<K: Kind> Scene<K> {
    /// A namespace, and the nodes for a resource of so many instances.
    pub async fn set(name: &str, instances: usize) -> Result<Self> {
        let cluster = &shared(definitions).await.bed.cluster;
        let harness = Harness::<LMCacheEngine>::in_new_namespace(cluster.client(), name).await?;
        let harness = harness.for_kind().with_timeout(PATIENCE);
        let scene = Scene { harness, instances, nodes: Mutex::default() };
        try_join_all((0..K::nodes(instances)).map(|_| scene.add_node())).await?;
        Ok(scene)
    }

    /// Deletes everything again.
    pub async fn strike(&self) -> Result<()> {
        self.harness.delete_and_wait_collected(NAME).await?;
        for node in self.nodes() {
            self.cluster().await.remove_node(&node).await?;
        }
        self.harness.clone().finish().await
    }

    /// The control plane.
    pub async fn cluster(&self) -> &'static Cluster {
        &shared(definitions).await.bed.cluster
    }

    /// The operator.
    pub async fn operator(&self) -> &'static Operator {
        &shared(definitions).await.operator
    }

    pub fn client(&self) -> Client {
        self.harness.client()
    }

    pub fn namespace(&self) -> &str {
        self.harness.namespace()
    }

    /// The objects of a kind in the namespace.
    pub fn api<T: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<T> {
        Api::namespaced(self.client(), self.namespace())
    }

    /// The nodes that are there, sorted.
    pub fn nodes(&self) -> Vec<String> {
        self.nodes.lock().unwrap().clone()
    }

    /// Adds a node for the pods.
    pub async fn add_node(&self) -> Result<String> {
        let node = {
            let mut nodes = self.nodes.lock().unwrap();
            let node = format!("{}-{}", self.namespace(), nodes.len() + 1);
            nodes.push(node.clone());
            node
        };
        self.cluster().await.add_node(&node, [(SCENE_LABEL, self.namespace())]).await?;
        // A new node is tainted until the node controller has seen it Ready, and does not count before.
        let untainted = |node: &Node| node.spec.as_ref().is_none_or(|it| it.taints.iter().flatten().next().is_none());
        watch::object(&Api::all(self.client()), &node, "a node without taints", untainted).await?;
        Ok(node)
    }

    /// Removes a node.
    pub async fn remove_node(&self, node: &str) -> Result<()> {
        self.nodes.lock().unwrap().retain(|it| it != node);
        self.cluster().await.remove_node(node).await
    }

    /// The text of a fixture.
    pub fn fixture(&self, name: &str) -> Result<String> {
        K::fixture(name, self.instances)
    }

    /// Applies a fixture.
    pub async fn apply(&self, fixture: &str) -> Result<K> {
        self.harness.apply_fixture(&self.fixture(fixture)?).await
    }

    /// Applies a fixture and waits until the resource is Ready.
    pub async fn ready_with(&self, fixture: &str) -> Result<K> {
        self.apply(fixture).await?;
        self.harness.wait_ready(NAME).await
    }

    /// Changes the spec by a merge patch.
    pub async fn change(&self, spec: Value) -> Result<K> {
        self.harness.patch(NAME, json!({ "spec": spec })).await
    }

    /// Waits until the resource is Ready, whatever is said until then.
    pub async fn healed(&self) -> Result<K> {
        self.harness.patiently().wait_ready(NAME).await
    }

    /// Waits until the resource is Ready again after it was something else since `before`.
    pub async fn ready_again(&self, before: &K) -> Result<K> {
        let (Some(before), uid) = (before.record(), before.meta().uid.clone()) else {
            return self.healed().await;
        };
        let steps = before.phase_transitions.clone();
        let judge = |resource: &K| {
            let new = resource.record().is_some_and(|it| it.phase == Phase::Ready && it.phase_transitions != steps);
            Judgement::from(new && resource.meta().uid == uid)
        };
        self.harness.patiently().wait(NAME, "Ready again", judge).await
    }

    /// Waits for a phase and its reason.
    pub async fn phase(&self, phase: Phase, reason: Reason) -> Result<K> {
        let judge = |resource: &K| {
            let is = |it: &PhaseRecord| it.phase == phase && it.reason.as_deref() == Some(reason.as_str());
            Judgement::from(resource.record().is_some_and(is))
        };
        self.harness.patiently().wait(NAME, &format!("phase {phase}, reason {reason}"), judge).await
    }

    /// Waits for Degraded and its reason.
    pub async fn degraded(&self, reason: Reason) -> Result<K> {
        self.phase(Phase::Degraded, reason).await
    }

    /// The live pods, by what messages call their instances.
    pub async fn pods(&self) -> Result<BTreeMap<String, Pod>> {
        let pods = self.api::<Pod>().list(&ListParams::default().labels(&instance_selector::<K>(NAME))).await?;
        let live = pods.items.into_iter().filter(|it| it.metadata.deletion_timestamp.is_none());
        Ok(live.map(|it| (K::location_of_pod(&it), it)).collect())
    }

    /// Waits for a live pod.
    pub async fn pod(&self, what: &str, wanted: impl Fn(&Pod) -> bool) -> Result<Pod> {
        let selection = watcher::Config::default().labels(&instance_selector::<K>(NAME));
        let is = |it: &Pod| it.metadata.deletion_timestamp.is_none() && wanted(it);
        let pods = watch::until(&self.api::<Pod>(), selection, what, |pods| pods.iter().any(is)).await?;
        pods.into_iter().find(is).context("the pod has vanished")
    }

    /// Sets or removes an annotation of a live pod, which steers it.
    pub async fn annotate(&self, pod: &Pod, key: &str, value: Option<&str>) -> Result<()> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        self.cluster().await.annotate_pod(self.namespace(), name, key, value).await
    }

    /// Takes an annotation off every live pod that has it, once there is one.
    pub async fn release(&self, key: &str) -> Result<()> {
        let has = |it: &Pod| it.metadata.annotations.as_ref().is_some_and(|it| it.contains_key(key));
        self.pod("a pod to release", has).await?;
        for pod in self.pods().await?.values().filter(|it| has(it)) {
            self.annotate(pod, key, None).await?;
        }
        Ok(())
    }

    /// The objects of a kind that is only known by its name.
    pub fn objects(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client(), self.namespace(), resource)
    }

    /// A child, if it is there.
    pub async fn child(&self, child: Child) -> Result<Option<DynamicObject>> {
        Ok(self.objects(&child.resource()).get_opt(&child.name()).await?)
    }

    /// Every child that is there.
    pub async fn children(&self) -> Result<BTreeMap<Child, DynamicObject>> {
        let found = try_join_all(K::CHILDREN.iter().map(|&child| async move { Ok((child, self.child(child).await?)) }));
        let found: Result<Vec<_>> = found.await;
        Ok(found?.into_iter().filter_map(|(child, object)| Some((child, object?))).collect())
    }

    /// Every child that there can be, once all are there.
    pub async fn every_child(&self) -> Result<BTreeMap<Child, DynamicObject>> {
        for child in K::CHILDREN {
            let api = self.objects(&child.resource());
            watch::object(&api, &child.name(), &format!("{child:?}"), |_| true).await?;
        }
        self.children().await
    }

    /// Changes a child behind the operator's back, by a patch as `kubectl patch` sends it: lists of Kubernetes' own kinds are
    /// merged.
    pub async fn meddle(&self, child: Child, patch: &Value) -> Result<DynamicObject> {
        let params = PatchParams { field_manager: Some("intruder".to_owned()), ..PatchParams::default() };
        let patch = match child {
            Child::ServiceMonitor => Patch::Merge(patch),
            _ => Patch::Strategic(patch),
        };
        Ok(self.objects(&child.resource()).patch(&child.name(), &params, &patch).await?)
    }

    /// The Events about the resource, once they fulfil a condition.
    pub async fn events(&self, what: &str, holds: impl Fn(&[&Event]) -> bool) -> Result<Vec<Event>> {
        let api = self.api::<Event>();
        let (kind, uid) = (K::kind(&()), self.harness.get(NAME).await?.meta().uid.clone());
        let about = |event: &&Event| {
            let of = event.regarding.as_ref();
            of.is_some_and(|it| it.kind.as_deref() == Some(&kind) && it.uid == uid)
        };
        let found = watch::until(&api, watcher::Config::default(), what, |events| {
            holds(&events.iter().filter(about).collect::<Vec<_>>())
        });
        Ok(found.await?.into_iter().filter(|event| about(&event)).collect())
    }

    /// Waits for a Warning with this reason whose note holds this text.
    pub async fn warned(&self, reason: Reason, text: &str) -> Result<()> {
        let is = |event: &&&Event| {
            event.type_.as_deref() == Some("Warning")
                && event.reason.as_deref() == Some(reason.as_str())
                && event.note.as_deref().is_some_and(|note| note.contains(text))
        };
        self.events(&format!("a Warning {reason}"), |events| events.iter().any(|event| is(&event))).await?;
        Ok(())
    }
}

/// The definition of the `ServiceMonitor` API.
pub fn service_monitor_api() -> Result<String> {
    Ok(std::fs::read_to_string(project().join("tests/fixtures/parity/servicemonitor-crd.yaml"))?)
}

/// What the shared cluster serves.
fn definitions() -> Result<Vec<CustomResourceDefinition>> {
    let mut definitions = lmcache_crds::crds();
    // The shipped schema of a coordinator refuses all that its validation does; what an older release stored must still be
    // judged.
    for coordinator in definitions.iter_mut().filter(|it| it.spec.names.kind == LMCacheCoordinator::kind(&())) {
        *coordinator = stored::without_rules(coordinator);
    }
    definitions.push(serde_norway::from_str(&service_monitor_api()?)?);
    Ok(definitions)
}

/// The condition of a type.
pub fn condition<'a>(record: &'a PhaseRecord, type_: &str) -> Option<&'a Condition> {
    record.conditions.iter().find(|it| it.type_ == type_)
}

/// Demands that a condition has this status and reason, and a message with these texts.
pub fn ensure_condition<K: Kind>(resource: &K, type_: &str, status: &str, reason: &str, texts: &[&str]) -> Result<()> {
    let record = resource.record().context("there is no status")?;
    let found = condition(record, type_).with_context(|| format!("no condition {type_}: {record:?}"))?;
    ensure!(found.status == status && found.reason == reason, "{type_}: {found:?}");
    for text in texts {
        ensure!(found.message.contains(text), "{type_} does not say {text:?}: {found:?}");
    }
    Ok(())
}

/// Demands that the phase's message holds these texts.
pub fn ensure_message<K: Kind>(resource: &K, texts: &[&str]) -> Result<()> {
    let message = resource.record().and_then(|it| it.message.clone()).unwrap_or_default();
    for text in texts {
        ensure!(message.contains(text), "the message does not say {text:?}: {message}");
    }
    Ok(())
}

/// Asserts the phases that a resource went through, Pending included.
#[track_caller]
pub fn assert_path<K: Kind>(recording: &Recording<K>, expected: &[Phase]) {
    assert_eq!(recording.phases(), expected, "{}", recording.timeline());
}

/// Asserts that a resource has been Available ever since it was first Ready.
#[track_caller]
pub fn assert_available_since_ready<K: Kind>(recording: &Recording<K>) {
    for life in recording.lives() {
        let since = life.iter().skip_while(|it| it.record.phase != Phase::Ready);
        for status in since {
            let available = condition(status.record, lmcache_states::conditions::AVAILABLE);
            let holds = available.is_some_and(|it| it.status == "True");
            assert!(holds, "status {}: {available:?}\n{}", status.version, recording.timeline());
        }
    }
}

/// `ready/desired` as conditions count it, in the kind's own words.
pub fn ready_of<K: Kind>(ready: usize, desired: usize) -> String {
    format!("{ready}/{desired} {} ready", K::WORDING.plural())
}

/// The reason of `Available=False`.
pub fn none_ready<K: Kind>() -> &'static str {
    match K::WORDING {
        Wording::Instances => "NoReadyInstances",
        Wording::Replicas => "NoReadyReplicas",
    }
}
