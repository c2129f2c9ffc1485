//! The Fleet dashboard: every engine at a glance.

use serde_json::{Value, json};

use super::dashboard::{Dashboard, Look, Panel, Row, Variable, by_name, colour, now, over_time, panel};
use super::{PHASES, TRACE, happened, of_rollouts, outcome_colours, phase_colours};

const ENGINES: &str = r#"kind=~"$kind", namespace=~"$namespace""#;

pub fn dashboard() -> Dashboard {
    Dashboard {
        uid: "lmcache-fleet",
        title: "LMCache / Fleet",
        description: "Every engine and coordinator: where it stands, what is rolling out, and what the caches give.",
        variables: [
            Variable::Label {
                name: "namespace",
                label: "Namespace",
                query: "label_values(lmcache_operator_engine_phase, namespace)".to_owned(),
                all: true,
            },
            Variable::Label {
                name: "kind",
                label: "Kind",
                query: r#"label_values(lmcache_operator_engine_phase{namespace=~"$namespace"}, kind)"#.to_owned(),
                all: true,
            },
        ]
        .into_iter()
        .chain(TRACE)
        .collect(),
        rows: vec![
            Row { title: "Now", height: 4, panels: present() },
            Row { title: "Phases and instances", height: 8, panels: phases() },
            Row { title: "Engines", height: 9, panels: vec![table()] },
            Row { title: "Rollouts", height: 8, panels: rollouts() },
            Row { title: "Cache", height: 8, panels: cache() },
        ],
    }
}

/// The phase of each engine, once, however many operators tell of it.
fn phase(which: &str) -> String {
    format!("max by (kind, namespace, name, phase) (lmcache_operator_engine_phase{{{ENGINES}{which}}})")
}

fn instances(state: &str) -> String {
    format!(r#"max by (kind, namespace, name) (lmcache_operator_engine_instances{{{ENGINES}, state="{state}"}})"#)
}

fn condition(type_: &str) -> String {
    format!(r#"max by (kind, namespace, name) (lmcache_operator_engine_condition{{{ENGINES}, type="{type_}"}})"#)
}

fn tokens(which: &str, by: &str) -> String {
    format!("sum by ({by}) (rate(lmcache_operator_cache_{which}_tokens_total{{{ENGINES}}}[$__rate_interval]))")
}

/// Nothing where nothing was asked for.
fn hit_rate(by: &str) -> String {
    format!("{} / ({} > 0)", tokens("hit", by), tokens("requested", by))
}

fn present() -> Vec<Panel> {
    let stat = |title, description, expr: String| {
        panel(title, Look::Stat, "short", description, "None", vec![now("", expr)]).width(4)
    };
    vec![
        stat("Engines", "Engines and coordinators that the operator knows.", format!("sum({})", phase(""))),
        stat("Ready", "In phase Ready.", format!("sum({})", phase(r#", phase="Ready""#))),
        stat(
            "Degraded",
            "In phase Degraded: somebody should look at them.",
            format!("sum({})", phase(r#", phase="Degraded""#)),
        )
        .thresholds("green", &[(1.0, "red")]),
        stat(
            "Rollouts in flight",
            "On the way to what their spec asks for (condition Reconciling).",
            format!("count({} == 1) or vector(0)", condition("Reconciling")),
        )
        .thresholds("text", &[(1.0, "yellow")]),
        panel(
            "Instances ready of desired",
            Look::Gauge,
            "percentunit",
            "Ready instances as a share of the desired ones, over all engines.",
            "No instance is wanted",
            vec![now("", format!("sum({}) / (sum({}) > 0)", instances("ready"), instances("desired")))],
        )
        .thresholds("red", &[(0.5, "yellow"), (1.0, "green")])
        .width(4),
        panel(
            "Hit rate",
            Look::Gauge,
            "percentunit",
            "Tokens found in the caches as a share of those looked up, over all engines.",
            "Nothing was looked up",
            vec![now("", format!("sum({}) / (sum({}) > 0)", tokens("hit", "kind"), tokens("requested", "kind")))],
        )
        .thresholds("red", &[(0.1, "yellow"), (0.4, "green")])
        .width(4),
    ]
}

fn phases() -> Vec<Panel> {
    vec![
        panel(
            "Engines by phase",
            Look::Stacked,
            "short",
            "How many engines are in each phase.",
            "No engine in these namespaces",
            vec![over_time("{{phase}}", format!("sum by (phase) ({})", phase("")))],
        )
        .overrides(phase_colours())
        .width(12),
        panel(
            "Instances",
            Look::Steps,
            "short",
            "Cache servers that should run, that are ready, and that are of the current revision.",
            "No engine in these namespaces",
            vec![over_time(
                "{{state}}",
                format!(
                    "sum by (state) (max by (kind, namespace, name, state) (lmcache_operator_engine_instances{{{ENGINES}}}))"
                ),
            )],
        )
        .overrides([
            by_name("desired", &[("color", colour("text"))]),
            by_name("ready", &[("color", colour("green"))]),
            by_name("updated", &[("color", colour("blue"))]),
        ])
        .width(12),
    ]
}

fn table() -> Panel {
    let link = json!([{
        "title": "Open the engine",
        "url": "/d/lmcache-engine?${datasource:queryparam}&var-namespace=${__data.fields.Namespace}\
            &var-engine=${__data.fields.Name}&var-kind=${__data.fields.Kind}&${__url_time_range}",
    }]);
    let phases: serde_json::Map<String, Value> = PHASES
        .iter()
        .enumerate()
        .map(|(index, (phase, colour))| ((*phase).to_owned(), json!({"color": colour, "index": index})))
        .collect();
    panel(
        "Engines",
        Look::Table,
        "short",
        "One line for each engine, Degraded ones first. The name leads to its own dashboard.",
        "No engine in these namespaces",
        vec![
            now("", format!("{} == 1", phase(""))),
            now("", instances("ready")),
            now("", instances("desired")),
            now("", instances("updated")),
            now("", hit_rate("kind, namespace, name")),
        ],
    )
    .transformations(vec![
        json!({"id": "merge", "options": {}}),
        json!({"id": "organize", "options": {
            "excludeByName": {"Time": true, "Value #A": true},
            "indexByName": {"namespace": 0, "name": 1, "kind": 2, "phase": 3, "Value #B": 4, "Value #C": 5, "Value #D": 6,
                "Value #E": 7},
            "renameByName": {"namespace": "Namespace", "name": "Name", "kind": "Kind", "phase": "Phase",
                "Value #B": "Ready", "Value #C": "Desired", "Value #D": "Updated", "Value #E": "Hit rate"},
        }}),
    ])
    .overrides([
        by_name("Name", &[("links", link)]),
        by_name("Hit rate", &[("unit", json!("percentunit")), ("noValue", json!("not measured"))]),
        by_name(
            "Phase",
            &[
                ("mappings", json!([{"type": "value", "options": phases}])),
                ("custom.cellOptions", json!({"type": "color-background"})),
            ],
        ),
    ])
    .sorted_by("Phase")
    .width(24)
}

/// Engines on their way, by phase; zero where there is none.
fn in_flight() -> String {
    let phases = phase(r#", phase=~"Pending|Reconciled|Rolling""#);
    let reconciling = condition("Reconciling");
    format!(
        "sum by (phase) ({phases} and on (kind, namespace, name) ({reconciling} == 1)) or 0 * sum by (phase) ({phases})"
    )
}

fn rollouts() -> Vec<Panel> {
    vec![
        panel(
            "Rollouts in flight",
            Look::Stacked,
            "short",
            "Engines on the way to what their spec asks for (condition Reconciling), by phase.",
            "No engine in these namespaces",
            vec![over_time("{{phase}}", in_flight())],
        )
        .overrides(phase_colours())
        .width(6),
        panel(
            "Phase changes",
            Look::Bars,
            "short",
            "Steps of the state machine by the phase that was entered and the reason, in all namespaces. The reasons are \
             explained in docs/observability.md.",
            "No engine changed its phase",
            vec![over_time(
                "{{to}}: {{reason}}",
                happened("to, reason", r#"lmcache_operator_phase_transitions_total{kind=~"$kind"}"#),
            )],
        )
        .width(6),
        panel(
            "Time in phase, 95th percentile",
            Look::Lines,
            "s",
            "How long engines stayed in a phase that they left within the hour before, Ready aside, in all namespaces. A dot is \
             one rollout and carries the id of its trace.",
            "No engine left a phase in the last hour",
            vec![of_rollouts("{{phase}}", "phase_duration_seconds", "phase", r#", phase!="Ready""#)],
        )
        .overrides(phase_colours())
        .width(6),
        panel(
            "Rollout duration, 95th percentile",
            Look::Lines,
            "s",
            "From a new generation to its end within the hour before, by how it ended, in all namespaces. A dot is one \
             rollout and carries the id of its trace.",
            "No rollout ended in the last hour",
            vec![of_rollouts("{{outcome}}", "rollout_duration_seconds", "outcome", "")],
        )
        .overrides(outcome_colours())
        .width(6),
    ]
}

fn cache() -> Vec<Panel> {
    vec![
        panel(
            "Hit rate by engine, the 20 lowest",
            Look::Lines,
            "percentunit",
            "Tokens found in the cache as a share of those looked up, as the engines themselves count them. An engine \
             without requests has no line.",
            "Nothing was looked up, or the engines expose no hit counters",
            vec![over_time("{{namespace}}/{{name}}", format!("bottomk(20, {})", hit_rate("namespace, name")))],
        )
        .width(12),
        panel(
            "Tokens looked up per second, the 20 busiest engines",
            Look::Stacked,
            "short",
            "Tokens per second that clients asked the caches for.",
            "Nothing was looked up, or the engines expose no hit counters",
            vec![over_time("{{namespace}}/{{name}}", format!("topk(20, {})", tokens("requested", "namespace, name")))],
        )
        .width(12),
    ]
}
