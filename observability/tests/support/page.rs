//! The generated parts of `docs/observability.md`. What stands between the parts is written by hand.

use lmcache_crds::Phase;
use lmcache_states::{AdvisoryKind, Reason, conditions};
use serde_json::Value;

use super::advice::advice;
use super::samples::{families, registry};
use super::spans::{SPANS, STEP};
use super::{GenerateError, all_rules, source, text};

const OBSERVATION: &str = include_str!("../../../states/src/observation.rs");

/// The page with every generated part made anew.
pub fn filled(page: &str, rules: &str) -> Result<String, GenerateError> {
    let parts: [(&'static str, String); 7] = [
        ("metrics", metrics()),
        ("spans", spans()),
        ("phases", phases()?),
        ("conditions", condition_types()?),
        ("reasons", reasons()?),
        ("alerts", alerts(rules)?),
        ("records", records(rules)?),
    ];
    parts.into_iter().try_fold(page.to_owned(), |page, (name, text)| replace(&page, name, &text))
}

fn replace(page: &str, name: &'static str, text: &str) -> Result<String, GenerateError> {
    let (open, close) = (format!("<!-- {name}: generated -->\n"), "<!-- end -->");
    let parts = page.split_once(&open).and_then(|(before, rest)| Some((before, rest.split_once(close)?.1)));
    let (before, after) = parts.ok_or(GenerateError::NoPart(name))?;
    Ok(format!("{before}{open}{text}{close}{after}"))
}

fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | ")).replace("|  |", "| |");
    let rows: String = rows.into_iter().map(|row| line(&row)).collect();
    format!("{}|{}\n{rows}", line(&head.map(str::to_owned)), "---|".repeat(N))
}

fn code(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    words.into_iter().map(|word| format!("`{}`", word.as_ref())).collect::<Vec<_>>().join(", ")
}

fn metrics() -> String {
    let families = families(&registry().encode_prometheus());
    let rows = families.into_iter().map(|it| [code([it.name]), it.kind, code(it.labels), it.help]);
    table(["metric", "type", "labels", "help"], rows)
}

fn spans() -> String {
    let rows = SPANS.iter().map(|it| [it.trace.to_owned(), code([it.name]), code(it.attributes), it.means.to_owned()]);
    let spans = table(["trace", "span", "attributes", "what it stands for"], rows);
    let (event, attributes) = STEP;
    format!(
        "{spans}\nEach phase step is an event `{event}` ({}) of the stay that it ends and of the span above.\n",
        code(attributes)
    )
}

fn phases() -> Result<String, GenerateError> {
    let rows =
        Phase::ALL.map(|phase| Ok([code([phase.as_str()]), source::meaning(source::STATUS, &format!("{phase},"))?]));
    Ok(table(["phase", "means"], rows.into_iter().collect::<Result<Vec<_>, GenerateError>>()?))
}

fn condition_types() -> Result<String, GenerateError> {
    let advisories = AdvisoryKind::ALL;
    let explained = |type_: &str| match advisories.into_iter().find(|it| it.as_str() == type_) {
        Some(kind) => source::meaning(OBSERVATION, &format!("{kind:?},")),
        None => source::meaning(source::CONDITIONS, &format!("pub const {}:", constant(type_))),
    };
    let rows = conditions::TYPES.iter().map(|type_| Ok([code([type_]), explained(type_)?]));
    let rows = rows.collect::<Result<Vec<_>, GenerateError>>()?;
    let means = table(["condition", "True when"], rows);
    Ok(format!("{means}\n{}", source::module_table(source::CONDITIONS)))
}

/// `ConfigValid` is declared as `CONFIG_VALID`.
fn constant(type_: &str) -> String {
    let mut name = String::new();
    for letter in type_.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

fn reasons() -> Result<String, GenerateError> {
    let row = |reason: Reason| {
        let means = source::meaning(source::REASONS, &format!("{reason:?},"))?;
        let stalls = if reason.stalls() { "yes" } else { "" };
        Ok([code([reason.as_str()]), means, stalls.to_owned(), advice(reason).to_owned()])
    };
    let rows = Reason::ALL.into_iter().map(row).collect::<Result<Vec<_>, GenerateError>>()?;
    Ok(table(["reason", "means", "stalls", "what to do"], rows))
}

fn alerts(rules: &str) -> Result<String, GenerateError> {
    let row = |rule: &Value| {
        let name = text(rule, "/alert");
        let summary = text(rule, "/annotations/summary")
            .replace("{{ $labels.", "<")
            .replace("{{ $value | humanizeDuration", "<time")
            .replace(" }}", ">");
        let link = format!("[{name}](#{})", name.to_lowercase());
        [link, text(rule, "/labels/severity").to_owned(), text(rule, "/for").to_owned(), code([summary])]
    };
    let rules = all_rules(rules)?;
    Ok(table(["alert", "severity", "after", "says"], rules.iter().filter(|it| it["alert"].is_string()).map(row)))
}

fn records(rules: &str) -> Result<String, GenerateError> {
    let rules = all_rules(rules)?;
    let line = |rule: &Value| {
        let expr = text(rule, "/expr").split_whitespace().collect::<Vec<_>>().join(" ");
        [code([text(rule, "/record")]), code([expr])]
    };
    Ok(table(["recorded series", "expression"], rules.iter().filter(|it| it["record"].is_string()).map(line)))
}
