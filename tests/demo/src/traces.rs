//! The trace of a rollout: its id, and, with a Jaeger beside the demo, the trace itself as Jaeger has it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use lmcache_crds::{LMCacheEngine, RolloutTrace};
use lmcache_testbed::jaeger::{Jaeger, Span};

use crate::screen::Screen;

/// How long a span may take from its end to Jaeger's answer.
const DELIVERY: Duration = Duration::from_secs(15);
/// Columns of the bar of the longest span.
const BAR: usize = 40;

/// Flags that make the operator export to a Jaeger, if there is one.
pub fn flags(jaeger: Option<&Jaeger>) -> Vec<String> {
    let endpoint = jaeger.map(|jaeger| format!("--otlp-endpoint={}", jaeger.otlp_grpc()));
    endpoint.into_iter().flat_map(|endpoint| [endpoint, "--otlp-protocol=grpc".to_owned()]).collect()
}

/// Tells the id of an engine's trace and, from Jaeger, where the time went. Says nothing when nothing is traced.
pub async fn tell(screen: Screen, jaeger: Option<&Jaeger>, engine: &LMCacheEngine) -> Result<()> {
    let Some(trace) = engine.status.as_ref().and_then(|status| status.record.trace.as_ref()) else { return Ok(()) };
    screen.heading(&format!("Trace of the rollout of generation {} (status.trace)", trace.generation))?;
    screen.line(&format!("  traceId {}", trace.trace_id))?;
    match jaeger {
        None => screen.line("  The collector at OTEL_EXPORTER_OTLP_ENDPOINT has it.")?,
        Some(jaeger) => rollout(screen, jaeger, trace).await?,
    }
    Ok(())
}

/// The rollout, and the first reconcile that it is linked to.
async fn rollout(screen: Screen, jaeger: &Jaeger, trace: &RolloutTrace) -> Result<()> {
    let spans = jaeger.wait_for_span(&trace.trace_id, "rollout", DELIVERY).await?;
    screen.line(&format!("  read back from {}/api/v3/traces/{}\n", jaeger.api(), trace.trace_id))?;
    waterfall(&spans).iter().try_for_each(|line| screen.line(&format!("  {line}")))?;
    let root = spans.iter().find(|span| span.name == "rollout").context("the rollout")?;
    let Some((reconcile, _)) = root.links.first() else { return Ok(()) };
    screen.line(&format!("\n  It links to {} reconciles; the first one, trace {reconcile}:\n", root.links.len()))?;
    let spans = jaeger.wait_for_span(reconcile, "reconcile", DELIVERY).await?;
    waterfall(&spans).iter().try_for_each(|line| screen.line(&format!("  {line}")))?;
    Ok(())
}

/// One line a span: name by depth, start, duration, a bar on the common time line, and what is to be known of it.
pub fn waterfall(spans: &[Span]) -> Vec<String> {
    let begin = spans.iter().map(|span| span.start).min().unwrap_or_default();
    let end = spans.iter().map(|span| span.end).max().unwrap_or_default();
    let mut rows = Vec::new();
    for root in ordered(spans, |span| !spans.iter().any(|other| other.span_id == span.parent_id)) {
        descend(spans, root, 0, &mut rows);
    }
    let name = |(depth, span): &(usize, &Span)| format!("{}{}", "  ".repeat(*depth), shortened(&span.name));
    let width = rows.iter().map(|row| name(row).chars().count()).max().unwrap_or_default();
    let line = |row: &(usize, &Span)| {
        let (name, span) = (name(row), row.1);
        let (start, length) = (seconds(span.start - begin), seconds(span.end - span.start));
        let bar = bar(span.start - begin, span.end - span.start, end - begin);
        format!("{name:width$}  {start:>9}  {length:>9}  {bar:BAR$}  {}", remark(span)).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn descend<'a>(spans: &'a [Span], span: &'a Span, depth: usize, rows: &mut Vec<(usize, &'a Span)>) {
    rows.push((depth, span));
    // Ids come from outside: a loop among them must not be one here.
    if depth < 16 {
        for child in ordered(spans, |it| it.parent_id == span.span_id && it.span_id != span.span_id) {
            descend(spans, child, depth + 1, rows);
        }
    }
}

fn ordered(spans: &[Span], wanted: impl Fn(&Span) -> bool) -> Vec<&Span> {
    let mut found: Vec<&Span> = spans.iter().filter(|span| wanted(span)).collect();
    found.sort_by_key(|span| (span.start, span.end));
    found
}

/// Requests are told by method and resource.
fn shortened(name: &str) -> String {
    match name.split_once(" /") {
        Some((method, path)) => {
            let tail: Vec<&str> = path.split('/').skip_while(|part| *part != "{namespace}").skip(1).collect();
            format!("{method} {}", if tail.is_empty() { path.to_owned() } else { tail.join("/") })
        }
        None => name.to_owned(),
    }
}

fn remark(span: &Span) -> String {
    let told = ["outcome", "reason", "trigger", "http.response.status_code", "child.name"];
    let told: Vec<&str> = told.iter().map(|key| span.attribute(key)).filter(|value| !value.is_empty()).collect();
    told.join(" ")
}

/// Whole seconds as they are, less than a second in milliseconds.
#[allow(clippy::cast_precision_loss, reason = "a time on a screen")]
fn seconds(nanos: i128) -> String {
    match nanos {
        ..1_000 => "0".to_owned(),
        1_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.1} s", nanos as f64 / 1e9),
    }
}

fn bar(from: i128, length: i128, whole: i128) -> String {
    let columns = i128::try_from(BAR).unwrap_or_default();
    let scaled = |nanos: i128| usize::try_from(nanos * columns / whole.max(1)).unwrap_or_default();
    let start = scaled(from).min(BAR - 1);
    let stop = scaled(from + length).clamp(start + 1, BAR);
    // What took no time is a point.
    let mark = if length < whole / 1_000_000 { "." } else { "=" };
    format!("{}{}", " ".repeat(start), mark.repeat(stop - start))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const SECOND: i128 = 1_000_000_000;

    fn span(id: &str, parent: &str, name: &str, from: i128, to: i128, attributes: &[(&str, &str)]) -> Span {
        Span {
            trace_id: "t".to_owned(),
            span_id: id.to_owned(),
            parent_id: parent.to_owned(),
            name: name.to_owned(),
            kind: 1,
            start: from * SECOND,
            end: to * SECOND,
            attributes: attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            resource: HashMap::new(),
            events: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }

    #[test]
    fn a_trace_is_drawn_as_a_tree_on_one_time_line() {
        let spans = [
            span("3", "1", "Rolling", 4, 8, &[("reason", "InstancesStarting")]),
            span("2", "1", "Pending", 0, 4, &[]),
            span("1", "a caller's", "rollout", 0, 8, &[("outcome", "Ready")]),
            span("4", "3", "PATCH /apis/a/v1/namespaces/{namespace}/b/{name}", 8, 8, &[]),
        ];
        let (half, all) = ("=".repeat(BAR / 2), "=".repeat(BAR));
        let (rest, point) = (" ".repeat(BAR / 2), format!("{}.", " ".repeat(BAR - 1)));
        assert_eq!(
            waterfall(&spans),
            [
                format!("rollout                     0      8.0 s  {all}  Ready"),
                format!("  Pending                   0      4.0 s  {half}"),
                format!("  Rolling               4.0 s      4.0 s  {rest}{half}  InstancesStarting"),
                format!("    PATCH b/{{name}}      8.0 s          0  {point}"),
            ]
        );
    }

    #[test]
    fn spans_that_are_their_own_ancestors_end() {
        let spans = [span("1", "2", "a", 0, 1, &[]), span("2", "1", "b", 0, 1, &[]), span("3", "", "c", 0, 1, &[])];
        assert_eq!(waterfall(&spans).len(), 1);
        assert_eq!(waterfall(&[]), Vec::<String>::new());
    }
}
