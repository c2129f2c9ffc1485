//! Starts the webhook server and whatever keeps its certificate. On every replica, also those that do not lead.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Api;
use lmcache_crds::{LMCacheCoordinator, LMCacheCoordinatorSpec};
use tokio::task::{JoinHandle, JoinSet};

use crate::admission::certificates::{Lifetimes, READINESS, SelfManaged, ServedCertificate, keep_files};
use crate::admission::injection::Injector;
use crate::admission::registration::{Address, CACHE_BLEND_PATH, LM_CACHE_PATH, Names, VALIDATING_PATH};
use crate::admission::validating::{Coordinators, Validator};
use crate::admission::{Engines, Injection, Notes};
use crate::cli::{Options, WebhookCertificates, WebhookOptions, url_host};
use crate::controllers::{Context, SharedContext};
use crate::key::Key;
use crate::observe::Guarded;
use crate::serving::webhooks::{Handlers, WebhookServer};
use crate::serving::{Readiness, ServeError};

/// How long a coordinator may be looked for that is not in the cache. It only gives a warning.
const LOOK_UP: Duration = Duration::from_secs(1);

/// A webhook server that is bound and does not answer yet.
pub(super) struct Webhooks {
    server: WebhookServer,
    options: WebhookOptions,
    cluster_domain: String,
}

impl Webhooks {
    /// Binds; `None` when webhooks are switched off. From now on the process is ready only with a certificate.
    pub fn bind(options: &Options, readiness: &Readiness) -> Result<Option<Self>, ServeError> {
        let Some(webhooks) = options.webhooks.clone() else { return Ok(None) };
        let server = WebhookServer::bind(&webhooks.address)?;
        readiness.awaiting([READINESS]);
        Ok(Some(Webhooks { server, options: webhooks, cluster_domain: options.cluster_domain.clone() }))
    }

    /// Serves until the shutdown. The certificate is kept in `tasks`; `namespace` is the operator's own.
    pub fn start(
        self,
        context: &SharedContext,
        engines: &Engines,
        namespace: String,
        readiness: Readiness,
        tasks: &mut JoinSet<()>,
    ) -> JoinHandle<Result<(), ServeError>> {
        let served = ServedCertificate::default();
        let arrived = move || readiness.arrived(READINESS);
        match self.options.certificates {
            WebhookCertificates::Files(files) => {
                tasks.spawn(keep_files(files, served.clone(), context.metrics.clone(), arrived));
            }
            WebhookCertificates::SelfManaged { validity, url } => {
                let names = Names { prefix: self.options.prefix, namespace };
                let mut hosts = names.dns_names(&self.cluster_domain);
                let address = match url {
                    Some(url) => by_url(&url, self.server.address().port(), &mut hosts),
                    None => Address::Service { namespace: names.namespace.clone(), name: names.service() },
                };
                let keeper = SelfManaged {
                    client: context.client.clone(),
                    names,
                    address,
                    hosts,
                    lifetimes: Lifetimes::new(validity),
                    metrics: context.metrics.clone(),
                    served: served.clone(),
                };
                tasks.spawn(keeper.run(arrived));
            }
        }
        let (notes, writer) = Notes::new(context.client.clone(), context.reporter.clone());
        tasks.spawn(writer.run());
        let handlers = handlers(context, engines, &notes);
        let (metrics, shutdown) = (context.metrics.clone(), context.shutdown.clone());
        tokio::spawn(self.server.run(served, self.options.http2, handlers, metrics, shutdown))
    }
}

/// The address to register, and its host among the names of the certificate. Port 0 is the one that is listened on.
fn by_url(url: &str, port: u16, hosts: &mut Vec<String>) -> Address {
    let host = url_host(url);
    hosts.extend(host.as_ref().map(|address| address.host.clone()));
    match host {
        Some(mut address) if address.port == 0 => {
            address.port = port;
            Address::Url(format!("https://{address}"))
        }
        _ => Address::Url(url.to_owned()),
    }
}

/// What answers on which path.
fn handlers(context: &SharedContext, engines: &Engines, notes: &Notes) -> Handlers {
    let mut handlers = Handlers::new();
    for (path, injector) in [(CACHE_BLEND_PATH, Injector::CacheBlend), (LM_CACHE_PATH, Injector::LmCache)] {
        let injection = Injection { injector, engines: engines.clone(), notes: notes.clone() };
        handlers.insert(path, Arc::new(injection));
    }
    handlers.insert(VALIDATING_PATH, Arc::new(Validator::new(coordinators(context.clone()))));
    handlers
}

fn coordinators(context: SharedContext) -> Coordinators {
    Arc::new(move |key| {
        let context = context.clone();
        async move { coordinator(&context, &key).await }.boxed()
    })
}

/// From the cache, or by asking while that is not filled, as on a replica that does not lead.
async fn coordinator(context: &Context, key: &Key) -> Option<LMCacheCoordinatorSpec> {
    if let Some(Guarded::Valid(coordinator)) = context.coordinators.get(&key.namespace, &key.name).as_deref() {
        return Some(coordinator.spec.clone());
    }
    if context.coordinators.is_synced() {
        return None;
    }
    let api: Api<LMCacheCoordinator> = Api::namespaced(context.client.clone(), &key.namespace);
    let found = tokio::time::timeout(LOOK_UP, api.get_opt(&key.name)).await.ok()?.ok()??;
    Some(found.spec)
}
