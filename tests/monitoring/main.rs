//! A real Prometheus scrapes the real operator while engines roll out, fail and conflict; then every query of every panel and
//! every rule is evaluated. Also: what promtool says of metrics and rules, and that the shipped manifests build.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod exemplars;
mod panels;
#[path = "../../observability/tests/support/pending.rs"]
#[allow(dead_code, reason = "the test of the artefacts uses the rest")]
mod pending;
mod picture;
mod pods;
mod prometheus;
#[path = "../../observability/tests/support/queries.rs"]
mod queries;
mod scenario;

use anyhow::{Context as _, Result, ensure};
use lmcache_testbed::jaeger::Jaeger;
use serde_json::Value;

use common::{Bed, project};
use panels::{Choice, Dashboard, Target, dashboard};
use picture::Drawn;
use prometheus::{OPERATOR_NAMESPACE, Prometheus, Series, promtool};
use scenario::{COORDINATOR, ENGINE, Scenario};

/// Panels that the scenario gives nothing to show, although the operator exposes what they ask for.
const WITHOUT_DATA: [(&str, &str, &str); 1] =
    [("operator", "Reconcile errors", "a reconcile fails only when the API server does, or by chance")];

/// Alerts whose expression holds at the end of the scenario. All others must be silent then.
const HOLDING: [&str; 4] =
    ["LMCacheEngineDegraded", "LMCacheEngineUnavailable", "LMCacheRolloutNotMoving", "LMCacheRolloutStuck"];

#[tokio::test]
async fn promtool_accepts_the_rules_and_each_alert_fires_on_its_case_only() -> Result<()> {
    promtool(&["check", "rules", "lmcache-operator.yaml"], "").await?;
    promtool(&["test", "rules", "tests.yaml"], "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_and_every_rule_shows_what_happened() -> Result<()> {
    let bed = Bed::start("monitoring").await?;
    bed.cluster.grant_operator_with_webhooks().await?;
    let jaeger = Jaeger::start(&bed.cluster.state_dir().join("jaeger")).await?;
    let endpoint = format!("--otlp-endpoint={}", jaeger.otlp_grpc());
    let traced = [endpoint.as_str(), "--otlp-protocol=grpc"];
    // Nothing routes Services here, so the API server asks the webhooks at a URL.
    let webhooks = ["--webhook-bind-address=127.0.0.1:0", "--webhook-url=https://127.0.0.1:0"];
    let flags = [&webhooks[..], &traced, &["--cache-metrics-interval=1s"]].concat();
    let mut operator = bed.operator("manager", &flags).await?;
    let address = operator.address("Serving metrics server").await?;
    let pods = pods::serve(bed.cluster.client()).await?;
    let prometheus = Prometheus::start(bed.cluster.state_dir(), &address, &pods).await?;
    prometheus.until("lmcache_operator_leader == 1").await?;

    let scenario = Scenario::play(&bed, &prometheus).await?;
    let mut wrong = Vec::new();
    for name in ["fleet", "engine", "operator"] {
        let dashboard = dashboard(name)?;
        let drawn = look_at(&prometheus, &dashboard, &scenario, &mut wrong).await?;
        let [path, empty] = picture::write(&dashboard, &drawn, scenario.from, scenario.to)?;
        println!("{}: drawn in {} and {}", dashboard.title(), path.display(), empty.display());
    }
    a_coordinator_is_looked_at_like_an_engine(&prometheus, &scenario, &mut wrong).await?;
    exemplars::lead_to_traces(&prometheus, &jaeger, &scenario, &mut wrong).await?;
    rules_hold(&prometheus, &mut wrong).await?;
    exposition_is_clean(&address, &mut wrong).await?;
    wrong.extend(builds(&bed).await.err().map(|error| format!("{error:#}")));
    let log = operator.program.log();
    let errors: Vec<_> = log.lines().filter(|line| line.contains(r#""level":"error""#)).collect();
    let (count, wrong) = (wrong.len(), wrong.join("\n"));
    ensure!(count == 0, "{count} things are wrong:\n{wrong}\nthe operator's errors:\n{}", errors.join("\n"));
    ensure!(operator.program.exit_status().is_none(), "the operator has ended:\n{}", operator.program.log());
    scenario.end().await
}

/// Asks every query of a dashboard, and notes those that do not parse, have no data, or have data against all expectation.
async fn look_at(
    prometheus: &Prometheus,
    dashboard: &Dashboard,
    scenario: &Scenario,
    wrong: &mut Vec<String>,
) -> Result<Vec<Drawn>> {
    let namespace = match dashboard.name {
        "operator" => OPERATOR_NAMESPACE,
        "fleet" => ".*",
        _ => scenario.namespace(),
    };
    let lasted = scenario.lasted();
    let choice = Choice(&chosen(namespace, ENGINE, &lasted));
    for (name, expr) in dashboard.variables() {
        let values = prometheus.now(&choice.put_into(&expr)).await;
        if !values.as_ref().is_ok_and(|it| !it.is_empty()) {
            wrong.push(format!("{}, variable {name}: nothing to choose from: {values:?}", dashboard.name));
        }
    }
    let mut all = Vec::new();
    for panel in dashboard.panels()? {
        let mut drawn = Drawn { panel, results: Vec::new(), exemplars: Vec::new() };
        for target in &drawn.panel.targets {
            let place = format!("{}, {}", dashboard.name, drawn.panel.title);
            match ask(prometheus, scenario, target, &choice).await {
                Err(error) => wrong.push(format!("{place}: {error:#}\n  {}", target.expr)),
                Ok(series) => {
                    wrong.extend(judge(&place, dashboard.name, &drawn.panel.title, target, &series));
                    drawn.results.push(series);
                }
            }
            if target.exemplar {
                let expr = choice.put_into(&target.expr);
                let exemplars = prometheus.exemplars(&expr, scenario.from, scenario.to).await?;
                if exemplars.is_empty() {
                    wrong.push(format!("{place}: no exemplars\n  {expr}"));
                }
                drawn.exemplars.extend(exemplars);
            }
        }
        all.push(drawn);
    }
    Ok(all)
}

/// What is chosen at the top of a dashboard.
fn chosen<'a>(namespace: &'a str, engine: &'a str, lasted: &'a str) -> [(&'a str, &'a str); 5] {
    [("namespace", namespace), ("kind", ".*"), ("engine", engine), ("__rate_interval", "15s"), ("__range", lasted)]
}

/// Its pods are of a Deployment, not of a DaemonSet.
async fn a_coordinator_is_looked_at_like_an_engine(
    prometheus: &Prometheus,
    scenario: &Scenario,
    wrong: &mut Vec<String>,
) -> Result<()> {
    let lasted = scenario.lasted();
    let choice = Choice(&chosen(scenario.namespace(), COORDINATOR, &lasted));
    let of_pods = ["Phase", "Ready instances", "Restarts", "Nodes", "Restarts by node"];
    for panel in dashboard("engine")?.panels()?.iter().filter(|it| of_pods.contains(&it.title.as_str())) {
        for target in &panel.targets {
            if ask(prometheus, scenario, target, &choice).await?.is_empty() {
                wrong.push(format!("{} of a coordinator: no data\n  {}", panel.title, target.expr));
            }
        }
    }
    Ok(())
}

async fn ask(
    prometheus: &Prometheus,
    scenario: &Scenario,
    target: &Target,
    choice: &Choice<'_>,
) -> Result<Vec<Series>> {
    let expr = choice.put_into(&target.expr);
    ensure!(!expr.contains('$'), "a variable has no value: {expr}");
    let series = if target.instant {
        prometheus.now(&expr).await?
    } else {
        prometheus.over_time(&expr, scenario.from, scenario.to).await?
    };
    Ok(series.into_iter().filter(|it| !it.samples.is_empty()).collect())
}

/// Data where there must be some, and none where the table of excuses says so: an excuse that no longer holds must go.
fn judge(place: &str, dashboard: &str, panel: &str, target: &Target, series: &[Series]) -> Option<String> {
    let families = queries::families(&target.expr);
    let pending = families.iter().find_map(|family| pending::reason(family));
    let excused = WITHOUT_DATA.iter().any(|(of, title, _)| (*of, *title) == (dashboard, panel));
    match (pending, series.is_empty()) {
        (None, true) if !excused => Some(format!("{place}: no data\n  {}", target.expr)),
        (Some(why), false) => Some(format!("{place}: has data although {why}\n  {}", target.expr)),
        _ => None,
    }
}

/// Every rule is evaluated without an error; recorded series are there; those alerts hold that must.
async fn rules_hold(prometheus: &Prometheus, wrong: &mut Vec<String>) -> Result<()> {
    let rules = prometheus.rules().await?;
    ensure!(rules.len() > 10, "Prometheus has loaded only {} rules", rules.len());
    for rule in &rules {
        let name = rule["name"].as_str().unwrap_or_default();
        let expr = rule["query"].as_str().context("a rule without a query")?;
        if rule["health"] != "ok" {
            wrong.push(format!("rule {name}: {rule}"));
        }
        let holds = !prometheus.now(expr).await?.is_empty();
        let is_pending = queries::families(expr).iter().any(|family| pending::reason(family).is_some());
        let must = match rule["type"].as_str() {
            Some("alerting") => HOLDING.contains(&name),
            // Recorded from a counter that the scenario leaves alone.
            _ if name == "kind:lmcache_operator_reconcile_errors:ratio_rate15m" => holds,
            _ => !is_pending,
        };
        if holds != must {
            wrong.push(format!(
                "rule {name}: {}, expected the opposite\n  {expr}",
                if holds { "holds" } else { "has no data" }
            ));
        }
        let waits = rule["alerts"].as_array().is_some_and(|it| it.iter().any(|it| it["state"] == "pending"));
        if rule["type"] == "alerting" && must != waits {
            wrong.push(format!("alert {name} is pending: {waits}, expected {must}"));
        }
    }
    Ok(())
}

/// promtool finds nothing to complain about, and every family is on the documentation's page.
async fn exposition_is_clean(address: &str, wrong: &mut Vec<String>) -> Result<()> {
    let text = prometheus::get(address, "/metrics").await?;
    wrong.extend(promtool(&["check", "metrics"], &text).await.err().map(|error| format!("{error:#}")));
    let page = std::fs::read_to_string(project().join("docs/observability.md"))?;
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut count = 0;
    for family in families {
        count += 1;
        if !page.contains(&format!("| `{family}` |")) {
            wrong.push(format!("docs/observability.md does not tell of {family}"));
        }
    }
    ensure!(count > 10, "only {count} families:\n{text}");
    Ok(())
}

/// `kubectl kustomize deploy/monitoring` gives the dashboards and rules as they are in `observability/`.
async fn builds(bed: &Bed) -> Result<()> {
    let folder = project().join("deploy/monitoring");
    let text = bed.cluster.kubectl(&["kustomize", folder.to_str().context("the path is text")?]).await?;
    let objects = text.split("\n---\n").map(serde_norway::from_str).collect::<Result<Vec<Value>, _>>()?;
    for name in ["fleet", "engine", "operator"] {
        let wanted = format!("lmcache-operator-dashboard-{name}");
        let map = objects.iter().find(|it| it["metadata"]["name"] == wanted.as_str()).context(wanted)?;
        ensure!(map["metadata"]["labels"]["grafana_dashboard"] == "1", "no sidecar label: {}", map["metadata"]);
        let shipped = std::fs::read_to_string(project().join(format!("observability/dashboards/{name}.json")))?;
        ensure!(map["data"][format!("lmcache-{name}.json")] == shipped.as_str(), "{name} is another in the ConfigMap");
    }
    let rule = objects.iter().find(|it| it["kind"] == "PrometheusRule").context("no PrometheusRule")?;
    let monitor = objects.iter().find(|it| it["kind"] == "ServiceMonitor").context("no ServiceMonitor")?;
    ensure!(monitor["spec"]["endpoints"][0]["honorLabels"] == true, "{monitor}");
    let path = bed.cluster.state_dir().join("rules.yaml");
    std::fs::write(&path, rule["spec"].to_string())?;
    promtool(&["check", "rules", path.to_str().context("the path is text")?], "").await
}
