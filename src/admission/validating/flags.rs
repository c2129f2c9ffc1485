//! Flags of the servers that have a field of their own (D48).

/// Flags of `lmcache server` and the field of an engine that each belongs to.
pub(super) const ENGINE: &[(&str, &str)] = &[
    ("--port", "spec.server.port"),
    ("--http-port", "spec.server.httpPort"),
    ("--l1-size-gb", "spec.l1.sizeGB"),
    ("--chunk-size", "spec.server.chunkSize"),
    ("--max-workers", "spec.server.maxWorkers"),
    ("--hash-algorithm", "spec.server.hashAlgorithm"),
    ("--isolated-ipc", "spec.isolatedIPC"),
    ("--eviction-policy", "spec.eviction.policy"),
    ("--eviction-trigger-watermark", "spec.eviction.triggerWatermark"),
    ("--eviction-ratio", "spec.eviction.evictionRatio"),
    ("--prometheus-port", "spec.prometheus.port"),
    ("--disable-metrics", "spec.prometheus.enabled"),
    ("--l2-adapter", "spec.l2Backend"),
    ("--l2-store-policy", "spec.l2Backend.storePolicy"),
    ("--l2-prefetch-policy", "spec.l2Backend.prefetchPolicy"),
    ("--l2-prefetch-max-in-flight", "spec.l2Backend.prefetchMaxInFlight"),
    ("--coordinator-url", "spec.coordinator"),
    ("--coordinator-advertise-ip", "spec.coordinator.advertiseIP"),
    ("--coordinator-heartbeat-interval", "spec.coordinator.heartbeatInterval"),
    ("--coordinator-event-reporting", "spec.coordinator.l2EventReporting"),
    ("--coordinator-event-flush-interval", "spec.coordinator.l2EventFlushInterval"),
];

/// Flags of `lmcache coordinator` and the field of an `LMCacheCoordinator` that each belongs to.
pub(super) const COORDINATOR: &[(&str, &str)] = &[
    ("--host", "spec.host"),
    ("--port", "spec.port"),
    ("--instance-timeout", "spec.instanceTimeout"),
    ("--health-check-interval", "spec.healthCheckInterval"),
    ("--eviction-check-interval", "spec.evictionCheckInterval"),
    ("--eviction-ratio", "spec.evictionRatio"),
    ("--trigger-watermark", "spec.triggerWatermark"),
    ("--chunk-size", "spec.blendChunkSize"),
    ("--blend-probe-stride", "spec.blendProbeStride"),
    ("--hash-algorithm", "spec.hashAlgorithm"),
    ("--enable-blend-lookup", "spec.enableBlendLookup"),
];

/// One warning for each argument that has a field.
pub(super) fn contradictions(args: &[String], fields: &[(&str, &str)]) -> Vec<String> {
    let field = |arg: &str| {
        let name = arg.split_once('=').map_or(arg, |(name, _)| name);
        fields.iter().find(|(flag, _)| *flag == name)
    };
    let found = args.iter().enumerate().filter_map(|(index, arg)| Some((index, field(arg)?)));
    found
        .map(|(index, (flag, field))| {
            format!("spec.extraArgs[{index}]: {flag} overrides {field}, and everything else still follows the field; set the field")
        })
        .collect()
}
