//! Edits to the recorded objects: where we differ from the reference operator on purpose.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

/// Where what was recorded lies, and the edits to it.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parity")
}

/// Every meant difference.
pub struct Meant(Vec<Rule>);

#[derive(Deserialize)]
struct Rule {
    #[serde(default = "any")]
    case: String,
    object: String,
    #[serde(flatten)]
    edit: Edit,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
enum Edit {
    /// A Service forwards a port to another one.
    TargetPort { port: String, to: String },
    /// Containers have one more variable, last in the list.
    Env { name: String, value: String },
    /// Init containers of these names have these fields.
    InitContainer { names: Vec<String>, set: BTreeMap<String, Value> },
    /// The object has this annotation.
    Annotation { name: String, value: String },
    /// These arguments follow a flag and its value.
    InsertAfter { flag: String, args: Vec<String> },
    /// A flag has another name.
    Rename { flag: String, to: String },
    /// A flag has another value.
    Value { flag: String, to: String },
    /// Something else stands at this JSON pointer.
    Set { path: String, to: Value },
    /// Whatever stands there is fine.
    Ignore { path: String },
}

fn any() -> String {
    "*".to_owned()
}

impl Meant {
    pub fn load() -> Result<Self> {
        let text = std::fs::read_to_string(fixtures().join("meant.yaml"))?;
        Ok(Self(serde_norway::from_str(&text)?))
    }

    /// The recorded objects of a case after the edits.
    pub fn expected(&self, case: &str, golden: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
        let mut expected = golden.clone();
        for (name, object) in &mut expected {
            for rule in self.0.iter().filter(|rule| rule.is_about(case, name)) {
                rule.edit.apply(object);
            }
        }
        expected
    }

    /// Whether a difference at this JSON pointer of this object does not count.
    pub fn ignores(&self, case: &str, object: &str, path: &str) -> bool {
        let covers = |rule: &Rule| matches!(&rule.edit, Edit::Ignore { path: covered } if glob(covered, path));
        self.0.iter().any(|rule| rule.is_about(case, object) && covers(rule))
    }
}

impl Rule {
    fn is_about(&self, case: &str, object: &str) -> bool {
        glob(&self.case, case) && glob(&self.object, object)
    }
}

impl Edit {
    fn apply(&self, object: &mut Value) {
        match self {
            Edit::TargetPort { port, to } => {
                for it in items(object, "/spec/ports").filter(|it| it["name"] == json!(port)) {
                    it["targetPort"] = json!(to);
                }
            }
            Edit::Env { name, value } => {
                for container in containers(object) {
                    if items(container, "/env").any(|it| it["name"] == json!(name)) {
                        continue;
                    }
                    let mut list: Vec<Value> = items(container, "/env").map(|it| it.clone()).collect();
                    list.push(json!({"name": name, "value": value}));
                    container["env"] = json!(list);
                }
            }
            Edit::InitContainer { names, set } => {
                let named = |it: &Value| names.iter().any(|name| it["name"] == json!(name));
                for container in items(object, "/spec/initContainers").filter(|it| named(it)) {
                    for (field, value) in set {
                        container[field] = value.clone();
                    }
                }
            }
            Edit::Annotation { name, value } => object["metadata"]["annotations"][name] = json!(value),
            Edit::InsertAfter { flag, args: more } => at_flag(object, flag, |args, at| {
                args.splice(at + 2..at + 2, more.iter().map(|it| json!(it)));
            }),
            Edit::Rename { flag, to } => at_flag(object, flag, |args, at| args[at] = json!(to)),
            Edit::Value { flag, to } => at_flag(object, flag, |args, at| args[at + 1] = json!(to)),
            Edit::Set { path, to } => {
                if let Some(place) = object.pointer_mut(path) {
                    *place = to.clone();
                }
            }
            Edit::Ignore { .. } => {}
        }
    }
}

fn items<'a>(value: &'a mut Value, pointer: &str) -> impl Iterator<Item = &'a mut Value> {
    value.pointer_mut(pointer).and_then(Value::as_array_mut).into_iter().flatten()
}

fn containers(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let is_workload = object.pointer("/spec/template").is_some();
    items(object, if is_workload { "/spec/template/spec/containers" } else { "/spec/containers" })
}

fn at_flag(object: &mut Value, flag: &str, edit: impl Fn(&mut Vec<Value>, usize)) {
    for args in containers(object).filter_map(|it| it.get_mut("args")?.as_array_mut()) {
        if let Some(at) = args.iter().position(|arg| arg == flag) {
            edit(args, at);
        }
    }
}

/// Whether a text matches a pattern with `*`, `?` and sets such as `[abc]`.
fn glob(pattern: &str, text: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => text.is_empty(),
        Some('*') => {
            let rest = rest.as_str();
            text.char_indices().any(|(at, _)| glob(rest, &text[at..])) || glob(rest, "")
        }
        Some(first) => {
            let mut others = text.chars();
            let Some(next) = others.next() else { return false };
            let set = rest.as_str().split_once(']').filter(|_| first == '[');
            let (fits, rest) = match set {
                Some((set, after)) => (set.contains(next), after),
                None => (first == '?' || first == next, rest.as_str()),
            };
            fits && glob(rest, others.as_str())
        }
    }
}

#[test]
fn patterns_match_as_a_shell_matches_them() {
    for (pattern, text, matches) in [
        ("*", "", true),
        ("Service/*", "Service/c1", true),
        ("Service/*", "DaemonSet/c1", false),
        ("pod-cbe-[efp]*", "pod-cbe-full", true),
        ("pod-cbe-[efp]*", "pod-cbe-arm", false),
        ("a?c", "abc", true),
        ("a*c*e", "abcde", true),
        ("a*c*e", "abcd", false),
    ] {
        assert_eq!(glob(pattern, text), matches, "{pattern} {text}");
    }
}
