//! Whose object is it? Decided before anything is written (D01 D02 D03 D05).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::observe::{ADOPT_ANNOTATION, controller_of};

/// The resource that a child should belong to.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace; children live in it too.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID: a resource deleted and made again under its old name is another one.
    pub uid: String,
}

/// Whose a live object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Controlled by this very resource.
    Ours,
    /// Controlled by nobody, and it carries our selector labels or its user hands it over: it may be taken.
    Adoptable,
    /// Controlled by an earlier resource of this kind and name; the garbage collector is about to remove it.
    Orphan,
    /// Somebody else's; says whose.
    Foreign(String),
}

/// Decides whose an object is; `selector` are the labels by which the operator would have marked its own.
pub fn ownership<'a>(
    live: &ObjectMeta,
    owner: &Owner,
    selector: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Ownership {
    if let Some(controller) = controller_of(live) {
        return controlled(controller, owner);
    }
    let handed_over = live.annotations.as_ref().and_then(|a| a.get(ADOPT_ANNOTATION)).is_some_and(|v| v == "true");
    let labels = live.labels.as_ref();
    let marked = selector.into_iter().all(|(key, value)| labels.and_then(|l| l.get(key)).is_some_and(|v| v == value));
    if handed_over || marked {
        return Ownership::Adoptable;
    }
    Ownership::Foreign(format!("nobody controls it and it was not made for this {}", owner.kind))
}

fn controlled(controller: &OwnerReference, owner: &Owner) -> Ownership {
    if controller.uid == owner.uid {
        return Ownership::Ours;
    }
    if controller.kind == owner.kind && controller.name == owner.name {
        return Ownership::Orphan;
    }
    Ownership::Foreign(format!("it is controlled by {} {}", controller.kind, controller.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn reference(kind: &str, name: &str, uid: &str) -> Value {
        json!([{"apiVersion": "lmcache.lmcache.ai/v1alpha1", "kind": kind, "name": name, "uid": uid, "controller": true}])
    }

    #[rstest]
    #[case::ours(json!({"ownerReferences": reference("LMCacheEngine", "x", "1")}), Ownership::Ours)]
    #[case::older(json!({"ownerReferences": reference("LMCacheEngine", "x", "0")}), Ownership::Orphan)]
    #[case::other_kind(json!({"ownerReferences": reference("CacheBlendEngine", "x", "2"), "labels": {"a": "b"}}),
        Ownership::Foreign("it is controlled by CacheBlendEngine x".into()))]
    #[case::labelled(json!({"labels": {"a": "b", "c": "d"}}), Ownership::Adoptable)]
    #[case::handed_over(json!({"annotations": {"lmcache.ai/adopt": "true"}}), Ownership::Adoptable)]
    #[case::handed_over_but_controlled(
        json!({"annotations": {"lmcache.ai/adopt": "true"}, "ownerReferences": reference("Deployment", "y", "3")}),
        Ownership::Foreign("it is controlled by Deployment y".into()))]
    #[case::not_handed_over(json!({"annotations": {"lmcache.ai/adopt": "false"}}),
        Ownership::Foreign("nobody controls it and it was not made for this LMCacheEngine".into()))]
    #[case::bare(json!({}), Ownership::Foreign("nobody controls it and it was not made for this LMCacheEngine".into()))]
    fn only_what_is_ours_or_given_to_us_is_touched(#[case] metadata: Value, #[case] expected: Ownership) {
        let owner = Owner { kind: "LMCacheEngine", namespace: "ns".into(), name: "x".into(), uid: "1".into() };
        let live: ObjectMeta = serde_json::from_value(metadata).expect("metadata");
        assert_eq!(ownership(&live, &owner, [("a", "b")]), expected);
    }
}
