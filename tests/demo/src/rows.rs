//! The columns of `kubectl get -o wide`, as the API server prints them, at every change of an engine.

use std::pin::Pin;

use anyhow::{Context as _, Result, bail};
use futures::{Stream, StreamExt as _};
use kube::core::WatchEvent;
use kube::{Client, Resource as _};
use lmcache_crds::LMCacheEngine;
use serde::Deserialize;
use serde_json::Value;

/// The API server prints the columns itself when it is asked like this; so does kubectl ask.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const AGE: &str = "Age";

/// One line of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Names of the columns.
    pub header: Vec<String>,
    /// What stands in them.
    pub cells: Vec<String>,
    /// Whether a person sees a difference to the row before.
    pub changed: bool,
    /// The engine at that moment.
    pub engine: LMCacheEngine,
}

impl Row {
    /// Whether a person would see no difference but in the age.
    fn looks_like(&self, other: &Self) -> bool {
        let differs = |(index, name): (usize, &String)| name != AGE && self.cells.get(index) != other.cells.get(index);
        self.header == other.header && !self.header.iter().enumerate().any(differs)
    }
}

/// Watches one engine.
pub struct Rows {
    client: Client,
    path: String,
    events: Option<Events>,
    header: Vec<String>,
    last: Option<Row>,
}

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Table>>> + Send>>;

/// What is read of a `meta.k8s.io/v1` Table.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    /// Only the first event of a watch has them.
    column_definitions: Option<Vec<Column>>,
    rows: Vec<TableRow>,
}

#[derive(Clone, Debug, Deserialize)]
struct Column {
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct TableRow {
    cells: Vec<Value>,
    object: Value,
}

impl Rows {
    /// Opens the watch, so that nothing that happens from now on is missed.
    pub async fn open(client: Client, namespace: &str, name: &str) -> Result<Self> {
        let list = LMCacheEngine::url_path(&(), Some(namespace));
        let path = format!("{list}?watch=true&includeObject=Object&fieldSelector=metadata.name%3D{name}");
        let events = Some(connect(&client, &path).await?);
        Ok(Self { client, path, events, header: Vec::new(), last: None })
    }

    /// Waits for the next row; `None` when the engine was deleted.
    pub async fn next(&mut self) -> Result<Option<Row>> {
        loop {
            // It may be called again after it was given up in the middle: the stream stays until it has ended.
            let events = match &mut self.events {
                Some(events) => events,
                None => self.events.insert(connect(&self.client, &self.path).await?),
            };
            match events.next().await {
                Some(Ok(WatchEvent::Added(table) | WatchEvent::Modified(table))) => {
                    if let Some(row) = self.take(table)? {
                        return Ok(Some(row));
                    }
                }
                Some(Ok(WatchEvent::Deleted(_))) => {
                    self.last = None;
                    return Ok(None);
                }
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                Some(Ok(WatchEvent::Error(status))) => bail!("the watch ended: {}", status.message),
                Some(Err(error)) => return Err(error).context("the watch broke"),
                // The API server ends every watch some time.
                None => self.events = None,
            }
        }
    }

    fn take(&mut self, table: Table) -> Result<Option<Row>> {
        if let Some(columns) = table.column_definitions {
            self.header = columns.into_iter().map(|column| column.name).collect();
        }
        let Some(row) = table.rows.into_iter().next() else { return Ok(None) };
        let mut row = Row {
            changed: true,
            header: self.header.clone(),
            cells: row.cells.iter().map(text).collect(),
            engine: serde_json::from_value(row.object).context("the engine cannot be read")?,
        };
        row.changed = !self.last.as_ref().is_some_and(|last| last.looks_like(&row));
        self.last = Some(row.clone());
        Ok(Some(row))
    }
}

async fn connect(client: &Client, path: &str) -> Result<Events> {
    let request = http::Request::get(path).header(http::header::ACCEPT, TABLE).body(Vec::new())?;
    let events = client.request_events::<Table>(request).await.context("cannot watch the engine")?;
    Ok(events.boxed())
}

fn text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn row(cells: [&str; 3]) -> Row {
        let engine = LMCacheEngine::new("demo", lmcache_crds::LMCacheEngineSpec::default());
        let own = |texts: [&str; 3]| texts.map(str::to_owned).to_vec();
        Row { header: own(["Name", "Phase", "Age"]), cells: own(cells), changed: true, engine }
    }

    #[test]
    fn growing_older_is_no_change() {
        assert!(row(["demo", "Ready", "1s"]).looks_like(&row(["demo", "Ready", "2s"])));
        assert!(!row(["demo", "Rolling", "1s"]).looks_like(&row(["demo", "Ready", "1s"])));
    }

    #[test]
    fn cells_are_shown_as_kubectl_shows_them() {
        let cells = serde_json::json!(["demo", 3, null]);
        assert_eq!(cells.as_array().unwrap().iter().map(text).collect::<Vec<_>>(), ["demo", "3", ""]);
    }
}
