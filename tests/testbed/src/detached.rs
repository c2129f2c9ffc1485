//! The same cluster for a person: processes that outlive the command, known by a record in their folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::cluster::load_config;
use crate::files::{private_file, private_folder};
use crate::process::{Lifetime, signal};
use crate::{Cluster, ClusterOptions};

const RECORD: &str = "testbed.json";
const GRACE: Duration = Duration::from_secs(3);

/// A cluster that runs in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// Name of the cluster.
    pub name: String,
    /// Kubeconfig of an administrator.
    pub kubeconfig: PathBuf,
    /// Kubeconfig of the user `operator`.
    pub operator_kubeconfig: PathBuf,
    /// kubectl of the same version.
    pub kubectl: PathBuf,
    processes: Vec<Process>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    name: String,
    pid: u32,
    /// When it started, in clock ticks since boot: a pid alone may by now be someone else's.
    started: u64,
}

/// Whether a component of a background cluster runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentState {
    /// Name of the binary.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Whether that process still runs.
    pub running: bool,
}

/// Starts a cluster with its state in `dir`, GPU nodes `gpu-1` to `gpu-<nodes>` and `RuntimeClass` `nvidia`.
/// A cluster that runs there already is left alone; the remains of one that does not are replaced.
pub async fn up(dir: &Path, name: &str, nodes: u32) -> Result<Detached> {
    if let Some(record) = read(dir)? {
        if !record.processes.is_empty() && record.processes.iter().all(Process::runs) {
            return Ok(record);
        }
        down(dir).await?;
    } else if dir.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty and holds no testbed cluster", dir.display());
    }
    private_folder(dir)?;
    // A start that fails leaves its logs and this record, so that the folder is known to be ours.
    let dir = dir.canonicalize()?;
    write(&dir, &Detached { name: name.to_owned(), ..Detached::default() })?;
    let options = ClusterOptions { name: name.to_owned(), state_dir: Some(dir.clone()), ..Default::default() };
    let cluster = Cluster::start_with(options, Lifetime::Detached).await?;
    cluster.create_runtime_class("nvidia").await?;
    for number in 1..=nodes {
        cluster.add_gpu_node(&format!("gpu-{number}")).await?;
    }
    let record = Detached {
        name: name.to_owned(),
        kubeconfig: cluster.admin_kubeconfig_path(),
        operator_kubeconfig: cluster.operator_kubeconfig_path(),
        kubectl: cluster.kubectl_path(),
        processes: cluster.pids().into_iter().map(|(name, pid)| Process::of(name, pid)).collect(),
    };
    write(&dir, &record)?;
    cluster.leave_running();
    Ok(record)
}

/// Ends the cluster in `dir` and removes its state. Says whether there was one.
pub async fn down(dir: &Path) -> Result<bool> {
    let Some(record) = read(dir)? else {
        return Ok(false);
    };
    for how in [Signal::TERM, Signal::KILL] {
        for process in record.processes.iter().filter(|process| process.runs()) {
            signal(process.pid, how);
        }
        let deadline = Instant::now() + GRACE;
        while record.processes.iter().any(Process::runs) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    Ok(true)
}

fn write(dir: &Path, record: &Detached) -> Result<()> {
    private_file(&dir.join(RECORD), &serde_json::to_string_pretty(record)?)
}

/// The cluster in `dir`, if one was started there.
pub fn read(dir: &Path) -> Result<Option<Detached>> {
    let path = dir.join(RECORD);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

impl Detached {
    /// Every component and whether it runs.
    pub fn components(&self) -> Vec<ComponentState> {
        let state = |it: &Process| ComponentState { name: it.name.clone(), pid: it.pid, running: it.runs() };
        self.processes.iter().map(state).collect()
    }

    /// A client with all rights.
    pub async fn client(&self) -> Result<kube::Client> {
        Ok(kube::Client::try_from(load_config(&self.kubeconfig).await?)?)
    }
}

impl Process {
    fn of(name: &str, pid: u32) -> Self {
        Self { name: name.to_owned(), pid, started: start_time(pid).unwrap_or_default() }
    }

    fn runs(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }
}

/// Start time of a process that is not a zombie, in clock ticks since boot, from `/proc/<pid>/stat`: with the process id it
/// tells whether a process is still the same.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything; the state is the first after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
