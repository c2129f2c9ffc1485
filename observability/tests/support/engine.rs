//! The Engine dashboard: one engine, and the way it took.

use serde_json::{Map, Value, json};

use super::dashboard::{Dashboard, Look, Panel, Row, Variable, by_name, colour, now, over_time, panel};
use super::{PHASES, TRACE, of_rollouts, outcome_colours, phase_colours, phase_numbers};

const ENGINE: &str = r#"kind=~"$kind", namespace="$namespace", name="$engine""#;

/// The pods as kube-state-metrics knows them: only these series carry names of nodes and pods. An engine's are of its
/// `DaemonSet`, a coordinator's of a `ReplicaSet` of its Deployment.
const PODS: &str = r#"max by (namespace, pod, node) (kube_pod_info{namespace="$namespace", created_by_kind="DaemonSet", created_by_name="$engine"} or kube_pod_info{namespace="$namespace", created_by_kind="ReplicaSet", created_by_name=~"$engine-[a-z0-9]+"})"#;

pub fn dashboard() -> Dashboard {
    let name = |name, label, query: &str| Variable::Label { name, label, query: query.to_owned(), all: false };
    Dashboard {
        uid: "lmcache-engine",
        title: "LMCache / Engine",
        description: "One engine: its phases, its conditions, its instances and what its cache gives. Nodes, pods and \
            restarts are read from kube-state-metrics.",
        variables: [
            name("namespace", "Namespace", "label_values(lmcache_operator_engine_phase, namespace)"),
            name("engine", "Engine", r#"label_values(lmcache_operator_engine_phase{namespace="$namespace"}, name)"#),
            Variable::Label {
                name: "kind",
                label: "Kind",
                query: r#"label_values(lmcache_operator_engine_phase{namespace="$namespace", name="$engine"}, kind)"#
                    .to_owned(),
                all: true,
            },
        ]
        .into_iter()
        .chain(TRACE)
        .collect(),
        rows: vec![
            Row { title: "Now", height: 4, panels: present() },
            Row { title: "History", height: 7, panels: history() },
            Row { title: "Instances", height: 8, panels: instances() },
            Row { title: "Cache", height: 8, panels: cache() },
            Row { title: "Rollouts", height: 8, panels: rollouts() },
        ],
    }
}

fn instance_count(state: &str) -> String {
    format!(r#"max by (kind) (lmcache_operator_engine_instances{{{ENGINE}, state="{state}"}})"#)
}

fn tokens(which: &str) -> String {
    format!("sum by (kind) (rate(lmcache_operator_cache_{which}_tokens_total{{{ENGINE}}}[$__rate_interval]))")
}

fn hit_rate() -> String {
    format!("{} / ({} > 0)", tokens("hit"), tokens("requested"))
}

/// The phase as a number, so that one line changes its colour: 1 is the first phase.
fn phase_number() -> String {
    let term = |(number, (phase, _)): (usize, &(&str, &str))| {
        format!(r#"{} * max by (kind) (lmcache_operator_engine_phase{{{ENGINE}, phase="{phase}"}})"#, number + 1)
    };
    PHASES.iter().enumerate().map(term).collect::<Vec<_>>().join(" + ")
}

fn present() -> Vec<Panel> {
    vec![
        panel(
            "Phase",
            Look::Stat,
            "none",
            "Where the engine stands. kubectl describe shows reason and message.",
            "No such engine",
            vec![now("{{kind}}", phase_number())],
        )
        .mappings(&phase_numbers())
        .width(4),
        panel(
            "Available",
            Look::Stat,
            "none",
            "Whether at least one instance serves (condition Available).",
            "No such engine",
            vec![now(
                "{{kind}}",
                format!(r#"max by (kind) (lmcache_operator_engine_condition{{{ENGINE}, type="Available"}})"#),
            )],
        )
        .mappings(&[(1, "Yes", "green"), (0, "No", "red"), (-1, "Unknown", "text")])
        .width(4),
        panel(
            "Ready instances",
            Look::Stat,
            "short",
            "Instances that are ready, of whatever revision.",
            "No such engine",
            vec![now("{{kind}}", instance_count("ready"))],
        )
        .width(4),
        panel(
            "Desired instances",
            Look::Stat,
            "short",
            "One for each node that an engine selects; the replicas of a coordinator.",
            "No such engine",
            vec![now("{{kind}}", instance_count("desired"))],
        )
        .width(4),
        panel(
            "Hit rate",
            Look::Gauge,
            "percentunit",
            "Tokens found in the cache as a share of those looked up.",
            "Nothing was looked up",
            vec![now("{{kind}}", hit_rate())],
        )
        .thresholds("red", &[(0.1, "yellow"), (0.4, "green")])
        .width(4),
        panel(
            "Restarts",
            Look::Stat,
            "short",
            "Restarts of the instances' containers in the selected time range, from kube-state-metrics.",
            "No pod, or no kube-state-metrics",
            vec![now(
                "",
                format!(
                    r#"sum(max by (namespace, pod, container) (increase(kube_pod_container_status_restarts_total{{namespace="$namespace"}}[$__range])) and on (namespace, pod) {PODS})"#
                ),
            )],
        )
        .thresholds("green", &[(1.0, "yellow"), (5.0, "red")])
        .width(4),
    ]
}

/// Mappings of a series' own: value, text, colour.
fn coloured(series: &str, mappings: &[(&str, &str, &str)]) -> Value {
    let entry = |(index, (value, text, colour)): (usize, &(&str, &str, &str))| {
        ((*value).to_owned(), json!({"text": text, "color": colour, "index": index}))
    };
    let options: Map<String, Value> = mappings.iter().enumerate().map(entry).collect();
    by_name(series, &[("mappings", json!([{"type": "value", "options": options}]))])
}

fn history() -> Vec<Panel> {
    vec![
        panel(
            "Phase timeline",
            Look::States,
            "none",
            "The phases that the engine went through. Steps between two scrapes do not show; status.phaseTransitions has \
             every one of the last 20.",
            "No such engine",
            vec![over_time("{{kind}}", phase_number())],
        )
        .mappings(&phase_numbers())
        .width(12),
        panel(
            "Conditions",
            Look::States,
            "none",
            "Every condition of the engine. Reconciling and Stalled are only there while they hold.",
            "No such engine",
            vec![over_time("{{type}}", format!("max by (type) (lmcache_operator_engine_condition{{{ENGINE}}})"))],
        )
        .mappings(&[(1, "True", "green"), (0, "False", "red"), (-1, "Unknown", "text")])
        // These two are False in every rollout; those below them tell of work and of trouble, not of health.
        .overrides([
            coloured("AllInstancesReady", &[("1", "True", "green"), ("0", "False", "yellow")]),
            coloured("Ready", &[("1", "True", "green"), ("0", "False", "yellow")]),
            coloured("Reconciling", &[("1", "True", "yellow")]),
            coloured("Stalled", &[("1", "True", "red")]),
        ])
        .width(12),
    ]
}

fn instances() -> Vec<Panel> {
    let of_pods = |metric: &str, labels: &str| {
        format!(r#"{metric}{{namespace="$namespace"{labels}}} and on (namespace, pod) {PODS}"#)
    };
    let nodes = panel(
        "Nodes",
        Look::Table,
        "short",
        "One line for each instance, from kube-state-metrics; status.endpoints says the same and more.",
        "No pod of this engine, or no kube-state-metrics",
        vec![
            now("", format!("max by (node, pod) ({PODS})")),
            now("", format!("max by (pod) ({})", of_pods("kube_pod_status_ready", r#", condition="true""#))),
            now("", format!("sum by (pod) ({})", of_pods("kube_pod_container_status_restarts_total", ""))),
            now("", format!("time() - max by (pod) ({})", of_pods("kube_pod_start_time", ""))),
        ],
    )
    .transformations(vec![
        json!({"id": "merge", "options": {}}),
        json!({"id": "organize", "options": {
            "excludeByName": {"Time": true, "Value #A": true},
            "indexByName": {"node": 0, "pod": 1, "Value #B": 2, "Value #C": 3, "Value #D": 4},
            "renameByName": {"node": "Node", "pod": "Pod", "Value #B": "Ready", "Value #C": "Restarts",
                "Value #D": "Age"},
        }}),
    ])
    .overrides([
        by_name("Age", &[("unit", json!("s"))]),
        by_name(
            "Ready",
            &[
                ("mappings", json!([{"type": "value", "options": {
                    "1": {"text": "Yes", "color": "green", "index": 0}, "0": {"text": "No", "color": "red", "index": 1}}}])),
                ("custom.cellOptions", json!({"type": "color-text"})),
            ],
        ),
    ])
    .width(12);
    vec![
        panel(
            "Instances",
            Look::Steps,
            "short",
            "Instances that should run, that are ready, and that are of the current revision.",
            "No such engine",
            vec![over_time("{{state}}", format!("max by (state) (lmcache_operator_engine_instances{{{ENGINE}}})"))],
        )
        .overrides([
            by_name("desired", &[("color", colour("text"))]),
            by_name("ready", &[("color", colour("green"))]),
            by_name("updated", &[("color", colour("blue"))]),
        ])
        .width(6),
        nodes,
        panel(
            "Restarts by node",
            Look::Bars,
            "short",
            "Restarts of the instances' containers by the node that they run on, from kube-state-metrics.",
            "No pod of this engine, or no kube-state-metrics",
            vec![over_time(
                "{{node}}",
                format!(
                    r#"sum by (node) (max by (namespace, pod, container) (increase(kube_pod_container_status_restarts_total{{namespace="$namespace"}}[$__rate_interval])) * on (namespace, pod) group_left (node) {PODS})"#
                ),
            )],
        )
        .width(6),
    ]
}

fn cache() -> Vec<Panel> {
    vec![
        panel(
            "Tokens per second",
            Look::Lines,
            "short",
            "Tokens per second that were looked up, and that were found, over all instances.",
            "Nothing was looked up, or the engine exposes no hit counters",
            vec![over_time("looked up", tokens("requested")), over_time("found", tokens("hit"))],
        )
        .width(12),
        panel(
            "Hit rate over time",
            Look::Lines,
            "percentunit",
            "Tokens found as a share of those looked up. No line while nothing is looked up.",
            "Nothing was looked up, or the engine exposes no hit counters",
            vec![over_time("hit rate", hit_rate())],
        )
        .width(12),
    ]
}

fn rollouts() -> Vec<Panel> {
    vec![
        panel(
            "Time in phase, 95th percentile of this kind",
            Look::Lines,
            "s",
            "How long engines of this kind stayed in a phase that they left within the hour before, Ready aside, in all \
             namespaces. A dot is one rollout and carries the id of its trace. status.trace.traceId has that of this engine's last one.",
            "No engine left a phase in the last hour",
            vec![of_rollouts("{{phase}}", "phase_duration_seconds", "phase", r#", phase!="Ready""#)],
        )
        .overrides(phase_colours())
        .width(12),
        panel(
            "Rollout duration, 95th percentile of this kind",
            Look::Lines,
            "s",
            "From a new generation to its end within the hour before, by how it ended, in all namespaces. A dot is one \
             rollout and carries the id of its trace. status.trace.traceId has that of this engine's last one.",
            "No rollout ended in the last hour",
            vec![of_rollouts("{{outcome}}", "rollout_duration_seconds", "outcome", "")],
        )
        .overrides(outcome_colours())
        .width(12),
    ]
}
