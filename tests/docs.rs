//! Documents that must say what the code says.

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
