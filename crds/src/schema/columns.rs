//! The columns of `kubectl get`: one row of names for all kinds, so that lists of several kinds read alike.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceColumnDefinition;

type Row = &'static [(&'static str, &'static str, &'static str)];

/// Columns between `PHASE` and `AGE`, and those between `REASON` and `MESSAGE` with `-o wide`: name, type, path.
pub(super) struct Counts {
    between: Row,
    wide: Row,
}

/// Counts of the engine kinds.
pub(super) const INSTANCES: Counts = Counts {
    between: &[("Ready", "integer", ".status.readyInstances"), ("Desired", "integer", ".status.desiredInstances")],
    wide: &[("Updated", "integer", ".status.updatedInstances"), ("Hit-Rate", "string", ".status.cache.hitRate")],
};

/// Counts of the coordinator, and its address.
pub(super) const REPLICAS: Counts = Counts {
    between: &[
        ("Ready", "integer", ".status.readyReplicas"),
        ("Replicas", "integer", ".status.replicas"),
        ("Endpoint", "string", ".status.endpoint"),
    ],
    wide: &[("Updated", "integer", ".status.updatedReplicas")],
};

/// All columns, in their order; those after `REASON` only with `-o wide`.
pub(super) fn columns(counts: &Counts) -> Vec<CustomResourceColumnDefinition> {
    let phase = column("Phase", "string", ".status.phase");
    let row = |row: Row| row.iter().map(|(name, type_, path)| column(name, type_, path));
    let age = column("Age", "date", ".metadata.creationTimestamp");
    let reason = column("Reason", "string", ".status.reason");
    let details = row(counts.wide).chain([column("Message", "string", ".status.message")]).map(wide);
    std::iter::once(phase).chain(row(counts.between)).chain([age, reason]).chain(details).collect()
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
