//! The watches behind the caches: one task each, restarted with a growing pause when it breaks.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Client, Resource};
use lmcache_observability::Metrics;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::cache::{Cache, Feed};
use super::injected::{self, InjectedPod};
use super::live::Live;
use super::problems::STARTUP_FAILURE;
use super::trouble;
use super::views::{EventView, NodeView, PodView, ReplicaSetView, TEMPLATE_HASH_LABEL, controller_of, trim_metadata};
use crate::admission::injection::Injector;
use crate::controllers::wake::{Target, Wakeups};
use crate::key::Key;
use crate::render::ChildKind;

/// The API group of the engines.
pub const GROUP: &str = "lmcache.lmcache.ai";
/// Everything the operator makes carries this label.
const OURS: &str = "app.kubernetes.io/managed-by=lmcache-operator";
/// The CRD that says whether ServiceMonitors exist.
const SERVICE_MONITOR_CRD: &str = "servicemonitors.monitoring.coreos.com";
/// Events that may tell of trouble which no status shows: warnings, without the kinds that are most common. One watch for
/// all, because the API server reads every Event of the cluster once for each of them.
const WARNINGS: &str = "type=Warning,reason!=BackOff,reason!=FailedScheduling,reason!=Failed";

/// Whether an Event is one of those that an observation reads.
fn tells_of_trouble(event: &EventView) -> bool {
    match event.reason.as_str() {
        "FailedCreate" => event.involved_object.kind == "DaemonSet",
        "FailedMount" => event.involved_object.kind == "Pod",
        "Unhealthy" => event.message.starts_with(STARTUP_FAILURE),
        _ => false,
    }
}

/// What the operator knows of the cluster without asking.
pub struct Caches {
    /// DaemonSets that carry the operator's label.
    pub daemonsets: Cache<Live>,
    /// Deployments, likewise.
    pub deployments: Cache<Live>,
    /// Services, likewise.
    pub services: Cache<Live>,
    /// ConfigMaps, likewise.
    pub config_maps: Cache<Live>,
    /// Secrets that the operator made.
    pub secrets: Cache<Live>,
    /// NetworkPolicies, likewise.
    pub network_policies: Cache<Live>,
    /// All ServiceMonitors; empty while their API does not exist.
    pub service_monitors: Cache<Live>,
    /// ReplicaSets that the Deployments made.
    pub replica_sets: Cache<ReplicaSetView>,
    /// Pods of engines and coordinators.
    pub pods: Cache<PodView>,
    /// All nodes.
    pub nodes: Cache<NodeView>,
    /// Events about DaemonSets and pods that are in trouble.
    pub events: Cache<EventView>,
    /// Metadata of every Secret, to notice a change of one that a spec refers to.
    pub sources: Cache<PartialObjectMeta<Secret>>,
    injected: [Cache<InjectedPod>; 2],
    service_monitors_listed: Arc<AtomicBool>,
}

impl Caches {
    /// Pods that an injector has connected, or was asked to, by their engine.
    pub fn injected(&self, injector: Injector) -> &Cache<InjectedPod> {
        match injector {
            Injector::CacheBlend => &self.injected[0],
            Injector::LmCache => &self.injected[1],
        }
    }

    /// The cache of children of that kind.
    pub fn children(&self, kind: ChildKind) -> &Cache<Live> {
        match kind {
            ChildKind::Secret => &self.secrets,
            ChildKind::DaemonSet => &self.daemonsets,
            ChildKind::Deployment => &self.deployments,
            ChildKind::Service => &self.services,
            ChildKind::ConfigMap => &self.config_maps,
            ChildKind::ServiceMonitor => &self.service_monitors,
            ChildKind::NetworkPolicy => &self.network_policies,
        }
    }

    /// Whether the API server serves ServiceMonitors, and those that exist are known (D34).
    pub fn service_monitor_api(&self) -> bool {
        self.service_monitors_listed.load(Ordering::Acquire)
    }

    /// Waits until what every reconcile needs has been listed once.
    pub async fn synced(&self) {
        for kind in ChildKind::ALL.into_iter().filter(|kind| *kind != ChildKind::ServiceMonitor) {
            self.children(kind).synced().await;
        }
        self.replica_sets.synced().await;
        self.pods.synced().await;
        self.sources.synced().await;
    }
}

/// Opens every cache and starts its watches in `tasks`.
pub struct Opener<'a> {
    /// Client for the watches.
    pub client: &'a Client,
    /// Namespaces to watch; `None` for all.
    pub namespaces: &'a [Option<String>],
    /// Where changes are announced.
    pub wakeups: &'a Wakeups,
    /// Where restarts are counted.
    pub metrics: &'a Metrics,
}

impl Opener<'_> {
    /// Opens the caches.
    pub fn open(&self, tasks: &mut JoinSet<()>) -> Caches {
        let (served, serves) = tokio::sync::watch::channel(false);
        self.service_monitor_crd(&served, tasks);
        let service_monitors_listed = Arc::new(AtomicBool::new(false));
        let mut children = |kind: ChildKind| self.children(kind, None, tasks);
        let daemonsets = children(ChildKind::DaemonSet);
        let deployments = children(ChildKind::Deployment);
        let services = children(ChildKind::Service);
        let config_maps = children(ChildKind::ConfigMap);
        let secrets = children(ChildKind::Secret);
        let network_policies = children(ChildKind::NetworkPolicy);
        Caches {
            daemonsets,
            deployments,
            services,
            config_maps,
            secrets,
            network_policies,
            // Watched only while it is served: the watch of a kind that does not exist would ask for ever.
            service_monitors: self.children(
                ChildKind::ServiceMonitor,
                Some(&WhileServed { served: serves, listed: service_monitors_listed.clone() }),
                tasks,
            ),
            replica_sets: self.replica_sets(tasks),
            pods: self.pods(tasks),
            nodes: self.nodes(tasks),
            events: self.events(tasks),
            sources: self.sources(tasks),
            injected: [Injector::CacheBlend, Injector::LmCache].map(|injector| self.injected(injector, tasks)),
            service_monitors_listed,
        }
    }

    fn children(&self, kind: ChildKind, while_served: Option<&WhileServed>, tasks: &mut JoinSet<()>) -> Cache<Live> {
        let resource = kind.api_resource();
        let (cache, feeds) = Cache::new(self.namespaces, &resource, owner_of_child);
        for (namespace, feed) in self.namespaces.iter().zip(feeds) {
            let api: Api<Live> = match namespace {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
                None => Api::all_with(self.client.clone(), &resource),
            };
            // The user's labels win on a ServiceMonitor, so ours need not be there.
            let config = if kind == ChildKind::ServiceMonitor { settings() } else { settings().labels(OURS) };
            let waiting = Some((kind, self.wakeups.clone()));
            let watch = Watch { api, config, feed, resource: label(kind), keep: |_| true, waiting };
            self.spawn(watch, |_| {}, self.wake_by_name(), while_served.cloned(), tasks);
        }
        cache
    }

    fn replica_sets(&self, tasks: &mut JoinSet<()>) -> Cache<ReplicaSetView> {
        let (cache, feeds) = Cache::new(self.namespaces, &(), |set: &ReplicaSetView| {
            let controller = controller_of(&set.metadata).filter(|c| c.kind == "Deployment")?;
            Some(Key::new(set.metadata.namespace.as_deref()?, controller.name.as_str()))
        });
        for (namespace, feed) in self.namespaces.iter().zip(feeds) {
            let api = self.api(namespace.as_deref());
            let watch = Watch {
                api,
                config: settings().labels(OURS),
                feed,
                resource: "replicasets",
                keep: |_| true,
                waiting: None,
            };
            self.spawn(watch, ReplicaSetView::trim, self.wake_by_name(), None, tasks);
        }
        cache
    }

    fn pods(&self, tasks: &mut JoinSet<()>) -> Cache<PodView> {
        let (cache, feeds) = Cache::new(self.namespaces, &(), |pod: &PodView| {
            Some(Key::new(pod.metadata.namespace.as_deref()?, workload_of(pod)?))
        });
        for (namespace, feed) in self.namespaces.iter().zip(feeds) {
            let watch = Watch {
                api: self.api(namespace.as_deref()),
                config: settings().labels(OURS),
                feed,
                resource: "pods",
                keep: |_| true,
                waiting: None,
            };
            self.spawn(watch, PodView::trim, self.wake_by_name(), None, tasks);
        }
        cache
    }

    fn nodes(&self, tasks: &mut JoinSet<()>) -> Cache<NodeView> {
        let (cache, feeds) = Cache::new(&[None], &(), |_: &NodeView| None);
        for feed in feeds {
            let watch = Watch {
                api: Api::all(self.client.clone()),
                config: settings(),
                feed,
                resource: "nodes",
                keep: |_| true,
                waiting: None,
            };
            self.spawn(watch, NodeView::trim, |_| {}, None, tasks);
        }
        cache
    }

    fn events(&self, tasks: &mut JoinSet<()>) -> Cache<EventView> {
        let (cache, feeds) = Cache::new(self.namespaces, &(), |event: &EventView| {
            Some(Key::new(event.metadata.namespace.as_deref()?, event.involved_object.name.as_str()))
        });
        for (namespace, feed) in self.namespaces.iter().zip(feeds) {
            let config = settings().fields(WARNINGS);
            let watch = Watch {
                api: self.api(namespace.as_deref()),
                config,
                feed,
                resource: "events",
                keep: tells_of_trouble,
                waiting: None,
            };
            // An Event about a DaemonSet wakes the engine of that name; trouble of a pod also changes the pod.
            self.spawn(watch, EventView::trim, self.wake_by_name(), None, tasks);
        }
        cache
    }

    fn sources(&self, tasks: &mut JoinSet<()>) -> Cache<PartialObjectMeta<Secret>> {
        let (cache, feeds) = Cache::new(self.namespaces, &(), |secret: &PartialObjectMeta<Secret>| {
            Some(Key::new(secret.metadata.namespace.as_deref()?, secret.metadata.name.as_deref()?))
        });
        for (namespace, feed) in self.namespaces.iter().zip(feeds) {
            let watch = Watch {
                api: self.api(namespace.as_deref()),
                config: settings(),
                feed,
                resource: "secrets",
                keep: |_| true,
                waiting: None,
            };
            let wakeups = self.wakeups.clone();
            self.spawn(
                watch,
                trim_secret,
                move |source| wakeups.wake_referrers(&Target::Secret(source.clone())),
                None,
                tasks,
            );
        }
        cache
    }

    fn injected(&self, injector: Injector, tasks: &mut JoinSet<()>) -> Cache<InjectedPod> {
        let (cache, feeds) = Cache::new(self.namespaces, &(), injected::by_engine(injector));
        for (namespace, feed) in self.namespaces.iter().zip(feeds) {
            let config = settings().labels(&format!("{}=true", injector.names().label));
            let api = self.api(namespace.as_deref());
            let watch = Watch { api, config, feed, resource: "pods", keep: |_| true, waiting: None };
            self.spawn(watch, injected::trim, self.wake_by_name(), None, tasks);
        }
        cache
    }

    /// Says whether ServiceMonitors are served: by a watch, so that nothing has to be asked again and again.
    fn service_monitor_crd(&self, served: &tokio::sync::watch::Sender<bool>, tasks: &mut JoinSet<()>) {
        let (cache, feeds) = Cache::new(&[None], &(), |crd: &PartialObjectMeta<CustomResourceDefinition>| {
            Some(Key::new("", crd.metadata.name.as_deref()?))
        });
        for feed in feeds {
            let config = settings().fields(&format!("metadata.name={SERVICE_MONITOR_CRD}"));
            let api = Api::all(self.client.clone());
            let watch =
                Watch { api, config, feed, resource: "customresourcedefinitions", keep: |_| true, waiting: None };
            let (served, cache) = (served.clone(), cache.clone());
            let announce = move |_: &Key| {
                served.send_replace(cache.get_cluster(SERVICE_MONITOR_CRD).is_some());
            };
            self.spawn(watch, |crd| trim_metadata(&mut crd.metadata), announce, None, tasks);
        }
    }

    fn api<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn wake_by_name(&self) -> impl Fn(&Key) + Send + Sync + 'static {
        let wakeups = self.wakeups.clone();
        move |key| wakeups.touch(key)
    }

    fn spawn<K>(
        &self,
        watch: Watch<K>,
        trim: fn(&mut K),
        wake: impl Fn(&Key) + Send + Sync + 'static,
        while_served: Option<WhileServed>,
        tasks: &mut JoinSet<()>,
    ) where
        K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
        K::DynamicType: Eq + Hash + Clone + Send + Sync,
    {
        let (metrics, wakeups) = (self.metrics.clone(), self.wakeups.clone());
        tasks.spawn(async move {
            let mut watch = watch;
            let Some(WhileServed { mut served, listed }) = while_served else {
                return watch.run(trim, &wake, &|| {}, &metrics).await;
            };
            let known = |now: bool| {
                listed.store(now, Ordering::Release);
                wakeups.wake_all();
            };
            let listed_now = || known(true);
            while served.wait_for(|served| *served).await.is_ok() {
                let mut gone = served.clone();
                tokio::select! {
                    () = watch.run(trim, &wake, &listed_now, &metrics) => {}
                    _ = gone.wait_for(|served| !*served) => {
                        watch.clear();
                        known(false);
                    }
                }
            }
        });
    }
}

/// A watch that only makes sense while its kind is served.
#[derive(Clone)]
struct WhileServed {
    served: tokio::sync::watch::Receiver<bool>,
    /// Whether the first list has arrived.
    listed: Arc<AtomicBool>,
}

/// The plural of a kind, as a metric label.
const fn label(kind: ChildKind) -> &'static str {
    match kind {
        ChildKind::Secret => "secrets",
        ChildKind::DaemonSet => "daemonsets",
        ChildKind::Deployment => "deployments",
        ChildKind::Service => "services",
        ChildKind::ConfigMap => "configmaps",
        ChildKind::ServiceMonitor => "servicemonitors",
        ChildKind::NetworkPolicy => "networkpolicies",
    }
}

/// Objects come trimmed, whole lists come as streams: neither is ever held twice.
fn settings() -> watcher::Config {
    watcher::Config::default().streaming_lists()
}

/// The resource that a child belongs to: its controller, or else the one its labels name.
fn owner_of_child(child: &Live) -> Option<Key> {
    let meta = child.meta();
    let namespace = meta.namespace.as_deref()?;
    let controller = controller_of(meta).filter(|c| c.api_version.split('/').next() == Some(GROUP));
    let label = || meta.labels.as_ref()?.get("app.kubernetes.io/instance").map(String::as_str);
    Some(Key::new(namespace, controller.map(|c| c.name.as_str()).or_else(label)?))
}

/// Name of the DaemonSet or Deployment that a pod belongs to. A ReplicaSet is called after its Deployment and the hash of
/// its template.
fn workload_of(pod: &PodView) -> Option<&str> {
    let controller = pod.controller()?;
    match controller.kind.as_str() {
        "DaemonSet" => Some(&controller.name),
        "ReplicaSet" => controller.name.strip_suffix(pod.label(TEMPLATE_HASH_LABEL)?)?.strip_suffix('-'),
        _ => None,
    }
}

/// Of a foreign Secret only who may use it is kept.
fn trim_secret(secret: &mut PartialObjectMeta<Secret>) {
    let share = secret.metadata.annotations.as_mut().and_then(|notes| notes.remove_entry(SHARE_ANNOTATION));
    trim_metadata(&mut secret.metadata);
    secret.metadata.labels = None;
    secret.metadata.owner_references = None;
    secret.metadata.annotations = share.map(|entry| [entry].into());
}

/// By this annotation the owner of a Secret allows other namespaces to use it: a comma list, or `*` (D14).
pub const SHARE_ANNOTATION: &str = "lmcache.ai/share-with";

struct Watch<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    api: Api<K>,
    config: watcher::Config,
    feed: Feed<K>,
    resource: &'static str,
    /// What is worth keeping.
    keep: fn(&K) -> bool,
    /// Of children: who waits for the place of one that is deleted.
    waiting: Option<(ChildKind, Wakeups)>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    async fn run(
        &mut self,
        trim: fn(&mut K),
        wake: &(impl Fn(&Key) + Send + Sync),
        listed: &(dyn Fn() + Send + Sync),
        metrics: &Metrics,
    ) {
        let stream = watch(self.api.clone(), self.config.clone()).modify(trim).backoff(trouble::backoff());
        pin_mut!(stream);
        while let Some(event) = stream.next().await {
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) if !(self.keep)(&object) => {}
                Ok(event) => {
                    self.feed.take(&event).iter().for_each(wake);
                    if let (Event::Delete(object), Some((kind, wakeups))) = (&event, &self.waiting) {
                        wakeups.wake_referrers(&Target::Child(*kind, Key::of(object.meta())));
                    }
                    if matches!(event, Event::InitDone) {
                        listed();
                    }
                }
                Err(error) => trouble::report(self.resource, &error, metrics),
            }
        }
    }

    /// Empties the cache: the kind is not served any more.
    fn clear(&mut self) {
        self.feed.take(&Event::Init);
        self.feed.take(&Event::InitDone);
    }
}
