//! The floor: the same children without any operator.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::api::ApiResource;
use lmcache_operator::render::ChildKind;
use lmcache_testbed::{Cluster, ComponentMemory};

use crate::audit::Requests;
use crate::bed;
use crate::fleet::{Fleet, is_workload_ready};
use crate::load::{Object, create_all};
use crate::mix::Mix;
use crate::progress::{Progress, say};

/// What was measured.
#[derive(Clone, Debug)]
pub struct FloorRun {
    /// From the first request to the last workload with a ready pod.
    pub all_ready: Duration,
    /// What the plain clients sent.
    pub requests: Requests,
    /// Memory of the cluster's components at the end.
    pub components: Vec<ComponentMemory>,
}

/// Creates what the operator would create, with plain clients, and waits until all of it runs.
pub async fn measure(mix: &Mix) -> Result<FloorRun> {
    let objects = objects(mix)?;
    let mut requests = Requests::default();
    for object in &objects {
        requests.add("create", &object.resource.plural, false);
    }
    say("starting a second cluster, for the floor");
    let cluster = bed::cluster("bench-floor").await?;
    let mut fleet = Fleet::watch(&cluster, &workloads(mix), is_workload_ready).await?;
    say(&format!("creating {} children with eight clients", objects.len()));
    let all_ready = converge(&cluster, &mut fleet, mix.count(), objects).await?;
    say(&format!("all ready after {:.1} s", all_ready.as_secs_f64()));
    let components = cluster.memory();
    cluster.stop().await;
    Ok(FloorRun { all_ready, requests, components })
}

async fn converge(cluster: &Cluster, fleet: &mut Fleet, resources: u32, objects: Vec<Object>) -> Result<Duration> {
    let count = usize::try_from(resources)?;
    let limit = bed::patience(resources);
    let mut progress = Progress::new("ready", count);
    let started = Instant::now();
    let watching = async {
        while fleet.len() < count || fleet.ready() < count {
            fleet.changed().await?;
            progress.at(fleet.ready());
        }
        Ok(())
    };
    let both = async { tokio::try_join!(create_all(cluster, objects), watching) };
    let Ok(result) = tokio::time::timeout(limit, both).await else {
        bail!("not every workload is ready after {} s", limit.as_secs())
    };
    result.context("the floor cannot be measured")?;
    Ok(started.elapsed())
}

/// The kinds of the children that run pods.
fn workloads(mix: &Mix) -> Vec<ApiResource> {
    let mut kinds: Vec<ChildKind> = mix.kinds().iter().map(|kind| kind.workload()).collect();
    kinds.sort();
    kinds.dedup();
    kinds.into_iter().map(ChildKind::api_resource).collect()
}

/// The children of all resources, in the order in which the operator applies them.
fn objects(mix: &Mix) -> Result<Vec<Object>> {
    let mut objects = Vec::new();
    for (kind, number) in mix.members() {
        for child in kind.children(kind.object(number))?.wanted {
            let mut body = child.object;
            // Their owners do not exist here: the garbage collector would take them.
            if let Some(metadata) = body["metadata"].as_object_mut() {
                metadata.remove("ownerReferences");
            }
            objects.push(Object { resource: child.kind.api_resource(), body });
        }
    }
    Ok(objects)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::*;
    use crate::kinds::Kind;

    #[test]
    fn the_floor_has_the_children_of_every_resource_and_no_owner() {
        let objects = objects(&Mix::new(&Kind::ALL, 6)).unwrap();
        let mut counts = BTreeMap::new();
        for object in objects {
            *counts.entry(object.resource.plural).or_insert(0) += 1;
            let metadata = &object.body["metadata"];
            assert!(metadata["name"].as_str().unwrap().contains("-0000"), "{metadata}");
            assert!(metadata["namespace"] == "bench" && metadata.get("ownerReferences").is_none(), "{metadata}");
        }
        let expected = [("configmaps", 4), ("daemonsets", 4), ("deployments", 2), ("services", 10)];
        assert_eq!(counts, expected.map(|(plural, count)| (plural.to_owned(), count)).into());
    }

    #[rstest]
    #[case(&Kind::ALL, &["daemonsets", "deployments"])]
    #[case(&[Kind::CacheBlend], &["daemonsets"])]
    #[case(&[Kind::Coordinator], &["deployments"])]
    fn every_kind_of_workload_is_watched_once(#[case] kinds: &[Kind], #[case] expected: &[&str]) {
        let plurals: Vec<_> = workloads(&Mix::new(kinds, 9)).into_iter().map(|it| it.plural).collect();
        assert_eq!(plurals, expected);
    }
}
