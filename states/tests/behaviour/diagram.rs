//! The edges, and the picture of them that the documentation shows.

use lmcache_crds::Phase;
use lmcache_states::{edges, is_allowed, is_converging, mermaid};

use Phase::{Degraded, Pending, Ready, Reconciled, Rolling};

#[test]
fn the_edges_are_those_that_were_agreed() {
    let agreed = [
        (Pending, Reconciled),
        (Reconciled, Rolling),
        (Reconciled, Ready),
        (Reconciled, Degraded),
        (Rolling, Reconciled),
        (Rolling, Ready),
        (Rolling, Degraded),
        (Ready, Reconciled),
        (Ready, Rolling),
        (Ready, Degraded),
        (Degraded, Reconciled),
        (Degraded, Rolling),
        (Degraded, Ready),
    ];
    assert_eq!(edges(), agreed);
    for from in Phase::ALL {
        for to in Phase::ALL {
            assert_eq!(is_allowed(from, to), agreed.contains(&(from, to)), "{from} to {to}");
        }
    }
}

#[test]
fn converging_are_the_phases_on_the_way() {
    assert_eq!(Phase::ALL.map(is_converging), [false, true, true, false, false]);
}

#[test]
fn the_diagram_is_up_to_date() {
    let kept = include_str!("../../diagram.mmd");
    assert_eq!(
        kept,
        mermaid(),
        "states/diagram.mmd is stale; regenerate it with `cargo run -p lmcache-states --example diagram`"
    );
}
