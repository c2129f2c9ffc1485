//! A program under test: started beside the control plane, with its output in a file, gone when this process ends.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::{Component, Lifetime};

/// A process of a program under test. It is killed on drop.
pub struct Program(Component);

impl Program {
    /// Starts a program with its output appended to `log`.
    pub fn start(name: &'static str, program: &Path, args: &[String], log: PathBuf) -> Result<Self> {
        Self::start_with(name, program, args, &[], log)
    }

    /// The same, with variables in its environment beside ours.
    pub fn start_with(
        name: &'static str,
        program: &Path,
        args: &[String],
        environment: &[(&str, &str)],
        log: PathBuf,
    ) -> Result<Self> {
        let mut component = Component::new(name, program.to_owned(), args.to_vec(), log, Lifetime::Ours);
        component.environment = environment.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        component.start()?;
        Ok(Program(component))
    }

    /// Its process id, while it has been started.
    pub fn pid(&self) -> Option<u32> {
        self.0.pid()
    }

    /// How it ended; `None` while it runs.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.0.exit_status()
    }

    /// Everything it has written so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.0.log).unwrap_or_default()).into_owned()
    }

    /// Asks it to end (SIGTERM), and kills it when it has not ended after `patience`. Says how long it took.
    pub async fn stop(&mut self, patience: Duration) -> Duration {
        let started = Instant::now();
        self.0.terminate();
        self.0.ended(started + patience).await;
        started.elapsed()
    }

    /// Asks it to end (SIGTERM) and returns at once.
    pub fn terminate(&mut self) {
        self.0.terminate();
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        self.0.kill();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill();
    }
}
