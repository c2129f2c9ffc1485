//! Spans that are told when they have ended, and what ties spans of `tracing` to them.

use jiff::Timestamp;
use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use std::time::{Duration, SystemTime};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::traceparent::TraceContext;

/// A span that has ended, told as a whole: its times, ids and parent are given, not found.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedSpan {
    /// Its trace and its id.
    pub context: TraceContext,
    /// The span above it.
    pub parent: Option<[u8; 8]>,
    /// Whether that span is another process's.
    pub parent_is_remote: bool,
    /// Its name.
    pub name: String,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Attribute)>,
    /// What happened in it.
    pub events: Vec<SpanEvent>,
    /// Other spans that it has to do with.
    pub links: Vec<TraceContext>,
    /// What went wrong, when it did.
    pub error: Option<String>,
}

/// Something that happened within a span.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvent {
    /// Its name.
    pub name: &'static str,
    /// When.
    pub time: Timestamp,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Attribute)>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Attribute::Text(text.to_owned())
    }
}

impl From<i64> for Attribute {
    fn from(number: i64) -> Self {
        Attribute::Number(number)
    }
}

impl FinishedSpan {
    pub(super) fn into_data(self, scope: InstrumentationScope) -> SpanData {
        let mut events = SpanEvents::default();
        events.events = self.events.into_iter().map(event).collect();
        let mut links = SpanLinks::default();
        links.links = self.links.into_iter().map(|to| Link::new(span_context(to, true), Vec::new(), 0)).collect();
        SpanData {
            span_context: span_context(self.context, false),
            parent_span_id: self.parent.map_or(SpanId::INVALID, SpanId::from_bytes),
            parent_span_is_remote: self.parent_is_remote,
            span_kind: SpanKind::Internal,
            name: self.name.into(),
            start_time: system_time(self.start),
            // Times are whole seconds, and viewers take a span without length for one with a broken clock. All end later by
            // as much, so that each stays within the one above.
            end_time: system_time(self.end.max(self.start)) + Duration::from_nanos(1),
            attributes: self.attributes.into_iter().map(attribute).collect(),
            dropped_attributes_count: 0,
            events,
            links,
            status: self.error.map_or(Status::Unset, Status::error),
            instrumentation_scope: scope,
        }
    }
}

fn event(event: SpanEvent) -> Event {
    let attributes = event.attributes.into_iter().map(attribute).collect();
    Event::new(event.name, system_time(event.time), attributes, 0)
}

fn attribute((key, value): (&'static str, Attribute)) -> KeyValue {
    match value {
        Attribute::Text(text) => KeyValue::new(key, text),
        Attribute::Number(number) => KeyValue::new(key, number),
    }
}

fn system_time(at: Timestamp) -> SystemTime {
    let nanos = u64::try_from(at.as_nanosecond()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)
}

pub(super) fn span_context(context: TraceContext, remote: bool) -> SpanContext {
    let flags = if context.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace, span) = (TraceId::from_bytes(context.trace_id), SpanId::from_bytes(context.span_id));
    SpanContext::new(trace, span, flags, remote, TraceState::default())
}

/// Where a span of `tracing` stands in its trace; `None` when it is not exported.
pub fn context_of(span: &tracing::Span) -> Option<TraceContext> {
    let context = span.context();
    let here = context.span().span_context().clone();
    here.is_sampled().then(|| TraceContext {
        trace_id: here.trace_id().to_bytes(),
        span_id: here.span_id().to_bytes(),
        sampled: true,
    })
}

/// Links a span of `tracing` to another span.
pub fn link(span: &tracing::Span, to: TraceContext) {
    span.add_link(span_context(to, true));
}

/// Says that what a span of `tracing` stands for has failed.
pub fn fail(span: &tracing::Span, message: &str) {
    span.set_status(Status::error(message.to_owned()));
}
