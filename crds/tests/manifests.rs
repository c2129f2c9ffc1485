//! The generated files are what the types say, and a plain `kubectl apply` can carry them.

mod support;

use std::fs;

#[test]
fn generated_files_are_up_to_date() {
    let mut stale = Vec::new();
    for (path, expected) in support::generated().expect("the files can be generated") {
        let found = fs::read_to_string(&path).unwrap_or_default();
        if found != expected {
            stale.push(path.display().to_string());
        }
    }
    assert!(stale.is_empty(), "stale: {stale:?}; write them anew with `{}`", support::COMMAND);
}

/// `kubectl apply` keeps the manifest in an annotation, and all annotations together may have 256 KiB.
#[test]
fn manifests_fit_into_the_annotation_of_a_client_side_apply() {
    for crd in lmcache_crds::crds() {
        let size = serde_json::to_string(&crd).expect("a CRD is JSON").len();
        assert!(size < 250_000, "{} has {size} bytes", crd.spec.names.plural);
    }
}

#[test]
fn every_field_of_ours_has_a_description() {
    let mut silent = Vec::new();
    for crd in lmcache_crds::crds() {
        let crd = serde_json::to_value(&crd).expect("a CRD is JSON");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        for part in ["spec", "status"] {
            collect_silent(part, &schema["properties"][part], &mut silent);
        }
    }
    assert!(silent.is_empty(), "no description: {silent:#?}");
}

fn collect_silent(path: &str, schema: &serde_json::Value, silent: &mut Vec<String>) {
    // Quantities and some core types have descriptions at their fields only.
    if schema["description"].as_str().is_none_or(str::is_empty) && !path.ends_with("[]") {
        silent.push(path.to_owned());
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        collect_silent(&format!("{path}.{name}"), field, silent);
    }
    if schema["items"].get("properties").is_some() {
        collect_silent(&format!("{path}[]"), &schema["items"], silent);
    }
}
