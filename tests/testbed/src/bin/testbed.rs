//! Gives a person the control plane that the tests use.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, Parser, Subcommand};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt as _};
use lmcache_testbed::detached::{self, Detached};

/// A real Kubernetes control plane on loopback with simulated GPU nodes.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Start the cluster in the background and print how to reach it.
    Up {
        #[command(flatten)]
        place: Place,
        /// How many GPU nodes it has.
        #[arg(long, default_value_t = 3)]
        nodes: u32,
        /// Name of the cluster and of its kubeconfig context.
        #[arg(long, default_value = "default")]
        name: String,
    },
    /// End the cluster and remove its state.
    Down(Place),
    /// Say which components run and which nodes there are; fails when something does not run.
    Status(Place),
}

#[derive(Args)]
struct Place {
    /// Folder with the cluster's state; one cluster per folder.
    #[arg(long, default_value = ".cluster")]
    dir: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    // Giving up the future ends what it has started.
    let result = tokio::select! {
        result = run(Cli::parse().command) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("testbed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(action: Action) -> Result<ExitCode> {
    match action {
        Action::Up { place, nodes, name } => {
            let cluster = detached::up(&place.dir, &name, nodes).await?;
            println!("export KUBECONFIG={}", cluster.kubeconfig.display());
            eprintln!("kubectl: {}", cluster.kubectl.display());
            Ok(ExitCode::SUCCESS)
        }
        Action::Down(place) => {
            if !detached::down(&place.dir).await? {
                eprintln!("no cluster in {}", place.dir.display());
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Status(place) => {
            if let Some(cluster) = detached::read(&place.dir)? {
                return status(&cluster).await;
            }
            eprintln!("no cluster in {}", place.dir.display());
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn status(cluster: &Detached) -> Result<ExitCode> {
    let components = cluster.components();
    for component in &components {
        println!("{:24} {:8} {}", component.name, component.pid, if component.running { "running" } else { "ended" });
    }
    if components.is_empty() {
        eprintln!("the start of this cluster was not finished");
    }
    if components.is_empty() || !components.iter().all(|component| component.running) {
        return Ok(ExitCode::FAILURE);
    }
    for node in Api::<Node>::all(cluster.client().await?).list(&kube::api::ListParams::default()).await? {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
        println!("node/{:19} {:>8} {}", node.name_any(), "", if ready { "ready" } else { "not ready" });
    }
    println!("export KUBECONFIG={}", cluster.kubeconfig.display());
    Ok(ExitCode::SUCCESS)
}
