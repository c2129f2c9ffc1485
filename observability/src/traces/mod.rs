//! Traces: who exports them, to where, and what their spans are. Without an endpoint there is no thread, no layer and no
//! connection.

mod connection;
mod direct;
mod exporter;
#[cfg(test)]
mod exporter_tests;
mod queue;
mod settings;
#[cfg(test)]
mod settings_tests;
mod span;
mod traceparent;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::{SpanKind, TraceContextExt as _, TraceId, TracerProvider as _};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::EnvResourceDetector;
use opentelemetry_sdk::trace::{SamplingDecision, SdkTracerProvider, ShouldSample as _};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{FilterExt as _, Targets, filter_fn};
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::Registry;

pub(crate) use direct::{Begun, Ended};
pub use queue::{DropReason, StartError};
pub use settings::{InvalidTraceSetting, OtlpFlags, OtlpProtocol, SAMPLERS, TraceSettings};
pub use span::{Attribute, FinishedSpan, SpanEvent, context_of, fail, link};
pub use traceparent::{InvalidTraceparent, TraceContext, from_hex, to_hex};

use crate::metrics::Metrics;
use queue::{Sender, Spans};

const SERVICE: &str = "lmcache-operator";

/// The way to the collector, or none. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Arc<On>>);

#[derive(Debug)]
struct On {
    settings: TraceSettings,
    spans: Spans,
    sender: Sender,
    provider: SdkTracerProvider,
    scope: InstrumentationScope,
}

impl Traces {
    /// Nothing is exported.
    pub fn off() -> Self {
        Traces(None)
    }

    /// Starts to export where `settings` say; off without them. `version` is the operator's.
    pub fn start(
        settings: Option<TraceSettings>,
        version: &'static str,
        metrics: &Metrics,
    ) -> Result<Self, StartError> {
        let Some(settings) = settings else { return Ok(Traces::off()) };
        let resource = resource(&settings, version);
        let (spans, sender) = Sender::start(&settings, &resource, metrics)?;
        let provider = SdkTracerProvider::builder()
            .with_span_processor(spans.clone())
            .with_sampler(settings.sampler.clone())
            .with_resource(resource)
            .build();
        let scope = InstrumentationScope::builder(SERVICE).with_version(version).build();
        Ok(Traces(Some(Arc::new(On { settings, spans, sender, provider, scope }))))
    }

    /// Whether anything is exported.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Where spans are sent and how, for the log.
    pub fn target(&self) -> Option<(String, &'static str)> {
        let on = self.0.as_ref()?;
        Some((exporter::shown(&on.settings.endpoint), on.settings.protocol.as_str()))
    }

    /// Whether a trace with this id, begun by `parent` if there is one, is kept. The same question has the same answer.
    pub fn keeps(&self, trace_id: [u8; 16], parent: Option<TraceContext>, name: &str) -> bool {
        let Some(on) = &self.0 else { return false };
        let parent = parent.map(|parent| Context::new().with_remote_span_context(span::span_context(parent, true)));
        let trace_id = TraceId::from_bytes(trace_id);
        let result = on.settings.sampler.should_sample(parent.as_ref(), trace_id, name, &SpanKind::Internal, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }

    /// Exports spans of a rollout, soon.
    pub fn export(&self, spans: impl IntoIterator<Item = FinishedSpan>) {
        let Some(on) = &self.0 else { return };
        for span in spans {
            on.spans.offer(span.into_data(on.scope.clone()), true);
        }
    }

    /// Sends what is queued, for no longer than `limit`, and ends; false when time was too short. Blocks the thread.
    pub fn shutdown(&self, limit: Duration) -> bool {
        self.0.as_ref().is_none_or(|on| on.sender.stop(limit))
    }

    /// The layer that turns spans of `tracing` into spans of a trace: the operator's own only, whatever is logged. Warnings
    /// and errors are events of their span; other lines only carry its ids.
    pub(crate) fn layer(&self) -> Option<Box<dyn Layer<Registry> + Send + Sync>> {
        let on = self.0.as_ref()?;
        let tracer = on.provider.tracer_with_scope(on.scope.clone());
        let own = Targets::new().with_target("lmcache_operator", LevelFilter::INFO);
        let told = filter_fn(|what| what.is_span() || *what.level() <= LevelFilter::WARN);
        let layer = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_target(false)
            .with_context_activation(false);
        Some(layer.with_filter(own.and(told)).boxed())
    }
}

/// Who exports. `OTEL_RESOURCE_ATTRIBUTES` wins over what is found out, `OTEL_SERVICE_NAME` over both.
fn resource(settings: &TraceSettings, version: &'static str) -> Resource {
    let place = &settings.pod;
    let mut found = vec![
        KeyValue::new("service.name", SERVICE),
        KeyValue::new("service.version", version),
        KeyValue::new("service.instance.id", instance(settings)),
        KeyValue::new("telemetry.sdk.name", "opentelemetry"),
        KeyValue::new("telemetry.sdk.language", "rust"),
    ];
    let of_pod =
        [("k8s.pod.name", &place.pod), ("k8s.namespace.name", &place.namespace), ("k8s.node.name", &place.node)];
    found.extend(of_pod.into_iter().filter_map(|(key, value)| Some(KeyValue::new(key, value.clone()?))));
    let builder = Resource::builder_empty().with_attributes(found).with_detector(Box::new(EnvResourceDetector::new()));
    match &settings.service_name {
        Some(name) => builder.with_service_name(name.clone()).build(),
        None => builder.build(),
    }
}

/// Unique among all instances of the service: the pod where there is one, else random.
fn instance(settings: &TraceSettings) -> String {
    match (&settings.pod.namespace, &settings.pod.pod) {
        (Some(namespace), Some(pod)) => format!("{namespace}.{pod}.manager"),
        _ => format!("{:016x}", RandomState::new().hash_one(0_u8)),
    }
}
