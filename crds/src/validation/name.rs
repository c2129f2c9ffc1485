//! Names that can become Service names and label values (D19).

use super::field_error::Findings;

/// Longest name of a resource: a Service name has at most 63 characters, and `-metrics` takes 8.
pub const MAX_NAME_LENGTH: usize = 55;

/// Refuses a name that is no DNS-1035 label or leaves no room for `-metrics`.
pub(super) fn name(findings: &mut Findings, name: &str) {
    let lower = |b: u8| b.is_ascii_lowercase();
    let word = |b: u8| lower(b) || b.is_ascii_digit();
    let is_label = name.bytes().next().is_some_and(lower)
        && name.bytes().last().is_some_and(word)
        && name.bytes().all(|b| word(b) || b == b'-');
    if !is_label || name.len() > MAX_NAME_LENGTH {
        findings.invalid("metadata.name", name, NAME_DETAIL);
    }
}

/// What a name must be, in one sentence.
pub(crate) const NAME_DETAIL: &str = "must be a DNS-1035 label (lower case letters, digits and '-', \
     starting with a letter, ending with a letter or digit) of at most 55 characters, so that the Service \
     <name>-metrics can exist";
