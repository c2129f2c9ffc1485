//! What a spec refers to: credentials and coordinator. The only place where a Secret is read.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::{Client, Error};
use lmcache_crds::{AuthSecretRef, LMCacheCoordinator, LMCacheCoordinatorSpec};
use lmcache_states::{DependencyIssue, DependencyKind};

use super::cache::Cache;
use super::guarded::Guarded;
use super::live::resource_version;
use super::watches::{Caches, SHARE_ANNOTATION};
use crate::cli::CrossNamespaceSecrets;
use crate::controllers::wake::Target;
use crate::key::Key;
use crate::render::{Credentials, Resolved};

/// Credentials as they were last read.
#[derive(Clone)]
pub struct CredentialsMemo {
    source: Key,
    version: u64,
    credentials: Credentials,
}

/// Nothing could be found out about a dependency.
#[derive(Debug, thiserror::Error)]
pub enum DependencyError {
    /// A request failed.
    #[error("failed to read Secret {secret}: {error}")]
    Secret {
        /// Namespace and name.
        secret: Key,
        /// What the API server said.
        error: Error,
    },
    /// Coordinators have not been listed yet.
    #[error("LMCacheCoordinator {0} is not known yet: coordinators have not been listed")]
    NotListed(Key),
}

/// Foreign objects that a spec refers to.
#[derive(Clone, Copy, Debug, Default)]
pub struct References<'a> {
    /// Secret with the credentials of the RESP store.
    pub credentials: Option<&'a AuthSecretRef>,
    /// Name of a coordinator in the same namespace.
    pub coordinator: Option<&'a str>,
}

impl References<'_> {
    /// What must wake a resource of this namespace when it changes.
    pub fn targets(&self, namespace: &str) -> Vec<Target> {
        let secret = self.credentials.map(|reference| Target::Secret(source_of(reference, namespace)));
        let coordinator = self.coordinator.map(|name| Target::Coordinator(Key::new(namespace, name)));
        secret.into_iter().chain(coordinator).collect()
    }
}

/// What references came to.
#[derive(Default)]
pub struct Resolution {
    /// What rendering needs.
    pub resolved: Resolved,
    /// What is missing or unusable.
    pub issues: Vec<DependencyIssue>,
    /// The coordinator, if one is referred to and there.
    pub coordinator: Option<LMCacheCoordinatorSpec>,
}

/// Resolves what one resource refers to.
pub struct Resolver<'a> {
    /// The client.
    pub client: &'a Client,
    /// The caches.
    pub caches: &'a Caches,
    /// All coordinators.
    pub coordinators: &'a Cache<Guarded<LMCacheCoordinator>>,
    /// `--cross-namespace-secrets`.
    pub policy: CrossNamespaceSecrets,
    /// Namespace of the resource.
    pub namespace: &'a str,
}

/// The Secret that a spec refers to.
pub fn source_of(reference: &AuthSecretRef, namespace: &str) -> Key {
    let other = reference.namespace.as_deref().filter(|ns| !ns.is_empty());
    Key::new(other.unwrap_or(namespace), reference.name.as_str())
}

impl Resolver<'_> {
    /// What was found, and what is missing. `memo` saves reading a Secret that has not changed.
    pub async fn resolve(
        &self,
        references: References<'_>,
        memo: &mut Option<CredentialsMemo>,
    ) -> Result<Resolution, DependencyError> {
        let mut resolution = Resolution::default();
        resolution.resolved.service_monitor_api = self.caches.service_monitor_api();
        if let Some(reference) = references.credentials {
            match self.credentials(&source_of(reference, self.namespace), memo).await? {
                Ok(credentials) => resolution.resolved.credentials = Some(credentials),
                Err(issue) => resolution.issues.push(issue),
            }
        }
        if let Some(name) = references.coordinator {
            match self.coordinator(name)? {
                Ok(coordinator) => {
                    resolution.resolved.coordinator_url = Some(coordinator.url(name, self.namespace));
                    resolution.coordinator = Some(coordinator);
                }
                Err(issue) => resolution.issues.push(issue),
            }
        }
        Ok(resolution)
    }

    fn coordinator(&self, name: &str) -> Result<Result<LMCacheCoordinatorSpec, DependencyIssue>, DependencyError> {
        let trouble = match self.coordinators.get(self.namespace, name).as_deref() {
            Some(Guarded::Valid(coordinator)) => return Ok(Ok(coordinator.spec.clone())),
            Some(Guarded::Malformed(_)) => "cannot be read; correct it",
            None if !self.coordinators.is_synced() => {
                return Err(DependencyError::NotListed(Key::new(self.namespace, name)));
            }
            None => "does not exist; create it",
        };
        Ok(Err(DependencyIssue {
            kind: DependencyKind::CoordinatorNotFound,
            message: format!("LMCacheCoordinator {}/{name} {trouble}, or use spec.coordinator.url", self.namespace),
        }))
    }

    async fn credentials(
        &self,
        source: &Key,
        memo: &mut Option<CredentialsMemo>,
    ) -> Result<Result<Credentials, DependencyIssue>, DependencyError> {
        let Some(metadata) = self.caches.sources.get(&source.namespace, &source.name) else {
            return Ok(Err(not_found(source)));
        };
        if let Some(issue) = self.consent(source, &metadata) {
            return Ok(Err(issue));
        }
        let version = resource_version(&metadata.metadata);
        if let Some(memo) = memo.as_ref().filter(|memo| memo.source == *source && memo.version >= version) {
            return Ok(Ok(memo.credentials.clone()));
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &source.namespace);
        let secret = api
            .get_opt(&source.name)
            .await
            .map_err(|error| DependencyError::Secret { secret: source.clone(), error })?;
        let Some(secret) = secret else { return Ok(Err(not_found(source))) };
        let data = secret.data.unwrap_or_default();
        let Some(credentials) = Credentials::from_secret_data(&data) else {
            return Ok(Err(DependencyIssue {
                kind: DependencyKind::SecretKeyMissing,
                message: format!("Secret {source} has no key password, or it is empty; add it"),
            }));
        };
        let version = resource_version(&secret.metadata);
        *memo = Some(CredentialsMemo { source: source.clone(), version, credentials: credentials.clone() });
        Ok(Ok(credentials))
    }

    fn consent(&self, source: &Key, metadata: &Arc<PartialObjectMeta<Secret>>) -> Option<DependencyIssue> {
        if &*source.namespace == self.namespace {
            return None;
        }
        let fix = match self.policy {
            CrossNamespaceSecrets::Allow => return None,
            CrossNamespaceSecrets::Deny => {
                "this operator allows none of another namespace (--cross-namespace-secrets=deny)".to_owned()
            }
            CrossNamespaceSecrets::Consent => {
                let share = metadata.metadata.annotations.as_ref().and_then(|notes| notes.get(SHARE_ANNOTATION));
                if share.is_some_and(|share| shared_with(share, self.namespace)) {
                    return None;
                }
                format!("its owner allows it by the annotation {SHARE_ANNOTATION}={}", self.namespace)
            }
        };
        Some(DependencyIssue {
            kind: DependencyKind::SecretNotShared,
            message: format!("Secret {source} is not shared with namespace {}; {fix}", self.namespace),
        })
    }
}

fn not_found(source: &Key) -> DependencyIssue {
    DependencyIssue {
        kind: DependencyKind::SecretNotFound,
        message: format!("Secret {source} does not exist; create it with the key password"),
    }
}

/// Whether the value of [`SHARE_ANNOTATION`], a comma list of namespaces or `*`, names this one (D14 D46). Nothing is ever
/// shared with a namespace that has no name.
pub fn shared_with(share: &str, namespace: &str) -> bool {
    share.split(',').map(str::trim).any(|entry| entry == "*" || (entry == namespace && !entry.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("t", true)]
    #[case("a, t ,b", true)]
    #[case("*", true)]
    #[case("", false)]
    #[case("tt", false)]
    fn a_secret_is_shared_with_those_it_names(#[case] share: &str, #[case] expected: bool) {
        assert_eq!(shared_with(share, "t"), expected);
    }
}
