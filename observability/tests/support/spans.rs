//! The spans of the operator and their attributes. A test compares the names with the spans that the code opens.

/// Whose part a span is, its name, its attributes, and what it stands for.
pub struct Span {
    pub trace: &'static str,
    pub name: &'static str,
    pub attributes: &'static [&'static str],
    pub means: &'static str,
}

/// Every span, parents before children.
pub const SPANS: [Span; 7] = [
    Span {
        trace: "reconcile",
        name: "reconcile",
        attributes: &["kind", "namespace", "name", "generation"],
        means: "One look at one resource, from its turn to the written status. Parent of the spans below.",
    },
    Span {
        trace: "reconcile",
        name: "validate",
        attributes: &[],
        means: "The spec is checked by the same function as in admission.",
    },
    Span {
        trace: "reconcile",
        name: "resolve-dependencies",
        attributes: &[],
        means: "What the spec refers to is looked up, and the children are rendered.",
    },
    Span {
        trace: "reconcile",
        name: "apply",
        attributes: &["child.kind", "child.name", "outcome"],
        means: "One child is compared and, if it differs, applied; the exported name is `apply` and the child's kind.",
    },
    Span {
        trace: "reconcile",
        name: "observe",
        attributes: &[],
        means: "The workload, its pods, their Events and nodes are read from the caches.",
    },
    Span {
        trace: "reconcile",
        name: "evaluate-phase",
        attributes: &[],
        means: "The state machine turns the observation into steps and conditions.",
    },
    Span { trace: "reconcile", name: "write-status", attributes: &[], means: "What differs in the status is written." },
];
