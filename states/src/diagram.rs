//! The machine as a picture and as a table, both found by asking it.

use std::fmt::Display;

use lmcache_crds::Phase;

use crate::machine::{Group, Signal, group, next};

/// Every edge of the machine, in the order of [`Phase::ALL`].
pub fn edges() -> Vec<(Phase, Phase)> {
    labelled_edges().into_iter().map(|(from, to, _)| (from, to)).collect()
}

/// Whether the machine has an edge between two phases.
pub fn is_allowed(from: Phase, to: Phase) -> bool {
    Signal::ALL.into_iter().any(|signal| next(from, signal) == Some(to))
}

/// The state diagram in Mermaid's flowchart syntax, with the signals that lead along each edge. A flowchart, because
/// Mermaid's state diagrams do not support edges between states of different composite states.
pub fn mermaid() -> String {
    let mut lines = vec!["flowchart LR".to_owned(), "    start((\" \")) --> Pending".to_owned()];
    lines.extend(drawn(Group::Unapplied).into_iter().map(indented));
    lines.extend(drawn(Group::Applied).into_iter().map(indented));
    for (from, to, signals) in labelled_edges() {
        let names: Vec<&str> = signals.into_iter().map(Signal::as_str).collect();
        lines.push(format!("    {from} -->|\"{}\"| {to}", names.join(", ")));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// A group with the groups and phases in it.
fn drawn(outer: Group) -> Vec<String> {
    let mut lines = vec![format!("subgraph {}", outer.as_str())];
    for inner in [Group::Converging, Group::Settled] {
        if inner.parent() == Some(outer) {
            lines.extend(drawn(inner).into_iter().map(indented));
        }
    }
    let members = Phase::ALL.into_iter().filter(|phase| group(*phase) == outer);
    lines.extend(members.map(indented));
    lines.push("end".to_owned());
    lines
}

fn indented(line: impl Display) -> String {
    format!("    {line}")
}

fn labelled_edges() -> Vec<(Phase, Phase, Vec<Signal>)> {
    let mut edges = Vec::new();
    for from in Phase::ALL {
        for to in Phase::ALL {
            let signals: Vec<Signal> =
                Signal::ALL.into_iter().filter(|signal| next(from, *signal) == Some(to)).collect();
            if !signals.is_empty() {
                edges.push((from, to, signals));
            }
        }
    }
    edges
}
