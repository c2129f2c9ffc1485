//! The helper itself.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use lmcache_crds::{LMCacheEngine, Phase};
use lmcache_states::conditions;
use serde_json::Value;

use crate::kind::{PhaseObject, instance_selector};
use crate::namespace::OwnNamespace;
use crate::wait::{Judgement, condition, is_current};
use crate::{fixture, report, wait};

/// How long a wait lasts unless [`Harness::with_timeout`] says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_mins(1);

/// Key of the connection document in `ConfigMap` `<name>-connection`.
const CONNECTION_KEY: &str = "kv-transfer-config.json";

/// Works on the resources of one kind in one namespace. Cheap to clone.
pub struct Harness<K = LMCacheEngine> {
    client: Client,
    namespace: OwnNamespace,
    timeout: Duration,
    patient: bool,
    kind: PhantomData<fn() -> K>,
}

impl Harness<LMCacheEngine> {
    /// For `LMCacheEngine`s in a namespace that exists.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self::of_kind(client, namespace)
    }

    /// For `LMCacheEngine`s in a new namespace of its own, `<prefix>-<random>`, which goes with [`finish`](Self::finish).
    /// Pods in it may be privileged.
    pub async fn in_new_namespace(client: Client, prefix: &str) -> Result<Self> {
        let namespace = OwnNamespace::create(client.clone(), prefix).await?;
        Ok(Self::with_namespace(client, namespace))
    }
}

impl<K> Harness<K> {
    /// For another kind in a namespace that exists.
    pub fn of_kind(client: Client, namespace: &str) -> Self {
        Self::with_namespace(client, OwnNamespace::borrowed(namespace))
    }

    fn with_namespace(client: Client, namespace: OwnNamespace) -> Self {
        Self { client, namespace, timeout: DEFAULT_TIMEOUT, patient: false, kind: PhantomData }
    }

    /// The same namespace for another kind.
    pub fn for_kind<L>(&self) -> Harness<L> {
        let Self { client, namespace, timeout, patient, .. } = self.clone();
        Harness { client, namespace, timeout, patient, kind: PhantomData }
    }

    /// The same with another deadline for each wait.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// The same, but a wait goes on when the resource is Stalled: for a test that heals a resource from outside, whose last
    /// status may still be the verdict on what was wrong before.
    #[must_use]
    pub fn patiently(&self) -> Self {
        Self { patient: true, ..self.clone() }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.namespace.name()
    }

    /// The client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// How long a wait lasts.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Deletes the namespace if it was made by [`in_new_namespace`](Harness::in_new_namespace), without waiting for its end.
    /// Dropping the last clone does the same where the runtime allows it (not on a single-threaded one).
    pub async fn finish(self) -> Result<()> {
        self.namespace.delete().await
    }

    fn api<T: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>>(&self) -> Api<T> {
        Api::namespaced(self.client.clone(), self.namespace())
    }

    /// The document that tells vLLM how to connect: key `kv-transfer-config.json` of `ConfigMap` `<name>-connection`.
    pub async fn connection_config(&self, name: &str) -> Result<Value> {
        let name = format!("{name}-connection");
        let map = self.api::<ConfigMap>().get(&name).await.with_context(|| format!("ConfigMap {name}"))?;
        let text = map.data.as_ref().and_then(|data| data.get(CONNECTION_KEY));
        let text = text.with_context(|| format!("ConfigMap {name} has no key {CONNECTION_KEY}"))?;
        serde_json::from_str(text).with_context(|| format!("ConfigMap {name}, key {CONNECTION_KEY}: {text}"))
    }
}

impl<K: PhaseObject> Harness<K> {
    /// Applies a fixture server-side and returns the last object of this kind in it.
    ///
    /// `fixture` is a path, or YAML text itself; it may hold several documents of any kind. `__NAMESPACE__` in it is replaced;
    /// a namespaced object without a namespace goes to this one.
    pub async fn apply_fixture(&self, fixture: &str) -> Result<K> {
        fixture::apply(&self.client, self.namespace(), fixture).await
    }

    /// Reads the resource.
    pub async fn get(&self, name: &str) -> Result<K> {
        Ok(self.api().get(name).await?)
    }

    /// Sends a merge patch, such as `{"spec": {"server": {"port": 6555}}}`.
    pub async fn patch(&self, name: &str, patch: Value) -> Result<K> {
        Ok(self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Waits until the present generation is in this phase.
    pub async fn wait_for_phase(&self, name: &str, phase: Phase) -> Result<K> {
        self.wait(name, &format!("phase {phase}"), |object| {
            Judgement::from(object.record().is_some_and(|record| record.phase == phase))
        })
        .await
    }

    /// Waits until every child of the present generation is applied.
    pub async fn wait_reconciled(&self, name: &str) -> Result<K> {
        self.wait_condition(name, conditions::APPLIED, "True").await
    }

    /// Waits until the present generation is Ready.
    pub async fn wait_ready(&self, name: &str) -> Result<K> {
        self.wait_condition(name, conditions::READY, "True").await
    }

    /// Waits until a condition has this status (`True`, `False` or `Unknown`) for the present generation. The conditions that
    /// are only present while they hold count as `False` when they are absent.
    pub async fn wait_condition(&self, name: &str, type_: &str, status: &str) -> Result<K> {
        self.wait(name, &format!("condition {type_}={status}"), |object| {
            let generation = object.meta().generation;
            let found = object.record().and_then(|record| condition(record, type_));
            Judgement::from(match found {
                Some(it) => it.status == status && it.observed_generation.is_none_or(|of| Some(of) == generation),
                None => status == "False" && [conditions::RECONCILING, conditions::STALLED].contains(&type_),
            })
        })
        .await
    }

    /// Waits until `judge` is content with a status that speaks of the present generation. `what` names it in the error.
    pub async fn wait(&self, name: &str, what: &str, judge: impl Fn(&K) -> Judgement) -> Result<K> {
        let judge = |object: &K| {
            if !is_current(object) {
                return Judgement::NotYet;
            }
            match judge(object) {
                Judgement::NotYet if !self.patient => wait::stalled(object),
                judgement => judgement,
            }
        };
        match wait::object(self.api(), name, self.timeout, judge).await {
            Ok(object) => Ok(object),
            Err(error) => {
                let report = self.report(name).await;
                Err(anyhow!("waiting for {what} of {}/{name}: {error:#}\n{report}", self.namespace()))
            }
        }
    }

    /// Name of a pod of the resource that is ready and not about to end; waits for one.
    pub async fn first_ready_pod(&self, name: &str) -> Result<String> {
        let selector = instance_selector::<K>(name);
        let ready = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && report::is_ready(pod);
        let found = wait::first(self.api::<Pod>(), &selector, self.timeout, ready).await;
        match found {
            Ok(pod) => Ok(pod.name_any()),
            Err(error) => {
                let pods = report::pods(&self.client, self.namespace(), &selector).await;
                Err(anyhow!("no pod of {}/{name} is ready: {error:#}\n{pods}", self.namespace()))
            }
        }
    }

    /// What a person would look up about a resource: phase, history, conditions, Events, and pods with their containers.
    pub async fn report(&self, name: &str) -> String {
        let object = self.api::<K>().get_opt(name).await;
        report::full(&self.client, self.namespace(), name, object).await
    }
}

impl<K> Clone for Harness<K> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            namespace: self.namespace.clone(),
            timeout: self.timeout,
            patient: self.patient,
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Harness<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { timeout, patient, .. } = self;
        f.debug_struct("Harness")
            .field("namespace", &self.namespace())
            .field("timeout", timeout)
            .field("patient", patient)
            .finish_non_exhaustive()
    }
}
