//! A custom resource that may not be decodable: one malformed object must not stall the watch of all others.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::object::HasStatus;
use lmcache_crds::Report;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A resource, or what is left of one that cannot be decoded.
#[derive(Clone, Debug)]
pub enum Guarded<K> {
    /// The resource.
    Valid(K),
    /// It cannot be decoded.
    Malformed(Box<Malformed>),
}

/// What can still be read of a resource that cannot be decoded.
#[derive(Clone, Debug)]
pub struct Malformed {
    metadata: ObjectMeta,
    /// What is wrong with it, each `path: detail`; never empty.
    pub errors: Vec<String>,
    /// Its status, if that part can be read.
    pub status: Option<Report>,
}

/// A status that can be read and written as a [`Report`].
pub trait PublishedStatus: From<Report> + Serialize + DeserializeOwned {
    /// What it says.
    fn report(&self) -> Report;
}

impl<S: From<Report> + Serialize + DeserializeOwned> PublishedStatus for S
where
    Report: for<'s> From<&'s S>,
{
    fn report(&self) -> Report {
        Report::from(self)
    }
}

impl<'de, K: DeserializeOwned + HasStatus<Status: PublishedStatus>> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        K::deserialize(&object).map(Guarded::Valid).or_else(|error| {
            Ok(Guarded::Malformed(Box::new(Malformed {
                metadata: ObjectMeta::deserialize(&object["metadata"]).map_err(D::Error::custom)?,
                errors: explain(&object, &error),
                status: K::Status::deserialize(&object["status"]).ok().map(|status| status.report()),
            })))
        })
    }
}

/// The decoder says what is wrong but not where; the schema knows both.
fn explain(object: &Value, error: &serde_json::Error) -> Vec<String> {
    let errors = lmcache_crds::malformed(object["kind"].as_str().unwrap_or_default(), &object["spec"]);
    if errors.is_empty() {
        return vec![format!("spec: Invalid value: {error}")];
    }
    errors.iter().map(ToString::to_string).collect()
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }
    fn group(dt: &K::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }
    fn version(dt: &K::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }
    fn plural(dt: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }
    fn meta(&self) -> &ObjectMeta {
        match self {
            Guarded::Valid(object) => object.meta(),
            Guarded::Malformed(object) => &object.metadata,
        }
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Guarded::Valid(object) => object.meta_mut(),
            Guarded::Malformed(object) => &mut object.metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmcache_crds::LMCacheEngine;
    use serde_json::json;

    fn decode(spec: &Value) -> Guarded<LMCacheEngine> {
        serde_json::from_value(
            json!({"kind": "LMCacheEngine", "metadata": {"name": "x", "generation": 3}, "spec": spec, "status": {"phase": "Ready"}}),
        )
        .expect("metadata can be read")
    }

    #[test]
    fn a_malformed_spec_leaves_name_generation_and_status() {
        let Guarded::Malformed(object) = decode(&json!({"l1": {"sizeGB": "much"}})) else { panic!("it is malformed") };
        assert_eq!((object.metadata.name.as_deref(), object.metadata.generation), (Some("x"), Some(3)));
        assert_eq!(object.status.map(|status| status.record.phase), Some(lmcache_crds::Phase::Ready));
        assert_eq!(object.errors, [r#"spec.l1.sizeGB: Invalid value: "much": must be of type number"#]);
    }

    #[test]
    fn a_good_one_is_decoded_whole() {
        assert!(
            matches!(decode(&json!({"l1": {"sizeGB": 1}})), Guarded::Valid(engine) if engine.spec.common.l1.size_gb > 0.0)
        );
    }
}
