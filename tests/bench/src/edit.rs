//! Edits in the middle of the convergence, one of each kind.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::bed::NAMESPACE;
use crate::fleet::{Fleet, Group};
use crate::kinds::{Change, Kind};
use crate::mix::Mix;

/// How long an edit took.
#[derive(Clone, Copy, Debug)]
pub struct EditTimes {
    /// Until the workload carried the new argument.
    pub carried: Duration,
    /// Until the status spoke of the new generation.
    pub observed: Duration,
}

/// The edits of one run.
pub struct Edits {
    /// One of each kind, in the order of the fleet's groups.
    plans: Vec<Plan>,
    running: JoinSet<Result<(usize, Sent)>>,
}

impl Edits {
    /// When half of the resources of a kind are Ready, the last one that is not gets an edit.
    pub fn new(mix: &Mix) -> Self {
        let plan = |kind: &Kind| Plan::new(*kind, mix.of(*kind).map(|number| kind.name(number)).collect());
        Self { plans: mix.kinds().iter().map(plan).collect(), running: JoinSet::new() }
    }

    /// Begins every edit whose time has come, and notes which generations have been observed.
    pub fn look(&mut self, client: &Client, fleet: &Fleet) {
        for (index, (plan, group)) in self.plans.iter_mut().zip(fleet.groups()).enumerate() {
            if let Some(name) = plan.begin(group) {
                let (client, kind) = (client.clone(), plan.kind);
                self.running.spawn(async move { Ok((index, edit(client, kind, &name).await?)) });
            }
            plan.look(group);
        }
    }

    /// Waits until an edit has reached its workload; `None` when none is on its way.
    pub async fn carried(&mut self) -> Option<Result<()>> {
        let (index, sent) = match self.running.join_next().await?.context("an edit ended") {
            Ok(Ok(carried)) => carried,
            Ok(Err(error)) | Err(error) => return Some(Err(error)),
        };
        if let Some(plan) = self.plans.get_mut(index) {
            plan.sent = Some(sent);
        }
        Some(Ok(()))
    }

    /// Whether nothing is left to wait for.
    pub fn done(&self) -> bool {
        self.plans.iter().all(Plan::done)
    }

    /// How long each took; `None` when every resource of the kind was Ready too soon.
    pub fn times(&self) -> Vec<(Kind, Option<EditTimes>)> {
        self.plans.iter().map(|plan| (plan.kind, plan.times())).collect()
    }
}

/// An edit whose argument has reached the workload.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    /// Generation of the resource with the edit.
    generation: i64,
    carried_after: Duration,
}

/// Who is edited.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// That is not decided yet.
    Undecided,
    /// All were Ready when it was decided.
    Nobody,
    /// The resource of this name.
    Resource(String),
}

/// The edit of one kind.
struct Plan {
    kind: Kind,
    names: Vec<String>,
    target: Target,
    sent: Option<Sent>,
    /// Every generation that the status has spoken of, and since when.
    observed: Vec<(i64, Instant)>,
}

impl Plan {
    fn new(kind: Kind, names: Vec<String>) -> Self {
        Self { kind, names, target: Target::Undecided, sent: None, observed: Vec::new() }
    }

    /// Decides who is edited, once; names it when that is so.
    fn begin(&mut self, group: &Group) -> Option<String> {
        if self.target != Target::Undecided || group.ready() * 2 < self.names.len() {
            return None;
        }
        let last = self.names.iter().rev().find(|name| group.is_ready(name) == Some(false)).cloned();
        self.target = last.clone().map_or(Target::Nobody, Target::Resource);
        last
    }

    fn look(&mut self, group: &Group) {
        if let Target::Resource(name) = &self.target
            && let Some(generation) = group.observed_generation(name)
            && self.observed.last().is_none_or(|(last, _)| *last < generation)
        {
            self.observed.push((generation, Instant::now()));
        }
    }

    fn done(&self) -> bool {
        match self.target {
            Target::Undecided => false,
            Target::Nobody => true,
            Target::Resource(_) => self.times().is_some(),
        }
    }

    fn times(&self) -> Option<EditTimes> {
        let sent = self.sent?;
        let (_, at) = self.observed.iter().find(|(generation, _)| *generation >= sent.generation)?;
        Some(EditTimes { carried: sent.carried_after, observed: at.saturating_duration_since(sent.at) })
    }
}

/// Edits a resource and waits until its workload carries what was edited.
async fn edit(client: Client, kind: Kind, name: &str) -> Result<Sent> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let workload = kind.workload().api_resource();
    let workloads = Api::<DynamicObject>::namespaced_with(client.clone(), NAMESPACE, &workload);
    let mut events = watcher(workloads, config).default_backoff().boxed();
    // The watch is open before the edit is made, so that its start does not count.
    while !matches!(events.try_next().await?.context("the watch ended")?, Event::InitDone) {}

    let resources = Api::<DynamicObject>::namespaced_with(client, NAMESPACE, &kind.resource());
    let Change { patch, argument } = kind.change();
    let at = Instant::now();
    let edited = resources.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    let edited = edited.with_context(|| format!("cannot edit {kind} {name}"))?;
    let generation = edited.metadata.generation.context("a resource has no generation")?;
    while let Some(event) = events.try_next().await? {
        if let Event::Apply(workload) | Event::InitApply(workload) = event
            && carries(&workload.data, argument)
        {
            return Ok(Sent { at, generation, carried_after: at.elapsed() });
        }
    }
    bail!("the watch ended")
}

/// Whether the first container of a workload's pods has an argument with this value.
fn carries(workload: &Value, [argument, value]: [&str; 2]) -> bool {
    let args = workload["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
    args.is_some_and(|args| args.windows(2).any(|pair| pair[0] == argument && pair[1] == value))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Merges as the API server does; nothing is deleted here.
    fn merge(object: &mut Value, patch: &Value) {
        for (key, value) in patch.as_object().into_iter().flatten() {
            if value.is_object() {
                merge(&mut object[key], value);
            } else {
                object[key] = value.clone();
            }
        }
    }

    #[rstest]
    fn an_edit_is_recognised_in_what_is_rendered_of_it(
        #[values(Kind::Engine, Kind::CacheBlend, Kind::Coordinator)] kind: Kind,
    ) {
        let Change { patch, argument } = kind.change();
        let workload = |object: &Value| {
            let children = kind.children(object.clone()).unwrap();
            children.get(kind.workload(), &kind.name(3)).unwrap().object.clone()
        };
        let mut object = kind.object(3);
        let before = workload(&object);
        merge(&mut object, &patch);
        let after = workload(&object);
        assert!(!carries(&before, argument), "{before:#}");
        assert!(carries(&after, argument), "{after:#}");
    }

    #[test]
    fn an_edit_is_timed_by_the_generation_that_it_made() {
        let at = Instant::now();
        let mut plan = Plan::new(Kind::Coordinator, vec!["x".to_owned()]);
        plan.target = Target::Resource("x".to_owned());
        plan.observed = [1, 2, 3].map(|second: u32| (second.into(), at + Duration::from_secs(1) * second)).into();
        assert!(!plan.done() && plan.times().is_none());
        plan.sent = Some(Sent { at, generation: 2, carried_after: Duration::from_millis(5) });
        let times = plan.times().unwrap();
        assert_eq!((times.carried, times.observed), (Duration::from_millis(5), Duration::from_secs(2)));
        assert!(plan.done());
    }

    #[test]
    fn nobody_is_edited_when_all_are_ready_too_soon() {
        let mut plan = Plan::new(Kind::Engine, Vec::new());
        assert_eq!(plan.begin(&Group::default()), None);
        assert!(plan.done() && plan.times().is_none());
    }
}
