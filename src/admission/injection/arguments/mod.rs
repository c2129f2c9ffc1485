//! Editing vLLM's arguments (D39).
//!
//! vLLM reads a flag as `--flag value` or `--flag=value`, takes underscores for dashes, knows short aliases, and gathers
//! `--flag.key value` into the JSON value of `--flag`. Of several occurrences the last one wins, so that is the one that
//! counts here. The user's arguments keep their order; what has to be added comes last.
//!
//! Not understood: prefixes of flags (`--pipeline-parallel`), and files named by `--config` (the command line wins over
//! them anyway).

mod flag;
mod line;

#[cfg(test)]
mod tests;

pub(super) use flag::{
    COMPILATION_CONFIG, ENABLE_CHUNKED_PREFILL, ENFORCE_EAGER, Flag, KV_TRANSFER_CONFIG, NO_ENABLE_CHUNKED_PREFILL,
    NO_ENFORCE_EAGER, PIPELINE_PARALLEL_SIZE,
};

use flag::Occurrence;
use line::Line;
use serde_json::{Map, Value};

use super::reason::shown;

/// One change to the list `args`. Places are those of the list as it was; changes are in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ArgChange {
    /// Another text at this place.
    Replace { at: usize, text: String },
    /// A text before this place; at the length of the list: at its end.
    Insert { at: usize, text: String },
}

/// Changes to a container's arguments, and what a person should know about them.
pub(super) struct Arguments<'a> {
    line: Line<'a>,
    changes: Vec<ArgChange>,
    /// Texts behind the user's; kept apart, because the value that a flag lacks goes before them.
    appended: Vec<String>,
    warnings: Vec<String>,
}

/// Where an occurrence says what it says.
enum Slot {
    /// This token is the value.
    Own(usize),
    /// This token is flag and value; the value starts after this many bytes.
    Joined(usize, usize),
    /// There is no value; it would stand before this token.
    Missing(usize),
}

impl<'a> Arguments<'a> {
    /// The arguments of a container whose command takes them (`command::takes_arguments`).
    pub(super) fn new(command: &[&'a str], args: &[&'a str]) -> Self {
        Arguments { line: Line::new(command, args), changes: Vec::new(), appended: Vec::new(), warnings: Vec::new() }
    }

    /// The changes, and the warnings.
    pub(super) fn finish(mut self) -> (Vec<ArgChange>, Vec<String>) {
        let at = self.line.end();
        self.changes.extend(self.appended.into_iter().map(|text| ArgChange::Insert { at, text }));
        (self.changes, self.warnings)
    }

    /// Whether the flag is there in any spelling.
    pub(super) fn has(&self, flag: &Flag) -> bool {
        self.line.occurrences(flag).next().is_some()
    }

    /// Adds texts behind the user's.
    pub(super) fn append(&mut self, texts: &[&str]) {
        self.appended.extend(texts.iter().map(|text| (*text).to_owned()));
    }

    /// Makes a flag have this value.
    pub(super) fn force(&mut self, flag: &Flag, value: &str) {
        let last = self.line.occurrences(flag).rfind(|it| !it.is_dotted());
        let Some(last) = last else { return self.append(&[flag.name, value]) };
        match last.value {
            Some(old) if old.trim() == value => {}
            old => {
                if let Some(old) = old {
                    self.overruled(&format!("{} {}", last.key, shown(old)), &format!("{} {value}", flag.name));
                }
                self.write(flag, &last, value);
            }
        }
    }

    /// Makes a switch be on, whatever its opposite says.
    pub(super) fn switch_on(&mut self, on: &Flag, opposite: &Flag) {
        let place = |flag| self.line.occurrences(flag).next_back().map(|it| it.at);
        match (place(on), place(opposite)) {
            (Some(on), opposite) if opposite.is_none_or(|opposite| opposite < on) => return,
            (_, Some(_)) => self.overruled(opposite.name, on.name),
            _ => {}
        }
        self.append(&[on.name]);
    }

    /// Says so when a switch is on that takes away what the engine asks for; the user's word stands.
    pub(super) fn respect(&mut self, on: &Flag, opposite: &Flag, lost: &str) {
        let place = |flag| self.line.occurrences(flag).next_back().map(|it| it.at);
        if place(on).is_some_and(|on| place(opposite).is_none_or(|opposite| opposite < on)) {
            self.warnings.push(format!("the pod's {} stays and takes away the engine's {lost}", on.name));
        }
    }

    /// Makes the JSON value of a flag have this text under this key, and keeps the rest of it.
    pub(super) fn merge(&mut self, flag: &Flag, key: &str, text: &str) {
        let dotted: Vec<_> = self.line.occurrences(flag).filter(Occurrence::is_dotted).collect();
        if !dotted.is_empty() {
            return self.merge_dotted(&dotted, key, text);
        }
        let Some(last) = self.line.occurrences(flag).next_back() else {
            return self.append(&[flag.name, &merged(Map::new(), key, text)]);
        };
        let old = last.value.map(serde_json::from_str::<Value>);
        let fields = match old {
            None => Map::new(),
            Some(Ok(Value::Object(fields))) => fields,
            Some(_) => {
                self.overruled(&format!("{}, which is no JSON object,", last.key), &format!("{key} {text}"));
                Map::new()
            }
        };
        match fields.get(key) {
            Some(Value::String(old)) if old == text => return,
            Some(Value::Null) | None => {}
            Some(old) => self.overruled(&format!("{key} {}", shown(&old.to_string())), &format!("{key} {text}")),
        }
        self.write(flag, &last, &merged(fields, key, text));
    }

    /// vLLM gathers dotted flags by their spelling and puts the result behind everything else, so ours must be dotted too,
    /// under the spelling that came up last.
    fn merge_dotted(&mut self, dotted: &[Occurrence<'a>], key: &str, text: &str) {
        let is_new =
            |(at, it): &(usize, &Occurrence<'a>)| dotted[..*at].iter().all(|before| before.base() != it.base());
        let Some(base) = dotted.iter().enumerate().rfind(is_new).map(|(_, it)| it.base()) else { return };
        let old = dotted.iter().rfind(|it| it.base() == base && it.path() == key).and_then(|it| it.value);
        match old {
            Some(old) if old == text => return,
            Some(old) => self.overruled(&format!("{key} {}", shown(old)), &format!("{key} {text}")),
            None => {}
        }
        self.append(&[&format!("{base}.{key}={text}")]);
    }

    /// Gives an occurrence another value; where it cannot be edited, a new one at the end wins over it.
    fn write(&mut self, flag: &Flag, occurrence: &Occurrence<'a>, value: &str) {
        let first = self.line.in_command();
        match self.slot(occurrence) {
            Slot::Own(token) if token >= first => {
                self.changes.push(ArgChange::Replace { at: token - first, text: value.to_owned() });
            }
            Slot::Joined(token, length) if token >= first => {
                let text = format!("{}{value}", &self.line.token(token)[..length]);
                self.changes.push(ArgChange::Replace { at: token - first, text });
            }
            Slot::Missing(token) if token >= first => {
                self.changes.push(ArgChange::Insert { at: token - first, text: value.to_owned() });
            }
            _ => self.append(&[flag.name, value]),
        }
    }

    fn slot(&self, occurrence: &Occurrence<'a>) -> Slot {
        let Occurrence { at, key, value } = occurrence;
        match value {
            None => Slot::Missing(at + 1),
            Some(_) if self.line.token(*at) == *key => Slot::Own(at + 1),
            Some(_) => Slot::Joined(*at, key.len() + 1),
        }
    }

    fn overruled(&mut self, users: &str, ours: &str) {
        self.warnings.push(format!("the pod's {users} is overruled by the engine's {ours}"));
    }
}

fn merged(mut fields: Map<String, Value>, key: &str, text: &str) -> String {
    fields.insert(key.to_owned(), text.into());
    Value::Object(fields).to_string()
}

/// Insertions in an order in which none moves the place of another.
pub(super) fn insertions(changes: &[ArgChange]) -> Vec<(usize, &str)> {
    let inserted = changes.iter().filter_map(|change| match change {
        ArgChange::Insert { at, text } => Some((*at, text.as_str())),
        ArgChange::Replace { .. } => None,
    });
    let mut inserted: Vec<_> = inserted.collect();
    inserted.reverse();
    // From the end to the start; of texts for one place the last comes first.
    inserted.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    inserted
}
