//! The generated files of this room, shared by the generator and by the test that finds them stale: dashboards, the
//! `PrometheusRule`, and the generated parts of `docs/observability.md`.
#![allow(dead_code, reason = "generator and test each use a part")]

mod advice;
mod dashboard;
mod engine;
mod fleet;
mod look;
mod operator;
mod page;
pub mod pending;
pub mod queries;
pub mod samples;
mod source;
pub mod spans;

use std::path::{Path, PathBuf};

use serde_json::Value;

pub use dashboard::Dashboard as Board;
use dashboard::{Target, Variable, by_name, colour, over_time};

/// How to write the files anew.
pub const COMMAND: &str = "cargo run -p lmcache-observability --example generate";

/// The phases in the order of a life, and their colours on every dashboard.
const PHASES: [(&str, &str); 5] =
    [("Pending", "text"), ("Reconciled", "blue"), ("Rolling", "yellow"), ("Ready", "green"), ("Degraded", "red")];

/// What the link of a panel with exemplars opens. The dots themselves are links by what Grafana's data source says.
const TRACE: [Variable; 2] = [
    Variable::Text {
        name: "trace_viewer",
        label: "Trace viewer",
        description: "The address of a trace in your trace viewer, without the trace id at its end",
        value: "http://localhost:16686/trace/",
    },
    Variable::Text {
        name: "trace_id",
        label: "Trace id",
        description: "A trace to open: status.trace.traceId of a resource, or that of a dot",
        value: "",
    },
];

/// For how long a rollout is drawn after it ended: rollouts are rare.
const ROLLOUT_WINDOW: &str = "1h";

fn phase_colours() -> Vec<Value> {
    PHASES.iter().map(|(phase, name)| by_name(phase, &[("color", colour(name))])).collect()
}

fn outcome_colours() -> Vec<Value> {
    let outcomes = [("ready", "green"), ("degraded", "red"), ("superseded", "text")];
    outcomes.iter().map(|(outcome, name)| by_name(outcome, &[("color", colour(name))])).collect()
}

fn phase_numbers() -> Vec<(i64, &'static str, &'static str)> {
    (1..).zip(PHASES).map(|(number, (phase, colour))| (number, phase, colour)).collect()
}

/// How often something rare happened in each interval, by some labels. A series that is born in the interval counts with its
/// value: `increase` alone would not see what happened for the first time.
fn happened(by: &str, series: &str) -> String {
    format!(
        "sum by ({by}) ((increase({series}[$__rate_interval]) > 0) or ({series} unless {series} offset $__rate_interval))"
    )
}

/// What the series of a counter or of buckets gained in a window. One that is younger than the window has gained its value:
/// `increase` alone would not see what happened for the first time.
fn gained(series: &str, window: &str) -> String {
    format!("(({series} unless {series} offset {window}) or increase({series}[{window}]))")
}

/// A quantile over the rollouts of the last hour of these kinds, with the rollouts themselves as dots.
fn of_rollouts(legend: &'static str, metric: &str, by: &str, also: &str) -> Target {
    let buckets = gained(&format!(r#"lmcache_operator_{metric}_bucket{{kind=~"$kind"{also}}}"#), ROLLOUT_WINDOW);
    // Without any it is no number, which no comparison lets pass.
    let expr = format!("histogram_quantile(0.95, sum by (le, {by}) ({buckets})) >= 0");
    over_time(legend, expr).with_exemplars()
}

/// Why a generated file could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// A file that the others are made from cannot be read.
    #[error("failed to read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    /// The rules are no YAML of the expected shape.
    #[error("the rules are not what they should be: {0}")]
    Rules(#[from] serde_norway::Error),
    /// A dashboard cannot be written as JSON.
    #[error("failed to write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The page lacks the markers of a generated part.
    #[error("docs/observability.md has no part {0:?}: want <!-- {0}: generated --> and <!-- end -->")]
    NoPart(&'static str),
    /// The source of the state machine does not explain a word.
    #[error("{0} has no doc comment where it is declared")]
    NotExplained(String),
}

/// The dashboards by their file names.
pub fn dashboards() -> [(&'static str, Board); 3] {
    [("fleet", fleet::dashboard()), ("engine", engine::dashboard()), ("operator", operator::dashboard())]
}

/// Every generated file: where it is, and what it must hold.
pub fn generated() -> Result<Vec<(PathBuf, String)>, GenerateError> {
    let mut files = Vec::new();
    for (name, dashboard) in dashboards() {
        let text = serde_json::to_string_pretty(&dashboard.json())?;
        files.push((room().join(format!("dashboards/{name}.json")), text + "\n"));
    }
    let rules = read(&rules_path())?;
    files.push((project().join("deploy/monitoring/prometheus_rule.yaml"), prometheus_rule(&rules)));
    let page = project().join("docs/observability.md");
    let text = read(&page)?;
    files.push((page, page::filled(&text, &rules)?));
    Ok(files)
}

/// The rules as a `PrometheusRule` of the Prometheus operator.
fn prometheus_rule(rules: &str) -> String {
    let start = rules.find("groups:").unwrap_or_default();
    let groups: String = rules[start..]
        .lines()
        .map(|line| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") })
        .collect();
    format!(
        "# Generated from observability/rules/lmcache-operator.yaml by `{COMMAND}`. Do not edit.\n\
         apiVersion: monitoring.coreos.com/v1\n\
         kind: PrometheusRule\n\
         metadata:\n  name: rules\n  labels:\n    app.kubernetes.io/name: operator\n\
         spec:\n{groups}"
    )
}

/// The alert rules of the rules file.
pub fn alerts(rules: &str) -> Result<Vec<Value>, GenerateError> {
    Ok(all_rules(rules)?.into_iter().filter(|rule| rule["alert"].is_string()).collect())
}

/// Every rule of the rules file.
pub fn all_rules(rules: &str) -> Result<Vec<Value>, GenerateError> {
    let rules: Value = serde_norway::from_str(rules)?;
    let groups = rules["groups"].as_array().cloned().unwrap_or_default();
    Ok(groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect())
}

/// Where the rules are.
pub fn rules_path() -> PathBuf {
    room().join("rules/lmcache-operator.yaml")
}

pub fn read(path: &Path) -> Result<String, GenerateError> {
    std::fs::read_to_string(path).map_err(|source| GenerateError::Read { path: path.to_owned(), source })
}

pub fn room() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The root of the project.
pub fn project() -> PathBuf {
    room().join("..")
}

/// The text of a rule's field, or nothing.
pub fn text<'a>(rule: &'a Value, field: &str) -> &'a str {
    rule.pointer(field).and_then(Value::as_str).unwrap_or_default()
}
