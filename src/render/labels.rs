//! Labels and metadata of children.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::context::Context;

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

/// Labels that select the pods of an engine.
pub fn selector_labels(name: &str) -> BTreeMap<String, String> {
    [(NAME, "lmcache"), (INSTANCE, name), (MANAGED_BY, OPERATOR)].map(|(key, value)| (key.into(), value.into())).into()
}

/// Labels of every child of an engine.
pub fn standard_labels(name: &str) -> BTreeMap<String, String> {
    let mut labels = selector_labels(name);
    labels.insert(COMPONENT.into(), "cache-engine".into());
    labels
}

/// Labels of the pods: the user's go over the standard ones, the selector's over the user's.
pub(super) fn pod_labels(name: &str, user: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let mut labels = standard_labels(name);
    labels.extend(user.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    labels.extend(selector_labels(name));
    labels
}

/// Metadata of a child: name, the engine's namespace, standard labels and the engine as its owner.
pub(super) fn object_meta(context: &Context<'_>, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(context.namespace.to_owned()),
        labels: Some(standard_labels(context.name)),
        owner_references: Some(vec![context.owner.clone()]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn selector_has_three_labels_and_the_standard_set_one_more() {
        let selector = map(&[(NAME, "lmcache"), (INSTANCE, "c1"), (MANAGED_BY, "lmcache-operator")]);
        assert_eq!(selector_labels("c1"), selector);
        let mut standard = selector;
        standard.insert(COMPONENT.into(), "cache-engine".into());
        assert_eq!(standard_labels("c1"), standard);
    }

    #[test]
    fn users_may_override_the_component_of_a_pod_but_not_what_selects_it() {
        let user = map(&[("team", "a"), (NAME, "x"), (INSTANCE, "x"), (MANAGED_BY, "x"), (COMPONENT, "mine")]);
        let mut expected = selector_labels("c1");
        expected.extend(map(&[("team", "a"), (COMPONENT, "mine")]));
        assert_eq!(pod_labels("c1", Some(&user)), expected);
    }
}
