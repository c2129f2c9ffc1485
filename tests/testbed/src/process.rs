//! Child processes of the control plane: started so that they die with us (or, detached, outlive us), stopped by pid.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};

const POLL: Duration = Duration::from_millis(10);

/// How long a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// It is killed when this process ends, however this process ends.
    Ours,
    /// It goes on in a session of its own.
    Detached,
}

/// One component of the control plane.
pub(crate) struct Component {
    pub name: &'static str,
    pub program: PathBuf,
    pub args: Vec<String>,
    pub log: PathBuf,
    pub lifetime: Lifetime,
    /// Variables that it gets beside ours.
    pub environment: Vec<(String, String)>,
    child: Option<Child>,
}

impl Component {
    pub fn new(name: &'static str, program: PathBuf, args: Vec<String>, log: PathBuf, lifetime: Lifetime) -> Self {
        Self { name, program, args, log, lifetime, environment: Vec::new(), child: None }
    }

    /// Starts the process with its output appended to its log; does nothing when it runs already.
    pub fn start(&mut self) -> Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = self.command();
        command
            .args(&self.args)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stderr(log.try_clone()?)
            .stdout(log);
        let child = spawn(command).with_context(|| format!("cannot start {}", self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// The process id while it has been started.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// How it ended, when it was started and has ended by itself.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().ok().flatten()
    }

    /// Asks it to end.
    pub fn terminate(&mut self) {
        if let Some(child) = &mut self.child
            && matches!(child.try_wait(), Ok(None))
        {
            signal(child.id(), Signal::TERM);
        }
    }

    /// Waits until it has ended, killing it at `deadline`.
    pub async fn ended(&mut self, deadline: Instant) {
        while self.running() && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
        self.kill();
    }

    /// As [`ended`](Self::ended), on this thread.
    pub fn ended_blocking(&mut self, deadline: Instant) {
        while self.running() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        self.kill();
    }

    /// Kills it now and reaps it.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The last lines of its log, for an error.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(25)..].join("\n");
        format!("last lines of {}:\n{tail}", self.log.display())
    }

    fn running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    fn command(&self) -> Command {
        let wrapper: &[&str] = match self.lifetime {
            Lifetime::Ours if can_follow_parent() => &["setpriv", "--pdeathsig", "KILL"],
            Lifetime::Detached if works(&["setsid", "true"]) => &["setsid"],
            Lifetime::Ours | Lifetime::Detached => &[],
        };
        let Some((first, rest)) = wrapper.split_first() else {
            return Command::new(&self.program);
        };
        let mut command = Command::new(first);
        command.args(rest).arg(&self.program);
        // With the death signal in place, an interrupt on the terminal is for us alone and we stop in order.
        if self.lifetime == Lifetime::Ours {
            command.process_group(0);
        }
        command
    }
}

/// Sends a signal; that the process is gone already is no error.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

fn can_follow_parent() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| works(&["setpriv", "--pdeathsig", "KILL", "true"]))
}

fn works(command: &[&str]) -> bool {
    let null = || File::open("/dev/null").map_or_else(|_| Stdio::null(), Stdio::from);
    let status =
        Command::new(command[0]).args(&command[1..]).stdin(null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

type Request = (Command, mpsc::Sender<std::io::Result<Child>>);

/// Starts processes on a thread that lives as long as this process: the parent-death signal fires when the *thread* that
/// started a child ends, and a test's threads end with the test although its cluster may be shared with others.
fn spawn(command: Command) -> Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        thread::spawn(move || {
            for (mut command, answer) in requests {
                let _ = answer.send(command.spawn());
            }
        });
        sender
    });
    let (answer, child) = mpsc::channel();
    spawner.send((command, answer)).map_err(|_| anyhow!("the thread that starts processes has ended"))?;
    Ok(child.recv()??)
}
