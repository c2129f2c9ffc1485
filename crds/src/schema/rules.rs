//! Rules that the API server checks itself, in CEL, with the words of the validation.
//!
//! A rule that looks at several fields lets an object pass that was stored with the same fault
//! (`optionalOldSelf`): such an object stays changeable in its other fields, and a faulty pair of ports in no other way
//! than to a good one. For the others the API server's own
//! ratcheting is enough, since they look at the part that is at fault and nothing else.

use serde_json::{Value, json};

use crate::{
    DEFAULT_CHUNK_SIZE, DEFAULT_REPOSITORY,
    validation::{CHUNK_SIZE_DETAIL, KEY_PATH, KEY_VOLUME, MAX_NAME_LENGTH, NAME_DETAIL, NEEDED_DETAIL},
};

/// One rule, at one place of the schema.
#[derive(Clone)]
pub(super) struct Rule {
    /// Fields from the root down to the object that the rule looks at.
    at: &'static [&'static str],
    /// The expression; true for what is allowed.
    cel: String,
    message: String,
    /// Field below `at` that the message is about.
    field: Option<&'static str>,
    /// Whether a stored object may keep the fault.
    forgives_stored: bool,
}

impl Rule {
    fn new(at: &'static [&'static str], cel: impl Into<String>, message: impl Into<String>) -> Self {
        Rule { at, cel: cel.into(), message: message.into(), field: None, forgives_stored: false }
    }

    fn about(mut self, field: &'static str) -> Self {
        self.field = Some(field);
        self
    }

    /// Forgives a fault that the stored object has, as long as none of these expressions changes its value.
    fn forgiving_stored(mut self, unchanged: &[&str]) -> Self {
        let of_stored = |cel: &str| cel.replace("self", "oldSelf.value()");
        let mut forgiven = format!("oldSelf.hasValue() && !({})", of_stored(&self.cel));
        for value in unchanged {
            forgiven.push_str(" && (");
            forgiven.push_str(value);
            forgiven.push_str(") == (");
            forgiven.push_str(&of_stored(value));
            forgiven.push(')');
        }
        self.cel = format!("({}) || ({forgiven})", self.cel);
        self.forgives_stored = true;
        self
    }

    fn to_value(&self) -> Value {
        let mut value = json!({"rule": self.cel, "message": self.message});
        if let Some(field) = self.field {
            value["fieldPath"] = json!(field);
        }
        if self.forgives_stored {
            value["optionalOldSelf"] = json!(true);
        }
        value
    }
}

/// Puts these rules into the schema of a kind.
pub(super) fn add(schema: &mut Value, rules: Vec<Rule>) {
    for rule in rules {
        let pointer = rule.at.iter().fold(String::new(), |pointer, field| format!("{pointer}/properties/{field}"));
        let Some(place) = schema.pointer_mut(&pointer) else { continue };
        match place.get_mut("x-kubernetes-validations") {
            Some(Value::Array(rules)) => rules.push(rule.to_value()),
            _ => place["x-kubernetes-validations"] = json!([rule.to_value()]),
        }
    }
}

/// The rules of every engine kind.
pub(super) fn engine() -> Vec<Rule> {
    let mut rules = vec![name()];
    rules.extend(ports());
    rules.extend(second_level());
    rules.extend(key_volume());
    rules.extend(coordinator());
    rules
}

/// The rules that only a `CacheBlendEngine` has.
pub(super) fn cache_blend() -> Vec<Rule> {
    let chunk_size = format!("self.chunkSize == {DEFAULT_CHUNK_SIZE}");
    let payload = "has(self.injection) && has(self.injection.payloadImage) && \
                   has(self.injection.payloadImage.repository) ? self.injection.payloadImage.repository : ''";
    let given = format!("has(self.pd) || !(({payload}) in ['', '{DEFAULT_REPOSITORY}'])");
    vec![
        Rule::new(&["spec", "server"], chunk_size, CHUNK_SIZE_DETAIL)
            .about(".chunkSize")
            .forgiving_stored(&["self.chunkSize"]),
        Rule::new(&["spec"], given, format!("spec.injection.payloadImage {NEEDED_DETAIL}, unless spec.pd is set"))
            .forgiving_stored(&[payload]),
    ]
}

/// What every name must fulfil.
pub(super) fn name() -> Rule {
    let cel = format!(
        "oldSelf.hasValue() || (size(self.metadata.name) <= {MAX_NAME_LENGTH} && \
         self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))"
    );
    Rule { forgives_stored: true, ..Rule::new(&[], cel, NAME_DETAIL).about(".metadata.name") }
}

fn ports() -> [Rule; 2] {
    let off = "has(self.prometheus) && has(self.prometheus.enabled) && !self.prometheus.enabled";
    let metrics = "has(self.prometheus) && has(self.prometheus.port) ? self.prometheus.port : 9090";
    let server = "has(self.server) && has(self.server.port) ? self.server.port : 5555";
    [
        Rule::new(&["spec", "server"], "self.port != self.httpPort", "must differ from spec.server.port")
            .about(".httpPort")
            .forgiving_stored(&["self.port", "self.httpPort"]),
        Rule::new(
            &["spec"],
            format!("({off}) || ({metrics}) != ({server})"),
            "spec.prometheus.port must differ from spec.server.port while metrics are enabled",
        )
        .forgiving_stored(&[metrics, server]),
    ]
}

fn second_level() -> [Rule; 7] {
    let backend = &["spec", "l2Backend"];
    let serde = &["spec", "l2Backend", "serde"];
    let aesgcm = &["spec", "l2Backend", "serde", "aesgcm"];
    let resp = &["spec", "l2Backend", "resp"];
    let auth = &["spec", "l2Backend", "resp", "authSecretRef"];
    let raw = &["spec", "l2Backend", "raw"];
    let key_name = "has(self.masterKeySecretRef.name) && size(self.masterKeySecretRef.name) > 0";
    [
        Rule::new(backend, "has(self.resp) || has(self.raw)", "exactly one of resp or raw must be set"),
        Rule::new(
            backend,
            "!(has(self.resp) && has(self.raw))",
            "exactly one of resp or raw must be set, got multiple",
        ),
        Rule::new(resp, "size(self.host) > 0", "must be a non-empty string").about(".host"),
        Rule::new(auth, "size(self.name) > 0", "must be non-empty").about(".name"),
        Rule::new(raw, "size(self.type) > 0", "must be a non-empty string").about(".type"),
        Rule::new(serde, "has(self.aesgcm)", "exactly one serde type must be set"),
        Rule::new(aesgcm, key_name, "must be non-empty").about(".masterKeySecretRef.name"),
    ]
}

fn key_volume() -> [Rule; 2] {
    let no_key = "!(has(self.l2Backend) && has(self.l2Backend.serde) && has(self.l2Backend.serde.aesgcm))";
    let volumes = format!("{no_key} || !has(self.volumes) || self.volumes.all(v, v.name != '{KEY_VOLUME}')");
    let mounts = format!(
        "{no_key} || !has(self.volumeMounts) || \
         self.volumeMounts.all(m, m.mountPath != '{KEY_PATH}' && m.mountPath != '{KEY_PATH}/')"
    );
    let taken = |what: &str| format!("{what} is taken by the master key of spec.l2Backend.serde.aesgcm");
    [
        Rule::new(&["spec"], volumes, taken(&format!("the volume name {KEY_VOLUME}"))).forgiving_stored(&[]),
        Rule::new(&["spec"], mounts, taken(&format!("the mount path {KEY_PATH}"))).forgiving_stored(&[]),
    ]
}

fn coordinator() -> [Rule; 2] {
    let at = &["spec", "coordinator"];
    let by_ref = "has(self.ref) && has(self.ref.name) && size(self.ref.name) > 0";
    let by_url = "has(self.url) && size(self.url) > 0";
    [
        Rule::new(at, format!("!(({by_ref}) && ({by_url}))"), "exactly one of ref or url must be set, got both"),
        Rule::new(at, format!("({by_ref}) || ({by_url})"), "exactly one of ref or url must be set"),
    ]
}
