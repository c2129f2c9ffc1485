//! Pods of vLLM that were connected to an engine, and whether they still have the connection that the engine publishes (D80).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use lmcache_states::{Advisory, AdvisoryKind};
use serde::Deserialize as _;

use super::views::trim_metadata;
use super::watches::Caches;
use crate::admission::injection::{CONFIG_HASH, Injector, SkipReason, config_hash};
use crate::key::Key;
use crate::render::connection_name;

/// How many pods are named.
const NAMED: usize = 3;

/// Metadata of a pod that wants to be connected.
pub type InjectedPod = PartialObjectMeta<Pod>;

/// Whether the pods of an engine have a connection that it publishes; `None` while it has no such pods.
pub fn injected(caches: &Caches, injector: Injector, engine: &Key) -> Option<Advisory> {
    let pods = caches.injected(injector).of(engine);
    let pods: Vec<&InjectedPod> = pods.iter().map(AsRef::as_ref).filter(|pod| is_connected(pod, injector)).collect();
    if pods.is_empty() {
        return None;
    }
    let live = caches.config_maps.get(&engine.namespace, &connection_name(&engine.name))?;
    let documents = Option::<BTreeMap<String, String>>::deserialize(&live.parse().ok()?.object["data"]).ok()??;
    let hashes: Vec<String> = documents.values().map(|document| config_hash(document)).collect();
    Some(Advisory { kind: AdvisoryKind::InjectionCurrent, concern: concern(&pods, &hashes) })
}

fn concern(pods: &[&InjectedPod], hashes: &[String]) -> Option<String> {
    let is_outdated =
        |pod: &&&InjectedPod| annotation(pod, CONFIG_HASH).is_some_and(|it| !hashes.iter().any(|h| h == it));
    let mut outdated: Vec<String> =
        pods.iter().filter(is_outdated).map(|pod| Key::of(&pod.metadata).to_string()).collect();
    outdated.sort_unstable();
    let count = outdated.len();
    if count == 0 {
        return None;
    }
    outdated.truncate(NAMED);
    let more = count.checked_sub(NAMED).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    let named = outdated.join(", ");
    Some(format!("{count} of {} injected pods have an older connection: {named}{more}; restart them", pods.len()))
}

/// A pod that is on its way out does not matter, nor does one with a connector of its own: the hash may be another's.
fn is_connected(pod: &InjectedPod, injector: Injector) -> bool {
    let names = injector.names();
    let own = annotation(pod, names.skip_reason) == Some(SkipReason::KvTransferConfigPresent.as_str());
    pod.metadata.deletion_timestamp.is_none() && annotation(pod, names.injected) == Some("true") && !own
}

/// The engine that a pod names.
pub fn engine_of(pod: &InjectedPod, injector: Injector) -> Option<Key> {
    let text = annotation(pod, injector.names().engine)?.trim();
    let own = pod.metadata.namespace.as_deref()?;
    let (namespace, name) = text.split_once('/').filter(|(namespace, _)| !namespace.is_empty()).unwrap_or((own, text));
    Some(Key::new(namespace, name.trim_start_matches('/')))
}

/// Keeps what is read here.
pub fn trim(pod: &mut InjectedPod) {
    let kept = |key: &String| {
        key == CONFIG_HASH
            || Injector::ALL
                .iter()
                .map(|injector| injector.names())
                .any(|names| [names.engine, names.injected, names.skip_reason].contains(&key.as_str()))
    };
    let mut annotations = pod.metadata.annotations.take();
    if let Some(annotations) = &mut annotations {
        annotations.retain(|key, _| kept(key));
    }
    trim_metadata(&mut pod.metadata);
    (pod.metadata.annotations, pod.metadata.labels, pod.metadata.owner_references) = (annotations, None, None);
}

fn annotation<'p>(pod: &'p InjectedPod, key: &str) -> Option<&'p str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Pods by their engine, for the index of a cache.
pub fn by_engine(injector: Injector) -> fn(&InjectedPod) -> Option<Key> {
    match injector {
        Injector::CacheBlend => |pod| engine_of(pod, Injector::CacheBlend),
        Injector::LmCache => |pod| engine_of(pod, Injector::LmCache),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, annotations: &Value) -> Arc<InjectedPod> {
        let pod = json!({"metadata": {"name": name, "namespace": "ai", "annotations": annotations}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn injected_with(name: &str, document: &str) -> Arc<InjectedPod> {
        pod(name, &json!({"lmcache.ai/lmcache-injected": "true", CONFIG_HASH: config_hash(document)}))
    }

    #[test]
    fn pods_with_an_older_document_are_named() {
        let pods: Vec<_> = ["a", "b", "c", "d", "e"].map(|name| injected_with(name, "old")).into();
        let new = injected_with("f", "new");
        let all: Vec<&InjectedPod> = pods.iter().chain([&new]).map(AsRef::as_ref).collect();
        let hashes = [config_hash("new"), config_hash("for decoders")];
        assert_eq!(
            concern(&all, &hashes).as_deref(),
            Some("5 of 6 injected pods have an older connection: ai/a, ai/b, ai/c and 2 more; restart them")
        );
        assert_eq!(concern(&[&*new], &hashes), None);
    }

    #[rstest]
    #[case::injected(json!({"lmcache.ai/lmcache-injected": "true"}), true)]
    #[case::not_yet(json!({}), false)]
    #[case::by_the_other_injector(json!({"lmcache.ai/cacheblend-injected": "true"}), false)]
    #[case::with_a_connector_of_its_own(
        json!({"lmcache.ai/lmcache-injected": "true", "lmcache.ai/lmcache-skip-reason": "kv-transfer-config-present"}), false
    )]
    fn only_what_was_connected_here_counts(#[case] annotations: Value, #[case] expected: bool) {
        assert_eq!(is_connected(&pod("a", &annotations), Injector::LmCache), expected);
    }

    #[rstest]
    #[case(json!({"lmcache.ai/lmcache-engine": " x "}), Some(Key::new("ai", "x")))]
    #[case(json!({"lmcache.ai/lmcache-engine": "other/x"}), Some(Key::new("other", "x")))]
    #[case(json!({"lmcache.ai/lmcache-engine": "/x"}), Some(Key::new("ai", "x")))]
    #[case(json!({"lmcache.ai/cacheblend-engine": "x"}), None)]
    fn a_pod_belongs_to_the_engine_that_it_names(#[case] annotations: Value, #[case] expected: Option<Key>) {
        assert_eq!(by_engine(Injector::LmCache)(&pod("a", &annotations)), expected);
    }

    #[test]
    fn what_is_not_read_is_not_kept() {
        let mut pod = Arc::unwrap_or_clone(injected_with("a", "x"));
        pod.metadata.annotations.get_or_insert_default().insert("other".into(), "y".into());
        pod.metadata.labels = Some(BTreeMap::new());
        trim(&mut pod);
        let kept: Vec<_> = pod.metadata.annotations.iter().flatten().map(|(key, _)| key.as_str()).collect();
        assert_eq!(kept, [CONFIG_HASH, "lmcache.ai/lmcache-injected"]);
        assert_eq!(pod.metadata.labels, None);
    }
}
