//! What every suite on a control plane starts with: a cluster, the operator under test with just its shipped rights.
#![allow(dead_code, reason = "each suite uses a part")]

pub mod children;
pub mod stored;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use lmcache_testbed::{Cluster, ClusterOptions, Program};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// A control plane with the CRDs, the RuntimeClass and the operator's rights in place.
pub struct Bed {
    /// The control plane.
    pub cluster: Cluster,
}

impl Bed {
    /// Starts a control plane; no operator runs on it yet.
    pub async fn start(name: &str) -> Result<Self> {
        Self::start_with(name, &lmcache_crds::crds()).await
    }

    /// The same with these definitions, of other kinds too, which the garbage collector knows from the beginning.
    pub async fn start_with(name: &str, definitions: &[CustomResourceDefinition]) -> Result<Self> {
        let bed = Self::without_rights_with(name, definitions).await?;
        let role = std::fs::read_to_string(project().join("deploy/base/manager_role.yaml"))?;
        bed.cluster.grant_operator(&role).await?;
        Ok(bed)
    }

    /// Starts a control plane on which the operator's user may do nothing yet.
    pub async fn without_rights(name: &str) -> Result<Self> {
        Self::without_rights_with(name, &lmcache_crds::crds()).await
    }

    async fn without_rights_with(name: &str, definitions: &[CustomResourceDefinition]) -> Result<Self> {
        let crds = definitions.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        let options =
            ClusterOptions { name: name.to_owned(), manifests: crds.join("\n---\n"), ..ClusterOptions::default() };
        let cluster = Cluster::start(options).await?;
        cluster.create_runtime_class("nvidia").await?;
        Ok(Bed { cluster })
    }

    /// Starts the operator as user `operator`, with further flags; returns when its caches are filled.
    pub async fn operator(&self, name: &str, flags: &[&str]) -> Result<Operator> {
        let kubeconfig = self.cluster.operator_kubeconfig_path();
        let operator = Operator::start(self.cluster.state_dir(), name, &kubeconfig, flags)?;
        operator.wait_for_log("Started the controllers").await?;
        Ok(operator)
    }
}

/// The operator's process.
pub struct Operator {
    /// The process.
    pub program: Program,
}

impl Operator {
    /// Starts the binary under test; `state` is where its log goes.
    pub fn start(state: &Path, name: &str, kubeconfig: &Path, flags: &[&str]) -> Result<Self> {
        Self::start_with(state, name, kubeconfig, flags, &[])
    }

    /// The same, with variables in its environment.
    pub fn start_with(
        state: &Path,
        name: &str,
        kubeconfig: &Path,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let mut args = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            "--metrics-bind-address=127.0.0.1:0".to_owned(),
            "--metrics-secure=false".to_owned(),
            "--health-probe-bind-address=127.0.0.1:0".to_owned(),
            "--webhook-bind-address=0".to_owned(),
            "--log-format=json".to_owned(),
            // Simulated pods have addresses, but nobody answers there.
            "--cache-metrics-interval=0".to_owned(),
        ];
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let binary = Path::new(env!("CARGO_BIN_EXE_manager"));
        let log = state.join(format!("{name}.log"));
        let program = Program::start_with("manager", binary, &args, environment, log)?;
        Ok(Operator { program })
    }

    /// Waits until the log contains a text; fails early when the process ends.
    pub async fn wait_for_log(&self, text: &str) -> Result<String> {
        let line = || self.program.log().lines().find(|line| line.contains(text)).map(str::to_owned);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(line) = line() {
                return Ok(line);
            }
            let late = tokio::time::Instant::now() > deadline;
            ensure!(!late, "the log never said {text:?}:\n{}", self.program.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The address that a server of the operator listens on, from its log: `Serving metrics server` or `Serving health probes`.
    pub async fn address(&self, server: &str) -> Result<String> {
        let line: serde_json::Value = serde_json::from_str(&self.wait_for_log(server).await?)?;
        Ok(line["address"].as_str().context("the log line has an address")?.to_owned())
    }
}

/// A control plane and an operator that all tests of one binary share.
pub struct Shared {
    /// The control plane.
    pub bed: Bed,
    /// The operator.
    pub operator: Operator,
}

/// The shared control plane with these definitions, started by the first test that asks for it.
pub async fn shared(definitions: fn() -> Result<Vec<CustomResourceDefinition>>) -> &'static Shared {
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    let start = || async {
        let bed = Bed::start_with("shared", &definitions()?).await?;
        let operator = bed.operator("manager", &[]).await?;
        Ok::<_, anyhow::Error>(Shared { bed, operator })
    };
    match SHARED.get_or_try_init(start).await {
        Ok(shared) => shared,
        Err(error) => panic!("cannot start the shared control plane: {error:?}"),
    }
}

/// An `LMCacheEngine` as text.
pub fn engine(name: &str, spec: &Value) -> String {
    let engine = json!({
        "apiVersion": "lmcache.lmcache.ai/v1alpha1",
        "kind": "LMCacheEngine",
        "metadata": {"name": name},
        "spec": spec,
    });
    format!("{engine:#}")
}

/// The root of the project.
pub fn project() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
