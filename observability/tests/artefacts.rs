//! The shipped dashboards, rules and documentation: up to date, complete, and about metrics that exist.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use lmcache_states::{Reason, conditions};
use serde_json::Value;
use support::samples::{Family, families, registry};
use support::{alerts, all_rules, dashboards, generated, project, queries, read, rules_path, spans, text};

fn exposed() -> Vec<Family> {
    families(&registry().encode_prometheus())
}

fn page() -> String {
    read(&project().join("docs/observability.md")).unwrap()
}

fn rules() -> String {
    read(&rules_path()).unwrap()
}

/// Every panel with queries, with the dashboard's name.
fn panels() -> Vec<(&'static str, Value)> {
    let with_name = |(name, it): (&'static str, support::Board)| {
        let json = it.json();
        let panels = json["panels"].as_array().cloned().unwrap_or_default();
        panels.into_iter().filter(|it| it["type"] != "row").map(move |panel| (name, panel)).collect::<Vec<_>>()
    };
    dashboards().into_iter().flat_map(with_name).collect()
}

fn expressions() -> Vec<String> {
    let of_panels =
        panels().into_iter().flat_map(|(_, panel)| panel["targets"].as_array().cloned().unwrap_or_default());
    let of_rules = all_rules(&rules()).unwrap();
    of_panels
        .map(|it| text(&it, "/expr").to_owned())
        .chain(of_rules.iter().map(|it| text(it, "/expr").to_owned()))
        .collect()
}

#[test]
fn the_generated_files_are_up_to_date() {
    for (path, wanted) in generated().unwrap() {
        let kept = read(&path).unwrap();
        let is_json = path.extension().is_some_and(|it| it == "json");
        let same = if is_json {
            // The order of keys depends on how the JSON library was built.
            serde_json::from_str::<Value>(&kept).unwrap() == serde_json::from_str::<Value>(&wanted).unwrap()
        } else {
            kept == wanted
        };
        assert!(same, "{} is stale; run `{}`", path.display(), support::COMMAND);
    }
}

#[test]
fn every_query_asks_for_a_metric_that_somebody_exposes() {
    let mut known: BTreeSet<String> = exposed().into_iter().map(|it| it.name).collect();
    known.extend(support::pending::FOREIGN.map(str::to_owned));
    known.extend(support::pending::PENDING.map(|(name, _)| name.to_owned()));
    known.extend(all_rules(&rules()).unwrap().iter().map(|it| text(it, "/record").to_owned()));
    for expr in expressions() {
        for family in queries::families(&expr) {
            assert!(known.contains(&family), "nobody exposes {family}, which is asked for in\n{expr}");
        }
    }
}

#[test]
fn what_is_excused_as_not_exposed_yet_is_not_exposed() {
    let exposed: BTreeSet<String> = exposed().into_iter().map(|it| it.name).collect();
    for (family, _) in support::pending::PENDING {
        assert!(!exposed.contains(family), "{family} is exposed: take it out of tests/support/pending.rs");
    }
}

#[test]
fn every_family_of_the_registry_is_among_the_samples() {
    let samples = registry().encode_prometheus();
    let registered = format!("{:?}", registry());
    let names: Vec<&str> =
        registered.split("Descriptor { name: \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(names.len() > 10, "{registered}");
    for name in names {
        assert!(
            samples.contains(&format!("# TYPE lmcache_operator_{name}")),
            "tests/support/samples.rs does not move {name}"
        );
    }
}

#[test]
fn every_panel_has_a_title_a_description_a_unit_and_a_text_for_the_empty_state() {
    for (dashboard, panel) in panels() {
        for field in ["/title", "/description", "/fieldConfig/defaults/unit", "/fieldConfig/defaults/noValue"] {
            assert!(!text(&panel, field).is_empty(), "{dashboard}: no {field} in {panel:#}");
        }
        assert!(text(&panel, "/description").ends_with('.'), "{dashboard}: {}", text(&panel, "/description"));
        assert!(!panel["fieldConfig"]["defaults"]["thresholds"]["steps"].as_array().unwrap().is_empty(), "{panel:#}");
        assert_eq!(text(&panel, "/datasource/uid"), "${datasource}", "{panel:#}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel:#}");
        let drawn = !["stat", "gauge", "table"].contains(&text(&panel, "/type"));
        for target in targets {
            assert!(!drawn || !text(target, "/legendFormat").is_empty(), "{dashboard}: no legend in {panel:#}");
        }
    }
}

#[test]
fn histograms_of_rollouts_and_reconciles_show_exemplars_and_a_link_that_opens_a_trace() {
    let mut count = 0;
    for (dashboard, panel) in panels() {
        for target in panel["targets"].as_array().unwrap() {
            let expr = text(target, "/expr");
            let traced =
                ["phase_duration", "rollout_duration", "reconcile_duration"].iter().any(|it| expr.contains(it));
            if !(traced && expr.contains("_bucket")) {
                continue;
            }
            count += 1;
            assert_eq!(target["exemplar"], true, "{dashboard}: {panel:#}");
            assert_eq!(text(&panel, "/links/0/url"), "${trace_viewer:raw}${trace_id:raw}", "{dashboard}: {panel:#}");
        }
    }
    assert!(count >= 6, "only {count} such queries");
}

#[test]
fn every_query_asks_the_chosen_data_source_about_the_chosen_namespace() {
    let of_namespaces: BTreeSet<String> =
        exposed().into_iter().filter(|it| it.labels.iter().any(|it| it == "namespace")).map(|it| it.name).collect();
    for (dashboard, panel) in panels() {
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{dashboard}: {panel:#}");
            let expr = text(target, "/expr");
            let families = queries::families(expr);
            // Rollouts are counted by kind alone; what the operator does is found by its own namespace.
            let concerned = dashboard == "operator" || families.iter().any(|it| of_namespaces.contains(it));
            assert!(!concerned || expr.contains("$namespace"), "{dashboard}, {}: {expr}", panel["title"]);
        }
    }
}

#[test]
fn every_variable_that_a_dashboard_uses_is_declared_and_the_other_way_round() {
    for (name, dashboard) in dashboards() {
        let json = dashboard.json();
        let variables = json["templating"]["list"].as_array().unwrap();
        assert_eq!((text(&variables[0], "/name"), text(&variables[0], "/type")), ("datasource", "datasource"));
        let used: BTreeSet<String> = used_variables(&json.to_string());
        let declared: BTreeSet<String> = variables.iter().map(|it| text(it, "/name").to_owned()).collect();
        assert_eq!(used, declared, "{name}");
        for query in variables.iter().filter(|it| it["type"] == "query") {
            assert_eq!(query["datasource"]["uid"], "${datasource}", "{name}: {query:#}");
        }
    }
}

/// The names after a dollar sign, those that Grafana fills in by itself left out.
fn used_variables(text: &str) -> BTreeSet<String> {
    let name = |rest: &str| {
        let rest = rest.strip_prefix('{').unwrap_or(rest);
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>()
    };
    text.split('$').skip(1).map(name).filter(|it| !it.starts_with("__")).collect()
}

#[test]
fn no_two_panels_of_a_dashboard_overlap() {
    for (name, dashboard) in dashboards() {
        let json = dashboard.json();
        let mut taken = BTreeSet::new();
        for panel in json["panels"].as_array().unwrap() {
            let place = |field: &str| panel["gridPos"][field].as_u64().unwrap();
            assert!(place("x") + place("w") <= 24, "{name}: {panel:#}");
            for x in place("x")..place("x") + place("w") {
                for y in place("y")..place("y") + place("h") {
                    assert!(taken.insert((x, y)), "{name}: {} overlaps", panel["title"]);
                }
            }
        }
    }
}

#[test]
fn the_page_tells_of_every_metric_condition_reason_and_span() {
    let page = page();
    let words = exposed().into_iter().map(|it| it.name);
    let words = words.chain(conditions::TYPES.map(str::to_owned)).chain(Reason::ALL.map(|it| it.as_str().to_owned()));
    for word in words.chain(spans::SPANS.iter().map(|it| it.name.to_owned())) {
        assert!(page.contains(&format!("| `{word}` |")), "docs/observability.md does not tell of {word}");
    }
}

#[test]
fn every_span_that_the_code_opens_is_in_the_table_and_no_other() {
    let mut opened = BTreeSet::new();
    for room in ["src", "observability/src", "states/src", "crds/src"] {
        collect_spans(&project().join(room), &mut opened);
    }
    // Those of a rollout, and requests, are told without being opened.
    let opened_ones = spans::SPANS.iter().filter(|it| it.trace == "reconcile" && !it.name.starts_with('<'));
    let told: BTreeSet<String> = opened_ones.filter_map(|it| it.name.split(' ').next()).map(str::to_owned).collect();
    assert_eq!(opened, told, "tests/support/spans.rs and the code disagree");
}

/// Names in `info_span!("name"`, `.step("name"` and the like, outside of the modules for tests.
fn collect_spans(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_spans(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = read(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let openings = ["_span!(", ".step("].into_iter().flat_map(|opening| code.split(opening).skip(1));
            let names = openings.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
            found.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn every_alert_says_what_it_is_and_what_to_do() {
    let (page, rules) = (page(), rules());
    let tests: Value = serde_norway::from_str(&read(&rules_path().with_file_name("tests.yaml")).unwrap()).unwrap();
    let cases = tests["tests"].as_array().unwrap().iter().filter_map(|it| it["alert_rule_test"].as_array());
    let cases: Vec<&Value> = cases.flatten().collect();
    let expected = |case: &Value| case["exp_alerts"].as_array().cloned().unwrap_or_default();
    let alerts = alerts(&rules).unwrap();
    assert!(alerts.len() >= 8, "{alerts:?}");
    for alert in &alerts {
        let name = text(alert, "/alert");
        assert!(["warning", "critical"].contains(&text(alert, "/labels/severity")), "{alert:#}");
        for field in ["/for", "/annotations/summary", "/annotations/description"] {
            assert!(!text(alert, field).is_empty(), "no {field} in {alert:#}");
        }
        let anchor = format!("docs/observability.md#{}", name.to_lowercase());
        assert_eq!(text(alert, "/annotations/runbook_url"), anchor);
        let section = page.split(&format!("\n### {name}\n")).nth(1).and_then(|rest| rest.split("\n### ").next());
        let section = section.unwrap_or_else(|| panic!("docs/observability.md has no section {name}"));
        assert!(section.contains("\n1. ") && section.contains("\n2. "), "no steps for {name}:\n{section}");
        let severity = text(alert, "/labels/severity");
        let (fires, silent): (Vec<&Value>, Vec<&Value>) = cases
            .iter()
            .copied()
            .filter(|case| text(case, "/alertname") == name)
            .partition(|case| expected(case).iter().any(|it| text(it, "/exp_labels/severity") == severity));
        let (fires, silent) = (fires.len(), silent.len());
        assert!(fires > 0 && silent > 0, "{name}, {severity}: {fires} cases, {silent} counter-cases in tests.yaml");
    }
}
