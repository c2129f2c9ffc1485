//! What is legal but surely not meant. One line each, as the API server passes them on to kubectl.

use lmcache_crds::{CacheBlendEngine, GpuVendor, InjectionSpec, LMCacheCoordinator, LMCacheEngine, WorkloadSpec};

use super::flags::{COORDINATOR, ENGINE, contradictions};

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
        warnings.extend(workload(&common.workload, common.prometheus_enabled(), ENGINE));
        warnings.extend(payload(self.spec.injection.as_ref()));
        warnings
    }
}

impl Warned for CacheBlendEngine {
    fn warnings(&self) -> Vec<String> {
        let common = &self.spec.common;
        let mut warnings = workload(&common.workload, common.prometheus_enabled(), ENGINE);
        warnings.extend(payload(self.spec.injection.as_ref().map(|injection| &injection.common)));
        warnings
    }
}

impl Warned for LMCacheCoordinator {
    fn warnings(&self) -> Vec<String> {
        workload(&self.spec.workload, self.spec.prometheus_enabled(), COORDINATOR)
    }
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
