//! The folder of a demo: who runs it, and what it has started.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use lmcache_testbed::detached::start_time;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

const RECORD: &str = "demo.json";
const POLL: Duration = Duration::from_millis(50);
/// How long a demo may take to stop what it started.
const DEMO_PATIENCE: Duration = Duration::from_secs(30);
/// How long a process that a demo left behind may take to end.
const LEFT_PATIENCE: Duration = Duration::from_secs(5);

/// What is known of a demo, in its folder.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    demo: Process,
    /// What it has started, the last one last.
    started: Vec<Process>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    pid: u32,
    /// When it started, in clock ticks since boot: a pid alone may by now be someone else's.
    since: u64,
}

/// The folder of the demo that this process runs.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    record: Record,
}

impl Folder {
    /// Takes a folder. What a demo that was killed left behind is ended and removed; a demo that still runs keeps it.
    pub async fn claim(folder: &Path) -> Result<Self> {
        if let Some(record) = read(folder)? {
            if record.demo.runs() {
                bail!(
                    "a demo runs already (process {}); end it with Ctrl-C there, or with make demo-down",
                    record.demo.pid
                );
            }
            clear(folder, &record).await?;
        } else if folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
            bail!("{} is not empty and holds no demo; choose another folder with --dir", folder.display());
        }
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let demo = Process::of(std::process::id()).context("/proc is needed and not there")?;
        let claimed = Self { path: folder.canonicalize()?, record: Record { demo, started: Vec::new() } };
        claimed.write()?;
        Ok(claimed)
    }

    /// A file or folder in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Remembers processes, so that they are found even if this one is killed.
    pub fn remember(&mut self, pids: impl IntoIterator<Item = u32>) -> Result<()> {
        self.record.started.extend(pids.into_iter().filter_map(Process::of));
        self.write()
    }

    /// Removes the folder.
    pub fn remove(self) -> Result<()> {
        remove(&self.path)
    }

    fn write(&self) -> Result<()> {
        let path = self.path.join(RECORD);
        fs::write(&path, serde_json::to_string_pretty(&self.record)?)
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Ends the demo of a folder, with everything that it started, and removes the folder. Says whether there was one.
pub async fn down(folder: &Path) -> Result<bool> {
    let Some(record) = read(folder)? else { return Ok(false) };
    record.demo.end(DEMO_PATIENCE).await;
    clear(folder, &record).await?;
    Ok(true)
}

async fn clear(folder: &Path, record: &Record) -> Result<()> {
    for process in record.started.iter().rev() {
        process.end(LEFT_PATIENCE).await;
    }
    remove(folder)
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        // A demo that is asked to end removes it itself.
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn read(folder: &Path) -> Result<Option<Record>> {
    let path = folder.join(RECORD);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

impl Process {
    fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, since: start_time(pid)? })
    }

    fn runs(self) -> bool {
        start_time(self.pid) == Some(self.since)
    }

    /// Asks it to end, and kills it when it does not.
    async fn end(self, patience: Duration) {
        for how in [Signal::TERM, Signal::KILL] {
            if !self.runs() {
                return;
            }
            if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
                // That it has just ended is what is wanted.
                let _ = kill_process(pid, how);
            }
            let deadline = Instant::now() + patience;
            while self.runs() && Instant::now() < deadline {
                tokio::time::sleep(POLL).await;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("demo-{name}-{}", std::process::id()))
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn record(folder: &Path, demo: Process, started: Vec<Process>) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join(RECORD), serde_json::to_string(&Record { demo, started }).unwrap()).unwrap();
    }

    #[tokio::test]
    async fn a_folder_of_a_demo_that_runs_is_not_taken() {
        let folder = folder("taken");
        let mine = Folder::claim(&folder).await.unwrap();
        let error = Folder::claim(&folder).await.unwrap_err().to_string();
        assert!(error.contains("a demo runs already"), "{error}");
        mine.remove().unwrap();
        assert!(!folder.exists());
    }

    #[tokio::test]
    async fn what_a_killed_demo_left_behind_is_ended_and_removed() {
        let folder = folder("left");
        let mut left = sleeper();
        let gone = Process { pid: left.id(), since: 1 };
        record(&folder, gone, vec![Process::of(left.id()).unwrap()]);
        let mine = Folder::claim(&folder).await.unwrap();
        assert!(left.try_wait().unwrap().is_some(), "the process still runs");
        mine.remove().unwrap();
    }

    #[tokio::test]
    async fn a_process_that_only_has_the_pid_of_another_is_left_alone() {
        let folder = folder("reused");
        let mut other = sleeper();
        let reused = Process { pid: other.id(), since: 1 };
        record(&folder, reused, vec![reused]);
        assert!(down(&folder).await.unwrap());
        assert!(other.try_wait().unwrap().is_none(), "a process of someone else was ended");
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!folder.exists() && !down(&folder).await.unwrap());
    }

    #[tokio::test]
    async fn a_folder_with_other_things_in_it_is_not_touched() {
        let folder = folder("foreign");
        fs::create_dir_all(folder.join("mine")).unwrap();
        let error = Folder::claim(&folder).await.unwrap_err().to_string();
        assert!(error.contains("holds no demo"), "{error}");
        assert!(folder.join("mine").exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
