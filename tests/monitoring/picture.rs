//! Draws what a dashboard's queries gave as one SVG page, so that a person can look at titles, units, legends and empty
//! states without a Grafana.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::panels::{Dashboard, Panel, Target};
use crate::prometheus::Series;

/// Pixels of one column of Grafana's 24, and of one row.
const COLUMN: f64 = 64.0;
const ROW: f64 = 32.0;
const MARGIN: f64 = 8.0;
const COLOURS: [&str; 8] = ["#3274d9", "#37872d", "#e0b400", "#c4162a", "#8f3bb8", "#fa6400", "#56a64b", "#666666"];

/// A panel with the answer to each of its queries.
pub struct Drawn {
    pub panel: Panel,
    pub results: Vec<Vec<Series>>,
}

/// A panel's surface: everything is placed from its upper left corner.
struct Canvas {
    svg: String,
    width: f64,
    height: f64,
}

/// Writes the picture below the target folder and returns its path.
pub fn write(dashboard: &Dashboard, panels: &[Drawn]) -> Result<PathBuf> {
    let folder = std::env::current_exe()?.ancestors().nth(3).context("no target folder")?.join("monitoring");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}.svg", dashboard.name));
    let bottom = panels.iter().map(|it| it.panel.place.y + it.panel.place.height).fold(0.0, f64::max) * ROW;
    let mut page = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{}' height='{}' font-family='sans-serif' font-size='11'>\
         <rect width='100%' height='100%' fill='#eeeeee'/><text x='8' y='20' font-size='16'>{}</text>",
        24.0 * COLUMN,
        bottom,
        escaped(dashboard.title())
    );
    page.extend(panels.iter().map(drawn));
    std::fs::write(&path, page + "</svg>")?;
    Ok(path)
}

fn drawn(Drawn { panel, results }: &Drawn) -> String {
    let named: Vec<(String, &Series)> = panel
        .targets
        .iter()
        .zip(results)
        .flat_map(|(target, series)| series.iter().map(|it| (legend(target, it), it)))
        .collect();
    let place = &panel.place;
    let mut canvas = Canvas { svg: String::new(), width: place.width * COLUMN - 6.0, height: place.height * ROW - 6.0 };
    let _ = write!(
        canvas.svg,
        "<g transform='translate({},{})'><rect width='{}' height='{}' fill='white' stroke='#cccccc'/>",
        place.x * COLUMN,
        place.y * ROW,
        canvas.width,
        canvas.height
    );
    canvas.text(MARGIN, 16.0, "black", &format!("{} [{}, {}]", panel.title, panel.look, panel.unit));
    match panel.look.as_str() {
        _ if named.is_empty() => canvas.text(MARGIN, canvas.height / 2.0, "#999999", &panel.empty),
        "stat" | "gauge" => values(&mut canvas, panel, &named),
        "table" => table(&mut canvas, panel, &named),
        "state-timeline" => strips(&mut canvas, panel, &named),
        _ => lines(&mut canvas, panel, &named),
    }
    canvas.svg + "</g>"
}

impl Canvas {
    fn text(&mut self, x: f64, y: f64, colour: &str, text: &str) {
        let _ = write!(self.svg, "<text x='{x:.1}' y='{y:.1}' fill='{colour}'>{}</text>", escaped(text));
    }

    /// How many lines of text have room below `y`.
    fn lines_below(&self, y: f64) -> usize {
        (1_u32..100).take_while(|line| y + f64::from(*line) * 14.0 <= self.height).count()
    }
}

fn legend(target: &Target, series: &Series) -> String {
    series.labels.iter().fold(target.legend.clone(), |text, (name, value)| {
        text.replace(&format!("{{{{{name}}}}}"), value.as_str().unwrap_or_default())
    })
}

fn last(series: &Series) -> f64 {
    series.samples.last().map_or(f64::NAN, |(_, value)| *value)
}

fn values(canvas: &mut Canvas, panel: &Panel, named: &[(String, &Series)]) {
    for (y, (name, series)) in (0_u32..).map(|it| f64::from(it) * 24.0 + 50.0).zip(named) {
        let (text, colour) = panel.shown(last(series));
        let _ = write!(canvas.svg, "<g font-size='20'>");
        canvas.text(MARGIN, y, &colour, &format!("{text} {name}"));
        canvas.svg.push_str("</g>");
    }
}

fn table(canvas: &mut Canvas, panel: &Panel, named: &[(String, &Series)]) {
    let room = canvas.lines_below(36.0);
    for (y, (_, series)) in (0_u32..).map(|it| f64::from(it) * 14.0 + 36.0).zip(named).take(room) {
        let labels = series.labels.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
        let labels = labels.collect::<Vec<_>>().join(" ");
        canvas.text(MARGIN, y, "black", &format!("{labels}: {}", panel.shown(last(series)).0));
    }
}

/// One strip for each series, with a piece for each sample.
fn strips(canvas: &mut Canvas, panel: &Panel, named: &[(String, &Series)]) {
    let (from, to) = span(named);
    let left = 140.0;
    for (y, (name, series)) in (0_u32..).map(|it| f64::from(it) * 22.0 + 30.0).zip(named) {
        canvas.text(MARGIN, y + 13.0, "black", name);
        let mut before = String::new();
        for (time, value) in &series.samples {
            let x = left + (time - from) / (to - from) * (canvas.width - left - 24.0);
            let (text, colour) = panel.shown_of(name, *value);
            let _ = write!(canvas.svg, "<rect x='{x:.1}' y='{y}' width='16' height='18' fill='{colour}'/>");
            if text != before {
                canvas.text(x + 1.0, y + 13.0, "black", &text);
                before = text;
            }
        }
    }
}

fn lines(canvas: &mut Canvas, panel: &Panel, named: &[(String, &Series)]) {
    let (from, to) = span(named);
    let top = named.iter().flat_map(|(_, it)| &it.samples).fold(f64::MIN_POSITIVE, |top, (_, value)| top.max(*value));
    let (upper, lower) = (34.0, canvas.height * 0.6);
    canvas.text(MARGIN, 30.0, "#999999", &panel.shown(top).0);
    for (colour, (_, series)) in COLOURS.iter().cycle().zip(named) {
        let place = |(time, value): &(f64, f64)| {
            let x = MARGIN + (time - from) / (to - from) * (canvas.width - 2.0 * MARGIN);
            format!("{x:.1},{:.1}", lower - value / top * (lower - upper))
        };
        let points: Vec<String> = series.samples.iter().map(place).collect();
        let _ = write!(canvas.svg, "<polyline fill='none' stroke='{colour}' points='{}'/>", points.join(" "));
    }
    let room = canvas.lines_below(lower + 14.0);
    for (index, (colour, (name, series))) in (0_u32..).zip(COLOURS.iter().cycle().zip(named)).take(room * 2) {
        let x = MARGIN + f64::from(index % 2) * canvas.width / 2.0;
        let text = format!("{name}: {}", panel.shown(last(series)).0);
        canvas.text(x, lower + 14.0 + f64::from(index / 2) * 14.0, colour, &text);
    }
}

/// The first and the last moment, never the same.
fn span(named: &[(String, &Series)]) -> (f64, f64) {
    let times = || named.iter().flat_map(|(_, it)| &it.samples).map(|(time, _)| *time);
    let from = times().fold(f64::MAX, f64::min);
    (from, times().fold(from + 1.0, f64::max))
}

impl Panel {
    /// Text and colour of a value, as the panel's mappings and thresholds say.
    fn shown(&self, value: f64) -> (String, String) {
        self.shown_of("", value)
    }

    /// The same for a series that may have mappings of its own.
    fn shown_of(&self, name: &str, value: f64) -> (String, String) {
        let overrides = self.field_config["overrides"].as_array().into_iter().flatten();
        let own = overrides.filter(|it| it["matcher"]["options"] == name).filter_map(|it| it["properties"].as_array());
        let own = own.flatten().find(|it| it["id"] == "mappings").map(|it| &it["value"]);
        let mapping = own.unwrap_or(&self.field_config["defaults"]["mappings"]);
        let mapped = &mapping[0]["options"][value.to_string()];
        if let (Some(text), Some(colour)) = (mapped["text"].as_str(), mapped["color"].as_str()) {
            return (text.to_owned(), web_colour(colour).to_owned());
        }
        let mut steps = self.field_config["defaults"]["thresholds"]["steps"].as_array().into_iter().flatten();
        let reached = steps.rfind(|it| it["value"].as_f64().is_none_or(|from| value >= from));
        let colour = reached.and_then(|it: &Value| it["color"].as_str()).unwrap_or_default();
        (with_unit(&self.unit, value), web_colour(colour).to_owned())
    }
}

/// Grafana's names of colours.
fn web_colour(name: &str) -> &str {
    match name {
        "text" => "#888888",
        "yellow" => "#e0b400",
        "green" => "#37872d",
        "red" => "#e02f44",
        "blue" => "#3274d9",
        other => other,
    }
}

fn with_unit(unit: &str, value: f64) -> String {
    match unit {
        "percentunit" => format!("{:.1} %", value * 100.0),
        "bytes" => format!("{:.1} MiB", value / 1_048_576.0),
        "s" if value < 1.0 => format!("{:.1} ms", value * 1000.0),
        "s" => format!("{value:.1} s"),
        "ops" | "reqps" => format!("{value:.2}/s"),
        _ => format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
