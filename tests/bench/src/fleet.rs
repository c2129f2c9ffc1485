//! Watching until everything is ready.

use std::collections::HashMap;
use std::pin::Pin;

use anyhow::{Context as _, Result, bail};
use futures::stream::{SelectAll, select_all};
use futures::{Stream, StreamExt as _};
use kube::api::ApiResource;
use kube::core::{NotUsed, Object};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use lmcache_crds::Phase;
use lmcache_testbed::Cluster;
use serde::Deserialize;

use crate::bed::NAMESPACE;

/// Something that gets ready: a resource, or the workload of one.
pub type Member = Object<NotUsed, Status>;

/// What is read of a status, of whatever kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    phase: Option<Phase>,
    observed_generation: Option<i64>,
    number_ready: i32,
    ready_replicas: i32,
}

/// Whether a resource is Ready as it is now wanted.
pub fn is_resource_ready(member: &Member) -> bool {
    let status = member.status.as_ref();
    status.is_some_and(|it| it.phase == Some(Phase::Ready) && it.observed_generation == member.metadata.generation)
}

/// Whether the only pod of a `DaemonSet` or `Deployment` is ready.
pub fn is_workload_ready(member: &Member) -> bool {
    member.status.as_ref().is_some_and(|status| status.number_ready + status.ready_replicas == 1)
}

/// What is remembered of a member.
#[derive(Clone, Copy, Debug)]
struct State {
    ready: bool,
    observed: Option<i64>,
}

/// All members of one kind in [`NAMESPACE`].
#[derive(Clone, Debug, Default)]
pub struct Group {
    members: HashMap<String, State>,
    ready: usize,
}

impl Group {
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

    fn take(&mut self, member: &Member, ready: bool) {
        let observed = member.status.as_ref().and_then(|status| status.observed_generation);
        let before = self.members.insert(member.name_any(), State { ready, observed });
        self.ready -= usize::from(before.is_some_and(|before| before.ready));
        self.ready += usize::from(ready);
    }
}

type Events = Pin<Box<dyn Stream<Item = (usize, watcher::Result<Event<Member>>)> + Send>>;

/// All members of several kinds.
pub struct Fleet {
    events: SelectAll<Events>,
    groups: Vec<Group>,
    is_ready: fn(&Member) -> bool,
}

impl Fleet {
    /// Starts watching these kinds; returns when those that exist are known.
    pub async fn watch(cluster: &Cluster, kinds: &[ApiResource], is_ready: fn(&Member) -> bool) -> Result<Self> {
        let watch = |(index, kind): (usize, &ApiResource)| -> Events {
            let api = Api::namespaced_with(cluster.client(), NAMESPACE, kind);
            let events = watcher(api, watcher::Config::default()).default_backoff();
            events.map(move |event| (index, event)).boxed()
        };
        let events = select_all(kinds.iter().enumerate().map(watch));
        let mut fleet = Self { events, groups: vec![Group::default(); kinds.len()], is_ready };
        let mut listed = 0;
        while listed < kinds.len() {
            listed += usize::from(fleet.step().await?);
        }
        Ok(fleet)
    }

    /// Waits for the next change.
    pub async fn changed(&mut self) -> Result<()> {
        self.step().await.map(|_| ())
    }

    /// The members of every kind, in the order in which the kinds were given.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.groups.iter().map(Group::len).sum()
    }

    /// How many are ready.
    pub fn ready(&self) -> usize {
        self.groups.iter().map(Group::ready).sum()
    }

    /// Takes one event; says whether a first list was complete with it.
    async fn step(&mut self) -> Result<bool> {
        let (index, event) = self.events.next().await.context("the watches ended")?;
        match event.context("cannot watch")? {
            Event::Apply(member) | Event::InitApply(member) => {
                let ready = (self.is_ready)(&member);
                if let Some(group) = self.groups.get_mut(index) {
                    group.take(&member, ready);
                }
            }
            Event::Delete(member) => bail!("{} was deleted", member.name_any()),
            Event::InitDone => return Ok(true),
            Event::Init => {}
        }
        Ok(false)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn member(status: &Value) -> Member {
        let metadata = json!({"name": "x", "generation": 2, "managedFields": [{"manager": "m"}]});
        let object = json!({"apiVersion": "v1", "kind": "K", "metadata": metadata, "spec": {"a": 1}, "status": status});
        serde_json::from_value(object).unwrap()
    }

    #[rstest]
    #[case::engine(json!({"phase": "Ready", "observedGeneration": 2, "readyInstances": 1, "endpoints": []}), true)]
    #[case::coordinator(json!({"phase": "Ready", "observedGeneration": 2, "readyReplicas": 1}), true)]
    #[case::older_generation(json!({"phase": "Ready", "observedGeneration": 1}), false)]
    #[case::rolling(json!({"phase": "Rolling", "observedGeneration": 2, "readyReplicas": 1}), false)]
    #[case::nothing_yet(Value::Null, false)]
    fn a_resource_is_ready_when_its_status_says_so_of_its_generation(#[case] status: Value, #[case] ready: bool) {
        assert_eq!(is_resource_ready(&member(&status)), ready, "{status}");
    }

    #[rstest]
    #[case::daemon_set(json!({"numberReady": 1, "desiredNumberScheduled": 1, "observedGeneration": 2}), true)]
    #[case::deployment(json!({"replicas": 1, "readyReplicas": 1}), true)]
    #[case::starting(json!({"replicas": 1, "unavailableReplicas": 1}), false)]
    #[case::nothing_yet(Value::Null, false)]
    fn a_workload_is_ready_with_its_pod(#[case] status: Value, #[case] ready: bool) {
        assert_eq!(is_workload_ready(&member(&status)), ready, "{status}");
    }

    #[test]
    fn a_member_that_is_no_longer_ready_is_not_counted() {
        let mut group = Group::default();
        let status = json!({"phase": "Ready", "observedGeneration": 2});
        for (ready, expected) in [(true, 1), (true, 1), (false, 0), (true, 1)] {
            group.take(&member(&status), ready);
            assert_eq!((group.ready(), group.len()), (expected, 1));
        }
        assert_eq!((group.observed_generation("x"), group.is_ready("y")), (Some(2), None));
    }
}
