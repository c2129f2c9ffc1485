//! Watching until everything is ready.

use std::collections::HashMap;
use std::fmt::Debug;
use std::pin::Pin;

use anyhow::{Context as _, Result, bail};
use futures::{Stream, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt as _};
use lmcache_crds::{LMCacheEngine, Phase};
use lmcache_testbed::Cluster;
use serde::de::DeserializeOwned;

use crate::bed::NAMESPACE;

/// Something that gets ready.
pub trait Member:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static
{
    /// Whether it is ready as it is now wanted.
    fn is_ready(&self) -> bool;
    /// Generation that its status speaks of.
    fn observed_generation(&self) -> Option<i64>;
}

impl Member for LMCacheEngine {
    fn is_ready(&self) -> bool {
        let ready = self.status.as_ref().is_some_and(|status| status.record.phase == Phase::Ready);
        ready && self.observed_generation() == self.metadata.generation
    }

    fn observed_generation(&self) -> Option<i64> {
        self.status.as_ref()?.record.observed_generation
    }
}

impl Member for DaemonSet {
    fn is_ready(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.number_ready == 1)
    }

    fn observed_generation(&self) -> Option<i64> {
        self.status.as_ref()?.observed_generation
    }
}

/// What is remembered of a member.
#[derive(Clone, Copy, Debug)]
struct State {
    ready: bool,
    observed: Option<i64>,
}

type Events<K> = Pin<Box<dyn Stream<Item = watcher::Result<Event<K>>> + Send>>;

/// All members in [`NAMESPACE`].
pub struct Fleet<K> {
    events: Events<K>,
    members: HashMap<String, State>,
    ready: usize,
}

impl<K: Member> Fleet<K> {
    /// Starts watching; returns when those that exist are known.
    pub async fn watch(cluster: &Cluster) -> Result<Self> {
        let api = Api::<K>::namespaced(cluster.client(), NAMESPACE);
        let events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        let mut fleet = Self { events, members: HashMap::new(), ready: 0 };
        while !fleet.step().await? {}
        Ok(fleet)
    }

    /// Waits for the next change.
    pub async fn changed(&mut self) -> Result<()> {
        self.step().await.map(|_| ())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// How many are ready.
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// Whether this one is ready; `None` when it does not exist.
    pub fn is_ready(&self, name: &str) -> Option<bool> {
        self.members.get(name).map(|state| state.ready)
    }

    /// Generation that this one's status speaks of.
    pub fn observed_generation(&self, name: &str) -> Option<i64> {
        self.members.get(name)?.observed
    }

    /// Takes one event; says whether a first list was complete with it.
    async fn step(&mut self) -> Result<bool> {
        match self.events.next().await {
            Some(Ok(Event::Apply(object) | Event::InitApply(object))) => self.take(&object),
            Some(Ok(Event::Delete(object))) => bail!("{} was deleted", object.name_any()),
            Some(Ok(Event::InitDone)) => return Ok(true),
            Some(Ok(Event::Init)) => {}
            Some(Err(error)) => return Err(error).context("cannot watch"),
            None => bail!("the watch ended"),
        }
        Ok(false)
    }

    fn take(&mut self, object: &K) {
        let state = State { ready: object.is_ready(), observed: object.observed_generation() };
        let before = self.members.insert(object.name_any(), state);
        self.ready -= usize::from(before.is_some_and(|before| before.ready));
        self.ready += usize::from(state.ready);
    }
}
