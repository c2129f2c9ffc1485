//! Where a log line stands in a trace.

use std::fmt;

use opentelemetry::trace::TraceContextExt as _;
use tracing::dispatcher::WeakDispatch;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Writer};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// The trace and the span of a line, in hexadecimal digits.
pub(crate) struct Here {
    pub trace_id: String,
    pub span_id: String,
}

impl Here {
    /// Of an event; `None` when its span is in no trace.
    pub fn of<S>(event: &Event<'_>, context: &Context<'_, S>, dispatch: Option<&WeakDispatch>) -> Option<Self>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        Self::of_span(&context.event_span(event)?, dispatch?)
    }

    fn of_span<S>(span: &SpanRef<'_, S>, dispatch: &WeakDispatch) -> Option<Self>
    where
        S: for<'a> LookupSpan<'a>,
    {
        let context = tracing_opentelemetry::get_otel_context(&span.id(), &dispatch.upgrade()?)?;
        let span = context.span();
        let here = span.span_context();
        here.is_valid().then(|| Here { trace_id: here.trace_id().to_string(), span_id: here.span_id().to_string() })
    }
}

/// Appends trace and span to the lines of a format for people.
pub(crate) struct WithTrace<F> {
    lines: F,
    on: bool,
}

impl WithTrace<Format> {
    /// The usual format, with colours or without; changes nothing else unless `on`.
    pub fn new(colour: bool, on: bool) -> Self {
        WithTrace { lines: Format::default().with_ansi(colour), on }
    }
}

impl<S, N, F> FormatEvent<S, N> for WithTrace<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let span = if self.on { context.parent_span() } else { None };
        // The subscriber is global, so it can be asked for while it is at work.
        let dispatch = tracing::dispatcher::get_default(tracing::Dispatch::downgrade);
        let Some(here) = span.and_then(|span| Here::of_span(&span, &dispatch)) else {
            return self.lines.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.lines.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end_matches('\n');
        writeln!(writer, "{line} trace_id={} span_id={}", here.trace_id, here.span_id)
    }
}
