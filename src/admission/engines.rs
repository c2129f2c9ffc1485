//! Which engine a pod named: from the caches, or by one live read before anything is decided (D41).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::core::object::HasStatus;
use kube::{Client, Error};
use lmcache_crds::{CacheBlendEngine, CudagraphMode, InjectionSpec, LMCacheEngine, PayloadImageSpec, join_errors};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::injection::{Connection, Cudagraph, EngineLookup, EngineRef, EngineView, Injector, PayloadImage, Pd};
use crate::observe::{Cache, Guarded, Live, PublishedStatus, SHARE_ANNOTATION, controller_of};
use crate::render::{Engine, connection_name};

/// A pod must not wait longer than this for an engine that no cache knows.
const LIVE_READ_TIMEOUT: Duration = Duration::from_secs(3);

/// Nothing could be found out about an engine.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The API server refused or failed.
    #[error("cannot read {what}: {error}")]
    Read {
        /// The object.
        what: String,
        /// What the API server said.
        error: Box<Error>,
    },
    /// The API server did not answer in time.
    #[error("the API server did not answer within {} s", LIVE_READ_TIMEOUT.as_secs())]
    Timeout,
    /// A cached object cannot be parsed.
    #[error("cannot parse ConfigMap {0}")]
    Parse(String),
}

/// Every engine that a pod may name.
#[derive(Clone)]
pub struct Engines {
    /// The client, for live reads.
    pub client: Client,
    /// Engines of kind `LMCacheEngine`.
    pub lmcache: Cache<Guarded<LMCacheEngine>>,
    /// Engines of kind `CacheBlendEngine`.
    pub cache_blend: Cache<Guarded<CacheBlendEngine>>,
    /// ConfigMaps that the operator made.
    pub config_maps: Cache<Live>,
}

impl Engines {
    /// The engine of this name, of the kind that the injector works for.
    ///
    /// # Errors
    /// When it is in no cache and the live read fails.
    pub async fn lookup(&self, injector: Injector, reference: &EngineRef) -> Result<EngineLookup, LookupError> {
        let found = async {
            match injector {
                Injector::LmCache => self.find(&self.lmcache, reference).await,
                Injector::CacheBlend => self.find(&self.cache_blend, reference).await,
            }
        };
        tokio::time::timeout(LIVE_READ_TIMEOUT, found).await.unwrap_or(Err(LookupError::Timeout))
    }

    async fn find<E>(&self, cache: &Cache<Guarded<E>>, reference: &EngineRef) -> Result<EngineLookup, LookupError>
    where
        E: Injectable,
    {
        let EngineRef { namespace, name } = reference;
        let engine = match cache.get(namespace, name) {
            Some(engine) => Some(engine),
            None => self.read(namespace, name, E::KIND).await?.map(Arc::new),
        };
        let Some(engine) = engine else { return Ok(EngineLookup::NotFound) };
        let meta = kube::Resource::meta(&*engine);
        let uid = meta.uid.as_deref().unwrap_or_default();
        let view = EngineView {
            namespace: namespace.clone(),
            name: name.clone(),
            terminating: meta.deletion_timestamp.is_some(),
            share_with: meta.annotations.as_ref().and_then(|notes| notes.get(SHARE_ANNOTATION)).cloned(),
            connection: self.connection(reference, uid).await?,
            ..view(&engine)
        };
        Ok(EngineLookup::Found(Box::new(view)))
    }

    async fn connection(&self, engine: &EngineRef, uid: &str) -> Result<Option<Connection>, LookupError> {
        let name = connection_name(&engine.name);
        let Some(live) = self.config_maps.get(&engine.namespace, &name) else {
            let map: Option<ConfigMap> = self.read(&engine.namespace, &name, "ConfigMap").await?;
            return Ok(map.map(|map| Connection {
                controlled: controller_of(&map.metadata).is_some_and(|owner| owner.uid == uid),
                data: map.data.unwrap_or_default(),
            }));
        };
        let content = live.parse().map_err(|_| LookupError::Parse(format!("{}/{name}", engine.namespace)))?;
        let data = Option::<BTreeMap<String, String>>::deserialize(&content.object["data"]);
        Ok(Some(Connection {
            controlled: controller_of(kube::Resource::meta(&*live)).is_some_and(|owner| owner.uid == uid),
            data: data.ok().flatten().unwrap_or_default(),
        }))
    }

    async fn read<K>(&self, namespace: &str, name: &str, kind: &str) -> Result<Option<K>, LookupError>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        match api.get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => {
                let what = format!("{kind} {namespace}/{name}");
                Err(LookupError::Read { what, error: Box::new(error) })
            }
        }
    }
}

/// An engine kind that pods are connected to.
trait Injectable:
    Engine + HasStatus<Status: PublishedStatus> + Clone + std::fmt::Debug + DeserializeOwned + 'static
{
    fn injection(&self) -> Option<&InjectionSpec>;
    fn payload_image(&self) -> Option<&PayloadImageSpec>;
    fn cudagraph(&self) -> Cudagraph;
}

impl Injectable for LMCacheEngine {
    fn injection(&self) -> Option<&InjectionSpec> {
        self.spec.injection.as_ref()
    }

    fn payload_image(&self) -> Option<&PayloadImageSpec> {
        self.spec.payload_image()
    }

    fn cudagraph(&self) -> Cudagraph {
        Cudagraph::default()
    }
}

impl Injectable for CacheBlendEngine {
    fn injection(&self) -> Option<&InjectionSpec> {
        self.spec.injection.as_ref().map(|injection| &injection.common)
    }

    fn payload_image(&self) -> Option<&PayloadImageSpec> {
        self.spec.payload_image()
    }

    fn cudagraph(&self) -> Cudagraph {
        match self.spec.cudagraph() {
            CudagraphMode::Eager => Cudagraph::Eager,
            CudagraphMode::Piecewise => Cudagraph::Piecewise,
            CudagraphMode::FullDecodeOnly => Cudagraph::FullDecodeOnly,
        }
    }
}

/// What the spec says, with defaults resolved; of an object that cannot be decoded only that it is invalid.
fn view<E: Injectable>(engine: &Guarded<E>) -> EngineView {
    let engine = match engine {
        Guarded::Valid(engine) => engine,
        Guarded::Malformed(malformed) => {
            return EngineView { invalid: Some(malformed.errors.join("; ")), ..EngineView::default() };
        }
    };
    let (common, injection) = (engine.common(), engine.injection());
    let errors = engine.validate();
    let secrets = injection.and_then(|injection| injection.image_pull_secrets.as_deref()).unwrap_or_default();
    EngineView {
        invalid: (!errors.is_empty()).then(|| join_errors(&errors)),
        isolated_ipc: engine.isolated_ipc(),
        host_ipc: common.host_ipc.unwrap_or(false),
        pd: common.pd.as_ref().map(|pd| Pd { nixl_port: pd.nixl_side_channel_port() }),
        payload_image: engine.payload_image().and_then(|image| {
            let pull_policy = image.pull_policy().as_str().to_owned();
            Some(PayloadImage { reference: image.reference()?, pull_policy })
        }),
        pull_secrets: secrets.iter().map(|secret| secret.name.clone()).collect(),
        target_container: injection.and_then(|injection| injection.target_container.clone()),
        cudagraph: engine.cudagraph(),
        ..EngineView::default()
    }
}
