//! Series that belong to one engine. Kept as one small record per engine and spread into series only on a scrape, so that
//! thousands of engines cost little memory and an engine that is deleted is one removal.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use lmcache_crds::{Phase, Report};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: &'static str,
    namespace: Box<str>,
    name: Box<str>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    desired: i32,
    ready: i32,
    updated: i32,
    conditions: Box<[(Arc<str>, i8)]>,
    /// Hit and requested tokens.
    tokens: Option<(i64, i64)>,
}

#[derive(Debug, Default)]
struct Inner {
    engines: BTreeMap<Key, State>,
    // The few condition types, shared by all engines.
    types: Vec<Arc<str>>,
}

/// `engine_phase`, `engine_instances` and `engine_condition`.
#[derive(Debug, Default)]
pub(crate) struct EngineSeries(RwLock<Inner>);

impl EngineSeries {
    pub(crate) fn set(&self, kind: &'static str, namespace: &str, name: &str, status: &Report) {
        let mut inner = self.write();
        let conditions = status
            .record
            .conditions
            .iter()
            .map(|condition| (inner.condition_type(&condition.type_), condition_value(&condition.status)))
            .collect();
        let state = State {
            phase: status.record.phase,
            desired: status.desired,
            ready: status.ready,
            updated: status.updated,
            conditions,
            tokens: status.cache.as_ref().map(|cache| (cache.hit_tokens, cache.requested_tokens)),
        };
        inner.engines.insert(Key { kind, namespace: namespace.into(), name: name.into() }, state);
    }

    pub(crate) fn forget(&self, kind: &'static str, namespace: &str, name: &str) {
        self.write().engines.remove(&Key { kind, namespace: namespace.into(), name: name.into() });
    }

    // A panic elsewhere leaves whole records behind, never half of one, so a poisoned lock is still good.
    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn condition_type(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.types.iter().find(|known| known.as_ref() == name) {
            return Arc::clone(known);
        }
        let new: Arc<str> = Arc::from(name);
        self.types.push(Arc::clone(&new));
        new
    }
}

fn condition_value(status: &str) -> i8 {
    match status {
        "True" => 1,
        "False" => 0,
        _ => -1,
    }
}

impl Key {
    fn identity(&self) -> [(&'static str, &str); 3] {
        [("kind", self.kind), ("namespace", &self.namespace), ("name", &self.name)]
    }

    fn labels<'a>(&'a self, name: &'static str, value: &'a str) -> [(&'static str, &'a str); 4] {
        [("kind", self.kind), ("namespace", &self.namespace), ("name", &self.name), (name, value)]
    }
}

impl Collector for EngineSeries {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let inner = self.read();
        if inner.engines.is_empty() {
            return Ok(());
        }
        encode_phases(&inner, &mut encoder)?;
        encode_instances(&inner, &mut encoder)?;
        encode_conditions(&inner, &mut encoder)?;
        encode_tokens(&inner, &mut encoder)
    }
}

fn encode_phases(inner: &Inner, encoder: &mut DescriptorEncoder) -> Result<(), std::fmt::Error> {
    let help = "1 for the phase that the engine is in, 0 for the others.";
    let mut family = encoder.encode_descriptor("engine_phase", help, None, MetricType::Gauge)?;
    for (key, state) in &inner.engines {
        for phase in Phase::ALL {
            let value = ConstGauge::new(i64::from(phase == state.phase));
            value.encode(family.encode_family(&key.labels("phase", phase.as_str()))?)?;
        }
    }
    Ok(())
}

fn encode_instances(inner: &Inner, encoder: &mut DescriptorEncoder) -> Result<(), std::fmt::Error> {
    let help = "Instances that should run, that are ready, and that are of the current revision.";
    let mut family = encoder.encode_descriptor("engine_instances", help, None, MetricType::Gauge)?;
    for (key, engine) in &inner.engines {
        for (state, count) in [("desired", engine.desired), ("ready", engine.ready), ("updated", engine.updated)] {
            ConstGauge::new(i64::from(count)).encode(family.encode_family(&key.labels("state", state))?)?;
        }
    }
    Ok(())
}

fn encode_conditions(inner: &Inner, encoder: &mut DescriptorEncoder) -> Result<(), std::fmt::Error> {
    let help = "Condition of the engine: 1 True, 0 False, -1 Unknown.";
    let mut family = encoder.encode_descriptor("engine_condition", help, None, MetricType::Gauge)?;
    for (key, state) in &inner.engines {
        for (condition, value) in &state.conditions {
            ConstGauge::new(i64::from(*value)).encode(family.encode_family(&key.labels("type", condition))?)?;
        }
    }
    Ok(())
}

fn encode_tokens(inner: &Inner, encoder: &mut DescriptorEncoder) -> Result<(), std::fmt::Error> {
    let found = "Tokens that lookups found in the cache, summed over the engine's instances.";
    let asked = "Tokens that lookups asked the cache for, summed over the engine's instances.";
    let families = [("cache_hit_tokens", found, true), ("cache_requested_tokens", asked, false)];
    for (name, help, hits) in families {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (key, state) in &inner.engines {
            let Some((hit, requested)) = state.tokens else { continue };
            let value = u64::try_from(if hits { hit } else { requested }).unwrap_or_default();
            ConstCounter::new(value).encode(family.encode_family(&key.identity())?)?;
        }
    }
    Ok(())
}
