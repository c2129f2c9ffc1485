//! One object of the API server as it was last seen.

use std::fmt::Debug;

use kube::{Resource, ResourceExt as _};

use crate::observe::resource_version;

/// What is known of an object.
#[derive(Debug)]
pub(super) enum Seen<K> {
    /// Nothing yet.
    Unknown,
    /// It does not exist.
    Absent,
    /// This is what it looks like.
    Present(Box<K>),
}

impl<K: Resource> Seen<K> {
    /// Takes in what a watch says. What is older than an own write that was answered already is left out.
    pub fn take(&mut self, object: Option<K>) {
        match (object, &*self) {
            (Some(object), Seen::Present(known))
                if object.uid() == known.uid() && resource_version(object.meta()) < resource_version(known.meta()) => {}
            (Some(object), _) => *self = Seen::Present(Box::new(object)),
            (None, _) => *self = Seen::Absent,
        }
    }

    /// The object, when there is one.
    pub fn get(&self) -> Option<&K> {
        match self {
            Seen::Present(object) => Some(object),
            Seen::Unknown | Seen::Absent => None,
        }
    }

    /// Whether nothing is known yet.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Seen::Unknown)
    }
}
