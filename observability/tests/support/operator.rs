//! The Operator dashboard: what the operator is doing, and how well.

use super::dashboard::{Dashboard, Look, Panel, Row, Variable, now, over_time, panel};
use super::{TRACE, gained, happened};

/// `namespace` is where the operator runs, as Prometheus labels its target; the series themselves have none.
const OPERATOR: &str = r#"namespace=~"$namespace""#;

const DAY: f64 = 86_400.0;

pub fn dashboard() -> Dashboard {
    Dashboard {
        uid: "lmcache-operator",
        title: "LMCache / Operator",
        description: "The operator itself: who leads, reconciles, requests to the API server, webhooks.",
        variables: [Variable::Label {
            name: "namespace",
            label: "Namespace of the operator",
            query: "label_values(lmcache_operator_build_info, namespace)".to_owned(),
            all: true,
        }]
        .into_iter()
        .chain(TRACE)
        .collect(),
        rows: vec![
            Row { title: "Now", height: 4, panels: present() },
            Row { title: "Reconciles", height: 8, panels: reconciles() },
            Row { title: "Queue and children", height: 8, panels: queue() },
            Row { title: "API server", height: 8, panels: requests() },
            Row { title: "Webhooks", height: 8, panels: webhooks() },
            Row { title: "Process", height: 7, panels: process() },
            Row { title: "Traces", height: 7, panels: traces() },
        ],
    }
}

fn rate(metric: &str, by: &str) -> String {
    format!("sum by ({by}) (rate(lmcache_operator_{metric}{{{OPERATOR}}}[$__rate_interval]))")
}

fn count(metric: &str, by: &str, also: &str) -> String {
    happened(by, &format!("lmcache_operator_{metric}{{{OPERATOR}{also}}}"))
}

fn quantile(metric: &str, by: &str, also: &str) -> String {
    format!(
        "histogram_quantile(0.99, sum by (le, {by}) (rate(lmcache_operator_{metric}_bucket{{{OPERATOR}{also}}}[$__rate_interval]))) >= 0"
    )
}

/// A metric of the process, of operators only.
fn of_process(metric: &str) -> String {
    format!("{metric} and on (job, instance) lmcache_operator_build_info{{{OPERATOR}}}")
}

fn present() -> Vec<Panel> {
    let stat =
        |title, unit, description, empty, targets| panel(title, Look::Stat, unit, description, empty, targets).width(4);
    vec![
        stat(
            "Leaders",
            "short",
            "How many operators lead. It must be one.",
            "No operator is scraped",
            vec![now("", format!("sum(lmcache_operator_leader{{{OPERATOR}}})"))],
        )
        .thresholds("red", &[(1.0, "green"), (2.0, "red")]),
        panel(
            "Version",
            Look::StatName,
            "none",
            "Version and commit of every operator that runs.",
            "No operator is scraped",
            vec![now(
                "{{version}} ({{commit}})",
                format!("count by (version, commit) (lmcache_operator_build_info{{{OPERATOR}}})"),
            )],
        )
        .width(4),
        stat(
            "Uptime",
            "s",
            "Since the youngest operator was started.",
            "No operator is scraped",
            vec![now("", format!("min(time() - ({}))", of_process("process_start_time_seconds")))],
        ),
        stat(
            "Resources",
            "short",
            "Resources of all kinds that the operator looks after.",
            "None",
            vec![now(
                "",
                format!(
                    "sum(max by (kind, namespace, name, phase) ({}))",
                    of_process("lmcache_operator_engine_phase")
                ),
            )],
        ),
        stat(
            "Failed reconciles",
            "percentunit",
            "Share of the reconciles of the last quarter of an hour that failed, as alert LMCacheReconcileErrors counts them: \
             a resource that changed meanwhile (stale) is no failure.",
            "No reconcile in the last 15 minutes",
            vec![now(
                "",
                format!(
                    "(sum({}) or vector(0)) / (sum({}) > 0)",
                    gained(&format!(r#"lmcache_operator_reconcile_errors_total{{{OPERATOR}, error!="stale"}}"#), "15m"),
                    gained(&format!("lmcache_operator_reconcile_duration_seconds_count{{{OPERATOR}}}"), "15m")
                ),
            )],
        )
        .thresholds("green", &[(0.01, "yellow"), (0.1, "red")]),
        stat(
            "Webhook certificate expires in",
            "s",
            "Until the serving certificate of the webhooks expires. It is renewed long before.",
            "No webhooks",
            vec![now(
                "",
                format!("min(lmcache_operator_webhook_certificate_expiry_timestamp_seconds{{{OPERATOR}}}) - time()"),
            )],
        )
        .thresholds("red", &[(DAY, "yellow"), (7.0 * DAY, "green")]),
    ]
}

fn reconciles() -> Vec<Panel> {
    vec![
        panel(
            "Reconciles",
            Look::Lines,
            "ops",
            "Reconciles per second by kind and result.",
            "Nothing was reconciled",
            vec![over_time("{{kind}} {{result}}", rate("reconcile_duration_seconds_count", "kind, result"))],
        )
        .width(6),
        panel(
            "Reconcile errors",
            Look::Bars,
            "short",
            "Failed reconciles by cause. stale only means that the resource changed meanwhile.",
            "No reconcile failed",
            vec![over_time("{{kind}} {{error}}", count("reconcile_errors_total", "kind, error", ""))],
        )
        .width(6),
        panel(
            "Reconcile latency",
            Look::Heatmap,
            "s",
            "How long reconciles took: the darker, the more of them. A dot is one reconcile and carries the id of \
             its trace.",
            "Nothing was reconciled",
            vec![
                over_time(
                    "{{le}}",
                    format!(
                        "sum by (le) (increase(lmcache_operator_reconcile_duration_seconds_bucket{{{OPERATOR}}}[$__rate_interval]))"
                    ),
                )
                .with_exemplars(),
            ],
        )
        .width(6),
        panel(
            "Reconcile latency, 99th percentile",
            Look::Lines,
            "s",
            "By kind. A dot is one reconcile and carries the id of its trace.",
            "Nothing was reconciled",
            vec![over_time("{{kind}}", quantile("reconcile_duration_seconds", "kind", "")).with_exemplars()],
        )
        .width(6),
    ]
}

fn queue() -> Vec<Panel> {
    vec![
        panel(
            "Queue",
            Look::Steps,
            "short",
            "Resources that wait for their turn, by kind.",
            "Nothing was queued yet",
            vec![over_time(
                "{{kind}}",
                format!("sum by (kind) (lmcache_operator_reconcile_queue_depth{{{OPERATOR}}})"),
            )],
        ),
        panel(
            "Reconciles in flight",
            Look::Steps,
            "short",
            "Reconciles that run at this moment, by kind; --max-concurrent-reconciles bounds them.",
            "Nothing was reconciled yet",
            vec![over_time("{{kind}}", format!("sum by (kind) (lmcache_operator_reconcile_in_flight{{{OPERATOR}}})"))],
        ),
        panel(
            "Children",
            Look::Bars,
            "short",
            "Children by what applying them did. unchanged costs no request; conflict is somebody else's object.",
            "No child was looked at",
            vec![over_time("{{child}} {{outcome}}", count("applies_total", "child, outcome", ""))],
        ),
    ]
}

fn requests() -> Vec<Panel> {
    vec![
        panel(
            "Requests",
            Look::Lines,
            "reqps",
            "Requests per second to the API server by verb and resource. A settled fleet sends next to none.",
            "No request was sent",
            vec![over_time("{{verb}} {{resource}}", rate("api_requests_total", "verb, resource"))],
        )
        .width(6),
        panel(
            "Requests that failed",
            Look::Bars,
            "short",
            "Failed requests by code; error means that no answer came. 404 and 409 are often expected.",
            "No request failed",
            vec![over_time(
                "{{verb}} {{resource}} {{code}}",
                count("api_requests_total", "verb, resource, code", r#", code!~"[123]..""#),
            )],
        )
        .width(6),
        panel(
            "Request latency, 99th percentile",
            Look::Lines,
            "s",
            "From a request to the head of its answer, by verb. Watches are left out: they are answered when there is news.",
            "No request was sent",
            vec![over_time("{{verb}}", quantile("api_request_duration_seconds", "verb", r#", verb!="watch""#))],
        )
        .width(6),
        panel(
            "Watches begun anew",
            Look::Bars,
            "short",
            "Watches that failed and were begun anew, by resource and cause. expired now and then is normal.",
            "Every watch held",
            vec![over_time("{{resource}} {{cause}}", count("watch_restarts_total", "resource, cause", ""))],
        )
        .width(6),
    ]
}

/// Over a longer time than that of reconciles: pods are rarely created.
fn webhook_latency() -> String {
    let buckets = gained(&format!("lmcache_operator_webhook_duration_seconds_bucket{{{OPERATOR}}}"), "15m");
    format!("histogram_quantile(0.99, sum by (le, webhook) ({buckets})) >= 0")
}

fn webhooks() -> Vec<Panel> {
    vec![
        panel(
            "Webhook outcomes",
            Look::Bars,
            "short",
            "Admission requests by webhook and outcome.",
            "No admission request",
            vec![over_time("{{webhook}} {{outcome}}", count("webhook_requests_total", "webhook, outcome", ""))],
        ),
        panel(
            "Not injected, denied or failed",
            Look::Bars,
            "short",
            "Why pods were not injected and requests denied.",
            "Every pod was injected and every request allowed",
            vec![over_time(
                "{{webhook}} {{outcome}}: {{reason}}",
                count("webhook_requests_total", "webhook, outcome, reason", r#", outcome=~"skipped|denied|error""#),
            )],
        ),
        panel(
            "Webhook latency, 99th percentile",
            Look::Lines,
            "s",
            "By webhook, over the quarter of an hour before. The API server waits for each answer before it admits the object.",
            "No admission request",
            vec![over_time("{{webhook}}", webhook_latency())],
        ),
    ]
}

fn process() -> Vec<Panel> {
    let of = |title, unit, description, expr: String| {
        panel(title, Look::Lines, unit, description, "No operator is scraped", vec![over_time("{{instance}}", expr)])
    };
    [
        of(
            "CPU cores",
            "short",
            "CPU cores in use.",
            format!(
                "rate(process_cpu_seconds_total[$__rate_interval]) and on (job, instance) lmcache_operator_build_info{{{OPERATOR}}}"
            ),
        ),
        of("Memory", "bytes", "Resident memory.", of_process("process_resident_memory_bytes")),
        of("Open files", "short", "Open file descriptors, connections included.", of_process("process_open_fds")),
        panel(
            "Leader",
            Look::States,
            "none",
            "Which operator led when. Two at a time, or none for more than a moment, is wrong.",
            "No operator is scraped",
            vec![over_time("{{instance}}", format!("max by (instance) (lmcache_operator_leader{{{OPERATOR}}})"))],
        )
        .mappings(&[(1, "Leads", "green"), (0, "Stands by", "text")]),
    ]
    .map(|it| it.width(6))
    .into()
}

fn traces() -> Vec<Panel> {
    vec![
        panel(
            "Spans per second",
            Look::Lines,
            "short",
            "Spans that the collector took, and those that were lost on the way to it, by reason. All zero without a collector.",
            "No operator is scraped",
            vec![
                over_time(
                    "exported",
                    format!("sum(rate(lmcache_operator_trace_spans_exported_total{{{OPERATOR}}}[$__rate_interval]))"),
                ),
                over_time("lost: {{reason}}", rate("trace_spans_dropped_total", "reason")),
            ],
        )
        .width(12),
        panel(
            "Exports that failed",
            Look::Bars,
            "short",
            "Exports to the collector that failed after their retries; the log says why. Reconciles do not wait for them.",
            "No export failed",
            vec![over_time("{{instance}}", count("trace_export_failures_total", "instance", ""))],
        )
        .width(12),
    ]
}
