//! Definitions under which objects can be stored that ours would refuse, as if an older release had stored them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// The definition of a kind of ours.
pub fn definition(kind: &str) -> CustomResourceDefinition {
    let crd = lmcache_crds::crds().into_iter().find(|crd| crd.spec.names.kind == kind);
    crd.unwrap_or_else(|| panic!("there is no kind {kind}"))
}

/// The same types and defaults without any bound, format, enum, required field or rule.
pub fn without_rules(crd: &CustomResourceDefinition) -> CustomResourceDefinition {
    with_schema(crd, |schema| loosen(schema, false))
}

/// A spec that may hold anything at all.
pub fn with_any_spec(crd: &CustomResourceDefinition) -> CustomResourceDefinition {
    with_schema(crd, |schema| {
        schema.x_kubernetes_validations = None;
        let anything = JSONSchemaProps {
            type_: Some("object".to_owned()),
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        };
        schema.properties.get_or_insert_default().insert("spec".to_owned(), anything);
    })
}

/// The same definition in another group, so that it can be changed without disturbing anybody.
pub fn in_group(crd: &CustomResourceDefinition, group: &str) -> CustomResourceDefinition {
    let mut crd = crd.clone();
    crd.metadata.name = Some(format!("{}.{group}", crd.spec.names.plural));
    group.clone_into(&mut crd.spec.group);
    crd.spec.names.short_names = None;
    crd.spec.names.categories = None;
    crd
}

fn with_schema(crd: &CustomResourceDefinition, change: impl Fn(&mut JSONSchemaProps)) -> CustomResourceDefinition {
    let mut crd = crd.clone();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|it| it.open_api_v3_schema.as_mut()) {
            change(schema);
        }
    }
    crd
}

/// Items of lists keep their required fields: they may be the keys of the list.
fn loosen(schema: &mut JSONSchemaProps, is_item: bool) {
    if !is_item {
        schema.required = None;
    }
    schema.enum_ = None;
    schema.minimum = None;
    schema.maximum = None;
    schema.exclusive_minimum = None;
    schema.exclusive_maximum = None;
    schema.min_length = None;
    schema.max_length = None;
    schema.pattern = None;
    schema.x_kubernetes_validations = None;
    for property in schema.properties.iter_mut().flatten() {
        loosen(property.1, false);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => loosen(item, true),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(|item| loosen(item, true)),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        loosen(value, false);
    }
}
