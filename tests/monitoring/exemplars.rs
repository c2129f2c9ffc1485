//! From the dot of a panel to the trace that shows what happened.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use lmcache_testbed::jaeger::Jaeger;

use crate::prometheus::{Exemplar, Prometheus};
use crate::scenario::{ENGINE, Scenario};

/// How long a span may take from its end to Jaeger's answer.
const DELIVERY: Duration = Duration::from_secs(30);

/// Every exemplar that Prometheus has kept names a trace that Jaeger has, and those of rollouts are in the status of what was
/// rolled out.
pub async fn lead_to_traces(
    prometheus: &Prometheus,
    jaeger: &Jaeger,
    scenario: &Scenario,
    wrong: &mut Vec<String>,
) -> Result<()> {
    for (family, span) in
        [("reconcile_duration", "reconcile"), ("rollout_duration", "rollout"), ("phase_duration", "rollout")]
    {
        let series = format!("lmcache_operator_{family}_seconds_bucket");
        let kept = prometheus.exemplars(&series, scenario.from, scenario.to).await?;
        if kept.is_empty() {
            wrong.push(format!("{family}: no exemplars"));
        }
        let is_trace_id = |id: &str| id.len() == 32 && id.bytes().all(|it| it.is_ascii_hexdigit());
        wrong.extend(kept.iter().filter(|it| !is_trace_id(&it.trace_id)).map(|it| format!("{family}: {it:?}")));
        let traces: BTreeSet<&str> = kept.iter().map(|it| it.trace_id.as_str()).collect();
        println!("{family}: {} exemplars of {} traces", kept.len(), traces.len());
        for trace in traces {
            let found = jaeger.wait_for_span(trace, span, DELIVERY).await;
            wrong.extend(found.err().map(|error| format!("{family}: {error:#}")));
        }
    }
    those_of_rollouts_are_in_the_status(prometheus, jaeger, scenario, wrong).await
}

async fn those_of_rollouts_are_in_the_status(
    prometheus: &Prometheus,
    jaeger: &Jaeger,
    scenario: &Scenario,
    wrong: &mut Vec<String>,
) -> Result<()> {
    let told: BTreeSet<&str> = scenario.traces.iter().map(String::as_str).collect();
    // Nothing else of this kind has become Ready.
    let ended = r#"lmcache_operator_rollout_duration_seconds_bucket{kind="LMCacheEngine", outcome="ready"}"#;
    let rollouts = prometheus.exemplars(ended, scenario.from, scenario.to).await?;
    let ids = |of: &[Exemplar]| of.iter().map(|it| it.trace_id.clone()).collect::<BTreeSet<_>>();
    if ids(&rollouts).iter().map(String::as_str).ne(told.iter().copied()) {
        wrong.push(format!("rollouts of {ENGINE}: status.trace has told of {told:?}, the exemplars are {rollouts:?}"));
    }
    let rolled = r#"lmcache_operator_phase_duration_seconds_bucket{kind="LMCacheEngine", phase="Rolling"}"#;
    let stays = ids(&prometheus.exemplars(rolled, scenario.from, scenario.to).await?);
    // The first rollout is not alone: a bucket keeps only the last exemplar before a scrape.
    let alone = &scenario.traces[1..];
    if !alone.iter().all(|it| stays.contains(it)) {
        wrong.push(format!("stays in Rolling: status.trace has told of {alone:?}, the exemplars are of {stays:?}"));
    }
    for it in rollouts {
        let spans = jaeger.trace(&it.trace_id).await?;
        let root = spans.iter().find(|span| span.name == "rollout").context("waited for before")?;
        if (root.attribute("name"), root.attribute("namespace")) != (ENGINE, scenario.namespace()) {
            wrong.push(format!("{it:?} leads to a rollout of something else: {root:#?}"));
        }
    }
    Ok(())
}
