//! Log lines: JSON for machines, plain for a person at a terminal; always on standard error.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::{env, fmt};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::dispatcher::WeakDispatch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::log_traces::{Here, WithTrace};
use crate::traces::Traces;

/// The level that holds when neither flag nor `RUST_LOG` says otherwise.
pub const DEFAULT_FILTER: &str = "info";

/// The libraries below us tell what each request does from info on; that is their debug for us. `kube_client::client`
/// prints response bodies that it cannot parse as warnings, and a body may be a Secret. What makes a request or
/// a watch fail is told by the operator itself, once and with advice.
const QUIET_LIBRARIES: &str = "kube=warn,kube_client=warn,kube_client::client=error,\
    kube_client::client::builder=off,kube_runtime=warn,kube_runtime::watcher=off,hyper=warn,hyper_util=warn,h2=warn,\
    tower=warn,rustls=warn";
const QUIET_LIBRARIES_AT_DEBUG: &str =
    "kube_client::client=error,kube_client::client::builder=debug,hyper=info,hyper_util=info,h2=info,rustls=info";

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// JSON in a cluster (`KUBERNETES_SERVICE_HOST` is set) and when standard error is no terminal, human otherwise.
    #[default]
    Auto,
    /// One JSON object a line: timestamp, level, target, the fields of the spans around, the event's fields, message.
    Json,
    /// For a person: time, level, spans, message.
    Human,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The filter is no level and no list of `target=level`.
    #[error("invalid log filter {filter:?} from {origin}: want error, warn, info, debug, trace, or target=level,...")]
    Filter {
        /// The filter as it was given.
        filter: String,
        /// Where it came from: the flag or the environment variable.
        origin: &'static str,
        /// What the parser says.
        source: tracing_subscriber::filter::ParseError,
    },
    /// A subscriber is installed already.
    #[error("logging is set up already")]
    Installed(#[from] TryInitError),
}

/// Installs the process-wide subscriber. `level` is a level (`info`) or a filter (`info,lmcache_operator=debug`);
/// `RUST_LOG`, when set, wins over it. While traces are exported, lines carry `trace_id` and `span_id`.
pub fn init_logging(format: LogFormat, level: &str, traces: &Traces) -> Result<(), LoggingError> {
    let (filter, origin) = match env::var("RUST_LOG") {
        Ok(filter) if !filter.trim().is_empty() => (filter, "RUST_LOG"),
        _ => (level.to_owned(), "--log-level"),
    };
    let parsed = EnvFilter::builder().parse(complete_filter(&filter)).map_err(|source| LoggingError::Filter {
        filter: filter.clone(),
        origin,
        source,
    })?;
    let json = format.is_json(env::var_os("KUBERNETES_SERVICE_HOST").is_some(), io::stderr().is_terminal());
    // What is logged and what is traced are two questions: each layer has a filter of its own.
    let registry = tracing_subscriber::registry().with(traces.layer());
    let lines = if json {
        JsonLines { write: write_stderr, dispatch: OnceLock::new() }.with_filter(parsed).boxed()
    } else {
        let colour = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none();
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(colour);
        lines.event_format(WithTrace::new(colour, traces.is_on())).with_filter(parsed).boxed()
    };
    registry.with(lines).try_init()?;
    Ok(())
}

/// A bare level speaks of the operator; the libraries are kept quieter. Anything more is taken as it stands.
fn complete_filter(filter: &str) -> String {
    match filter.trim().parse::<Level>() {
        Ok(Level::INFO) => format!("info,{QUIET_LIBRARIES}"),
        Ok(Level::DEBUG | Level::TRACE) => format!("{},{QUIET_LIBRARIES_AT_DEBUG}", filter.trim()),
        Ok(_) => format!("{},kube_client::client=error", filter.trim()),
        Err(_) => filter.trim().to_owned(),
    }
}

impl LogFormat {
    fn is_json(self, in_cluster: bool, terminal: bool) -> bool {
        match self {
            LogFormat::Json => true,
            LogFormat::Human => false,
            LogFormat::Auto => in_cluster || !terminal,
        }
    }
}

fn write_stderr(line: &[u8]) {
    // A log that cannot be written has nowhere to be reported.
    let _ = io::stderr().lock().write_all(line);
}

/// Writes each event as one JSON line on which the fields of all spans around it stand beside its own; the nearer one wins.
struct JsonLines<W> {
    write: W,
    dispatch: OnceLock<WeakDispatch>,
}

/// The fields of a span, kept with it.
struct SpanFields(Map<String, Value>);

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Fn(&[u8]) + 'static,
{
    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        let _ = self.dispatch.set(dispatch.downgrade());
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Map::new();
        attributes.record(&mut JsonVisitor(&mut fields));
        span.extensions_mut().insert(SpanFields(fields));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<SpanFields>() {
            values.record(&mut JsonVisitor(&mut fields.0));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Map::new();
        for span in context.event_scope(event).into_iter().flat_map(tracing_subscriber::registry::Scope::from_root) {
            if let Some(fields) = span.extensions().get::<SpanFields>() {
                line.extend(fields.0.clone());
            }
        }
        event.record(&mut JsonVisitor(&mut line));
        if let Some(here) = Here::of(event, &context, self.dispatch.get()) {
            line.insert("trace_id".to_owned(), here.trace_id.into());
            line.insert("span_id".to_owned(), here.span_id.into());
        }
        line.insert("timestamp".to_owned(), format!("{:.6}", Timestamp::now()).into());
        line.insert("level".to_owned(), event.metadata().level().as_str().to_ascii_lowercase().into());
        line.insert("target".to_owned(), event.metadata().target().into());
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        (self.write)(text.as_bytes());
    }
}

struct JsonVisitor<'a>(&'a mut Map<String, Value>);

impl JsonVisitor<'_> {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        // Instructions for the trace, not facts.
        if field.name().starts_with("otel.") {
            return;
        }
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for JsonVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_error(&mut self, field: &Field, error: &(dyn std::error::Error + 'static)) {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        self.put(field, text);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use rstest::rstest;

    use super::*;

    fn lines_of(work: impl FnOnce()) -> Vec<Value> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let write = move |line: &[u8]| sink.lock().unwrap().push(serde_json::from_slice::<Value>(line).unwrap());
        let subscriber = tracing_subscriber::registry().with(JsonLines { write, dispatch: OnceLock::new() });
        tracing::subscriber::with_default(subscriber, work);
        let lines = seen.lock().unwrap();
        lines.clone()
    }

    #[test]
    fn a_line_carries_the_object_of_the_reconcile_around_it() {
        let lines = lines_of(|| {
            let reconcile = tracing::info_span!(
                "reconcile",
                kind = "LMCacheEngine",
                namespace = "team-a",
                name = "engine",
                generation = 3_i64,
                result = tracing::field::Empty
            );
            let _reconcile = reconcile.enter();
            reconcile.record("result", "success");
            let _apply = tracing::info_span!("apply", child = "DaemonSet").entered();
            tracing::warn!(attempts = 2_u64, "Failed to apply {}", "DaemonSet team-a/engine");
        });
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        for (field, value) in [
            ("level", Value::from("warn")),
            ("message", "Failed to apply DaemonSet team-a/engine".into()),
            ("kind", "LMCacheEngine".into()),
            ("namespace", "team-a".into()),
            ("name", "engine".into()),
            ("generation", 3.into()),
            ("result", "success".into()),
            ("child", "DaemonSet".into()),
            ("attempts", 2.into()),
        ] {
            assert_eq!(line[field], value, "field {field} of {line}");
        }
        assert!(line["timestamp"].as_str().unwrap().parse::<Timestamp>().is_ok(), "{line}");
        assert!(line["target"].as_str().unwrap().starts_with("lmcache_observability"), "{line}");
    }

    #[test]
    fn the_nearer_field_wins_and_other_lines_are_not_touched() {
        let lines = lines_of(|| {
            let span = tracing::info_span!("outer", name = "outer").entered();
            tracing::info!(name = "own", "First");
            tracing::info!("Second");
            drop(span);
            tracing::info!("Third");
        });
        let names: Vec<&Value> = lines.iter().map(|line| &line["name"]).collect();
        assert_eq!(names, ["own".into(), "outer".into(), Value::Null].iter().collect::<Vec<_>>());
    }

    #[test]
    fn an_error_is_told_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot write status")]
        struct Outer(#[source] io::Error);
        let error = Outer(io::Error::other("connection refused"));
        let lines = lines_of(|| tracing::error!(error = &error as &dyn std::error::Error, "Failed"));
        assert_eq!(lines[0]["error"], "cannot write status: connection refused");
    }

    #[rstest]
    #[case(LogFormat::Auto, true, true, true)]
    #[case(LogFormat::Auto, false, true, false)]
    #[case(LogFormat::Auto, false, false, true)]
    #[case(LogFormat::Json, false, true, true)]
    #[case(LogFormat::Human, true, false, false)]
    fn the_format_follows_the_place(
        #[case] format: LogFormat,
        #[case] in_cluster: bool,
        #[case] terminal: bool,
        #[case] json: bool,
    ) {
        assert_eq!(format.is_json(in_cluster, terminal), json, "{format:?} {in_cluster} {terminal}");
    }

    #[rstest]
    #[case("error")]
    #[case("warn")]
    #[case("info")]
    #[case("DEBUG")]
    #[case("trace")]
    fn a_bare_level_never_lets_response_bodies_through(#[case] level: &str) {
        let filter = complete_filter(level);
        assert!(filter.contains("kube_client::client=error"), "{filter}");
        assert!(EnvFilter::builder().parse(&filter).is_ok(), "{filter}");
    }

    #[test]
    fn a_filter_is_taken_as_it_stands() {
        assert_eq!(complete_filter(" info,kube=debug "), "info,kube=debug");
    }
}
