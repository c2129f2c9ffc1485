//! The floor: the same children without any operator.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::DaemonSet;
use lmcache_operator::render::{Options, Resolved, children};
use lmcache_testbed::{Cluster, ComponentMemory};

use crate::audit::Requests;
use crate::bed::{self, engine};
use crate::fleet::Fleet;
use crate::load::{Object, create_all};
use crate::progress::{Progress, say};

/// What was measured.
#[derive(Clone, Debug)]
pub struct FloorRun {
    /// From the first request to the last `DaemonSet` with a ready pod.
    pub all_ready: Duration,
    /// What the plain clients sent.
    pub requests: Requests,
    /// Memory of the cluster's components at the end.
    pub components: Vec<ComponentMemory>,
}

/// Creates what the operator would create, with plain clients, and waits until all of it runs.
pub async fn measure(engines: u32) -> Result<FloorRun> {
    let objects = objects(engines);
    let mut requests = Requests::default();
    for object in &objects {
        requests.add("create", &object.resource.plural, false);
    }
    say("starting a second cluster, for the floor");
    let cluster = bed::cluster("bench-floor").await?;
    let mut fleet = Fleet::watch(&cluster).await?;
    say(&format!("creating {} children with eight clients", objects.len()));
    let all_ready = converge(&cluster, &mut fleet, engines, objects).await?;
    say(&format!("all ready after {:.1} s", all_ready.as_secs_f64()));
    let components = cluster.memory();
    cluster.stop().await;
    Ok(FloorRun { all_ready, requests, components })
}

async fn converge(
    cluster: &Cluster,
    fleet: &mut Fleet<DaemonSet>,
    engines: u32,
    objects: Vec<Object>,
) -> Result<Duration> {
    let count = usize::try_from(engines)?;
    let limit = Duration::from_mins(2) + Duration::from_secs(1) * engines;
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
        bail!("not all DaemonSets are ready after {} s", limit.as_secs())
    };
    result.context("the floor cannot be measured")?;
    Ok(started.elapsed())
}

/// The children of all engines, in the order in which the operator applies them.
fn objects(engines: u32) -> Vec<Object> {
    let mut objects = Vec::new();
    for number in 0..engines {
        for child in children(&engine(number), &Resolved::default(), &Options::default()).wanted {
            let mut body = child.object;
            // Their owners do not exist here: the garbage collector would take them.
            if let Some(metadata) = body["metadata"].as_object_mut() {
                metadata.remove("ownerReferences");
            }
            objects.push(Object { resource: child.kind.api_resource(), body });
        }
    }
    objects
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_has_the_four_children_of_every_engine_and_no_owner() {
        let objects = objects(3);
        assert_eq!(objects.len(), 12);
        for object in objects {
            let metadata = &object.body["metadata"];
            assert!(metadata["name"].as_str().unwrap().starts_with("engine-0000"), "{metadata}");
            assert!(metadata["namespace"] == "bench" && metadata.get("ownerReferences").is_none(), "{metadata}");
        }
    }
}
