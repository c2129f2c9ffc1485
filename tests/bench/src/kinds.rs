//! The kinds that are measured, and what there is of each.

use std::fmt;

use clap::ValueEnum;
use kube::api::ApiResource;
use lmcache_crds::{CacheBlendEngine, LMCacheCoordinator, LMCacheEngine};
use lmcache_operator::render::{ChildKind, Children, Options, Resolved, children, coordinator_children};
use serde_json::{Value, json};

use crate::bed::NAMESPACE;

/// A kind of resource, named as kubectl names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// `LMCacheEngine`
    #[value(name = "lmcacheengine", alias = "lmc")]
    Engine,
    /// `CacheBlendEngine`
    #[value(name = "cacheblendengine", alias = "cbe")]
    CacheBlend,
    /// `LMCacheCoordinator`
    #[value(name = "lmcachecoordinator", alias = "lmcc")]
    Coordinator,
}

/// An edit that changes one argument of the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What is merged into the resource.
    pub patch: Value,
    /// The argument, and the value that it then has.
    pub argument: [&'static str; 2],
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Kind::Engine, Kind::CacheBlend, Kind::Coordinator];

    /// Group, version, kind and plural.
    pub fn resource(self) -> ApiResource {
        match self {
            Kind::Engine => ApiResource::erase::<LMCacheEngine>(&()),
            Kind::CacheBlend => ApiResource::erase::<CacheBlendEngine>(&()),
            Kind::Coordinator => ApiResource::erase::<LMCacheCoordinator>(&()),
        }
    }

    /// The child that runs the pods, of the same name.
    pub const fn workload(self) -> ChildKind {
        match self {
            Kind::Engine | Kind::CacheBlend => ChildKind::DaemonSet,
            Kind::Coordinator => ChildKind::Deployment,
        }
    }

    /// Name of number `number`; no other kind has it.
    pub fn name(self, number: u32) -> String {
        let word = match self {
            Kind::Engine => "engine",
            Kind::CacheBlend => "blend",
            Kind::Coordinator => "coordinator",
        };
        format!("{word}-{number:05}")
    }

    /// Number `number`: nothing but what is required.
    pub fn object(self, number: u32) -> Value {
        let resource = self.resource();
        let spec = match self {
            Kind::Engine => json!({"l1": {"sizeGB": 10}}),
            Kind::CacheBlend => json!({
                "l1": {"sizeGB": 10},
                "injection": {"payloadImage": {"repository": "registry.example/cacheblend-payload"}},
            }),
            Kind::Coordinator => json!({}),
        };
        json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": self.name(number), "namespace": NAMESPACE},
            "spec": spec,
        })
    }

    /// What the operator makes of an object of this kind.
    pub fn children(self, object: Value) -> serde_json::Result<Children> {
        let (resolved, options) = (Resolved::default(), Options::default());
        Ok(match self {
            Kind::Engine => children(&serde_json::from_value::<LMCacheEngine>(object)?, &resolved, &options),
            Kind::CacheBlend => children(&serde_json::from_value::<CacheBlendEngine>(object)?, &resolved, &options),
            Kind::Coordinator => coordinator_children(&serde_json::from_value(object)?, &resolved),
        })
    }

    /// An edit that reaches the pods.
    pub fn change(self) -> Change {
        match self {
            Kind::Engine | Kind::CacheBlend => {
                Change { patch: json!({"spec": {"server": {"maxWorkers": 7}}}), argument: ["--max-workers", "7"] }
            }
            Kind::Coordinator => {
                Change { patch: json!({"spec": {"instanceTimeout": 45}}), argument: ["--instance-timeout", "45"] }
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Engine => "LMCacheEngine",
            Kind::CacheBlend => "CacheBlendEngine",
            Kind::Coordinator => "LMCacheCoordinator",
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("lmcacheengine", "lmc", Kind::Engine)]
    #[case("cacheblendengine", "cbe", Kind::CacheBlend)]
    #[case("lmcachecoordinator", "lmcc", Kind::Coordinator)]
    fn a_kind_is_told_by_both_of_its_names(#[case] name: &str, #[case] short: &str, #[case] kind: Kind) {
        for text in [name, short] {
            assert_eq!(Kind::from_str(text, false), Ok(kind), "{text}");
        }
        let resource = kind.resource();
        assert_eq!((resource.plural, resource.kind), (format!("{name}s"), kind.to_string()));
    }

    #[test]
    fn what_is_created_is_valid() {
        let engine: LMCacheEngine = serde_json::from_value(Kind::Engine.object(0)).unwrap();
        assert_eq!(lmcache_crds::validate(&Kind::Engine.name(0), &engine.spec), []);
        let engine: CacheBlendEngine = serde_json::from_value(Kind::CacheBlend.object(0)).unwrap();
        assert_eq!(lmcache_crds::validate_cache_blend(&Kind::CacheBlend.name(0), &engine.spec), []);
        let coordinator: LMCacheCoordinator = serde_json::from_value(Kind::Coordinator.object(0)).unwrap();
        assert_eq!(lmcache_crds::validate_coordinator(&Kind::Coordinator.name(0), &coordinator.spec), []);
    }

    #[rstest]
    #[case(Kind::Engine, 4)]
    #[case(Kind::CacheBlend, 4)]
    #[case(Kind::Coordinator, 2)]
    fn every_kind_has_its_workload_under_its_own_name(#[case] kind: Kind, #[case] count: usize) {
        let children = kind.children(kind.object(3)).unwrap();
        assert!(children.get(kind.workload(), &kind.name(3)).is_some(), "{children:?}");
        assert_eq!(children.wanted.len(), count, "{children:?}");
    }
}
