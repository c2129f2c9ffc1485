//! What the API machinery knows about core types beyond their `OpenAPI` document: how lists and maps merge, which leaves
//! have defaults, what a quantity looks like.
//!
//! `k8s-openapi` has none of it. Without it server-side apply would treat every list in a spec as one value, and the
//! defaults of nested references would be missing. The table follows the `+listType`, `+mapType` and `+default` markers
//! of Kubernetes' own types; a test compares the result with the recorded schema of the existing operator.

use serde_json::{Map, Value, json};

const CORE: &str = "io.k8s.api.core.v1.";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Lists that are replaced as a whole.
const ATOMIC_LISTS: &[(&str, &[&str])] = &[
    ("NodeAffinity", &["preferredDuringSchedulingIgnoredDuringExecution"]),
    ("NodeSelector", &["nodeSelectorTerms"]),
    ("NodeSelectorTerm", &["matchExpressions", "matchFields"]),
    ("NodeSelectorRequirement", &["values"]),
    (
        "PodAffinity",
        &["preferredDuringSchedulingIgnoredDuringExecution", "requiredDuringSchedulingIgnoredDuringExecution"],
    ),
    (
        "PodAntiAffinity",
        &["preferredDuringSchedulingIgnoredDuringExecution", "requiredDuringSchedulingIgnoredDuringExecution"],
    ),
    ("PodAffinityTerm", &["matchLabelKeys", "mismatchLabelKeys", "namespaces"]),
    ("PodSecurityContext", &["supplementalGroups", "sysctls"]),
    ("Container", &["args", "command", "envFrom", "resizePolicy", "restartPolicyRules"]),
    ("ExecAction", &["command"]),
    ("HTTPGetAction", &["httpHeaders"]),
    ("Capabilities", &["add", "drop"]),
    ("CephFSVolumeSource", &["monitors"]),
    ("ConfigMapVolumeSource", &["items"]),
    ("SecretVolumeSource", &["items"]),
    ("DownwardAPIVolumeSource", &["items"]),
    ("PersistentVolumeClaimSpec", &["accessModes"]),
    ("FCVolumeSource", &["targetWWNs", "wwids"]),
    ("ISCSIVolumeSource", &["portals"]),
    ("ProjectedVolumeSource", &["sources"]),
    ("ConfigMapProjection", &["items"]),
    ("DownwardAPIProjection", &["items"]),
    ("SecretProjection", &["items"]),
    ("RBDVolumeSource", &["monitors"]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", &["matchExpressions"]),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement", &["values"]),
    ("io.k8s.api.networking.v1.IPBlock", &["except"]),
];

/// Lists that merge by the keys of their items.
const KEYED_LISTS: &[(&str, &str, &[&str])] = &[
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("ResourceRequirements", "claims", &["name"]),
];

/// Objects that are replaced as a whole.
const ATOMIC_OBJECTS: &[&str] = &[
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "FileKeySelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ResourceFieldSelector",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
    "TypedLocalObjectReference",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
];

/// Texts that are filled in where they are left out.
const TEXT_DEFAULTS: &[(&str, &str, &str)] = &[
    ("AzureDiskVolumeSource", "fsType", "ext4"),
    ("ConfigMapEnvSource", "name", ""),
    ("ConfigMapKeySelector", "name", ""),
    ("ConfigMapProjection", "name", ""),
    ("ConfigMapVolumeSource", "name", ""),
    ("ContainerPort", "protocol", "TCP"),
    ("GRPCAction", "service", ""),
    ("ISCSIVolumeSource", "iscsiInterface", "default"),
    ("LocalObjectReference", "name", ""),
    ("RBDVolumeSource", "keyring", "/etc/ceph/keyring"),
    ("RBDVolumeSource", "pool", "rbd"),
    ("RBDVolumeSource", "user", "admin"),
    ("ScaleIOVolumeSource", "fsType", "xfs"),
    ("ScaleIOVolumeSource", "storageMode", "ThinProvisioned"),
    ("SecretEnvSource", "name", ""),
    ("SecretKeySelector", "name", ""),
    ("SecretProjection", "name", ""),
];

/// Switches that are off where they are left out.
const FALSE_DEFAULTS: &[(&str, &str)] = &[("AzureDiskVolumeSource", "readOnly"), ("FileKeySelector", "optional")];

/// What a quantity may look like, from the API machinery.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Completes the definitions of core types, keyed by their full name, and shortens their descriptions.
pub(super) fn complete(definitions: &mut Map<String, Value>) {
    for (name, definition) in definitions.iter_mut().filter(|(name, _)| name.starts_with("io.k8s.")) {
        shorten_descriptions(definition);
        if name == "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" {
            keep_labels_and_annotations(definition);
        }
    }
    for (owner, fields) in ATOMIC_LISTS {
        for field in *fields {
            set(definitions, owner, field, &json!({"x-kubernetes-list-type": "atomic"}));
        }
    }
    for (owner, field, keys) in KEYED_LISTS {
        let merge = json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys});
        set(definitions, owner, field, &merge);
    }
    set(definitions, "ContainerRestartRuleOnExitCodes", "values", &json!({"x-kubernetes-list-type": "set"}));
    for owner in ATOMIC_OBJECTS {
        if let Some(definition) = definitions.get_mut(&full_name(owner)) {
            definition["x-kubernetes-map-type"] = json!("atomic");
        }
    }
    for (owner, field, text) in TEXT_DEFAULTS {
        set_default(definitions, owner, field, &json!(text));
    }
    for (owner, field) in FALSE_DEFAULTS {
        set_default(definitions, owner, field, &json!(false));
    }
    complete_scalars(definitions);
    complete_condition(definitions);
}

fn complete_scalars(definitions: &mut Map<String, Value>) {
    let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
    if let Some(definition) = definitions.get_mut("io.k8s.apimachinery.pkg.util.intstr.IntOrString") {
        definition["anyOf"] = int_or_string.clone();
    }
    if let Some(definition) = definitions.get_mut("io.k8s.apimachinery.pkg.api.resource.Quantity") {
        definition["anyOf"] = int_or_string;
        definition["pattern"] = json!(QUANTITY);
    }
}

fn complete_condition(definitions: &mut Map<String, Value>) {
    let condition = format!("{META}Condition");
    let type_pattern = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
    let reason_pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";
    for (field, limits) in [
        ("message", json!({"maxLength": 32768})),
        ("observedGeneration", json!({"minimum": 0})),
        ("reason", json!({"minLength": 1, "maxLength": 1024, "pattern": reason_pattern})),
        ("status", json!({"enum": ["True", "False", "Unknown"]})),
        ("type", json!({"maxLength": 316, "pattern": type_pattern})),
    ] {
        set(definitions, &condition, field, &limits);
    }
}

/// The only metadata that a volume claim template may carry.
fn keep_labels_and_annotations(definition: &mut Value) {
    if let Some(properties) = definition.get_mut("properties").and_then(Value::as_object_mut) {
        properties.retain(|name, _| name == "labels" || name == "annotations");
    }
}

fn full_name(owner: &str) -> String {
    if owner.starts_with("io.k8s.") { owner.to_owned() } else { format!("{CORE}{owner}") }
}

fn set(definitions: &mut Map<String, Value>, owner: &str, field: &str, extra: &Value) {
    let property =
        definitions.get_mut(&full_name(owner)).and_then(|owner| owner.pointer_mut(&format!("/properties/{field}")));
    if let (Some(Value::Object(property)), Value::Object(extra)) = (property, extra) {
        property.extend(extra.clone());
    }
}

/// Sets a default; a field that has one is not required.
fn set_default(definitions: &mut Map<String, Value>, owner: &str, field: &str, default: &Value) {
    set(definitions, owner, field, &json!({"default": default}));
    let required = definitions.get_mut(&full_name(owner)).and_then(|owner| owner.get_mut("required"));
    if let Some(Value::Array(required)) = required {
        required.retain(|name| name != field);
    }
}

/// Keeps the first sentence of every description below this schema: the API reference of Kubernetes has the rest, and a
/// manifest of more than 256 KiB could not be applied by a plain `kubectl apply`.
fn shorten_descriptions(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = first_sentence(text);
            }
            object.values_mut().for_each(shorten_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(shorten_descriptions),
        _ => {}
    }
}

fn first_sentence(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let end = line.match_indices(". ").map(|(at, _)| at + 1).find(|end| !abbreviates(&line[..*end]));
    line[..end.unwrap_or(line.len())].trim_end().to_owned()
}

fn abbreviates(text: &str) -> bool {
    ["e.g.", "i.e.", "etc.", "vs."].iter().any(|short| text.ends_with(short))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("One. Two.", "One.")]
    #[case("Only one", "Only one")]
    #[case("Some, e.g. this one. More.", "Some, e.g. this one.")]
    #[case("First line\n\nsecond. line", "First line")]
    fn keeps_the_first_sentence(#[case] text: &str, #[case] first: &str) {
        assert_eq!(first_sentence(text), first);
    }

    #[test]
    fn every_row_of_the_tables_names_a_field_that_exists() {
        let definitions = crate::schema::definitions();
        let exists = |owner: &str, field: &str| {
            let owner = definitions.get(&full_name(owner));
            owner.is_some_and(|owner| owner.pointer(&format!("/properties/{field}")).is_some())
        };
        let lists = ATOMIC_LISTS.iter().flat_map(|(owner, fields)| fields.iter().map(move |field| (*owner, *field)));
        let rows = lists
            .chain(KEYED_LISTS.iter().map(|(owner, field, _)| (*owner, *field)))
            .chain(TEXT_DEFAULTS.iter().map(|(owner, field, _)| (*owner, *field)))
            .chain(FALSE_DEFAULTS.iter().copied());
        let missing: Vec<_> = rows.filter(|(owner, field)| !exists(owner, field)).collect();
        assert!(missing.is_empty(), "no such field: {missing:?}");
        let objects: Vec<_> =
            ATOMIC_OBJECTS.iter().filter(|owner| !definitions.contains_key(&full_name(owner))).collect();
        assert!(objects.is_empty(), "no such type: {objects:?}");
    }
}
