//! A control plane that belongs to this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use crate::components::{Layout, Ports, prepare};
use crate::process::{Component, Lifetime};
use crate::{binaries, files, ports};

const APISERVER: &str = "kube-apiserver";
const CLIENTS: [&str; 3] = ["kube-controller-manager", "kube-scheduler", "kwok"];
const POLL: Duration = Duration::from_millis(50);

/// How to start a [`Cluster`].
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Name of the cluster and of the only context in its kubeconfigs.
    pub name: String,
    /// Folder for data, certificates, kubeconfigs and logs, kept afterwards. Without it, a folder under the target
    /// folder is used and removed at the end; `TESTBED_KEEP=1` keeps it, and so does a panicking test.
    pub state_dir: Option<PathBuf>,
    /// Manifests (YAML, several documents) to apply before the controller manager starts. Custom resources that are defined
    /// here are collected from the beginning; the garbage collector notices ones defined later only after 30 seconds.
    pub manifests: String,
    /// How long the whole control plane may take to get ready. Building the binaries does not count.
    pub ready_timeout: Duration,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            name: "testbed".to_owned(),
            state_dir: None,
            manifests: String::new(),
            ready_timeout: Duration::from_mins(3),
        }
    }
}

/// A running control plane. Its processes end with [`stop`](Self::stop), with the value, or with this process.
pub struct Cluster {
    name: String,
    state: PathBuf,
    owned_state: bool,
    binaries: PathBuf,
    ready_timeout: Duration,
    ports: Ports,
    admin: Config,
    components: Mutex<Vec<Component>>,
}

impl Cluster {
    /// Starts etcd, the API server, the controller manager, the scheduler and KWOK, and waits until they serve.
    ///
    /// The error of a component that does not come up quotes the end of its log.
    pub async fn start(options: ClusterOptions) -> Result<Self> {
        Self::start_with(options, Lifetime::Ours).await
    }

    pub(crate) async fn start_with(options: ClusterOptions, lifetime: Lifetime) -> Result<Self> {
        let binaries = binaries::locate().await?;
        let mut attempts = 3;
        loop {
            attempts -= 1;
            match Self::try_start(&options, &binaries, lifetime).await {
                // Between finding a free port and listening on it, someone else may take it.
                Err(error) if attempts > 0 && format!("{error:#}").contains("address already in use") => {}
                result => return result,
            }
        }
    }

    async fn try_start(options: &ClusterOptions, binaries: &Path, lifetime: Lifetime) -> Result<Self> {
        let state = match &options.state_dir {
            Some(path) => {
                files::private_folder(path)?;
                path.canonicalize()?
            }
            None => files::own_folder()?.canonicalize()?,
        };
        let [etcd, peer, apiserver] = ports::free()?;
        let ports = Ports { etcd, peer, apiserver };
        let components = prepare(&Layout { binaries, state: &state, name: &options.name, ports, lifetime })?;
        let cluster = Self {
            name: options.name.clone(),
            admin: load_config(&state.join("admin.kubeconfig")).await?,
            owned_state: options.state_dir.is_none(),
            binaries: binaries.to_owned(),
            ready_timeout: options.ready_timeout,
            ports,
            components: Mutex::new(components),
            state,
        };
        cluster.bring_up(&options.manifests).await?;
        Ok(cluster)
    }

    async fn bring_up(&self, manifests: &str) -> Result<()> {
        let deadline = Instant::now() + self.ready_timeout;
        self.with("etcd", Component::start)?;
        let etcd = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.etcd));
        self.until("etcd", deadline, async || tokio::net::TcpStream::connect(etcd).await.is_ok()).await?;
        self.with(APISERVER, Component::start)?;
        self.wait_ready_until(deadline).await?;
        if !manifests.is_empty() {
            self.apply_yaml(manifests).await?;
        }
        for name in CLIENTS {
            self.with(name, Component::start)?;
        }
        let accounts = Api::<ServiceAccount>::default_namespaced(self.client());
        self.until("kube-controller-manager", deadline, async || accounts.get("default").await.is_ok()).await
    }

    /// Waits until the API server says that it is ready, for at most the ready timeout.
    pub async fn wait_ready(&self) -> Result<()> {
        self.wait_ready_until(Instant::now() + self.ready_timeout).await
    }

    async fn wait_ready_until(&self, deadline: Instant) -> Result<()> {
        let client = self.probe_client()?;
        let ready = async || {
            let request = http::Request::get("/readyz").body(Vec::new());
            match request {
                Ok(request) => client.request_text(request).await.is_ok(),
                Err(_) => false,
            }
        };
        self.until(APISERVER, deadline, ready).await
    }

    /// Polls `done`, failing when the component ends or the deadline passes.
    async fn until(&self, name: &str, deadline: Instant, done: impl AsyncFn() -> bool) -> Result<()> {
        loop {
            let exited = self.with(name, |component| {
                Ok(component.exit_status().map(|status| format!("{status}; {}", component.log_tail())))
            })?;
            if let Some(how) = exited {
                bail!("{name} ended: {how}");
            }
            // A server that accepts and never answers must not outlast the deadline.
            if tokio::time::timeout(Duration::from_secs(5), done()).await.unwrap_or(false) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let tail = self.with(name, |component| Ok(component.log_tail()))?;
                bail!("{name} is not ready in time; {tail}");
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Asks the API server to end and waits for it; after ten seconds it is killed. Connections to it break.
    pub async fn stop_apiserver(&self) -> Result<()> {
        self.with(APISERVER, |component| {
            component.terminate();
            Ok(())
        })?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline
            && self.with(APISERVER, |it| Ok(it.pid().is_some() && it.exit_status().is_none()))?
        {
            tokio::time::sleep(POLL).await;
        }
        self.kill_apiserver()
    }

    /// Kills the API server without warning.
    pub fn kill_apiserver(&self) -> Result<()> {
        self.with(APISERVER, |component| {
            component.kill();
            Ok(())
        })
    }

    /// Starts the API server again on its port and waits until it is ready. The components that talk to it are started anew:
    /// left alone they would come back one by one, the last after a minute.
    pub async fn start_apiserver(&self) -> Result<()> {
        self.with(APISERVER, Component::start)?;
        self.wait_ready().await?;
        for name in CLIENTS {
            self.with(name, |component| {
                component.kill();
                component.start()
            })?;
        }
        Ok(())
    }

    /// Stops the API server and starts it again.
    pub async fn restart_apiserver(&self) -> Result<()> {
        self.stop_apiserver().await?;
        self.start_apiserver().await
    }

    /// Ends all processes, the last started first, each with up to five seconds to end by itself.
    pub async fn stop(self) {
        let mut components = std::mem::take(&mut *self.components());
        for component in components.iter_mut().rev() {
            component.terminate();
            component.ended(Instant::now() + Duration::from_secs(5)).await;
        }
    }

    /// A new client with all rights. Clients belong to the runtime that they are made on, so make one per test.
    ///
    /// # Panics
    /// When the cluster's own certificates cannot be read any more.
    pub fn client(&self) -> Client {
        match Client::try_from(self.admin.clone()) {
            Ok(client) => client,
            Err(error) => panic!("no client for the cluster in {}: {error}", self.state.display()),
        }
    }

    fn probe_client(&self) -> Result<Client> {
        let mut config = self.admin.clone();
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// Name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Folder with data, certificates, kubeconfigs and one log per component.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    /// Kubeconfig of a cluster administrator.
    pub fn admin_kubeconfig_path(&self) -> PathBuf {
        self.state.join("admin.kubeconfig")
    }

    /// Kubeconfig of the user `operator`, who has no right until [`grant_operator`](Self::grant_operator).
    pub fn operator_kubeconfig_path(&self) -> PathBuf {
        self.state.join("operator.kubeconfig")
    }

    /// Every request of the user `operator`, one JSON object of `audit.k8s.io/v1` a line, at level Metadata.
    pub fn audit_log_path(&self) -> PathBuf {
        self.state.join("audit.log")
    }

    /// kubectl of the same version.
    pub fn kubectl_path(&self) -> PathBuf {
        self.binaries.join("kubectl")
    }

    /// `https://127.0.0.1:<port>`.
    pub fn server_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.apiserver)
    }

    /// Name and process id of every component that runs.
    pub fn pids(&self) -> Vec<(&'static str, u32)> {
        self.components().iter().filter_map(|component| Some((component.name, component.pid()?))).collect()
    }

    /// Lets the processes go on after this value, with the folder that they use.
    pub(crate) fn leave_running(mut self) {
        self.owned_state = false;
        self.components().clear();
    }

    fn components(&self) -> MutexGuard<'_, Vec<Component>> {
        self.components.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, name: &str, action: impl FnOnce(&mut Component) -> Result<T>) -> Result<T> {
        let mut components = self.components();
        let component = components.iter_mut().find(|it| it.name == name);
        action(component.ok_or_else(|| anyhow!("the cluster has been stopped"))?)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut components = std::mem::take(&mut *self.components());
        for component in &mut components {
            component.terminate();
        }
        let deadline = Instant::now() + Duration::from_millis(1500);
        for component in components.iter_mut().rev() {
            component.ended_blocking(deadline);
        }
        if !self.owned_state {
            return;
        }
        if std::thread::panicking() || std::env::var_os("TESTBED_KEEP").is_some() {
            let _ = std::fs::remove_dir_all(self.state.join("etcd"));
            eprintln!("testbed: logs and audit.log are kept in {}", self.state.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.state);
        }
    }
}

pub(crate) async fn load_config(kubeconfig: &Path) -> Result<Config> {
    let text = Kubeconfig::read_from(kubeconfig)?;
    Config::from_custom_kubeconfig(text, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("cannot use {}", kubeconfig.display()))
}
