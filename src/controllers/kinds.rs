//! What the pipeline needs of a kind of resource, and what each kind says to it. Nothing else asks which kind it is.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::core::object::HasStatus;
use lmcache_crds::{EngineStatus, FieldError, LMCacheCoordinator, LMCacheCoordinatorSpec, Report};
use lmcache_states::{Advisory, AdvisoryKind, Wording};
use serde::de::DeserializeOwned;

use crate::admission::injection::Injector;
use crate::observe::{PublishedStatus, References};
use crate::render::{self, Application, ChildKind, Children, Engine, Options, Resolved};

/// A kind that the operator brings up and keeps up.
pub trait Managed:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + HasStatus<Status: PublishedStatus>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Kind for logs, Events and metric labels.
    const KIND: &'static str;
    /// Plural for logs and metric labels.
    const PLURAL: &'static str;
    /// The child that runs the pods.
    const WORKLOAD: ChildKind;
    /// What its children are part of.
    const APPLICATION: Application;
    /// What it calls its instances.
    const WORDING: Wording;
    /// Who connects pods to it.
    const INJECTOR: Option<Injector>;

    /// Every error of the spec; empty when it is valid.
    fn errors(&self) -> Vec<FieldError>;

    /// Foreign objects that the spec refers to.
    fn references(&self) -> References<'_>;

    /// The children that a valid spec with resolved references wants.
    fn children(&self, resolved: &Resolved, options: &Options) -> Children;

    /// How long a rollout may stand still.
    fn progress_deadline(&self) -> Duration;

    /// Port of the server and of the metrics Service.
    fn ports(&self) -> (i32, i32);

    /// `status.endpoint`, of the kinds that have one.
    fn endpoint(&self) -> Option<String>;

    /// What is legal and surely not meant. `coordinator` is the one that the spec refers to.
    fn advisories(&self, coordinator: Option<&LMCacheCoordinatorSpec>) -> Vec<Advisory>;

    /// What was last published.
    fn report(&self) -> Report {
        self.status().map(PublishedStatus::report).unwrap_or_default()
    }
}

impl<E> Managed for E
where
    E: Engine + HasStatus<Status = EngineStatus> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    const KIND: &'static str = <E as Engine>::KIND;
    const PLURAL: &'static str = <E as Engine>::PLURAL;
    const WORKLOAD: ChildKind = ChildKind::DaemonSet;
    const APPLICATION: Application = Application::Engine;
    const WORDING: Wording = Wording::Instances;
    const INJECTOR: Option<Injector> = Some(<E as Engine>::INJECTOR);

    fn errors(&self) -> Vec<FieldError> {
        self.validate()
    }

    fn references(&self) -> References<'_> {
        let coordinator = self.common().coordinator.as_ref();
        References {
            credentials: self.common().auth_secret_ref(),
            coordinator: coordinator.and_then(|connection| connection.ref_name()),
        }
    }

    fn children(&self, resolved: &Resolved, options: &Options) -> Children {
        render::children(self, resolved, options)
    }

    fn progress_deadline(&self) -> Duration {
        self.common().progress_deadline()
    }

    fn ports(&self) -> (i32, i32) {
        (self.common().server_port(), self.common().workload.metrics_port())
    }

    fn endpoint(&self) -> Option<String> {
        None
    }

    fn advisories(&self, coordinator: Option<&LMCacheCoordinatorSpec>) -> Vec<Advisory> {
        let Some(coordinator) = coordinator else { return Vec::new() };
        let (ours, theirs) = (self.common(), coordinator);
        let mut differences = Vec::new();
        if ours.chunk_size() != theirs.chunk_size() {
            let (ours, theirs) = (ours.chunk_size(), theirs.chunk_size());
            differences.push(format!("spec.server.chunkSize is {ours}, blendChunkSize of the coordinator {theirs}"));
        }
        if ours.hash_algorithm() != theirs.hash_algorithm() {
            let (ours, theirs) = (ours.hash_algorithm().as_str(), theirs.hash_algorithm().as_str());
            differences.push(format!("spec.server.hashAlgorithm is {ours}, hashAlgorithm of the coordinator {theirs}"));
        }
        let concern = (!differences.is_empty()).then(|| format!("{}; they must be the same", differences.join("; ")));
        vec![Advisory { kind: AdvisoryKind::CoordinatorCompatible, concern }]
    }
}

impl Managed for LMCacheCoordinator {
    const KIND: &'static str = "LMCacheCoordinator";
    const PLURAL: &'static str = "lmcachecoordinators";
    const WORKLOAD: ChildKind = ChildKind::Deployment;
    const APPLICATION: Application = Application::Coordinator;
    const WORDING: Wording = Wording::Replicas;
    const INJECTOR: Option<Injector> = None;

    fn errors(&self) -> Vec<FieldError> {
        lmcache_crds::validate_coordinator(self.metadata.name.as_deref().unwrap_or_default(), &self.spec)
    }

    fn references(&self) -> References<'_> {
        References::default()
    }

    fn children(&self, resolved: &Resolved, _: &Options) -> Children {
        render::coordinator_children(self, resolved)
    }

    fn progress_deadline(&self) -> Duration {
        self.spec.progress_deadline()
    }

    fn ports(&self) -> (i32, i32) {
        (self.spec.port(), self.spec.workload.metrics_port())
    }

    fn endpoint(&self) -> Option<String> {
        let meta = &self.metadata;
        Some(self.spec.url(meta.name.as_deref()?, meta.namespace.as_deref()?))
    }

    fn advisories(&self, _: Option<&LMCacheCoordinatorSpec>) -> Vec<Advisory> {
        let replicas = self.spec.replicas();
        let concern = (replicas > 1).then(|| {
            format!(
                "spec.replicas is {replicas}, and each replica keeps a registry of its own: an engine is known to one \
                 of them only; set spec.replicas to 1"
            )
        });
        vec![Advisory { kind: AdvisoryKind::RegistryConsistent, concern }]
    }
}
