//! A step as an Event of `events.k8s.io/v1`.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use lmcache_crds::{Phase, PhaseTransition};

use crate::apply::Owner;
use crate::observe::{FIELD_MANAGER, GROUP};

/// The API server takes notes of at most 1,024 bytes.
const NOTE_LIMIT: usize = 1024;
/// Names of objects have at most 253 characters; a dot and 16 digits are appended.
const NAME_LIMIT: usize = 253 - 17;

/// Who reports: `reportingController` is the operator, the instance is its pod.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// Pod or host name of this process.
    pub instance: String,
}

/// What an Event tells.
pub struct Told {
    /// Which object it is about.
    pub about: ObjectReference,
    /// Whether a person should look.
    pub attention: bool,
    /// What was done.
    pub action: &'static str,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// Why, in words; cut at 1,024 bytes.
    pub note: String,
    /// Events about one object with the same fingerprint are one: the API server refuses the second.
    pub fingerprint: String,
}

impl Reporter {
    /// The Event of a step. Its name is made from the step, so that the same step is never told twice.
    pub fn event(&self, owner: &Owner, step: &PhaseTransition) -> Event {
        self.tell(Told {
            about: ObjectReference {
                api_version: Some(format!("{GROUP}/v1alpha1")),
                kind: Some(owner.kind.to_owned()),
                name: Some(owner.name.clone()),
                namespace: Some(owner.namespace.clone()),
                uid: Some(owner.uid.clone()),
                ..ObjectReference::default()
            },
            attention: matches!(step.to, Phase::Degraded | Phase::Pending),
            action: "PhaseTransition",
            reason: step.reason.clone(),
            note: note(step),
            fingerprint: format!(
                "{} {} {} {} {}",
                step.from,
                step.to,
                step.reason,
                step.generation,
                step.time.0.as_second()
            ),
        })
    }

    /// An Event in the namespace of what it is about.
    pub fn tell(&self, told: Told) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(name(&told)),
                namespace: told.about.namespace.clone(),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(Timestamp::now())),
            reporting_controller: Some(FIELD_MANAGER.to_owned()),
            reporting_instance: Some(cut(&self.instance, 128).to_owned()),
            action: Some(told.action.to_owned()),
            reason: Some(told.reason),
            type_: Some(if told.attention { "Warning" } else { "Normal" }.to_owned()),
            note: Some(shortened(told.note)),
            regarding: Some(told.about),
            ..Event::default()
        }
    }
}

fn name(told: &Told) -> String {
    let mut hasher = DefaultHasher::new();
    (&told.about.uid, &told.fingerprint).hash(&mut hasher);
    format!("{}.{:016x}", cut(told.about.name.as_deref().unwrap_or_default(), NAME_LIMIT), hasher.finish())
}

fn note(step: &PhaseTransition) -> String {
    if step.from == step.to {
        format!("{}: {}", step.to, step.message)
    } else {
        format!("{} to {}: {}", step.from, step.to, step.message)
    }
}

fn shortened(text: String) -> String {
    if text.len() <= NOTE_LIMIT {
        return text;
    }
    format!("{}...", cut(&text, NOTE_LIMIT - 3))
}

fn cut(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use lmcache_crds::kubernetes_time;

    fn step(message: &str, second: i64) -> PhaseTransition {
        PhaseTransition {
            from: Phase::Ready,
            to: Phase::Degraded,
            reason: "InstanceLost".to_owned(),
            message: message.to_owned(),
            generation: 3,
            time: kubernetes_time(Timestamp::from_second(second).expect("time")),
        }
    }

    fn owner() -> Owner {
        Owner { kind: "LMCacheEngine", namespace: "ai".into(), name: "x".into(), uid: "u".into() }
    }

    #[test]
    fn the_same_step_has_the_same_name_and_another_step_another() {
        let reporter = Reporter { instance: "pod".to_owned() };
        let first = reporter.event(&owner(), &step("node n1", 5));
        assert_eq!(first.metadata.name, reporter.event(&owner(), &step("node n1", 5)).metadata.name);
        assert_ne!(first.metadata.name, reporter.event(&owner(), &step("node n1", 6)).metadata.name);
        assert_eq!(first.type_.as_deref(), Some("Warning"));
        assert_eq!(first.note.as_deref(), Some("Ready to Degraded: node n1"));
    }

    #[test]
    fn a_long_note_is_cut_where_a_character_ends() {
        let note = shortened(note(&step(&"ä".repeat(2000), 5)));
        assert!(note.len() <= NOTE_LIMIT && note.ends_with("..."), "{}", note.len());
    }
}
