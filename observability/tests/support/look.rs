//! The looks of panels: which plugin of Grafana's draws them, and its settings.

use serde_json::{Value, json};

/// How a panel draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Stat,
    /// A stat that shows a label of its series.
    StatName,
    Gauge,
    Lines,
    Steps,
    Stacked,
    Bars,
    States,
    Heatmap,
    Table,
}

impl Look {
    /// Name of the plugin that draws it.
    pub fn plugin(self) -> &'static str {
        match self {
            Look::Stat | Look::StatName => "stat",
            Look::Gauge => "gauge",
            Look::Lines | Look::Steps | Look::Stacked | Look::Bars => "timeseries",
            Look::States => "state-timeline",
            Look::Heatmap => "heatmap",
            Look::Table => "table",
        }
    }

    /// Where a value has its colour from.
    pub fn colour_mode(self) -> &'static str {
        match self {
            Look::Lines | Look::Steps | Look::Stacked | Look::Bars => "palette-classic-by-name",
            _ => "thresholds",
        }
    }

    /// What the plugin wants to know of each field.
    pub fn custom(self) -> Value {
        let drawn = |style: &str, interpolation: &str, fill: u32, stacking: &str| {
            json!({
                "drawStyle": style, "lineInterpolation": interpolation, "lineWidth": 1, "fillOpacity": fill,
                "showPoints": "auto", "spanNulls": false, "axisPlacement": "auto",
                "stacking": {"mode": stacking, "group": "A"}, "thresholdsStyle": {"mode": "off"},
            })
        };
        match self {
            Look::Lines => drawn("line", "linear", 5, "none"),
            Look::Steps => drawn("line", "stepAfter", 5, "none"),
            Look::Stacked => drawn("line", "stepAfter", 60, "normal"),
            Look::Bars => drawn("bars", "linear", 80, "normal"),
            Look::States => json!({"fillOpacity": 80, "lineWidth": 0, "insertNulls": false}),
            Look::Table => json!({"align": "auto", "cellOptions": {"type": "auto"}, "filterable": true}),
            Look::Stat | Look::StatName | Look::Gauge | Look::Heatmap => json!({}),
        }
    }

    /// What the plugin wants to know of the panel.
    pub fn options(self) -> Value {
        let last = json!({"calcs": ["lastNotNull"], "fields": "", "values": false});
        let stat = |text: &str| {
            json!({
                "reduceOptions": last, "colorMode": "value", "graphMode": "none", "textMode": text,
                "justifyMode": "auto", "orientation": "auto", "wideLayout": true,
            })
        };
        match self {
            Look::Stat => stat("auto"),
            Look::StatName => stat("name"),
            Look::Gauge => json!({"reduceOptions": last, "orientation": "auto", "showThresholdMarkers": true}),
            Look::Lines | Look::Steps | Look::Stacked | Look::Bars => json!({
                "legend": {"displayMode": "table", "placement": "bottom", "showLegend": true,
                    "calcs": ["lastNotNull", "max"], "sortBy": "Max", "sortDesc": true},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }),
            Look::States => json!({
                "mergeValues": true, "showValue": "auto", "alignValue": "left", "rowHeight": 0.8, "perPage": 20,
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": true},
                "tooltip": {"mode": "single", "sort": "none"},
            }),
            Look::Heatmap => json!({
                "calculate": false, "cellGap": 1, "filterValues": {"le": 1e-9}, "rowsFrame": {"layout": "auto"},
                "color": {"mode": "scheme", "scheme": "Blues", "steps": 64, "exponent": 0.5, "fill": "dark-blue"},
                "exemplars": {"color": "rgba(255,0,255,0.7)"}, "showValue": "never",
                "legend": {"show": true}, "tooltip": {"mode": "single", "yHistogram": true, "showColorScale": true},
            }),
            Look::Table => json!({"showHeader": true, "cellHeight": "sm", "footer": {"show": false}, "sortBy": []}),
        }
    }
}
