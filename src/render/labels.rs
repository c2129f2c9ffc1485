//! Labels and metadata of children.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::context::Identity;

/// Label that names the application.
pub const NAME: &str = "app.kubernetes.io/name";
/// Label that names the engine.
pub const INSTANCE: &str = "app.kubernetes.io/instance";
/// Label that names this operator.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Label that names the part of the application.
pub const COMPONENT: &str = "app.kubernetes.io/component";
/// Value of [`MANAGED_BY`] on everything that this operator makes.
pub const OPERATOR: &str = "lmcache-operator";

/// What a child is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// Cache servers, of either engine kind.
    Engine,
    /// A coordinator.
    Coordinator,
}

impl Application {
    /// Labels that select the pods of the resource of this name.
    pub fn selector_labels(self, name: &str) -> BTreeMap<String, String> {
        let application = match self {
            Application::Engine => "lmcache",
            Application::Coordinator => "lmcache-coordinator",
        };
        [(NAME, application), (INSTANCE, name), (MANAGED_BY, OPERATOR)]
            .map(|(key, value)| (key.into(), value.into()))
            .into()
    }

    /// Labels of every child of the resource of this name.
    pub fn standard_labels(self, name: &str) -> BTreeMap<String, String> {
        let component = match self {
            Application::Engine => "cache-engine",
            Application::Coordinator => "coordinator",
        };
        let mut labels = self.selector_labels(name);
        labels.insert(COMPONENT.into(), component.into());
        labels
    }
}

/// Labels of the pods: the user's go over the standard ones, the selector's over the user's.
pub(super) fn pod_labels(of: &Identity<'_>, user: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut labels = of.standard_labels();
    labels.extend(user.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    labels.extend(of.selector_labels());
    labels
}

/// Metadata of a child: name, the owner's namespace, standard labels and the resource as its owner.
pub(super) fn object_meta(of: &Identity<'_>, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(of.namespace.to_owned()),
        labels: Some(of.standard_labels()),
        owner_references: Some(vec![of.owner.clone()]),
        ..ObjectMeta::default()
    }
}

/// Selects the pods of the resource.
pub(super) fn selector(of: &Identity<'_>) -> LabelSelector {
    LabelSelector { match_labels: Some(of.selector_labels()), ..LabelSelector::default() }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{engine, spec};
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn selector_has_three_labels_and_the_standard_set_one_more() {
        for (application, name, component) in [
            (Application::Engine, "lmcache", "cache-engine"),
            (Application::Coordinator, "lmcache-coordinator", "coordinator"),
        ] {
            let selector = map(&[(NAME, name), (INSTANCE, "c1"), (MANAGED_BY, "lmcache-operator")]);
            assert_eq!(application.selector_labels("c1"), selector);
            let mut standard = selector;
            standard.insert(COMPONENT.into(), component.into());
            assert_eq!(application.standard_labels("c1"), standard);
        }
    }

    #[test]
    fn users_may_override_the_component_of_a_pod_but_not_what_selects_it() {
        let user = map(&[("team", "a"), (NAME, "x"), (INSTANCE, "x"), (MANAGED_BY, "x"), (COMPONENT, "mine")]);
        let mut expected = Application::Engine.selector_labels("c1");
        expected.extend(map(&[("team", "a"), (COMPONENT, "mine")]));
        let engine = engine(&spec(serde_json::json!({})));
        assert_eq!(pod_labels(&Identity::of(&engine, Application::Engine), Some(&user)), expected);
    }
}
