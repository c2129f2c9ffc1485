//! Documents that must say what the code says.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

#[test]
fn the_state_diagram_in_the_architecture_is_the_machines() {
    let document = include_str!("../ARCHITECTURE.md");
    let block = document.split_once("```mermaid\n").and_then(|(_, rest)| rest.split_once("```"));
    let drawn = block.map(|(diagram, _)| diagram.trim_end());
    assert_eq!(
        drawn,
        Some(lmcache_states::mermaid().trim_end()),
        "copy states/diagram.mmd into ARCHITECTURE.md; `make generate` writes it"
    );
}

/// Where defects of the Go operator are cited.
const CITED_IN: [&str; 7] = ["crds", "deploy", "docs", "observability", "src", "states", "tests"];

#[test]
fn every_defect_that_is_cited_is_on_the_page_and_each_once() -> anyhow::Result<()> {
    let page = include_str!("../docs/defects.md");
    let cells = page.lines().filter_map(|line| Some(line.strip_prefix("| ")?.split_once(" | ")?.0));
    let rows: Vec<&str> = cells.filter(|cell| defects(cell).next() == Some(*cell)).collect();
    let count = |number: &str| rows.iter().filter(|row| **row == number).count();
    let mut wrong: Vec<String> = (1..=84)
        .map(|number| format!("D{number:02}"))
        .filter(|number| count(number) != 1)
        .map(|number| format!("docs/defects.md: {} rows for {number}", count(&number)))
        .collect();
    let mut cited = 0;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in CITED_IN.iter().map(|room| texts(&root.join(room))).collect::<Result<Vec<_>, _>>()?.concat() {
        let text = fs::read_to_string(&file)?;
        let numbers: BTreeSet<&str> = defects(&text).collect();
        cited += numbers.len();
        let unknown = numbers.into_iter().filter(|number| count(number) == 0);
        let file = file.strip_prefix(root)?.display();
        wrong.extend(unknown.map(|number| format!("{file}: {number} has no row in docs/defects.md")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cited > 100, "only {cited} citations were found");
    Ok(())
}

/// Everything in a folder that a person reads or writes.
fn texts(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        let kind = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        if entry?.is_dir() {
            found.extend(texts(&path)?);
        } else if ["md", "rs", "sh", "yaml"].contains(&kind) {
            found.push(path);
        }
    }
    Ok(found)
}

/// The D-numbers of a text: the letter and two digits, as a word.
fn defects(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.split(move |letter: char| !is_word(letter)).filter(|word| {
        let digits = word.strip_prefix('D').unwrap_or_default();
        digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_digit())
    })
}
