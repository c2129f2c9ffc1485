//! Panels that show values over time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::panels::Panel;
use crate::prometheus::{Exemplar, INTERVAL};

use super::{Canvas, LINE, MARGIN, Named, last};

/// Left edge of what has names of lines beside it.
const NAMES: f64 = 140.0;
const TOP: f64 = 40.0;

/// One strip for each series; equal neighbours are one piece, as Grafana merges them.
pub fn strips(canvas: &mut Canvas, panel: &Panel, named: &[Named]) {
    for (y, it) in (0_u32..).map(|line| f64::from(line) * 21.0 + 26.0).zip(named) {
        canvas.text(MARGIN, y + 13.0, "black", &it.name);
        let samples = &it.series.samples;
        let same =
            |one: &(f64, f64), other: &(f64, f64)| one.1.to_bits() == other.1.to_bits() && other.0 - one.0 < gap();
        for piece in samples.chunk_by(same) {
            let (Some((from, value)), Some((to, _))) = (piece.first(), piece.last()) else { continue };
            let (text, colour) = panel.shown(&it.name, *value);
            let (x, end) = (canvas.x(*from, NAMES), canvas.x(to + INTERVAL.as_secs_f64(), NAMES));
            canvas.rectangle([x, y, end - x - 1.0, 18.0], &colour, 0.8);
            if end - x > 8.0 * f64::from(u32::try_from(text.len()).unwrap_or(0)) {
                canvas.text(x + 2.0, y + 13.0, "white", &text);
            }
        }
    }
}

/// Buckets upwards, darker where more was observed.
pub fn heatmap(canvas: &mut Canvas, panel: &Panel, named: &[Named], exemplars: &[Exemplar]) {
    let bound = |it: &Named| it.name.parse().unwrap_or(f64::INFINITY);
    let mut buckets: Vec<&Named> = named.iter().collect();
    buckets.sort_by(|one, other| bound(one).total_cmp(&bound(other)));
    let mut below: BTreeMap<u64, f64> = BTreeMap::new();
    let mut cells = Vec::new();
    for (row, it) in (0_u32..).zip(&buckets) {
        for (time, value) in &it.series.samples {
            let before = below.insert(time.to_bits(), *value).unwrap_or_default();
            cells.push((f64::from(row), *time, value - before));
        }
    }
    let height = (canvas.height - TOP - LINE) / f64::from(u32::try_from(buckets.len()).unwrap_or(1));
    let lower = canvas.height - LINE;
    let most = cells.iter().fold(f64::MIN_POSITIVE, |most, (.., count)| most.max(*count));
    let width = canvas.x(canvas.from + INTERVAL.as_secs_f64(), 60.0) - 60.0;
    for (row, time, count) in cells.iter().filter(|(.., count)| *count > 0.0) {
        let place = [canvas.x(*time, 60.0), lower - (row + 1.0) * height, width, height - 1.0];
        canvas.rectangle(place, "#1f60c4", (count / most).sqrt());
    }
    for (row, it) in (0_u32..).zip(&buckets) {
        let text = if bound(it).is_finite() { panel.shown("", bound(it)).0 } else { it.name.clone() };
        canvas.text(MARGIN, lower - f64::from(row) * height - 2.0, "#666666", &text);
    }
    for it in exemplars {
        let row = buckets.iter().take_while(|bucket| bound(bucket) < it.value).count();
        canvas.dot(canvas.x(it.time, 60.0), lower - (f64::from(u32::try_from(row).unwrap_or(0)) + 0.5) * height);
    }
}

/// Lines, areas on top of each other or bars, with a legend below.
pub fn lines(canvas: &mut Canvas, panel: &Panel, named: &[Named], exemplars: &[Exemplar]) {
    let custom = &panel.field_config["defaults"]["custom"];
    let (bars, stacked) = (custom["drawStyle"] == "bars", custom["stacking"]["mode"] == "normal");
    let mut below: BTreeMap<u64, f64> = BTreeMap::new();
    // For each series: time, lower and upper end.
    let ends: Vec<Vec<(f64, f64, f64)>> = named
        .iter()
        .map(|it| {
            let end = |(time, value): &(f64, f64)| {
                let before = if stacked { below.get(&time.to_bits()).copied().unwrap_or_default() } else { 0.0 };
                below.insert(time.to_bits(), before + value);
                (*time, before, before + value)
            };
            it.series.samples.iter().map(end).collect()
        })
        .collect();
    let highest = ends.iter().flatten().map(|(.., upper)| *upper).chain(exemplars.iter().map(|it| it.value));
    let highest = highest.fold(f64::MIN_POSITIVE, f64::max);
    let highest = panel.field_config["defaults"]["max"].as_f64().unwrap_or(highest);
    let lower = legend(canvas, panel, named);
    let y = |value: f64| lower - value / highest * (lower - TOP);
    canvas.text(MARGIN, 32.0, "#999999", &format!("to {}", panel.shown("", highest).0));
    for (it, ends) in named.iter().zip(&ends) {
        for piece in ends.chunk_by(|one, other| other.0 - one.0 < gap()) {
            let place = |time: f64, value: f64| format!("{:.1},{:.1} ", canvas.x(time, MARGIN), y(value));
            let upper: String = piece.iter().map(|(time, _, upper)| place(*time, *upper)).collect();
            let back: String = piece.iter().rev().map(|(time, lower, _)| place(*time, *lower)).collect();
            let colour = &it.colour;
            if bars {
                for (time, from, to) in piece {
                    let x = canvas.x(*time, MARGIN);
                    canvas.rectangle([x - 2.0, y(*to), 4.0, y(*from) - y(*to)], colour, 0.8);
                }
            } else if stacked {
                let _ = write!(canvas.svg, "<polygon fill='{colour}' fill-opacity='0.6' points='{upper}{back}'/>");
            } else if piece.len() == 1 {
                canvas.rectangle([canvas.x(piece[0].0, MARGIN) - 1.5, y(piece[0].2) - 1.5, 3.0, 3.0], colour, 1.0);
            } else {
                let _ = write!(canvas.svg, "<polyline fill='none' stroke='{colour}' points='{upper}'/>");
            }
        }
    }
    for it in exemplars {
        canvas.dot(canvas.x(it.time, MARGIN), y(it.value));
    }
}

/// Names and last values in as many columns as have room; returns where the drawing ends.
fn legend(canvas: &mut Canvas, panel: &Panel, named: &[Named]) -> f64 {
    let columns =
        (1..=4_usize).rev().find(|it| canvas.width / f64::from(u32::try_from(*it).unwrap_or(1)) > 230.0).unwrap_or(1);
    let lines = named.len().div_ceil(columns);
    let room = (1_u32..100).take_while(|it| f64::from(*it) * LINE < canvas.height * 0.45).count();
    let shown = lines.min(room);
    let top = canvas.height - f64::from(u32::try_from(shown).unwrap_or(0)) * LINE - 6.0;
    let width = canvas.width / f64::from(u32::try_from(columns).unwrap_or(1));
    for (index, it) in named.iter().take(shown * columns).enumerate() {
        let [column, line] = [index % columns, index / columns].map(|it| f64::from(u32::try_from(it).unwrap_or(0)));
        let text = format!("{}: {}", it.name, panel.shown(&it.name, last(it.series)).0);
        canvas.text(MARGIN + column * width, top + line * LINE + 8.0, &it.colour, &text);
    }
    if lines > shown {
        let text = format!("and {} more", named.len() - shown * columns);
        canvas.text(canvas.width - 80.0, 16.0, "#999999", &text);
    }
    top - 8.0
}

/// Seconds from one sample to the next when some are missing between them.
fn gap() -> f64 {
    INTERVAL.as_secs_f64() * 1.5
}
