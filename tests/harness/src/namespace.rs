//! Namespaces of a suite's own.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::runtime::{Handle, RuntimeFlavor};

/// A namespace, and whether it ends with its last user.
#[derive(Clone)]
pub(crate) struct OwnNamespace(Arc<Inner>);

struct Inner {
    name: String,
    /// Present when the namespace was made here.
    client: Option<Client>,
    deleted: AtomicBool,
}

impl OwnNamespace {
    pub fn borrowed(name: &str) -> Self {
        Self(Arc::new(Inner { name: name.to_owned(), client: None, deleted: AtomicBool::new(false) }))
    }

    pub async fn create(client: Client, prefix: &str) -> Result<Self> {
        let random = RandomState::new().build_hasher().finish();
        let name = format!("{prefix}-{:08x}", random & 0xffff_ffff);
        let levels = ["enforce", "audit", "warn"];
        let labels = levels.map(|it| (format!("pod-security.kubernetes.io/{it}"), "privileged".to_owned()));
        let metadata =
            ObjectMeta { name: Some(name.clone()), labels: Some(BTreeMap::from(labels)), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(Self(Arc::new(Inner { name, client: Some(client), deleted: AtomicBool::new(false) })))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Deletes it if it was made here.
    pub async fn delete(&self) -> Result<()> {
        self.0.delete().await
    }
}

impl Inner {
    async fn delete(&self) -> Result<()> {
        let Some(client) = self.client.clone() else {
            return Ok(());
        };
        if !self.deleted.swap(true, Ordering::Relaxed) {
            Api::<Namespace>::all(client).delete(&self.name, &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.client.is_none() || self.deleted.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if runtime.runtime_flavor() == RuntimeFlavor::MultiThread {
            // On a thread of its own: this one may be in the middle of a future whose wake-ups would be lost here.
            let delete = || {
                let _ = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(5), self.delete()).await });
            };
            tokio::task::block_in_place(|| std::thread::scope(|scope| drop(scope.spawn(delete).join())));
        }
    }
}
