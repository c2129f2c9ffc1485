//! Draws what a dashboard's queries gave on one HTML page, so that a person can look at titles, units, legends and empty
//! states without a Grafana.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::panels::{Dashboard, Panel, Target};
use crate::prometheus::Series;

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 120.0;
const COLOURS: [&str; 8] = ["#3274d9", "#37872d", "#e0b400", "#c4162a", "#8f3bb8", "#fa6400", "#56a64b", "#666"];
const HEAD: &str = "<!doctype html><meta charset=\"utf-8\"><style>
body{font:13px sans-serif;margin:16px;background:#f4f5f5}main{display:flex;flex-wrap:wrap;gap:10px}
section{background:#fff;border:1px solid #ddd;padding:8px;width:430px}h2{font-size:14px;margin:0}
p{margin:2px 0 6px;color:#666}b{font-size:24px}i{color:#999}td,th{padding:1px 8px 1px 0;text-align:left}
small{margin-right:10px}</style>";

/// A panel with the answer to each of its queries.
pub struct Drawn {
    pub panel: Panel,
    pub results: Vec<Vec<Series>>,
}

/// Writes the page below the target folder and returns its path.
pub fn write(dashboard: &Dashboard, panels: &[Drawn]) -> Result<PathBuf> {
    let folder = std::env::current_exe()?.ancestors().nth(3).context("no target folder")?.join("monitoring");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}.html", dashboard.name));
    let body: String = panels.iter().map(drawn).collect();
    std::fs::write(&path, format!("{HEAD}<h1>{}</h1><main>{body}</main>", escaped(dashboard.title())))?;
    Ok(path)
}

fn drawn(Drawn { panel, results }: &Drawn) -> String {
    let named: Vec<(String, &Series)> = panel
        .targets
        .iter()
        .zip(results)
        .flat_map(|(target, series)| series.iter().map(|it| (legend(target, it), it)))
        .collect();
    let inner = match panel.look.as_str() {
        _ if named.is_empty() => format!("<i>{}</i>", escaped(&panel.empty)),
        "stat" | "gauge" => values(panel, &named),
        "table" => table(panel, &named),
        "state-timeline" => strips(&named),
        _ => lines(panel, &named),
    };
    let (title, about) = (escaped(&panel.title), escaped(&panel.description));
    format!("<section><h2>{title} <i>{} · {}</i></h2><p>{about}</p>{inner}</section>", panel.look, panel.unit)
}

fn legend(target: &Target, series: &Series) -> String {
    let mut text = target.legend.clone();
    for (name, value) in &series.labels {
        text = text.replace(&format!("{{{{{name}}}}}"), value.as_str().unwrap_or_default());
    }
    text
}

fn last(series: &Series) -> f64 {
    series.samples.last().map_or(f64::NAN, |(_, value)| *value)
}

fn values(panel: &Panel, named: &[(String, &Series)]) -> String {
    let one =
        |(name, series): &(String, &Series)| format!("<b>{}</b> {} ", unit(&panel.unit, last(series)), escaped(name));
    named.iter().map(one).collect()
}

fn table(panel: &Panel, named: &[(String, &Series)]) -> String {
    let labels = |series: &Series| {
        let texts = series.labels.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
        texts.collect::<Vec<_>>().join(" ")
    };
    let row = |(_, series): &(String, &Series)| {
        format!("<tr><td>{}<td>{}</tr>", escaped(&labels(series)), unit(&panel.unit, last(series)))
    };
    format!("<table>{}</table>", named.iter().map(row).collect::<String>())
}

/// One strip for each series, with a piece for each sample.
fn strips(named: &[(String, &Series)]) -> String {
    let (from, to) = span(named);
    let mut svg = String::new();
    for (index, (name, series)) in (0_u32..).zip(named) {
        let y = f64::from(index) * 16.0;
        for (time, value) in &series.samples {
            let x = (time - from) / (to - from) * (WIDTH - 110.0) + 110.0;
            let _ = write!(svg, "<rect x='{x:.1}' y='{y}' width='6' height='12' fill='{}'/>", state_colour(*value));
        }
        let _ = write!(svg, "<text x='0' y='{}' font-size='10'>{}</text>", y + 10.0, escaped(name));
    }
    format!("<svg width='{WIDTH}' height='{}'>{svg}</svg>", named.len() * 16)
}

fn state_colour(value: f64) -> &'static str {
    // 5 is Degraded, 4 Ready; conditions have -1, 0 and 1.
    match value {
        value if value < 0.0 => "#999",
        value if value < 0.5 => "#c4162a",
        value if value < 1.5 => "#bbb",
        value if value < 2.5 => "#3274d9",
        value if value < 3.5 => "#e0b400",
        value if value < 4.5 => "#37872d",
        _ => "#c4162a",
    }
}

fn lines(panel: &Panel, named: &[(String, &Series)]) -> String {
    let (from, to) = span(named);
    let top = named.iter().flat_map(|(_, it)| &it.samples).fold(f64::MIN_POSITIVE, |top, (_, value)| top.max(*value));
    let (mut svg, mut legends) = (String::new(), String::new());
    for (colour, (name, series)) in COLOURS.iter().cycle().zip(named) {
        let place = |(time, value): &(f64, f64)| {
            format!("{:.1},{:.1}", (time - from) / (to - from) * WIDTH, HEIGHT - value / top * (HEIGHT - 4.0))
        };
        let points: Vec<String> = series.samples.iter().map(place).collect();
        let _ = write!(svg, "<polyline fill='none' stroke='{colour}' points='{}'/>", points.join(" "));
        let value = unit(&panel.unit, last(series));
        let _ = write!(legends, "<small style='color:{colour}'>■ {} {value}</small>", escaped(name));
    }
    format!(
        "<div>max {}</div><svg width='{WIDTH}' height='{HEIGHT}'>{svg}</svg><div>{legends}</div>",
        unit(&panel.unit, top)
    )
}

/// The first and the last moment, never the same.
fn span(named: &[(String, &Series)]) -> (f64, f64) {
    let times = || named.iter().flat_map(|(_, it)| &it.samples).map(|(time, _)| *time);
    let from = times().fold(f64::MAX, f64::min);
    (from, times().fold(from + 1.0, f64::max))
}

fn unit(unit: &str, value: f64) -> String {
    match unit {
        "percentunit" => format!("{:.1} %", value * 100.0),
        "bytes" => format!("{:.1} MiB", value / 1_048_576.0),
        "s" if value < 1.0 => format!("{:.1} ms", value * 1000.0),
        "s" => format!("{value:.1} s"),
        "ops" | "reqps" => format!("{value:.2}/s"),
        _ => format!("{value:.2}").trim_end_matches(['0']).trim_end_matches('.').to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
