//! What makes a reconcile begin.

/// Why a resource is worked on. Of several reasons the last in this order is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trigger {
    /// Nothing happened for long.
    Resync,
    /// It asked to be looked at again: after a failure, at its progress deadline, to write counts.
    Retry,
    /// The process has just begun to work.
    Start,
    /// A child or a pod has changed.
    Child,
    /// A foreign object that it refers to has changed, or an API that it uses.
    Reference,
    /// It was created or edited.
    Edit,
}

impl Trigger {
    /// The attribute `trigger` of the span of a reconcile.
    pub const fn as_str(self) -> &'static str {
        match self {
            Trigger::Resync => "resync",
            Trigger::Retry => "retry",
            Trigger::Start => "start",
            Trigger::Child => "child",
            Trigger::Reference => "reference",
            Trigger::Edit => "edit",
        }
    }
}
