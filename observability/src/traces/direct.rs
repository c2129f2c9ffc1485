//! Spans that are told in one go at their end. They need no place among the spans of `tracing`: nothing is looked up,
//! entered or recorded while they last, which for a request or a short step would cost more than all else about it.

use std::borrow::Cow;
use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator, SpanData, SpanEvents, SpanLinks};
use tracing::Span;

use super::span::{context_of, span_context};
use super::{TraceContext, Traces};

/// A span that has begun, under the span of `tracing` that was around it.
#[derive(Debug)]
pub(crate) struct Begun {
    parent: TraceContext,
    start: SystemTime,
}

/// What is known of it at its end.
#[derive(Debug)]
pub(crate) struct Ended {
    pub name: Cow<'static, str>,
    pub kind: SpanKind,
    pub attributes: Vec<KeyValue>,
    pub status: Status,
}

impl Traces {
    /// Does `work` as a step of what the span around it stands for.
    pub fn step<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let begun = self.begin();
        let result = work();
        if let Some(begun) = begun {
            let (attributes, status) = (Vec::new(), Status::Unset);
            self.end(&begun, Ended { name: name.into(), kind: SpanKind::Internal, attributes, status });
        }
        result
    }

    /// Begins a span, where the one around it is exported.
    pub(crate) fn begin(&self) -> Option<Begun> {
        if !self.is_on() {
            return None;
        }
        Some(Begun { parent: context_of(&Span::current())?, start: SystemTime::now() })
    }

    pub(crate) fn end(&self, begun: &Begun, ended: Ended) {
        let Some(on) = &self.0 else { return };
        let own = TraceContext { span_id: RandomIdGenerator::default().new_span_id().to_bytes(), ..begun.parent };
        let span = SpanData {
            span_context: span_context(own, false),
            parent_span_id: SpanId::from_bytes(begun.parent.span_id),
            parent_span_is_remote: false,
            span_kind: ended.kind,
            name: ended.name,
            start_time: begun.start,
            end_time: SystemTime::now().max(begun.start),
            attributes: ended.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: ended.status,
            instrumentation_scope: on.scope.clone(),
        };
        on.spans.offer(span, false);
    }
}
