//! Texts and colours of values, as mappings, thresholds, overrides and the unit of a panel say.

use serde_json::Value;

use crate::panels::Panel;

const COLOURS: [&str; 8] = ["#3274d9", "#37872d", "#e0b400", "#c4162a", "#8f3bb8", "#fa6400", "#56a64b", "#666666"];

impl Panel {
    /// Text and colour of a value of a series or column.
    pub fn shown(&self, name: &str, value: f64) -> (String, String) {
        if let Some(mapped) = self.mapped(name, &value.to_string()) {
            return mapped;
        }
        let mut steps = self.field_config["defaults"]["thresholds"]["steps"].as_array().into_iter().flatten();
        let reached = steps.rfind(|it| it["value"].as_f64().is_none_or(|from| value >= from));
        let colour = reached.and_then(|it: &Value| it["color"].as_str()).unwrap_or_default();
        let own = self.own(name, "unit").and_then(Value::as_str);
        (
            with_unit(own.unwrap_or(&self.unit), self.field_config["defaults"]["decimals"] == 0, value),
            web_colour(colour).to_owned(),
        )
    }

    /// Text and colour that a mapping gives to a value.
    pub fn mapped(&self, name: &str, value: &str) -> Option<(String, String)> {
        let mapping = self.own(name, "mappings").unwrap_or(&self.field_config["defaults"]["mappings"]);
        let mapped = mapping[0]["options"].get(value)?;
        Some((mapped["text"].as_str().unwrap_or(value).to_owned(), web_colour(mapped["color"].as_str()?).to_owned()))
    }

    /// The colour of a series: that of its override, or the next of the palette.
    pub fn colour_of(&self, name: &str, index: usize) -> String {
        let own = self.own(name, "color").and_then(|it| it["fixedColor"].as_str());
        own.map_or(COLOURS[index % COLOURS.len()], web_colour).to_owned()
    }

    /// A property that an override gives to a series or column of this name.
    pub fn own(&self, name: &str, property: &str) -> Option<&Value> {
        let overrides = self.field_config["overrides"].as_array()?;
        let own =
            overrides.iter().filter(|it| it["matcher"]["options"] == name).filter_map(|it| it["properties"].as_array());
        own.flatten().find(|it| it["id"] == property).map(|it| &it["value"])
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

fn with_unit(unit: &str, whole: bool, value: f64) -> String {
    let plain = |value: f64| format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned();
    match unit {
        "percentunit" => format!("{} %", plain(value * 100.0)),
        "bytes" => format!("{:.1} MiB", value / 1_048_576.0),
        "s" => duration(value),
        "ops" => format!("{} ops/s", plain(value)),
        "reqps" => format!("{} req/s", plain(value)),
        _ if whole => format!("{value:.0}"),
        _ => plain(value),
    }
}

fn duration(seconds: f64) -> String {
    let steps = [(604_800.0, "weeks"), (86_400.0, "days"), (3_600.0, "hours"), (60.0, "mins"), (1.0, "s")];
    let step = steps.into_iter().find(|(from, _)| seconds.abs() >= *from);
    step.map_or_else(|| format!("{:.2} ms", seconds * 1000.0), |(from, name)| format!("{:.2} {name}", seconds / from))
}
