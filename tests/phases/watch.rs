//! Waiting for any objects, by watch.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use futures::StreamExt as _;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long anything may take. Generous: the machine may be busy with other things.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// An object that can be watched.
pub trait Watched:
    Resource<DynamicType: Clone> + Clone + Debug + Serialize + DeserializeOwned + Send + 'static
{
}
impl<T: Resource<DynamicType: Clone> + Clone + Debug + Serialize + DeserializeOwned + Send + 'static> Watched for T {}

/// Every object of a kind.
pub fn everything() -> watcher::Config {
    watcher::Config::default()
}

/// Waits until a selection as a whole fulfils a condition, and returns it, sorted by name.
pub async fn until<T: Watched>(
    api: &Api<T>,
    selection: watcher::Config,
    what: &str,
    holds: impl Fn(&[T]) -> bool,
) -> Result<Vec<T>> {
    let mut events = watcher(api.clone(), selection).default_backoff().boxed();
    let (mut known, mut complete) = (BTreeMap::new(), false);
    let search = async {
        loop {
            match events.next().await.context("the watch ended")? {
                Ok(Event::Init) => (known, complete) = (BTreeMap::new(), false),
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    known.insert(object.name_any(), object);
                }
                Ok(Event::Delete(object)) => {
                    known.remove(&object.name_any());
                }
                Ok(Event::InitDone) => complete = true,
                Err(_) => {}
            }
            let now: Vec<T> = known.values().cloned().collect();
            if complete && holds(&now) {
                return Ok(now);
            }
        }
    };
    if let Ok(found) = tokio::time::timeout(PATIENCE, search).await {
        return found;
    }
    let last = serde_json::to_string_pretty(&known).unwrap_or_else(|error| error.to_string());
    Err(anyhow!("{what}: not within {PATIENCE:?}; last seen: {last}"))
}

/// Waits until the object of a name fulfils a condition.
pub async fn object<T: Watched>(api: &Api<T>, name: &str, what: &str, holds: impl Fn(&T) -> bool) -> Result<T> {
    let selection = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let found = until(api, selection, what, |objects| objects.first().is_some_and(&holds)).await?;
    found.into_iter().next().context("the object has vanished")
}
