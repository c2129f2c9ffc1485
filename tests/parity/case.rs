//! One case: what is applied, and what must come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use lmcache_crds::{CacheBlendEngine, LMCacheCoordinator};
use lmcache_harness::{Harness, PhaseObject};
use serde::Deserialize as _;
use serde_json::Value;

use crate::common::children;
use crate::meant::{Meant, fixtures};

/// Condition Applied promises that every child is there; what the operator only then learns to be unwanted may take longer.
const SETTLING: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(200);

pub struct Case {
    pub name: String,
    /// Documents up to and with a resource of ours; each step is applied when the one before has been served.
    steps: Vec<Step>,
    golden: BTreeMap<String, Value>,
}

struct Step {
    text: String,
    kind: String,
    name: String,
}

impl Step {
    /// Applies it, waits until the operator has served it, and gives the UID of its resource.
    async fn run(&self, suite: &Harness) -> Result<String> {
        match self.kind.as_str() {
            "LMCacheEngine" => self.serve(suite).await,
            "CacheBlendEngine" => self.serve(&suite.for_kind::<CacheBlendEngine>()).await,
            "LMCacheCoordinator" => self.serve(&suite.for_kind::<LMCacheCoordinator>()).await,
            other => bail!("{other} is no kind of ours"),
        }
    }

    async fn serve<K: PhaseObject>(&self, suite: &Harness<K>) -> Result<String> {
        suite.apply_fixture(&self.text).await?;
        suite.wait_reconciled(&self.name).await?.meta().uid.clone().context("a stored resource has a UID")
    }
}

impl Case {
    /// Every case of the fixtures.
    pub fn all() -> Result<Vec<Self>> {
        let mut cases = Vec::new();
        for entry in fixtures().join("cases").read_dir()? {
            let path = entry?.path();
            let name = path.file_stem().context("a case has a name")?.to_string_lossy().into_owned();
            cases.push(Self::load(&name).with_context(|| name.clone())?);
        }
        cases.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(cases)
    }

    fn load(name: &str) -> Result<Self> {
        let text = std::fs::read_to_string(fixtures().join(format!("cases/{name}.yaml")))?;
        let golden = std::fs::read_to_string(fixtures().join(format!("golden/{name}.json")))?;
        let (mut steps, mut step) = (Vec::new(), String::new());
        for document in serde_norway::Deserializer::from_str(&text) {
            let document = Value::deserialize(document)?;
            step.push_str(&serde_json::to_string_pretty(&document)?);
            step.push_str("\n---\n");
            if document["apiVersion"].as_str().is_some_and(|version| version.starts_with("lmcache.lmcache.ai/")) {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let (kind, name) = (text(&document["kind"]), text(&document["metadata"]["name"]));
                steps.push(Step { text: std::mem::take(&mut step), kind, name });
            }
        }
        Ok(Self { name: name.to_owned(), steps, golden: serde_json::from_str(&golden)? })
    }

    /// Runs the case in a namespace of its own and says what differs from what was recorded.
    pub async fn compare(&self, client: Client, meant: &Meant) -> Result<Vec<String>> {
        let suite = Harness::in_new_namespace(client.clone(), "parity").await?;
        let mut owners = BTreeSet::new();
        for step in &self.steps {
            owners.insert(step.run(&suite).await?);
        }
        ensure!(!owners.is_empty(), "the case holds no resource of ours");
        let wanted = meant.expected(&self.name, &self.golden);
        let deadline = Instant::now() + SETTLING;
        loop {
            let mut found = BTreeMap::new();
            for owner in &owners {
                found.extend(children::of(&client, suite.namespace(), owner).await?);
            }
            let differences = self.differences(&wanted, &found, meant);
            if differences.is_empty() || Instant::now() > deadline {
                suite.finish().await?;
                return Ok(differences);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn differences(
        &self,
        wanted: &BTreeMap<String, Value>,
        found: &BTreeMap<String, Value>,
        meant: &Meant,
    ) -> Vec<String> {
        let mut texts = Vec::new();
        let mut names: Vec<_> = wanted.keys().chain(found.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let (Some(want), Some(have)) = (wanted.get(name), found.get(name)) else {
                texts.push(format!(
                    "{name}: {}",
                    if found.contains_key(name) { "must not be there" } else { "is missing" }
                ));
                continue;
            };
            let differences = children::differences(want, have).into_iter();
            let unmeant = differences.filter(|(path, ..)| !meant.ignores(&self.name, name, path));
            texts.extend(unmeant.map(|(path, want, have)| format!("{name} {path}: want {want}, got {have}")));
        }
        texts
    }
}
