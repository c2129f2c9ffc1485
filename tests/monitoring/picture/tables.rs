//! Panels that show values of one moment.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::panels::Panel;
use crate::prometheus::Series;

use super::{Canvas, LINE, MARGIN, Named, last};

/// The numbers of a stat or gauge; names only where Grafana shows them.
pub fn values(canvas: &mut Canvas, panel: &Panel, named: &[Named]) {
    let mode = panel.options["textMode"].as_str().unwrap_or("auto");
    for (y, it) in (0_u32..).map(|line| f64::from(line) * 24.0 + 50.0).zip(named) {
        let (value, colour) = panel.shown(&it.name, last(it.series));
        let text = match mode {
            "name" => it.name.clone(),
            _ if named.len() == 1 => value,
            _ => format!("{value} {}", it.name),
        };
        canvas.svg.push_str("<g font-size='20'>");
        canvas.text(MARGIN, y, &colour, &text);
        canvas.svg.push_str("</g>");
    }
}

/// The rows of all queries merged and put in order, as the panel's transformations say.
pub fn table(canvas: &mut Canvas, panel: &Panel, results: &[Vec<Series>]) {
    let rows = merged(results);
    let organize = panel.transformations.as_array().and_then(|it| it.iter().find(|it| it["id"] == "organize"));
    let organize = organize.map(|it| it["options"].clone()).unwrap_or_default();
    let mut columns: Vec<&String> = rows.iter().flat_map(BTreeMap::keys).collect();
    columns.sort_by_key(|it| (organize["indexByName"][it.as_str()].as_u64().unwrap_or(99), (*it).clone()));
    columns.dedup();
    columns.retain(|it| organize["excludeByName"][it.as_str()] != true);
    let name = |column: &str| organize["renameByName"][column].as_str().unwrap_or(column).to_owned();
    let mut rows: Vec<Vec<(String, String)>> = rows
        .iter()
        .map(|row| columns.iter().map(|column| cell(panel, &name(column), row.get(*column))).collect())
        .collect();
    let sorted_by = panel.options["sortBy"][0]["displayName"].as_str();
    if let Some(column) = columns.iter().position(|it| Some(name(it).as_str()) == sorted_by) {
        rows.sort_by(|one, other| one[column].0.cmp(&other[column].0));
    }
    let width = (canvas.width - MARGIN) / f64::from(u32::try_from(columns.len().max(1)).unwrap_or(1));
    let place = |index: usize| MARGIN + f64::from(u32::try_from(index).unwrap_or(0)) * width;
    for (index, column) in columns.iter().enumerate() {
        let (x, text) = (place(index), name(column));
        let _ = write!(canvas.svg, "<text x='{x:.1}' y='36' font-weight='bold'>{text}</text>");
    }
    for (y, row) in (0_u32..).map(|line| f64::from(line) * LINE + 52.0).zip(&rows) {
        for (index, (text, colour)) in row.iter().enumerate() {
            canvas.text(place(index), y, colour, text);
        }
    }
}

/// A label's text, or a value.
enum Cell {
    Text(String),
    Number(f64),
}

/// Rows of the queries that agree in every label that all of them have.
fn merged(results: &[Vec<Series>]) -> Vec<BTreeMap<String, Cell>> {
    let all = || results.iter().flatten();
    let shared = |label: &String| all().all(|it| it.labels.contains_key(label));
    let mut rows: BTreeMap<Vec<String>, BTreeMap<String, Cell>> = BTreeMap::new();
    for (query, series) in ('A'..).zip(results) {
        for one in series {
            let key: Vec<String> =
                one.labels.iter().filter(|(it, _)| shared(it)).map(|(_, value)| value.to_string()).collect();
            let row = rows.entry(key).or_default();
            for (label, value) in &one.labels {
                row.insert(label.clone(), Cell::Text(value.as_str().unwrap_or_default().to_owned()));
            }
            row.insert(format!("Value #{query}"), Cell::Number(last(one)));
        }
    }
    rows.into_values().collect()
}

fn cell(panel: &Panel, column: &str, cell: Option<&Cell>) -> (String, String) {
    let plain = |text: &str| (text.to_owned(), "black".to_owned());
    match cell {
        Some(Cell::Text(text)) => panel.mapped(column, text).unwrap_or_else(|| plain(text)),
        Some(Cell::Number(value)) => {
            panel.mapped(column, &value.to_string()).unwrap_or_else(|| plain(&panel.shown(column, *value).0))
        }
        None => plain(panel.own(column, "noValue").and_then(|it| it.as_str()).unwrap_or_default()),
    }
}
