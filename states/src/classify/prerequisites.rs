//! Before anything can be applied: a valid spec, and what it refers to.

use super::{Situation, Verdict};
use crate::machine::Signal;
use crate::observation::{DependencyIssue, DependencyKind};
use crate::reason::Reason;

/// The spec does not pass validation: children of the last valid generation stay as they are.
pub(super) fn spec_is_invalid(situation: Situation<'_>) -> Option<Verdict> {
    let errors = &situation.observation.spec_errors;
    (!errors.is_empty()).then(|| Verdict::new(Signal::Blocked, Reason::InvalidSpec, spec_text(errors)))
}

/// Something that the spec refers to is missing or unusable.
pub(super) fn dependency_is_missing(situation: Situation<'_>) -> Option<Verdict> {
    let issues = &situation.observation.dependencies;
    let reason = dependency_reason(issues)?;
    Some(Verdict::new(Signal::Blocked, reason, dependency_text(issues)))
}

/// Every field error.
pub(crate) fn spec_text(errors: &[String]) -> String {
    errors.join("; ")
}

/// The reason of the issue that matters most; `None` when there is no issue.
pub(crate) fn dependency_reason(issues: &[DependencyIssue]) -> Option<Reason> {
    let kind = issues.iter().map(|issue| issue.kind).min()?;
    Some(match kind {
        DependencyKind::SecretNotFound => Reason::SecretNotFound,
        DependencyKind::SecretKeyMissing => Reason::SecretKeyMissing,
        DependencyKind::SecretNotShared => Reason::SecretNotShared,
        DependencyKind::CoordinatorNotFound => Reason::CoordinatorNotFound,
    })
}

/// Every issue, the one that gives the reason first.
pub(crate) fn dependency_text(issues: &[DependencyIssue]) -> String {
    let mut issues: Vec<&DependencyIssue> = issues.iter().collect();
    issues.sort_by_key(|issue| issue.kind);
    issues.iter().map(|issue| issue.message.as_str()).collect::<Vec<_>>().join("; ")
}
