//! The columns of `kubectl get`: one row of names for all kinds, so that lists of several kinds read alike.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;

/// Columns between `PHASE` and `AGE`: name, type, path; and the path of `UPDATED`.
pub(super) struct Counts {
    between: &'static [(&'static str, &'static str, &'static str)],
    updated: &'static str,
}

/// Counts of the engine kinds.
pub(super) const INSTANCES: Counts = Counts {
    between: &[("Ready", "integer", ".status.readyInstances"), ("Desired", "integer", ".status.desiredInstances")],
    updated: ".status.updatedInstances",
};

/// Counts of the coordinator, and its address.
pub(super) const REPLICAS: Counts = Counts {
    between: &[
        ("Ready", "integer", ".status.readyReplicas"),
        ("Replicas", "integer", ".status.replicas"),
        ("Endpoint", "string", ".status.endpoint"),
    ],
    updated: ".status.updatedReplicas",
};

/// All columns, in their order; `UPDATED` and `MESSAGE` only with `-o wide`.
pub(super) fn columns(counts: &Counts) -> Vec<CustomResourceColumnDefinition> {
    let phase = column("Phase", "string", ".status.phase");
    let between = counts.between.iter().map(|(name, type_, path)| column(name, type_, path));
    let age = column("Age", "date", ".metadata.creationTimestamp");
    let reason = column("Reason", "string", ".status.reason");
    let updated = wide(column("Updated", "integer", counts.updated));
    let message = wide(column("Message", "string", ".status.message"));
    std::iter::once(phase).chain(between).chain([age, reason, updated, message]).collect()
}

fn column(name: &str, type_: &str, path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: path.to_owned(),
        ..CustomResourceColumnDefinition::default()
    }
}

fn wide(column: CustomResourceColumnDefinition) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition { priority: Some(1), ..column }
}
