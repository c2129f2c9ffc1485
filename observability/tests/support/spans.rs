//! The spans of the operator and their attributes. One test compares the names with what the code opens, another one names and
//! attributes with what arrives in a Jaeger (tests/traces).

/// In whose trace a span is, its name, its attributes, and what it stands for.
pub struct Span {
    pub trace: &'static str,
    pub name: &'static str,
    pub attributes: &'static [&'static str],
    pub means: &'static str,
}

const STAY: [&str; 7] = ["kind", "namespace", "name", "generation", "phase", "reason", "message"];
const WHOLE: [&str; 5] = ["kind", "namespace", "name", "generation", "outcome"];

const fn stay(name: &'static str, means: &'static str) -> Span {
    Span { trace: "rollout", name, attributes: &STAY, means }
}

/// Every span, parents before children. `<Kind>` and the like stand for what varies.
pub const SPANS: [Span; 15] = [
    Span {
        trace: "reconcile",
        name: "reconcile",
        attributes: &["kind", "namespace", "name", "generation", "trigger"],
        means: "One look at one resource, from its turn to the written status. Parent of the other spans of its trace. Links to the \
                rollout that it worked on.",
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
        means: "What the spec refers to is looked up.",
    },
    Span {
        trace: "reconcile",
        name: "apply <Kind>",
        attributes: &["child.kind", "child.name", "outcome"],
        means: "One child is compared and, if it differs, applied; outcome as in `lmcache_operator_applies_total`.",
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
    Span {
        trace: "reconcile",
        name: "<METHOD> <path template>",
        attributes: &[
            "http.request.method",
            "http.response.status_code",
            "url.full",
            "url.template",
            "server.address",
            "server.port",
            "error.type",
        ],
        means: "One request to the API server, under the step that makes it; `error.type` is the code from 400 on, `no_response`, or \
                `cancelled` when nobody waited for the answer any longer.",
    },
    Span {
        trace: "rollout",
        name: "rollout",
        attributes: &WHOLE,
        means: "One generation, from its creation to Ready, to Degraded, to the next change or to its deletion. Parent of the \
                stays. Links to the reconciles that worked on it.",
    },
    stay("Pending", "One stay in the phase, with reason and message of the step into it."),
    stay("Reconciled", "As above."),
    stay("Rolling", "As above."),
    stay("Ready", "As above; a rollout begins in it when the generation before was ready."),
    stay("Degraded", "As above; marked as an error."),
    Span {
        trace: "rollout",
        name: "recovery",
        attributes: &WHOLE,
        means: "What follows a rollout that ended Degraded: until Ready, the next change or its deletion. Parent of its stays.",
    },
];

/// The event of a stay and of the span above, one for each phase step, and its attributes.
pub const STEP: (&str, [&str; 5]) = ("phase.transition", ["from", "to", "reason", "message", "generation"]);
