//! Many pods while the operator restarts and its certificate rotates.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::Client;
use kube::api::{DynamicObject, PostParams};
use lmcache_testbed::Cluster;
use tokio::task::JoinSet;

use crate::latencies::{Buckets, Latencies};
use crate::sample::small;
use crate::stage::{Operator, Place, is_injected, pods};

/// The shortest that there are: each is followed by the next one after two thirds of its time.
const FLAGS: [&str; 1] = ["--webhook-cert-validity=10s"];
const SERVED: &str = "Serving a new webhook certificate";
/// Pods that no webhook is asked about are this part of all.
const WITHOUT: usize = 5;
const POLL: Duration = Duration::from_millis(20);

/// What was measured.
#[derive(Debug, Default)]
pub struct Run {
    /// Why pods were refused.
    pub refused: Vec<String>,
    /// Pods that were injected.
    pub injected: usize,
    /// Pods that were not, although the operator ran.
    pub missed: usize,
    /// Pods that were not, while it restarted.
    pub let_through: usize,
    /// From the signal that stopped it until pods were injected again.
    pub restart: Duration,
    /// Certificates that were served.
    pub certificates: usize,
    /// How long the API server waited for the webhook.
    pub admission: Buckets,
    /// How long the creation of a pod took.
    pub pods: Latencies,
    /// The same without a webhook.
    pub without: Latencies,
}

/// Creates all pods; the operator restarts when a third of them are there.
pub async fn measure(cluster: &Cluster, manager: &Path, count: usize, in_flight: usize) -> Result<Run> {
    forget_certificates(cluster).await?;
    let operator = Operator::start(manager, cluster, "first", &FLAGS, Place::Anywhere).await?;
    let before = admission(cluster).await?;
    let quiet = Load::new(count / WITHOUT, false);
    let (without, _) = quiet.create(cluster, in_flight).await?;
    let load = Load::new(count, true);
    let restart = restart(cluster, manager, operator, &load);
    let ((times, pods), (took, certificates)) = tokio::try_join!(load.create(cluster, in_flight), restart)?;
    let mut run = Run { restart: took, certificates, pods: times, without, ..Run::default() };
    for pod in pods {
        match pod {
            Created::Refused(why) => run.refused.push(why),
            Created::Injected => run.injected += 1,
            Created::LetThrough { restarting: true } => run.let_through += 1,
            Created::LetThrough { restarting: false } => run.missed += 1,
        }
    }
    run.admission = admission(cluster).await?.since(&before);
    if let Some(why) = run.refused.first() {
        eprintln!("{} pods were refused, the first because: {why}", run.refused.len());
    }
    Ok(run)
}

/// Certificates of an operator before would be good for a long time.
async fn forget_certificates(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["delete", "secret", "lmcache-operator-webhook-ca", "--ignore-not-found"]).await?;
    Ok(())
}

/// Restarts the operator in the middle, and stays until the end: how long the restart took, and how many certificates
/// were served.
async fn restart(cluster: &Cluster, manager: &Path, mut operator: Operator, load: &Load) -> Result<(Duration, usize)> {
    load.until(load.count / 3).await;
    let begun = Instant::now();
    load.restarting.store(true, Ordering::SeqCst);
    let mut certificates = operator.says(SERVED);
    operator.stop().await;
    certificates = certificates.max(operator.says(SERVED));
    let mut second = Operator::start(manager, cluster, "second", &FLAGS, Place::Anywhere).await?;
    load.restarting.store(false, Ordering::SeqCst);
    let took = begun.elapsed();
    ensure!(load.created() < load.count, "all pods were there before the operator was; take more");
    load.until(load.count).await;
    second.check()?;
    certificates += second.says(SERVED);
    second.stop().await;
    Ok((took, certificates))
}

async fn admission(cluster: &Cluster) -> Result<Buckets> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let page = cluster.client().request_text(request).await?;
    let labels = ["name=\"mlmcachepod.lmcache.ai\""];
    Ok(Buckets::read(&page, "apiserver_admission_webhook_admission_duration_seconds", &labels))
}

/// What came of one pod.
enum Created {
    Injected,
    LetThrough { restarting: bool },
    Refused(String),
}

/// Pods to create.
struct Load {
    count: usize,
    asks: bool,
    next: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
    restarting: Arc<AtomicBool>,
}

impl Load {
    fn new(count: usize, asks: bool) -> Self {
        let (next, done, restarting) = (Arc::default(), Arc::default(), Arc::default());
        Load { count, asks, next, done, restarting }
    }

    fn created(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    async fn until(&self, count: usize) {
        while self.created() < count {
            tokio::time::sleep(POLL).await;
        }
    }

    async fn create(&self, cluster: &Cluster, in_flight: usize) -> Result<(Latencies, Vec<Created>)> {
        let mut clients = JoinSet::new();
        for _ in 0..in_flight {
            clients.spawn(self.worker().run(cluster.client()));
        }
        let (mut times, mut pods) = (Vec::new(), Vec::new());
        while let Some(result) = clients.join_next().await {
            for (time, pod) in result?? {
                times.push(time);
                pods.push(pod);
            }
        }
        Ok((Latencies::new(times), pods))
    }

    fn worker(&self) -> Worker {
        let (next, done, restarting) = (self.next.clone(), self.done.clone(), self.restarting.clone());
        Worker(Load { count: self.count, asks: self.asks, next, done, restarting })
    }
}

struct Worker(Load);

impl Worker {
    async fn run(self, client: Client) -> Result<Vec<(Duration, Created)>> {
        let (Worker(load), pods, mut made) = (self, pods(&client), Vec::new());
        loop {
            let number = load.next.fetch_add(1, Ordering::SeqCst);
            if number >= load.count {
                return Ok(made);
            }
            let kind = if load.asks { "asks" } else { "silent" };
            let pod: DynamicObject = serde_json::from_value(small(&format!("{kind}-{number}"), load.asks))?;
            let (begun, before) = (Instant::now(), load.restarting.load(Ordering::SeqCst));
            let created = match pods.create(&PostParams::default(), &pod).await {
                Ok(stored) if is_injected(&stored) => Created::Injected,
                // On its way when it began, or still when it ended: anything may happen.
                Ok(_) => Created::LetThrough { restarting: before || load.restarting.load(Ordering::SeqCst) },
                Err(error) => Created::Refused(format!("{error:#}")),
            };
            made.push((begun.elapsed(), created));
            load.done.fetch_add(1, Ordering::SeqCst);
        }
    }
}
