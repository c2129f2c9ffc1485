//! Caches: a watch, a store, and an index from a resource to what belongs to it.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use futures::FutureExt;
use kube::Resource;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::Event;

use crate::key::Key;

use super::live::resource_version;

/// Objects of one kind, in one watched namespace or in all, found by name or by the resource they belong to.
/// A clone reads the same objects.
#[derive(Clone)]
pub struct Cache<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    parts: Vec<Part<K>>,
    dynamic: K::DynamicType,
}

#[derive(Clone)]
struct Part<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    namespace: Option<String>,
    store: Store<K>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    index: RwLock<HashMap<Key, BTreeSet<Key>>>,
    latest: AtomicU64,
}

/// The writing end of one part of a cache: fed by one watch.
pub struct Feed<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    writer: Writer<K>,
    shared: Arc<Shared>,
    group: fn(&K) -> Option<Key>,
}

impl<K> Cache<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// An empty cache over `namespaces` (`None` for all), and a feed for each.
    /// `group` says to which resource an object belongs.
    pub fn new(
        namespaces: &[Option<String>],
        dynamic: &K::DynamicType,
        group: fn(&K) -> Option<Key>,
    ) -> (Self, Vec<Feed<K>>) {
        let mut feeds = Vec::new();
        let parts = namespaces.iter().map(|namespace| {
            let writer = Writer::new(dynamic.clone());
            let shared = Arc::new(Shared::default());
            let part = Part { namespace: namespace.clone(), store: writer.as_reader(), shared: shared.clone() };
            feeds.push(Feed { writer, shared, group });
            part
        });
        (Cache { parts: parts.collect(), dynamic: dynamic.clone() }, feeds)
    }

    fn part(&self, namespace: &str) -> Option<&Part<K>> {
        self.parts.iter().find(|part| part.namespace.as_deref().is_none_or(|ns| ns == namespace))
    }

    /// The object of that name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let reference = ObjectRef::new_with(name, self.dynamic.clone()).within(namespace);
        self.part(namespace)?.store.get(&reference)
    }

    /// Everything.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.parts.iter().flat_map(|part| part.store.state()).collect()
    }

    /// The object of that name, of a kind without namespaces.
    pub fn get_cluster(&self, name: &str) -> Option<Arc<K>> {
        self.parts.first()?.store.get(&ObjectRef::new_with(name, self.dynamic.clone()))
    }

    /// What belongs to a resource, sorted by name.
    pub fn of(&self, owner: &Key) -> Vec<Arc<K>> {
        let Some(part) = self.part(&owner.namespace) else { return Vec::new() };
        let index = part.shared.index.read().unwrap_or_else(PoisonError::into_inner);
        let names = index.get(owner).into_iter().flatten();
        names.filter_map(|key| self.get(&key.namespace, &key.name)).collect()
    }

    /// The newest resourceVersion that the watch of this namespace has delivered.
    pub fn latest(&self, namespace: &str) -> u64 {
        self.part(namespace).map_or(0, |part| part.shared.latest.load(Ordering::Relaxed))
    }

    /// Whether every watch has delivered its first list.
    pub fn is_synced(&self) -> bool {
        self.parts.iter().all(|part| part.store.wait_until_ready().now_or_never().is_some())
    }

    /// Waits until every watch has delivered its first list.
    pub async fn synced(&self) {
        for part in &self.parts {
            // The writer lives as long as the process; its end means that the process stops.
            let _ = part.store.wait_until_ready().await;
        }
    }
}

impl<K> Feed<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// Takes one watch event in and names the resources that it concerns.
    pub fn take(&mut self, event: &Event<K>) -> BTreeSet<Key> {
        let mut concerned = BTreeSet::new();
        match event {
            Event::InitApply(object) | Event::Apply(object) => {
                self.note(object);
                if let Some((owner, key)) = self.place(object) {
                    self.index(|index| index.entry(owner.clone()).or_default().insert(key));
                    if matches!(event, Event::Apply(_)) {
                        concerned.insert(owner);
                    }
                }
            }
            Event::Delete(object) => {
                self.note(object);
                if let Some((owner, key)) = self.place(object) {
                    self.index(|index| {
                        let left = index.get_mut(&owner).map(|names| {
                            names.remove(&key);
                            names.is_empty()
                        });
                        if left == Some(true) {
                            index.remove(&owner);
                        }
                    });
                    concerned.insert(owner);
                }
            }
            Event::Init | Event::InitDone => {}
        }
        self.writer.apply_watcher_event(event);
        if matches!(event, Event::InitDone) {
            concerned.extend(self.reindex());
        }
        concerned
    }

    /// After a new list: what vanished while the watch was down is dropped, and everybody looks again.
    fn reindex(&self) -> BTreeSet<Key> {
        let mut fresh: HashMap<Key, BTreeSet<Key>> = HashMap::new();
        for object in self.writer.as_reader().state() {
            if let Some((owner, key)) = self.place(&object) {
                fresh.entry(owner).or_default().insert(key);
            }
        }
        let mut concerned: BTreeSet<Key> = fresh.keys().cloned().collect();
        self.index(|index| concerned.extend(std::mem::replace(index, fresh).into_keys()));
        concerned
    }

    fn place(&self, object: &K) -> Option<(Key, Key)> {
        let meta = object.meta();
        let key = Key::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref()?);
        Some(((self.group)(object)?, key))
    }

    fn note(&self, object: &K) {
        self.shared.latest.fetch_max(resource_version(object.meta()), Ordering::Relaxed);
    }

    fn index<R>(&self, change: impl FnOnce(&mut HashMap<Key, BTreeSet<Key>>) -> R) {
        let mut index = self.shared.index.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut index);
    }
}
