//! Makes one webhook configuration trust the operator's authorities, and registers it where nobody else does.

use std::fmt::Debug;

use k8s_openapi::ClusterResourceScope;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::seen::Seen;
use crate::admission::registration::{Address, Configuration, trust};
use crate::observe::FIELD_MANAGER;

/// How often a change by somebody else is answered at once; after that it is waited for the next event.
const ATTEMPTS: usize = 3;

/// One of the two configurations.
pub(super) struct Published<C> {
    api: Api<C>,
    name: String,
    make: fn(String, &Address, Option<&[u8]>) -> C,
    seen: Seen<C>,
    registered: bool,
}

impl<C> Published<C>
where
    C: Configuration + kube::Resource<Scope = ClusterResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
{
    /// `make` gives the whole configuration.
    pub fn new(client: Client, name: String, make: fn(String, &Address, Option<&[u8]>) -> C) -> Self {
        Published { api: Api::all(client), name, make, seen: Seen::Unknown, registered: false }
    }

    /// For a watch.
    pub fn api(&self) -> (Api<C>, String) {
        (self.api.clone(), self.name.clone())
    }

    /// Takes in what a watch says.
    pub fn take(&mut self, configuration: Option<C>) {
        self.seen.take(configuration);
    }

    /// Sees to it that what calls the operator trusts `bundle`. `false` while nothing is known of the configuration.
    pub async fn publish(&mut self, address: &Address, bundle: &[u8]) -> Result<bool, Error> {
        for _ in 0..ATTEMPTS {
            match self.once(address, bundle).await {
                Ok(Outcome::Unknown) => return Ok(false),
                Ok(Outcome::Done) => return Ok(true),
                Ok(Outcome::Changed) => {}
                // Somebody else was faster: look at what is there now.
                Err(Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => {
                    self.seen.take(self.api.get_opt(&self.name).await?);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    async fn once(&mut self, address: &Address, bundle: &[u8]) -> Result<Outcome, Error> {
        if self.seen.is_unknown() {
            return Ok(Outcome::Unknown);
        }
        let by_url = matches!(address, Address::Url(_));
        if by_url && (!self.registered || self.seen.get().is_none()) {
            let whole = (self.make)(self.name.clone(), address, Some(bundle));
            let params = PatchParams::apply(FIELD_MANAGER).force();
            let applied = self.api.patch(&self.name, &params, &Patch::Apply(&whole)).await?;
            tracing::info!(configuration = self.name, "Registered the webhooks by URL");
            self.registered = true;
            self.seen.take(Some(applied));
            return Ok(Outcome::Changed);
        }
        let Some(configuration) = self.seen.get() else { return Ok(Outcome::Done) };
        if by_url && !configuration.clients().iter().any(|client| address.is_called_by(client)) {
            tracing::warn!(configuration = self.name, "The webhooks were registered at another address; left alone");
            return Ok(Outcome::Done);
        }
        let Some(patch) = trust(configuration, address, bundle) else { return Ok(Outcome::Done) };
        let patch: json_patch::Patch = serde_json::from_value(patch).map_err(Error::SerdeError)?;
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patched = self.api.patch(&self.name, &params, &Patch::Json::<()>(patch)).await?;
        tracing::info!(configuration = self.name, "Published the webhook authority");
        self.seen.take(Some(patched));
        Ok(Outcome::Changed)
    }
}

enum Outcome {
    Unknown,
    Changed,
    Done,
}
