//! `demo`: one command shows an engine going from Pending to Ready on a real API server, then all three kinds, and vLLM connected to it.

mod folder;
mod kinds;
mod kubelet;
mod pods;
mod rows;
mod scene;
mod screen;
mod stage;
mod tell;
mod traces;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{Signal, SignalKind, signal};

use folder::Folder;
use stage::Stage;

/// How a shell reports a program that an interrupt has ended.
const INTERRUPTED: u8 = 130;

/// Shows an engine going from Pending to Ready on a real Kubernetes API server, then all three kinds.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Play the demo, then wait for Ctrl-C.
    Up(Up),
    /// End a demo that runs or was left behind, and remove its folder.
    Down(Place),
}

#[derive(Args)]
struct Up {
    #[command(flatten)]
    place: Place,
    /// The operator's binary
    #[arg(long, value_name = "FILE", default_value = "target/release/manager")]
    manager: PathBuf,
    /// End at once when the story is told
    #[arg(long)]
    once: bool,
    /// Start a Jaeger beside it, and show the trace of each rollout
    #[arg(long)]
    trace: bool,
}

#[derive(Args)]
struct Place {
    /// Folder for everything that the demo writes
    #[arg(long, value_name = "FOLDER", default_value = ".demo")]
    dir: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Cli::parse().action {
        Action::Up(up) => Box::pin(play(&up)).await,
        Action::Down(place) => down(&place).await,
    };
    result.unwrap_or_else(|error| {
        eprintln!("demo: {error:#}");
        ExitCode::FAILURE
    })
}

async fn down(place: &Place) -> Result<ExitCode> {
    let found = folder::down(&place.dir).await?;
    println!("{}", if found { "The demo has ended." } else { "No demo runs." });
    Ok(ExitCode::SUCCESS)
}

/// Plays until it is told to stop, and stops everything in order.
async fn play(up: &Up) -> Result<ExitCode> {
    let manager = up.manager.canonicalize().ok().filter(|path| path.is_file());
    let manager = manager.with_context(|| format!("{} does not exist; make build makes it", up.manager.display()))?;
    let mut signals = Signals::listen()?;
    let mut folder = Folder::claim(&up.place.dir).await?;
    let mut stage = Stage::default();
    let mut told = false;
    let story = async {
        if up.trace {
            stage.start_jaeger(&mut folder).await?;
        }
        Box::pin(scene::play(&mut stage, &mut folder, &manager, up.once, &mut told)).await
    };
    let outcome = tokio::select! {
        result = story => Some(result),
        () = signals.any() => None,
    };
    if outcome.is_none() {
        println!("\nStopping");
    }
    stage.stop().await;
    match outcome {
        Some(Err(error)) => {
            eprintln!("demo: the logs are kept in {}", folder.path("").display());
            Err(error)
        }
        Some(Ok(())) => finish(folder, true),
        None => finish(folder, told),
    }
}

fn finish(folder: Folder, told: bool) -> Result<ExitCode> {
    folder.remove()?;
    Ok(if told { ExitCode::SUCCESS } else { ExitCode::from(INTERRUPTED) })
}

/// What asks this program to stop.
struct Signals([Signal; 3]);

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self([listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?]))
    }

    async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
