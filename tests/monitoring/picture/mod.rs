//! Draws what a dashboard's queries gave as one SVG page, so that a person can look at titles, units, legends and empty
//! states without a Grafana.

mod charts;
mod looks;
mod tables;

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::panels::{Dashboard, Panel, Target};
use crate::prometheus::{Exemplar, Series};

/// Pixels of one column of Grafana's 24, of one row, and of the page's title.
const COLUMN: f64 = 64.0;
const ROW: f64 = 32.0;
const HEAD: f64 = 32.0;
const MARGIN: f64 = 8.0;
const LINE: f64 = 14.0;

/// A panel with the answer to each of its queries.
pub struct Drawn {
    pub panel: Panel,
    pub results: Vec<Vec<Series>>,
    pub exemplars: Vec<Exemplar>,
}

/// A panel's surface: everything is placed from its upper left corner, and cut off at its edges. All panels of a page show the
/// same time.
struct Canvas {
    svg: String,
    width: f64,
    height: f64,
    from: f64,
    to: f64,
}

/// A series with its legend and the colour it is drawn in.
struct Named<'a> {
    name: String,
    colour: String,
    series: &'a Series,
}

/// Writes two pages below the target folder: with what was drawn between two moments, and with every panel empty. Returns their
/// paths.
pub fn write(dashboard: &Dashboard, panels: &[Drawn], from: f64, to: f64) -> Result<[PathBuf; 2]> {
    let folder = std::env::current_exe()?.ancestors().nth(3).context("no target folder")?.join("monitoring");
    std::fs::create_dir_all(&folder)?;
    let with_data = folder.join(format!("{}.svg", dashboard.name));
    std::fs::write(
        &with_data,
        page(dashboard, panels.iter().map(|it| drawn(&it.panel, &it.results, &it.exemplars, from, to)))?,
    )?;
    let without = folder.join(format!("{}-empty.svg", dashboard.name));
    std::fs::write(&without, page(dashboard, panels.iter().map(|it| drawn(&it.panel, &[], &[], from, to)))?)?;
    Ok([with_data, without])
}

fn page(dashboard: &Dashboard, panels: impl Iterator<Item = String>) -> Result<String> {
    let places = dashboard.panels()?;
    let bottom = places.iter().map(|it| it.place.y + it.place.height).fold(0.0, f64::max) * ROW + HEAD;
    let mut page = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{}' height='{bottom}' font-family='sans-serif' font-size='11'>\
         <rect width='100%' height='100%' fill='#eeeeee'/><text x='8' y='22' font-size='16'>{}</text>",
        24.0 * COLUMN,
        escaped(dashboard.title())
    );
    for (title, y) in dashboard.rows() {
        let y = y * ROW + HEAD + 21.0;
        let _ = write!(page, "<text x='{MARGIN}' y='{y}' font-size='13' font-weight='bold'>{}</text>", escaped(&title));
    }
    page.extend(panels);
    Ok(page + "</svg>")
}

fn drawn(panel: &Panel, results: &[Vec<Series>], exemplars: &[Exemplar], from: f64, to: f64) -> String {
    let pairs =
        panel.targets.iter().zip(results).flat_map(|(target, series)| series.iter().map(move |it| (target, it)));
    let named: Vec<Named> = pairs
        .enumerate()
        .map(|(index, (target, series))| {
            let name = legend(target, series);
            Named { colour: panel.colour_of(&name, index), name, series }
        })
        .collect();
    let place = &panel.place;
    let (width, height) = (place.width * COLUMN - 6.0, place.height * ROW - 6.0);
    let mut canvas = Canvas { svg: String::new(), width, height, from, to };
    let _ = write!(
        canvas.svg,
        "<svg x='{}' y='{}' width='{width}' height='{height}'><rect width='{width}' height='{height}' fill='white' stroke='#cccccc'/>",
        place.x * COLUMN,
        place.y * ROW + HEAD,
    );
    canvas.text(MARGIN, 16.0, "black", &panel.title);
    let notes = format!("{} {}", panel.look, panel.unit);
    let _ = write!(
        canvas.svg,
        "<text x='{}' y='{}' fill='#bbbbbb' font-size='9' text-anchor='end'>{}</text>",
        width - 4.0,
        height - 4.0,
        escaped(&notes)
    );
    match panel.look.as_str() {
        _ if named.is_empty() => canvas.text(MARGIN, height / 2.0, "#999999", &panel.empty),
        "stat" | "gauge" => tables::values(&mut canvas, panel, &named),
        "table" => tables::table(&mut canvas, panel, results),
        "state-timeline" => charts::strips(&mut canvas, panel, &named),
        "heatmap" => charts::heatmap(&mut canvas, panel, &named, exemplars),
        _ => charts::lines(&mut canvas, panel, &named, exemplars),
    }
    canvas.svg + "</svg>"
}

impl Canvas {
    fn text(&mut self, x: f64, y: f64, colour: &str, text: &str) {
        let _ = write!(self.svg, "<text x='{x:.1}' y='{y:.1}' fill='{colour}'>{}</text>", escaped(text));
    }

    /// Where a moment is, between a left edge and the right one.
    fn x(&self, time: f64, left: f64) -> f64 {
        left + (time - self.from) / (self.to - self.from).max(1.0) * (self.width - left - MARGIN)
    }

    fn rectangle(&mut self, [x, y, width, height]: [f64; 4], colour: &str, opacity: f64) {
        let _ = write!(
            self.svg,
            "<rect x='{x:.1}' y='{y:.1}' width='{width:.1}' height='{height:.1}' fill='{colour}' fill-opacity='{opacity:.2}'/>"
        );
    }

    /// The dot of an exemplar.
    fn dot(&mut self, x: f64, y: f64) {
        let _ = write!(
            self.svg,
            "<rect x='-3' y='-3' width='6' height='6' fill='#8f3bb8' transform='translate({x:.1},{y:.1}) rotate(45)'/>"
        );
    }
}

/// As Grafana puts it together.
fn legend(target: &Target, series: &Series) -> String {
    series.labels.iter().fold(target.legend.clone(), |text, (name, value)| {
        text.replace(&format!("{{{{{name}}}}}"), value.as_str().unwrap_or_default())
    })
}

fn last(series: &Series) -> f64 {
    series.samples.last().map_or(f64::NAN, |(_, value)| *value)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
