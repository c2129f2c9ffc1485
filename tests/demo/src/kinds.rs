//! The end of the story: the three kinds side by side.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::stream::{SelectAll, select_all};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::ApiResource;
use kube::core::{NotUsed, Object};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use lmcache_crds::{CacheBlendEngine, LMCacheCoordinator, LMCacheEngine, Phase, PhaseRecord};
use lmcache_testbed::Cluster;

use crate::scene::{NAME, NAMESPACE, walked};
use crate::screen::{Columns, Screen};

/// What is applied beside the engine.
pub const MANIFEST: &str = include_str!("../kinds.yaml");
/// Name of the `CacheBlendEngine` in [`MANIFEST`].
const BLEND: &str = "demo-blend";
/// Name of the `LMCacheCoordinator` in [`MANIFEST`].
pub const COORDINATOR: &str = "demo-coordinator";
/// Short names of the kinds, for kubectl.
const SHORT: [&str; 3] = ["lmc", "cbe", "lmcc"];
/// Seven instances take about fifteen seconds; a busy machine takes its time.
const PATIENCE: Duration = Duration::from_mins(3);
/// Wide enough for the longest kind, name, phase and reason, and for the header of the message.
const WIDTHS: [usize; 5] = [18, 16, 10, 18, 7];

/// What is read of a resource of any kind.
type Member = Object<NotUsed, PhaseRecord>;
type Events = Pin<Box<dyn Stream<Item = (String, watcher::Result<Event<Member>>)> + Send>>;

/// Watches the three resources.
pub struct Kinds {
    events: SelectAll<Events>,
    table: Table,
    last: BTreeMap<String, Member>,
}

impl Kinds {
    /// Begins to watch, and returns when what exists is known, so that nothing that happens from now on is missed.
    pub async fn open(screen: Screen, client: &Client) -> Result<Self> {
        let kinds = [
            ApiResource::erase::<LMCacheEngine>(&()),
            ApiResource::erase::<CacheBlendEngine>(&()),
            ApiResource::erase::<LMCacheCoordinator>(&()),
        ];
        let mut listed = kinds.len();
        let watch = |kind: ApiResource| -> Events {
            let api = Api::namespaced_with(client.clone(), NAMESPACE, &kind);
            let events = watcher(api, watcher::Config::default()).default_backoff();
            events.map(move |event| (kind.kind.clone(), event)).boxed()
        };
        let events = select_all(kinds.map(watch));
        let mut all = Self { events, table: Table::new(screen), last: BTreeMap::new() };
        while listed > 0 {
            match all.events.next().await.context("the watches ended")?.1? {
                Event::InitApply(member) | Event::Apply(member) => drop(all.last.insert(member.name_any(), member)),
                Event::InitDone => listed -= 1,
                Event::Init | Event::Delete(_) => {}
            }
        }
        Ok(all)
    }

    /// Shows every phase of each until all are Ready, the engine with this generation. Fails when one of those that are
    /// new has left out a phase.
    pub async fn until_ready(&mut self, generation: i64) -> Result<()> {
        if let Ok(result) = tokio::time::timeout(PATIENCE, self.watch(generation)).await {
            result?;
        } else {
            let waiting: Vec<_> = [NAME, BLEND, COORDINATOR].into_iter().map(|name| self.state(name)).collect();
            bail!("not all three are Ready after {} s: {}", PATIENCE.as_secs(), waiting.join("; "));
        }
        for name in [BLEND, COORDINATOR] {
            walked(name, self.last.get(name).and_then(|member| member.status.as_ref()))?;
        }
        Ok(())
    }

    async fn watch(&mut self, generation: i64) -> Result<()> {
        let all = [(NAME, generation), (BLEND, 1), (COORDINATOR, 1)];
        self.table.header()?;
        while !all.iter().all(|(name, generation)| self.is_ready(name, *generation)) {
            let (kind, event) = self.events.next().await.context("the watches ended")?;
            // A watch that broke is opened again by the watcher itself.
            let Ok(Event::Apply(member) | Event::InitApply(member)) = event else { continue };
            let before = self.last.insert(member.name_any(), member.clone());
            let record = member.status.clone().unwrap_or_default();
            if before.is_none_or(|before| before.status.unwrap_or_default().phase != record.phase) {
                let (reason, message) = (record.reason.unwrap_or_default(), record.message.unwrap_or_default());
                self.table.row(&[kind, member.name_any(), record.phase.to_string(), reason, message])?;
            }
        }
        Ok(())
    }

    fn is_ready(&self, name: &str, generation: i64) -> bool {
        self.last.get(name).is_some_and(|member| is_ready(member, generation))
    }

    fn state(&self, name: &str) -> String {
        let record = self.last.get(name).and_then(|member| member.status.clone()).unwrap_or_default();
        format!("{name} is {}, {}", record.phase, record.message.unwrap_or_default())
    }
}

/// The table on the screen.
struct Table {
    screen: Screen,
    columns: Columns,
}

impl Table {
    fn new(screen: Screen) -> Self {
        Self { screen, columns: Columns::new(&WIDTHS) }
    }

    fn header(&mut self) -> Result<()> {
        self.screen.heading("What each goes through until all three are Ready")?;
        self.row(&["KIND", "NAME", "PHASE", "REASON", "MESSAGE"].map(str::to_owned))
    }

    fn row(&mut self, cells: &[String; 5]) -> Result<()> {
        // The message comes last and has what is left of the line.
        self.columns.widen(&cells[..4]);
        Ok(self.screen.row(&self.columns, cells)?)
    }
}

/// What kubectl prints of the three, and what the engines know of the coordinator.
pub async fn tell(screen: Screen, cluster: &Cluster) -> Result<()> {
    screen.heading("All kinds at once, each with its own columns")?;
    printed(screen, cluster, &["get", "lmcache"]).await?;
    for short in SHORT {
        screen.line("")?;
        printed(screen, cluster, &["get", short, "-o", "wide"]).await?;
    }
    screen.heading("Both engines were told where the coordinator is")?;
    let sets = Api::<DaemonSet>::namespaced(cluster.client(), NAMESPACE);
    for name in [NAME, BLEND] {
        let set = sets.get(name).await?;
        let url = coordinator_url(&set).with_context(|| format!("{name} has no --coordinator-url"))?;
        screen.line(&format!("  {:20}  --coordinator-url {url}", format!("daemonset/{name}")))?;
    }
    Ok(())
}

/// Runs kubectl and shows command and output.
async fn printed(screen: Screen, cluster: &Cluster, args: &[&str]) -> Result<()> {
    screen.line(&format!("  $ kubectl {}", args.join(" ")))?;
    let text = cluster.kubectl(args).await?;
    Ok(text.lines().try_for_each(|line| screen.line(format!("  {line}").trim_end()))?)
}

fn is_ready(member: &Member, generation: i64) -> bool {
    let current = member.metadata.generation >= Some(generation);
    let status = member.status.as_ref();
    current && status.is_some_and(|it| it.phase == Phase::Ready && it.observed_generation == member.metadata.generation)
}

fn coordinator_url(set: &DaemonSet) -> Option<&str> {
    let args = set.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.args.as_ref()?;
    let (_, url) = args.iter().zip(args.iter().skip(1)).find(|(argument, _)| *argument == "--coordinator-url")?;
    Some(url)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_manifest_has_the_two_other_kinds_of_the_story() {
        for expected in [
            "kind: CacheBlendEngine",
            &format!("name: {BLEND}"),
            "kind: LMCacheCoordinator",
            &format!("name: {COORDINATOR}"),
            &format!("ref:\n      name: {COORDINATOR}"),
        ] {
            assert!(MANIFEST.contains(expected), "no {expected} in:\n{MANIFEST}");
        }
        let held = format!("{}: \"true\"", lmcache_testbed::annotation::HOLD);
        assert_eq!(MANIFEST.matches(&held).count(), 2, "{MANIFEST}");
    }

    #[rstest]
    #[case::ready("Ready", 3, true)]
    #[case::before_the_change("Ready", 2, false)]
    #[case::not_yet("Rolling", 3, false)]
    fn a_resource_is_ready_with_the_generation_that_was_asked_for(
        #[case] phase: &str,
        #[case] generation: i64,
        #[case] ready: bool,
    ) {
        let member: Member = serde_json::from_value(json!({
            "metadata": {"name": "x", "generation": generation}, "spec": {"replicas": 1},
            "status": {"phase": phase, "observedGeneration": generation, "replicas": 1, "endpoint": "http://x:1"},
        }))
        .unwrap();
        assert_eq!(is_ready(&member, 3), ready, "{member:?}");
    }

    #[rstest]
    #[case(&["--port", "1", "--coordinator-url", "http://c:9300", "--x"], Some("http://c:9300"))]
    #[case(&["--port", "1"], None)]
    fn the_url_is_read_from_the_arguments(#[case] args: &[&str], #[case] expected: Option<&str>) {
        let containers = json!([{"name": "server", "args": args}]);
        let set: DaemonSet = serde_json::from_value(json!({
            "metadata": {},
            "spec": {"selector": {}, "template": {"spec": {"containers": containers}}},
        }))
        .unwrap();
        assert_eq!(coordinator_url(&set), expected);
    }
}
