//! A dashboard as a typed value, and its form in Grafana's JSON (schema version 41, Grafana 12).
//!
//! What every panel must have (title, description, unit, text for the empty state) is no `Option` here.

use serde_json::{Value, json};

pub use super::look::Look;

/// `schemaVersion` of Grafana 12; newer versions migrate it when they load it.
const SCHEMA_VERSION: u32 = 41;

/// Columns of Grafana's grid.
const COLUMNS: u32 = 24;

/// A whole dashboard.
pub struct Dashboard {
    /// Stable identifier; links between the dashboards use it.
    pub uid: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub variables: Vec<Variable>,
    pub rows: Vec<Row>,
}

/// A variable that a person chooses at the top. The data source comes first on every dashboard and is not listed.
pub enum Variable {
    /// Values of a label.
    Label { name: &'static str, label: &'static str, query: String, all: bool },
    /// Free text.
    Text { name: &'static str, label: &'static str, description: &'static str, value: &'static str },
}

/// A titled band of panels of one height, laid out from left to right.
pub struct Row {
    pub title: &'static str,
    pub height: u32,
    pub panels: Vec<Panel>,
}

/// One panel.
pub struct Panel {
    pub title: &'static str,
    pub description: &'static str,
    pub look: Look,
    /// Grafana's name of the unit.
    pub unit: &'static str,
    /// Shown instead of values when there are none.
    pub empty: &'static str,
    /// Columns of 24.
    pub width: u32,
    pub targets: Vec<Target>,
    /// Value from which on a colour holds; the first colour is the base.
    pub thresholds: Vec<(Option<f64>, &'static str)>,
    /// Text and colour of a value.
    pub mappings: Vec<(i64, &'static str, &'static str)>,
    /// Colour of a series or look of a column, by its name.
    pub overrides: Vec<Value>,
    pub transformations: Vec<Value>,
    /// The column that orders a table.
    pub sorted_by: Option<&'static str>,
}

/// One query.
pub struct Target {
    pub expr: String,
    pub legend: &'static str,
    exemplar: bool,
    instant: bool,
}

/// A query whose result is drawn over time.
pub fn over_time(legend: &'static str, expr: impl Into<String>) -> Target {
    Target { expr: expr.into(), legend, exemplar: false, instant: false }
}

/// A query of which only the present value counts.
pub fn now(legend: &'static str, expr: impl Into<String>) -> Target {
    Target { expr: expr.into(), legend, exemplar: false, instant: true }
}

impl Target {
    /// Shows exemplars as dots, and a link that opens a trace.
    pub fn with_exemplars(mut self) -> Self {
        self.exemplar = true;
        self
    }
}

/// A panel of a third of the width in plain colours.
pub fn panel(
    title: &'static str,
    look: Look,
    unit: &'static str,
    description: &'static str,
    empty: &'static str,
    targets: Vec<Target>,
) -> Panel {
    Panel {
        title,
        description,
        look,
        unit,
        empty,
        width: 8,
        targets,
        thresholds: vec![(None, "green")],
        mappings: Vec::new(),
        overrides: Vec::new(),
        transformations: Vec::new(),
        sorted_by: None,
    }
}

impl Panel {
    pub fn width(mut self, columns: u32) -> Self {
        self.width = columns;
        self
    }

    pub fn thresholds(mut self, base: &'static str, steps: &[(f64, &'static str)]) -> Self {
        self.thresholds = vec![(None, base)];
        self.thresholds.extend(steps.iter().map(|(value, colour)| (Some(*value), *colour)));
        self
    }

    pub fn mappings(mut self, mappings: &[(i64, &'static str, &'static str)]) -> Self {
        self.mappings = mappings.to_vec();
        self
    }

    pub fn overrides(mut self, overrides: impl IntoIterator<Item = Value>) -> Self {
        self.overrides.extend(overrides);
        self
    }

    pub fn transformations(mut self, transformations: Vec<Value>) -> Self {
        self.transformations = transformations;
        self
    }

    pub fn sorted_by(mut self, column: &'static str) -> Self {
        self.sorted_by = Some(column);
        self
    }

    fn shows_exemplars(&self) -> bool {
        self.targets.iter().any(|target| target.exemplar)
    }
}

/// An override for the series or column of a name.
pub fn by_name(name: &str, properties: &[(&str, Value)]) -> Value {
    let properties: Vec<Value> = properties.iter().map(|(id, value)| json!({"id": id, "value": value})).collect();
    json!({"matcher": {"id": "byName", "options": name}, "properties": properties})
}

/// A fixed colour.
pub fn colour(name: &str) -> Value {
    json!({"mode": "fixed", "fixedColor": name})
}

impl Dashboard {
    /// The JSON that Grafana imports.
    pub fn json(&self) -> Value {
        json!({
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["lmcache"],
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": true,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "timezone": "",
            "templating": {"list": self.templating()},
            "annotations": {"list": []},
            "links": [{
                "type": "dashboards", "title": "LMCache", "tags": ["lmcache"], "asDropdown": false,
                "includeVars": false, "keepTime": true, "icon": "external link", "targetBlank": false,
            }],
            "panels": self.panels(),
        })
    }

    fn templating(&self) -> Vec<Value> {
        let source = json!({
            "type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus",
            "description": "The Prometheus that scrapes the operator", "regex": "", "hide": 0, "refresh": 1,
            "multi": false, "includeAll": false, "options": [], "current": {},
        });
        std::iter::once(source).chain(self.variables.iter().map(Variable::json)).collect()
    }

    fn panels(&self) -> Vec<Value> {
        let (mut panels, mut y) = (Vec::new(), 0);
        for row in &self.rows {
            panels.push(json!({
                "id": panels.len() + 1, "type": "row", "title": row.title, "collapsed": false, "panels": [],
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
            }));
            y += 1;
            let mut x = 0;
            for panel in &row.panels {
                if x + panel.width > COLUMNS {
                    (x, y) = (0, y + row.height);
                }
                let place = json!({"x": x, "y": y, "w": panel.width, "h": row.height});
                panels.push(panel.json(panels.len() + 1, &place));
                x += panel.width;
            }
            y += row.height;
        }
        panels
    }
}

impl Variable {
    fn json(&self) -> Value {
        match self {
            Variable::Label { name, label, query, all } => {
                let mut variable = json!({
                    "type": "query", "name": name, "label": label, "definition": query,
                    "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
                    "datasource": source(), "refresh": 2, "sort": 1, "regex": "", "hide": 0, "skipUrlSync": false,
                    "multi": all, "includeAll": all, "options": [], "current": {},
                });
                if *all {
                    // Matches what has no such label, too.
                    variable["allValue"] = json!(".*");
                    variable["current"] = json!({"selected": true, "text": ["All"], "value": ["$__all"]});
                }
                variable
            }
            Variable::Text { name, label, description, value } => json!({
                "type": "textbox", "name": name, "label": label, "description": description, "query": value,
                "hide": 0, "skipUrlSync": false, "current": {"selected": true, "text": value, "value": value},
                "options": [{"selected": true, "text": value, "value": value}],
            }),
        }
    }
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

impl Panel {
    fn json(&self, id: usize, place: &Value) -> Value {
        let mut panel = json!({
            "id": id,
            "type": self.look.plugin(),
            "title": self.title,
            "description": self.description,
            "datasource": source(),
            "gridPos": place,
            "targets": self.targets.iter().zip('A'..).map(|(it, id)| it.json(self.look, id)).collect::<Vec<_>>(),
            "fieldConfig": {"defaults": self.defaults(), "overrides": self.overrides},
            "options": self.look.options(),
        });
        if !self.transformations.is_empty() {
            panel["transformations"] = json!(self.transformations);
        }
        if let Some(column) = self.sorted_by {
            panel["options"]["sortBy"] = json!([{"displayName": column, "desc": false}]);
        }
        if self.shows_exemplars() {
            panel["links"] = trace_link();
        }
        if self.look == Look::Heatmap {
            panel["options"]["yAxis"] = json!({"axisPlacement": "left", "unit": self.unit});
        }
        panel
    }

    fn defaults(&self) -> Value {
        let steps: Vec<Value> =
            self.thresholds.iter().map(|(value, colour)| json!({"value": value, "color": colour})).collect();
        let mut defaults = json!({
            "unit": self.unit,
            "noValue": self.empty,
            "thresholds": {"mode": "absolute", "steps": steps},
            "mappings": [],
            "color": {"mode": self.look.colour_mode()},
            "custom": self.look.custom(),
        });
        if !self.mappings.is_empty() {
            let entry = |(index, (value, text, colour)): (usize, &(i64, &str, &str))| {
                (value.to_string(), json!({"text": text, "color": colour, "index": index}))
            };
            let options: serde_json::Map<String, Value> = self.mappings.iter().enumerate().map(entry).collect();
            defaults["mappings"] = json!([{"type": "value", "options": options}]);
        }
        if self.unit == "percentunit" {
            defaults["min"] = json!(0);
            defaults["max"] = json!(1);
        } else if matches!(self.look, Look::Lines | Look::Steps | Look::Stacked | Look::Bars) {
            defaults["min"] = json!(0);
        }
        if self.look == Look::Bars {
            // Prometheus extrapolates; nothing happens 1.07 times.
            defaults["decimals"] = json!(0);
        }
        defaults
    }
}

/// Grafana gives the overrides of a panel to its series, never to exemplars: where a dot leads to, only the data source says.
fn trace_link() -> Value {
    json!([{"title": "Open the trace of the box Trace id", "url": "${trace_viewer:raw}${trace_id:raw}",
        "targetBlank": true}])
}

impl Target {
    fn json(&self, look: Look, id: char) -> Value {
        let format = match look {
            Look::Table => "table",
            Look::Heatmap => "heatmap",
            _ => "time_series",
        };
        json!({
            "refId": id.to_string(), "datasource": source(), "editorMode": "code", "expr": self.expr,
            "legendFormat": self.legend, "format": format, "instant": self.instant, "range": !self.instant,
            "exemplar": self.exemplar,
        })
    }
}
