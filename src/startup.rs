//! Start and orderly stop.

mod webhooks;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use lmcache_crds::{CacheBlendEngine, LMCacheCoordinator, LMCacheEngine};
use lmcache_observability::traces::Traces;
use lmcache_observability::{ApiRequestsLayer, Metrics};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::admission::Engines;
use crate::cli::{COMMIT, Options, VERSION};
use crate::controllers::hits::{Hits, Sampler, candidates};
use crate::controllers::queue::Queue;
use crate::controllers::wake::Wakeups;
use crate::controllers::{self, Context, Memories, Reconcile, Resources, SharedContext};
use crate::observe::{Cache, Guarded, Opener};
use crate::publish::Reporter;
use crate::render;
use crate::serving::leader::{LeaderConfig, LeaderError, Leadership, own_namespace};
use crate::serving::{Readiness, ServeConfig, ServeError, Servers};
use webhooks::Webhooks;

/// How long reconciles that are under way may take to end after the signal to stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection to the API server may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// After this time it is said which caches are still empty.
const PATIENCE: Duration = Duration::from_secs(15);

const CACHES: &str = "caches";

/// Why the operator cannot run.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {of}: {reason}")]
    Kubeconfig {
        /// Which one.
        of: String,
        /// Why not.
        reason: String,
    },
    /// No configuration was found.
    #[error("found no cluster to talk to: set --kubeconfig or KUBECONFIG, or run in a pod with a ServiceAccount: {0}")]
    NoCluster(String),
    /// The client cannot be made, because of a certificate for example.
    #[error("cannot make a client for the API server: {0}")]
    Client(#[source] Box<kube::Error>),
    /// Something cannot be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Leader election cannot start.
    #[error(transparent)]
    Leader(#[from] LeaderError),
    /// Another process may lead now.
    #[error("lost the leader lease, stopping at once")]
    LeadershipLost,
    /// Signals cannot be received.
    #[error("cannot listen to signals: {0}")]
    Signals(#[source] std::io::Error),
}

/// Runs until a signal says stop.
pub async fn run(options: Options, metrics: Metrics, traces: Traces) -> Result<(), StartupError> {
    info!(version = VERSION, commit = COMMIT, "Starting the LMCache operator");
    if let Some((endpoint, protocol)) = traces.target() {
        info!(endpoint, protocol, "Exporting traces");
    }
    for warning in &options.warnings {
        warn!("{warning}");
    }
    let shutdown = CancellationToken::new();
    stop_on_signal(shutdown.clone())?;
    let config = client_config(&options).await?;
    let default_namespace = config.default_namespace.clone();
    let client = client(config, &metrics, &traces)?;

    let readiness = Readiness::default();
    readiness.awaiting([CACHES]);
    let servers = Servers::bind(ServeConfig::from(&options))?;
    let webhooks = Webhooks::bind(&options, &readiness)?;
    let serving = servers.run(metrics.clone(), readiness.clone(), client.clone(), shutdown.clone());
    let mut serving = vec![tokio::spawn(serving)];

    let mut watches = JoinSet::new();
    let kinds = Kinds::new(&namespaces(&options));
    let telemetry = (&metrics, &traces);
    let coordinators = kinds.coordinators.cache.clone();
    let context = context(&options, client.clone(), telemetry, &shutdown, coordinators, &mut watches);
    let engines = kinds.engines(&context);
    if let Some(webhooks) = webhooks {
        let namespace = own_namespace(options.leader_election_namespace.as_deref(), &default_namespace);
        serving.push(webhooks.start(&context, &engines, namespace, readiness.clone(), &mut watches));
    }
    // Also on a replica that does not lead: its webhooks look into the same caches.
    let reconcilers = kinds.watch(&options, &context, &mut watches);
    if until(&shutdown, synced(&context)).await.is_none() {
        return stopped(serving).await;
    }
    readiness.arrived(CACHES);
    let mut leadership = None;
    if options.leader_elect {
        let lease = LeaderConfig::new(options.leader_election_namespace.as_deref(), &default_namespace)?;
        match Leadership::acquire(client, lease, metrics, &shutdown).await {
            Some(led) => leadership = Some(led),
            None => return stopped(serving).await,
        }
    } else {
        metrics.set_leader(true);
    }
    work(&options, &context, reconcilers, leadership.as_mut()).await?;
    if let Some(leadership) = leadership {
        leadership.release().await;
    }
    stopped(serving).await
}

/// Reconciles until the shutdown; reconciles under way then end, or are given up.
async fn work(
    options: &Options,
    context: &SharedContext,
    reconcilers: Reconcilers,
    leadership: Option<&mut Leadership>,
) -> Result<(), StartupError> {
    let mut workers = controllers::work(context, reconcilers.kinds, options.max_concurrent_reconciles);
    if let Some(sampler) = reconcilers.sampler {
        let shutdown = context.shutdown.clone();
        workers.spawn(async move { shutdown.run_until_cancelled(sampler.run()).await.unwrap_or_default() });
    }
    info!("Started the controllers");
    let lost = async {
        match leadership {
            Some(leadership) => leadership.lost().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = lost => return Err(StartupError::LeadershipLost),
        () = context.shutdown.cancelled() => {}
    }
    let ended = async { while workers.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_LIMIT, ended).await.is_err() {
        warn!("Gave up reconciles that did not end within {} s", STOP_LIMIT.as_secs());
    }
    Ok(())
}

/// The resources of every kind.
struct Kinds {
    coordinators: Resources<LMCacheCoordinator>,
    lmcache: Resources<LMCacheEngine>,
    cache_blend: Resources<CacheBlendEngine>,
}

/// Who works on resources that are watched.
struct Reconcilers {
    kinds: [(&'static str, Arc<dyn Reconcile>); 3],
    sampler: Option<Sampler>,
}

impl Kinds {
    fn new(namespaces: &[Option<String>]) -> Self {
        Kinds {
            coordinators: Resources::new(namespaces),
            lmcache: Resources::new(namespaces),
            cache_blend: Resources::new(namespaces),
        }
    }

    /// What the injecting webhooks look into.
    fn engines(&self, context: &Context) -> Engines {
        Engines {
            client: context.client.clone(),
            lmcache: self.lmcache.cache.clone(),
            cache_blend: self.cache_blend.cache.clone(),
            config_maps: context.caches.config_maps.clone(),
        }
    }

    fn watch(self, options: &Options, context: &SharedContext, watches: &mut JoinSet<()>) -> Reconcilers {
        let namespaces = namespaces(options);
        let sampler = options.cache_metrics_interval.map(|interval| Sampler {
            context: context.clone(),
            interval,
            sources: vec![candidates(self.lmcache.cache.clone()), candidates(self.cache_blend.cache.clone())],
        });
        let kinds = [
            self.coordinators.serve(context, &namespaces, watches),
            self.lmcache.serve(context, &namespaces, watches),
            self.cache_blend.serve(context, &namespaces, watches),
        ];
        Reconcilers { kinds, sampler }
    }
}

fn context(
    options: &Options,
    client: Client,
    (metrics, traces): (&Metrics, &Traces),
    shutdown: &CancellationToken,
    coordinators: Cache<Guarded<LMCacheCoordinator>>,
    watches: &mut JoinSet<()>,
) -> SharedContext {
    let queue = Queue::default();
    let wakeups = Wakeups::new(queue.clone());
    let namespaces = namespaces(options);
    let caches = Opener { client: &client, namespaces: &namespaces, wakeups: &wakeups, metrics }.open(watches);
    let host = std::env::var("HOSTNAME").ok().filter(|host| !host.is_empty());
    Arc::new(Context {
        client,
        caches,
        coordinators,
        options: render::Options { cluster_domain: options.cluster_domain.clone() },
        cross_namespace_secrets: options.cross_namespace_secrets,
        metrics: metrics.clone(),
        traces: traces.clone(),
        reporter: Reporter { instance: host.unwrap_or_else(|| "manager".to_owned()) },
        queue,
        wakeups,
        memories: Memories::default(),
        hits: Hits::default(),
        shutdown: shutdown.clone(),
    })
}

fn namespaces(options: &Options) -> Vec<Option<String>> {
    if options.watch_namespaces.is_empty() {
        return vec![None];
    }
    options.watch_namespaces.iter().cloned().map(Some).collect()
}

async fn synced(context: &Context) {
    let synced = context.caches.synced();
    tokio::pin!(synced);
    while tokio::time::timeout(PATIENCE, &mut synced).await.is_err() {
        warn!("Still waiting for the first lists from the API server; the reasons are logged above");
    }
    info!("Filled the caches");
}

/// The future's result, or `None` when the shutdown comes first.
async fn until<F: Future>(shutdown: &CancellationToken, future: F) -> Option<F::Output> {
    tokio::select! {
        output = future => Some(output),
        () = shutdown.cancelled() => None,
    }
}

async fn stopped(serving: Vec<JoinHandle<Result<(), ServeError>>>) -> Result<(), StartupError> {
    for server in serving {
        if let Ok(result) = server.await {
            result?;
        }
    }
    info!("Stopped");
    Ok(())
}

fn stop_on_signal(shutdown: CancellationToken) -> Result<(), StartupError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(StartupError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartupError::Signals)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("Stopping");
        shutdown.cancel();
    });
    Ok(())
}

/// `--kubeconfig`, then `KUBECONFIG`, then the usual file, then the cluster that the process runs in.
async fn client_config(options: &Options) -> Result<Config, StartupError> {
    let environment = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let chosen = match (&options.kubeconfig, environment) {
        (Some(path), _) => Some((path.display().to_string(), Kubeconfig::read_from(path).map(Some))),
        (None, Some(paths)) => Some((format!("of KUBECONFIG={}", paths.display()), Kubeconfig::from_env())),
        (None, None) => None,
    };
    let mut config = match chosen {
        Some((of, read)) => {
            use_kubeconfig(read).await.map_err(|error| StartupError::Kubeconfig { of, reason: first_line(&error) })?
        }
        None => Config::infer().await.map_err(|error| StartupError::NoCluster(first_line(&error)))?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Ok(config)
}

async fn use_kubeconfig(read: Result<Option<Kubeconfig>, KubeconfigError>) -> Result<Config, KubeconfigError> {
    Config::from_custom_kubeconfig(read?.unwrap_or_default(), &KubeConfigOptions::default()).await
}

/// The parser goes on with an excerpt of the file, and that may hold a token.
fn first_line(error: &(dyn std::error::Error + 'static)) -> String {
    crate::observe::chain(error).lines().next().unwrap_or_default().to_owned()
}

fn client(config: Config, metrics: &Metrics, traces: &Traces) -> Result<Client, StartupError> {
    let server = config.cluster_url.clone();
    let builder = ClientBuilder::try_from(config).map_err(|error| StartupError::Client(Box::new(error)))?;
    Ok(builder.with_layer(&ApiRequestsLayer::new(metrics, traces, &server)).build())
}
