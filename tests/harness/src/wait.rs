//! Waiting by watch.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use lmcache_crds::PhaseRecord;
use lmcache_states::conditions;
use serde::de::DeserializeOwned;

use crate::kind::PhaseObject;

/// What a look at an object says about what is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is there.
    Met,
    /// It may come.
    NotYet,
    /// It will not come, and why.
    Hopeless(String),
}

impl From<bool> for Judgement {
    fn from(met: bool) -> Self {
        if met { Self::Met } else { Self::NotYet }
    }
}

/// Whether the status speaks of the present generation.
pub(crate) fn is_current<K: PhaseObject>(object: &K) -> bool {
    let generation = object.meta().generation;
    generation.is_some() && object.record().is_some_and(|record| record.observed_generation == generation)
}

/// The condition of a type.
pub(crate) fn condition<'a>(record: &'a PhaseRecord, type_: &str) -> Option<&'a Condition> {
    record.conditions.iter().find(|condition| condition.type_ == type_)
}

/// Hopeless when the present generation is Stalled.
pub(crate) fn stalled<K: PhaseObject>(object: &K) -> Judgement {
    let stalled = object.record().and_then(|record| condition(record, conditions::STALLED));
    match stalled.filter(|it| it.status == "True" && is_current(object)) {
        Some(it) => Judgement::Hopeless(format!("it is stalled ({}): {}", it.reason, it.message)),
        None => Judgement::NotYet,
    }
}

/// Waits for one object that is judged to meet what is waited for.
pub(crate) async fn object<K: PhaseObject>(
    api: Api<K>,
    name: &str,
    timeout: Duration,
    judge: impl Fn(&K) -> Judgement,
) -> Result<K> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let search = search(watcher(api, config).default_backoff(), |event| match event {
        Event::Apply(object) | Event::InitApply(object) => match judge(&object) {
            Judgement::Met => Ok(Some(object)),
            Judgement::NotYet => Ok(None),
            Judgement::Hopeless(why) => Err(anyhow!(why)),
        },
        Event::Delete(_) => Err(anyhow!("it was deleted meanwhile")),
        Event::Init | Event::InitDone => Ok(None),
    });
    within(timeout, search).await
}

/// Waits for the first object of a selection that fulfils a condition.
pub(crate) async fn first<T>(api: Api<T>, selector: &str, timeout: Duration, wanted: impl Fn(&T) -> bool) -> Result<T>
where
    T: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let objects = watcher(api, watcher::Config::default().labels(selector)).default_backoff();
    let search = search(objects, |event| match event {
        Event::Apply(object) | Event::InitApply(object) if wanted(&object) => Ok(Some(object)),
        _ => Ok(None),
    });
    within(timeout, search).await
}

async fn search<T: Send, R>(
    events: impl Stream<Item = watcher::Result<Event<T>>> + Send,
    mut look: impl FnMut(Event<T>) -> Result<Option<R>>,
) -> Result<R> {
    let mut events = events.filter_map(|event| async { passing(event).transpose() }).boxed();
    while let Some(event) = events.try_next().await? {
        if let Some(found) = look(event)? {
            return Ok(found);
        }
    }
    bail!("the watch ended")
}

/// Trouble that a later attempt may be spared (the API server restarts) is waited out; a refusal is not.
pub(crate) fn passing<T>(event: watcher::Result<Event<T>>) -> Result<Option<Event<T>>> {
    let error = match event {
        Ok(event) => return Ok(Some(event)),
        Err(error) => error,
    };
    let status = match &error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status.code),
        _ => None,
    };
    if status.is_some_and(|code| matches!(code, 400..=404)) {
        return Err(error).context("cannot watch");
    }
    Ok(None)
}

pub(crate) async fn within<T>(timeout: Duration, search: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(timeout, search).await.unwrap_or_else(|_| bail!("not within {timeout:?}"))
}
