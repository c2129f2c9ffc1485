//! The shipped dashboards as a test reads them, and the queries in them.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::common::project;

/// A dashboard file.
pub struct Dashboard {
    pub name: &'static str,
    json: Value,
}

/// One panel of it.
pub struct Panel {
    pub title: String,
    pub look: String,
    pub place: Place,
    pub field_config: Value,
    pub options: Value,
    pub transformations: Value,
    pub unit: String,
    pub empty: String,
    pub targets: Vec<Target>,
}

/// Where a panel lies, in columns and rows of the grid.
pub struct Place {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// One query of it.
pub struct Target {
    pub expr: String,
    pub legend: String,
    pub instant: bool,
    /// Whether its exemplars are asked for, too.
    pub exemplar: bool,
}

/// What a person has chosen at the top, and what Grafana puts in by itself.
pub struct Choice<'a>(pub &'a [(&'a str, &'a str)]);

impl Choice<'_> {
    /// The query as Grafana sends it.
    pub fn put_into(&self, expr: &str) -> String {
        // Longer names first: $__range is the beginning of $__range_s.
        let mut values = self.0.to_vec();
        values.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        values.iter().fold(expr.to_owned(), |expr, (name, value)| {
            expr.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
        })
    }
}

/// Reads a dashboard.
pub fn dashboard(name: &'static str) -> Result<Dashboard> {
    let path = project().join(format!("observability/dashboards/{name}.json"));
    Ok(Dashboard { name, json: serde_json::from_str(&std::fs::read_to_string(path)?)? })
}

impl Dashboard {
    /// Its title.
    pub fn title(&self) -> &str {
        self.json["title"].as_str().unwrap_or_default()
    }

    /// Every panel with queries.
    pub fn panels(&self) -> Result<Vec<Panel>> {
        let panels = self.json["panels"].as_array().context("no panels")?;
        Ok(panels.iter().filter(|it| it["type"] != "row").map(panel).collect())
    }

    /// The titles of its rows, and where they are.
    pub fn rows(&self) -> Vec<(String, f64)> {
        let rows = self.json["panels"].as_array().into_iter().flatten().filter(|it| it["type"] == "row");
        rows.map(|it| {
            let title = it["title"].as_str().unwrap_or_default().to_owned();
            (title, it["gridPos"]["y"].as_f64().unwrap_or_default())
        })
        .collect()
    }

    /// The queries of its variables, as expressions with one series for each value to choose from.
    pub fn variables(&self) -> Vec<(String, String)> {
        let variables = self.json["templating"]["list"].as_array().into_iter().flatten();
        let queries = variables.filter(|it| it["type"] == "query").filter_map(|it| {
            let inner = it["definition"].as_str()?.strip_prefix("label_values(")?.strip_suffix(')')?;
            let (series, label) = inner.rsplit_once(", ")?;
            Some((it["name"].as_str()?.to_owned(), format!("group by ({label}) ({series})")))
        });
        queries.collect()
    }
}

fn panel(json: &Value) -> Panel {
    let text = |pointer: &str| json.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let grid = |field: &str| json["gridPos"][field].as_f64().unwrap_or_default();
    let targets = json["targets"].as_array().into_iter().flatten();
    Panel {
        title: text("/title"),
        look: text("/type"),
        place: Place { x: grid("x"), y: grid("y"), width: grid("w"), height: grid("h") },
        field_config: json["fieldConfig"].clone(),
        options: json["options"].clone(),
        transformations: json["transformations"].clone(),
        unit: text("/fieldConfig/defaults/unit"),
        empty: text("/fieldConfig/defaults/noValue"),
        targets: targets
            .map(|it| Target {
                expr: it["expr"].as_str().unwrap_or_default().to_owned(),
                legend: it["legendFormat"].as_str().unwrap_or_default().to_owned(),
                instant: it["instant"] == true,
                exemplar: it["exemplar"] == true,
            })
            .collect(),
    }
}
