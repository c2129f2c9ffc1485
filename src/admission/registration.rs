//! How the API server is told of the webhooks: the two configurations, and what is repaired in them.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference, ValidatingWebhook,
    ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use lmcache_crds::{CacheBlendEngine, LMCacheCoordinator, LMCacheEngine};
use serde_json::{Value, json};

use super::injection::Injector;
use crate::observe::GROUP;

/// Path of the webhook that connects pods to a `CacheBlendEngine`.
pub const CACHE_BLEND_PATH: &str = "/mutate--v1-pod";
/// Path of the webhook that connects pods to an `LMCacheEngine`.
pub const LM_CACHE_PATH: &str = "/mutate-lmcache--v1-pod";
/// Path of the webhook that validates our three kinds.
pub const VALIDATING_PATH: &str = "/validate";

/// Namespaces of the cluster's own, whose pods are never changed.
const SYSTEM_NAMESPACES: [&str; 2] = ["kube-system", "kube-public"];
/// Where `deploy/base` installs the operator.
const OPERATOR_NAMESPACE: &str = "lmcache-operator-system";

/// How everything around the webhooks is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// What every name begins with, `lmcache-operator` unless installed otherwise.
    pub prefix: String,
    /// The operator's namespace.
    pub namespace: String,
}

impl Names {
    /// The Service in front of the webhook server.
    pub fn service(&self) -> String {
        format!("{}-webhook-service", self.prefix)
    }

    /// The Secret with authority and serving certificate.
    pub fn secret(&self) -> String {
        format!("{}-webhook-ca", self.prefix)
    }

    /// The configuration of the injectors.
    pub fn mutating(&self) -> String {
        format!("{}-mutating-webhook-configuration", self.prefix)
    }

    /// The configuration of the validating webhook.
    pub fn validating(&self) -> String {
        format!("{}-validating-webhook-configuration", self.prefix)
    }

    /// Names that the API server calls the Service by.
    pub fn dns_names(&self, cluster_domain: &str) -> Vec<String> {
        let name = format!("{}.{}.svc", self.service(), self.namespace);
        vec![format!("{name}.{cluster_domain}"), name].into_iter().rev().collect()
    }
}

/// Where the API server reaches the webhook server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Through a Service; somebody else registers the webhooks, the operator adds its authority.
    Service {
        /// Namespace of the Service.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// At a URL without a path; the operator registers its webhooks itself.
    Url(String),
}

impl Address {
    /// Whether a webhook of this configuration is one of this operator's.
    pub fn is_called_by(&self, client: &WebhookClientConfig) -> bool {
        match self {
            Address::Service { namespace, name } => {
                client.service.as_ref().is_some_and(|it| it.namespace == *namespace && it.name == *name)
            }
            Address::Url(base) => {
                let path = client.url.as_ref().and_then(|url| url.strip_prefix(base.as_str()));
                path.is_some_and(|path| path.starts_with('/'))
            }
        }
    }

    fn client(&self, path: &str, bundle: Option<&[u8]>) -> WebhookClientConfig {
        let ca_bundle = bundle.map(|bundle| ByteString(bundle.to_vec()));
        match self {
            Address::Service { namespace, name } => {
                let (namespace, name, path) = (namespace.clone(), name.clone(), Some(path.to_owned()));
                let service = Some(ServiceReference { namespace, name, path, port: None });
                WebhookClientConfig { ca_bundle, service, url: None }
            }
            Address::Url(base) => WebhookClientConfig { ca_bundle, service: None, url: Some(format!("{base}{path}")) },
        }
    }
}

/// The configuration of the injectors, as `deploy/base` has it.
pub fn mutating(name: String, address: &Address, bundle: Option<&[u8]>) -> MutatingWebhookConfiguration {
    let webhook = |name: &str, path: &str, injector: Injector| MutatingWebhook {
        name: name.to_owned(),
        client_config: address.client(path, bundle),
        rules: Some(vec![rule("", "v1", &["pods"], &["CREATE"], None)]),
        failure_policy: Some("Ignore".to_owned()),
        reinvocation_policy: Some("Never".to_owned()),
        side_effects: "None".to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        namespace_selector: Some(not_in_system_namespaces(address)),
        object_selector: Some(LabelSelector {
            match_labels: Some([(injector.names().label.to_owned(), "true".to_owned())].into()),
            match_expressions: None,
        }),
        ..MutatingWebhook::default()
    };
    MutatingWebhookConfiguration {
        metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
        webhooks: Some(vec![
            webhook("mcacheblendpod.lmcache.ai", CACHE_BLEND_PATH, Injector::CacheBlend),
            webhook("mlmcachepod.lmcache.ai", LM_CACHE_PATH, Injector::LmCache),
        ]),
    }
}

/// The configuration of the validating webhook, as `deploy/base` has it. It covers every namespace: an engine is not
/// what the operator needs to start.
pub fn validating(name: String, address: &Address, bundle: Option<&[u8]>) -> ValidatingWebhookConfiguration {
    let kinds = [plural::<CacheBlendEngine>(), plural::<LMCacheCoordinator>(), plural::<LMCacheEngine>()];
    let kinds: Vec<&str> = kinds.iter().map(AsRef::as_ref).collect();
    let version = <LMCacheEngine as kube::Resource>::version(&());
    let webhook = ValidatingWebhook {
        name: "vlmcache.lmcache.ai".to_owned(),
        client_config: address.client(VALIDATING_PATH, bundle),
        rules: Some(vec![rule(GROUP, &version, &kinds, &["CREATE", "UPDATE"], Some("Namespaced"))]),
        failure_policy: Some("Ignore".to_owned()),
        side_effects: "None".to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        ..ValidatingWebhook::default()
    };
    ValidatingWebhookConfiguration {
        metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
        webhooks: Some(vec![webhook]),
    }
}

fn plural<K: kube::Resource<DynamicType = ()>>() -> std::borrow::Cow<'static, str> {
    K::plural(&())
}

fn rule(
    group: &str,
    version: &str,
    resources: &[&str],
    operations: &[&str],
    scope: Option<&str>,
) -> RuleWithOperations {
    let list = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
    RuleWithOperations {
        api_groups: list(&[group]),
        api_versions: list(&[version]),
        operations: list(operations),
        resources: list(resources),
        scope: scope.map(str::to_owned),
    }
}

/// The operator's own pods never wait for the operator.
fn not_in_system_namespaces(address: &Address) -> LabelSelector {
    let own = match address {
        Address::Service { namespace, .. } => namespace,
        Address::Url(_) => OPERATOR_NAMESPACE,
    };
    let values = SYSTEM_NAMESPACES.into_iter().chain([own]).map(str::to_owned).collect();
    LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "kubernetes.io/metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(values),
        }]),
    }
}

/// What both kinds of configuration have in common.
pub trait Configuration: kube::Resource<DynamicType = ()> {
    /// How each of its webhooks is called, in their order.
    fn clients(&self) -> Vec<&WebhookClientConfig>;
}

impl Configuration for MutatingWebhookConfiguration {
    fn clients(&self) -> Vec<&WebhookClientConfig> {
        self.webhooks.iter().flatten().map(|webhook| &webhook.client_config).collect()
    }
}

impl Configuration for ValidatingWebhookConfiguration {
    fn clients(&self) -> Vec<&WebhookClientConfig> {
        self.webhooks.iter().flatten().map(|webhook| &webhook.client_config).collect()
    }
}

/// The JSON Patch that makes a configuration trust `bundle`; `None` when it does. Webhooks of somebody else are left
/// alone, and so is a configuration that has changed in the meantime.
pub fn trust<C: Configuration>(configuration: &C, address: &Address, bundle: &[u8]) -> Option<Value> {
    let outdated = |client: &WebhookClientConfig| {
        address.is_called_by(client) && client.ca_bundle.as_ref().is_none_or(|found| found.0 != bundle)
    };
    let clients = configuration.clients();
    let value = json!(ByteString(bundle.to_vec()));
    let mut operations: Vec<Value> = clients
        .iter()
        .enumerate()
        .filter(|(_, client)| outdated(client))
        .map(|(index, _)| json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": value}))
        .collect();
    if operations.is_empty() {
        return None;
    }
    let version = configuration.meta().resource_version.as_deref();
    operations.insert(0, json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
    Some(Value::Array(operations))
}

#[cfg(test)]
mod tests;
