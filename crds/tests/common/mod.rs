//! What the tests of every kind's validation need.

use lmcache_crds::FieldError;
use serde::de::DeserializeOwned;

/// A spec with these fields, written as a YAML flow mapping without its braces.
pub fn decode<S: DeserializeOwned>(fields: &str) -> S {
    serde_norway::from_str(&format!("{{{fields}}}")).unwrap_or_else(|error| panic!("{fields}: {error}"))
}

/// The findings as they are printed.
pub fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}
