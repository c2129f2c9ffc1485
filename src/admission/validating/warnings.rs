//! What is legal but surely not meant. One line each, as the API server passes them on to kubectl.

use lmcache_crds::{
    CacheBlendEngine, EngineSpec, GpuVendor, InjectionSpec, LMCacheCoordinator, LMCacheEngine, WorkloadSpec,
};

use super::flags::{COORDINATOR, ENGINE, contradictions};
use crate::render::{SHARED_MEMORY_PATH, arranges_shared_memory};

/// A kind that has something to warn of, beside its advisories.
pub(super) trait Warned {
    /// In the order of importance.
    fn warnings(&self) -> Vec<String>;
}

impl Warned for LMCacheEngine {
    fn warnings(&self) -> Vec<String> {
        let common = &self.spec.common;
        let mut warnings = Vec::new();
        let isolated = self.spec.isolated_ipc();
        if common.host_ipc == Some(true) && isolated {
            let why = if self.spec.isolated_ipc.is_none() { ", as is the default with gpuVendor nvidia" } else { "" };
            warnings.push(format!("spec.hostIPC: has no effect while isolatedIPC is true{why}"));
        }
        if self.spec.isolated_ipc == Some(true) && common.gpu_vendor == Some(GpuVendor::Amd) {
            warnings.push(
                "spec.isolatedIPC: is made for gpuVendor nvidia and does not work on amd; leave it unset".to_owned(),
            );
        }
        warnings.extend(engine(common, isolated));
        warnings.extend(payload(self.spec.injection.as_ref()));
        warnings
    }
}

impl Warned for CacheBlendEngine {
    fn warnings(&self) -> Vec<String> {
        let common = &self.spec.common;
        let mut warnings = engine(common, false);
        warnings.extend(payload(self.spec.injection.as_ref().map(|injection| &injection.common)));
        warnings
    }
}

impl Warned for LMCacheCoordinator {
    fn warnings(&self) -> Vec<String> {
        workload(&self.spec.workload, self.spec.prometheus_enabled(), COORDINATOR)
    }
}

fn engine(common: &EngineSpec, isolated: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = &common.workload;
    if common.gpu_vendor == Some(GpuVendor::Amd) && spec.node_selector.is_none() && spec.affinity.is_none() {
        let text = "spec.nodeSelector: has no default with gpuVendor amd, so that every node gets an instance, with a GPU or \
                    without; select the nodes that have one";
        warnings.push(text.to_owned());
    }
    if !isolated && common.host_ipc != Some(true) && hides_shared_memory(spec) {
        let text = "spec.volumeMounts: what is at /dev/shm is not the /dev/shm of the node, through which engine and vLLM \
                    exchange data; mount that one, or leave it to the operator";
        warnings.push(text.to_owned());
    }
    warnings.extend(workload(spec, common.prometheus_enabled(), ENGINE));
    warnings
}

/// Whether what the user has in the place of the operator's shared memory is something else than the node's (D79).
fn hides_shared_memory(spec: &WorkloadSpec) -> bool {
    let is_of_node = |name: &str| {
        let mut named = spec.volumes.iter().flatten().filter(|volume| volume.name == name);
        named.any(|volume| {
            volume.host_path.as_ref().is_some_and(|it| it.path.trim_end_matches('/') == SHARED_MEMORY_PATH)
        })
    };
    let mut mounts = spec.volume_mounts.iter().flatten().filter(|mount| mount.mount_path == SHARED_MEMORY_PATH);
    arranges_shared_memory(spec) && !mounts.next().is_some_and(|mount| is_of_node(&mount.name))
}

fn workload(spec: &WorkloadSpec, metrics: bool, fields: &[(&str, &str)]) -> Vec<String> {
    let mut warnings = contradictions(spec.extra_args.as_deref().unwrap_or_default(), fields);
    if spec.service_monitor_enabled() && !metrics {
        let text = "spec.prometheus.serviceMonitor: finds nothing while spec.prometheus.enabled is false";
        warnings.push(text.to_owned());
    }
    let reference = spec.image_reference();
    let pinned = spec.image.as_ref().is_some_and(|image| is_pinned(image.tag.as_deref(), image.digest.as_deref()));
    warnings.extend((!pinned).then(|| unpinned("spec.image", &reference)));
    warnings
}

fn payload(injection: Option<&InjectionSpec>) -> Option<String> {
    let image = injection?.payload_image()?;
    let pinned = is_pinned(image.tag.as_deref(), image.digest.as_deref());
    (!pinned).then(|| unpinned("spec.injection.payloadImage", &image.reference().unwrap_or_default()))
}

fn unpinned(path: &str, reference: &str) -> String {
    format!("{path}: {reference} may differ from node to node and from day to day; set {path}.tag or {path}.digest")
}

/// Whether an image is the same wherever and whenever it is pulled, as far as its reference can say.
fn is_pinned(tag: Option<&str>, digest: Option<&str>) -> bool {
    let given = |text: Option<&str>| text.is_some_and(|text| !text.is_empty());
    given(digest) || (given(tag) && tag != Some(lmcache_crds::DEFAULT_TAG))
}
