//! The page about phases says what the machine does.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use lmcache_crds::Phase;
use lmcache_states::edges;

const PAGE: &str = include_str!("../../docs/phases.md");

/// The rows of the table under a heading, each with the words in backquotes of its cells.
fn rows(heading: &str) -> Vec<Vec<Vec<&'static str>>> {
    let part = PAGE.split_once(heading).unwrap().1;
    let table = part.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let words = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect::<Vec<_>>();
    table.take_while(|line| line.starts_with('|')).map(|row| row.split('|').skip(1).map(words).collect()).collect()
}

#[test]
fn its_steps_are_the_edges_of_the_machine() {
    let mut told = BTreeSet::new();
    for row in rows("\n## Steps\n") {
        told.extend(row[1].iter().map(|to| (row[0][0].to_owned(), (*to).to_owned())));
    }
    let walked: BTreeSet<_> = edges().iter().map(|(from, to)| (from.to_string(), to.to_string())).collect();
    assert_eq!(told, walked, "docs/phases.md, and the machine");
}

#[test]
fn it_explains_every_phase() {
    let told: Vec<&str> = rows("# Phases\n").iter().map(|row| row[0][0]).collect();
    assert_eq!(told, Phase::ALL.map(Phase::as_str));
}
