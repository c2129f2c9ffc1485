//! Which engine a pod wants.

use std::fmt;

use serde_json::Value;

use super::{Injector, pod};

/// Longest name of a Kubernetes object.
const MAX_NAME: usize = 253;

/// What a pod says about its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptIn {
    /// The pod is injected already; nothing is to be done.
    AlreadyInjected,
    /// No engine is named.
    NotOptedIn,
    /// The annotation has this value, which cannot be a reference to an engine.
    Malformed(String),
    /// This engine is wanted. Both parts are names that the API server could have given.
    Engine(EngineRef),
}

/// An engine by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EngineRef {
    /// Namespace of the engine.
    pub namespace: String,
    /// Name of the engine.
    pub name: String,
}

impl fmt::Display for EngineRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Reads from a pod which engine it wants: `<name>` or `<namespace>/<name>` (D70).
///
/// `namespace` is that of the admission request; without one the pod's own counts. Never fails: what is no pod names no
/// engine.
pub fn opt_in(pod: &Value, injector: Injector, namespace: Option<&str>) -> OptIn {
    let names = injector.names();
    if pod::annotation(pod, names.injected) == Some("true") {
        return OptIn::AlreadyInjected;
    }
    let Some(text) = pod::given_annotation(pod, names.engine) else { return OptIn::NotOptedIn };
    let (before, name) = text.split_once('/').unwrap_or(("", text));
    let namespace = if before.is_empty() { pod_namespace(pod, namespace) } else { before };
    if !is_name(namespace) || !is_name(name) {
        return OptIn::Malformed(text.to_owned());
    }
    OptIn::Engine(EngineRef { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// The namespace that a pod is created in: the request's, else its own, else an empty text.
pub(super) fn pod_namespace<'a>(pod: &'a Value, request: Option<&'a str>) -> &'a str {
    let own = || pod.get("metadata")?.get("namespace")?.as_str();
    request.filter(|namespace| !namespace.is_empty()).or_else(own).unwrap_or_default()
}

/// Whether an object can be called so. What is let through becomes part of a URL.
fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let outer = |byte: Option<u8>| byte.is_some_and(inner);
    text.len() <= MAX_NAME
        && outer(text.bytes().next())
        && outer(text.bytes().last())
        && text.bytes().all(|byte| inner(byte) || byte == b'-' || byte == b'.')
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn pod(annotation: &str) -> Value {
        json!({"metadata": {"namespace": "own", "annotations": {"lmcache.ai/lmcache-engine": annotation}}})
    }

    fn wanted(namespace: &str, name: &str) -> OptIn {
        OptIn::Engine(EngineRef { namespace: namespace.into(), name: name.into() })
    }

    #[rstest]
    #[case("c1", Some("ai"), wanted("ai", "c1"))]
    #[case(" c1\n", Some("ai"), wanted("ai", "c1"))]
    #[case("c1", None, wanted("own", "c1"))]
    #[case("c1", Some(""), wanted("own", "c1"))]
    #[case("other/c1", Some("ai"), wanted("other", "c1"))]
    #[case("/c1", Some("ai"), wanted("ai", "c1"))]
    #[case("a.b-c", Some("ai"), wanted("ai", "a.b-c"))]
    #[case("", Some("ai"), OptIn::NotOptedIn)]
    #[case(" \t", Some("ai"), OptIn::NotOptedIn)]
    #[case("other/", Some("ai"), OptIn::Malformed("other/".into()))]
    #[case("a/b/c", Some("ai"), OptIn::Malformed("a/b/c".into()))]
    #[case("../x", Some("ai"), OptIn::Malformed("../x".into()))]
    #[case("C1", Some("ai"), OptIn::Malformed("C1".into()))]
    #[case("a?b", Some("ai"), OptIn::Malformed("a?b".into()))]
    fn the_annotation_names_an_engine(#[case] text: &str, #[case] namespace: Option<&str>, #[case] expected: OptIn) {
        assert_eq!(opt_in(&pod(text), Injector::LmCache, namespace), expected);
    }

    #[test]
    fn each_injector_reads_its_own_annotations() {
        let mut pod = pod("c1");
        assert_eq!(opt_in(&pod, Injector::CacheBlend, Some("ai")), OptIn::NotOptedIn);
        pod["metadata"]["annotations"]["lmcache.ai/cacheblend-injected"] = json!("true");
        assert_eq!(opt_in(&pod, Injector::CacheBlend, Some("ai")), OptIn::AlreadyInjected);
        assert_eq!(opt_in(&pod, Injector::LmCache, Some("ai")), wanted("ai", "c1"));
    }

    #[rstest]
    #[case("true", OptIn::AlreadyInjected)]
    #[case(" true", wanted("ai", "c1"))]
    #[case("false", wanted("ai", "c1"))]
    fn only_exactly_true_says_injected(#[case] text: &str, #[case] expected: OptIn) {
        let mut pod = pod("c1");
        pod["metadata"]["annotations"]["lmcache.ai/lmcache-injected"] = json!(text);
        assert_eq!(opt_in(&pod, Injector::LmCache, Some("ai")), expected);
    }

    #[rstest]
    #[case(json!(null))]
    #[case(json!([1]))]
    #[case(json!({"metadata": 1}))]
    #[case(json!({"metadata": {"annotations": ["x"]}}))]
    #[case(json!({"metadata": {"annotations": {"lmcache.ai/lmcache-engine": 1}}}))]
    #[case(json!({"metadata": {"annotations": {"lmcache.ai/lmcache-engine": "c1"}}}))]
    fn what_is_no_pod_names_no_engine(#[case] pod: Value) {
        let found = opt_in(&pod, Injector::LmCache, None);
        assert!(matches!(found, OptIn::NotOptedIn | OptIn::Malformed(_)), "{found:?}");
    }
}
