//! Watches everything about one resource from before its creation on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use lmcache_crds::LMCacheEngine;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::kind::{PhaseObject, instance_selector};
use crate::recording::{Recording, Seen, Stream};
use crate::workload::{Recorded, Template, Workload};

const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
const FOREVER: Duration = Duration::from_hours(24);

/// A recording in progress. Start it before the resource is created.
#[derive(Debug)]
pub struct PhaseRecorder<K: PhaseObject = LMCacheEngine> {
    name: String,
    started: Instant,
    objects: Tape<K>,
    workloads: Tape<K::Workload>,
    revisions: Tape<<K::Workload as Workload>::Template>,
    pods: Tape<Pod>,
}

impl PhaseRecorder<LMCacheEngine> {
    /// Starts to record an `LMCacheEngine` and returns when every watch is established.
    pub async fn start(client: Client, namespace: &str, name: &str) -> Result<Self> {
        Self::start_kind(client, namespace, name).await
    }
}

impl<K: PhaseObject> PhaseRecorder<K> {
    /// Starts to record a resource of whatever kind.
    pub async fn start_kind(client: Client, namespace: &str, name: &str) -> Result<Self> {
        let named = Selection { fields: Some(format!("metadata.name={name}")), labels: None };
        let children = Selection { fields: None, labels: Some(instance_selector::<K>(name)) };
        let recorder = Self {
            name: format!("{namespace}/{name}"),
            started: Instant::now(),
            objects: Tape::start(Api::namespaced(client.clone(), namespace), named.clone(), |_| {}),
            workloads: Tape::start(Api::namespaced(client.clone(), namespace), named, Workload::trim),
            revisions: Tape::start(Api::namespaced(client.clone(), namespace), children.clone(), Template::trim),
            pods: Tape::start(Api::namespaced(client, namespace), children, |pod: &mut Pod| {
                pod.metadata.managed_fields = None;
                pod.spec = None;
            }),
        };
        let watches = async {
            recorder.objects.established.notified().await;
            recorder.workloads.established.notified().await;
            recorder.revisions.established.notified().await;
            recorder.pods.established.notified().await;
        };
        tokio::time::timeout(PATIENCE, watches).await.context("the recorder's watches are not established")?;
        Ok(recorder)
    }

    /// Waits until everything that has happened so far has been heard of, and ends the recording.
    pub async fn finish(self) -> Result<Recording<K>> {
        Ok(Recording {
            name: self.name,
            started: self.started,
            objects: self.objects.finish().await?,
            workloads: self.workloads.finish().await?.map(|it| it.state()),
            revisions: self.revisions.finish().await?.map(|it| it.revision()),
            pods: self.pods.finish().await?,
        })
    }
}

#[derive(Clone, Debug)]
struct Selection {
    fields: Option<String>,
    labels: Option<String>,
}

/// Records one selection of one kind.
#[derive(Debug)]
struct Tape<T> {
    api: Api<T>,
    selection: Selection,
    stream: Arc<Mutex<Stream<T>>>,
    established: Arc<Notify>,
    task: JoinHandle<()>,
}

impl<T> Drop for Tape<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<T: Recorded> Tape<T> {
    fn start(api: Api<T>, selection: Selection, trim: impl Fn(&mut T) + Send + 'static) -> Self {
        let config = watcher::Config {
            field_selector: selection.fields.clone(),
            label_selector: selection.labels.clone(),
            ..watcher::Config::default()
        };
        let (stream, established) = (Arc::new(Mutex::new(Stream::default())), Arc::new(Notify::new()));
        let mut head = Head {
            stream: stream.clone(),
            established: established.clone(),
            listing: None,
            last_heard: None,
            deaf: false,
        };
        let mut events = watcher(api.clone(), config).default_backoff().boxed();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                // The watcher goes on after an error; when that costs versions, it lists anew.
                match event {
                    Ok(event) => head.write(event, &trim),
                    Err(_) => head.interrupt(),
                }
            }
        });
        Self { api, selection, stream, established, task }
    }

    async fn finish(self) -> Result<Stream<T>> {
        let params = ListParams {
            field_selector: self.selection.fields.clone(),
            label_selector: self.selection.labels.clone(),
            ..ListParams::default()
        };
        let list = self.api.list(&params).await?;
        let as_of = parse(list.metadata.resource_version.as_deref());
        let now: BTreeMap<_, _> = list.iter().map(|it| (it.uid(), version(it))).collect();
        let deadline = Instant::now() + PATIENCE;
        while !self.has_heard(&now, as_of) {
            if Instant::now() > deadline {
                bail!("the recorder has not heard of the present {}s in time", T::kind(&()));
            }
            tokio::time::sleep(POLL).await;
        }
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(stream)
    }

    /// Whether every object is known in this version or a newer one, and none that is known is one that was gone.
    fn has_heard(&self, now: &BTreeMap<Option<String>, u64>, as_of: u64) -> bool {
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |uid: &Option<String>, version: u64| {
            stream.seen.iter().rev().any(|it| it.uid == *uid && it.version >= version)
        };
        let all_known = now.iter().all(|(uid, version)| known(uid, *version));
        all_known && stream.at_version(as_of).all(|it| now.contains_key(&it.uid))
    }
}

struct Head<T> {
    stream: Arc<Mutex<Stream<T>>>,
    established: Arc<Notify>,
    /// What a list that is under way has named so far.
    listing: Option<Vec<Option<String>>>,
    last_heard: Option<Instant>,
    /// Whether the watch is broken; the last gap then has no end yet.
    deaf: bool,
}

impl<T: Resource<DynamicType = ()> + Clone> Head<T> {
    /// What happens from now on is heard of late, if at all.
    fn interrupt(&mut self) {
        if let Some(before) = self.last_heard
            && !self.deaf
        {
            let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
            stream.gaps.push((before, before + FOREVER));
            self.deaf = true;
        }
    }

    fn write(&mut self, event: Event<T>, trim: &impl Fn(&mut T)) {
        let at = Instant::now();
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut self.deaf)
            && let Some(gap) = stream.gaps.last_mut()
        {
            gap.1 = at;
        }
        let mut append = |mut object: T, deleted: bool| {
            let (version, uid) = (version(&object), object.uid());
            let known = stream.seen.iter().rev().find(|it| it.uid == uid);
            if known.is_none_or(|it| it.version < version || (deleted && !it.deleted)) {
                trim(&mut object);
                stream.seen.push(Seen { version, at, uid, object, deleted });
            }
        };
        match event {
            Event::Init => self.listing = Some(Vec::new()),
            Event::InitApply(object) => {
                self.listing.get_or_insert_default().push(object.uid());
                append(object, false);
            }
            Event::Apply(object) => append(object, false),
            Event::Delete(object) => append(object, true),
            Event::InitDone => {
                let listed = self.listing.take().unwrap_or_default();
                if let Some(before) = self.last_heard {
                    let version = stream.seen.last().map_or(0, |it| it.version);
                    let missing = stream.at_version(u64::MAX).filter(|it| !listed.contains(&it.uid));
                    let missing: Vec<_> = missing.map(|it| Seen { version, at, deleted: true, ..it.clone() }).collect();
                    stream.seen.extend(missing);
                    stream.gaps.push((before, at));
                }
                stream.seen.sort_by_key(|it| it.version);
                self.established.notify_one();
                self.last_heard = Some(at);
            }
        }
        if self.last_heard.is_some() && self.listing.is_none() {
            self.last_heard = Some(at);
        }
    }
}

fn version<T: Resource>(object: &T) -> u64 {
    parse(object.meta().resource_version.as_deref())
}

fn parse(resource_version: Option<&str>) -> u64 {
    resource_version.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(version: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some("u".to_owned());
        pod.metadata.resource_version = Some(version.to_owned());
        pod
    }

    #[test]
    fn what_is_heard_after_an_interruption_lies_in_a_gap() {
        let stream = Arc::new(Mutex::new(Stream::default()));
        let mut head = Head {
            stream: stream.clone(),
            established: Arc::new(Notify::new()),
            listing: None,
            last_heard: None,
            deaf: false,
        };
        let gaps = || stream.lock().unwrap_or_else(PoisonError::into_inner).gaps.clone();
        head.interrupt();
        assert_eq!(gaps(), [], "nothing was missed before the first list");
        for event in [Event::Init, Event::InitApply(pod("1")), Event::InitDone] {
            head.write(event, &|_| {});
        }
        head.interrupt();
        head.interrupt();
        assert!(gaps().len() == 1 && gaps()[0].1 > Instant::now(), "{:?}", gaps());
        head.write(Event::Apply(pod("2")), &|_| {});
        let (start, end) = gaps()[0];
        let heard = stream.lock().unwrap_or_else(PoisonError::into_inner).seen[1].at;
        assert!(gaps().len() == 1 && start <= heard && heard == end, "{:?}", gaps());
    }
}
