//! What the source of the state machine says about its words: its doc comments are the documentation.

use super::GenerateError;

pub const REASONS: &str = include_str!("../../../states/src/reason.rs");
pub const CONDITIONS: &str = include_str!("../../../states/src/conditions.rs");
pub const STATUS: &str = include_str!("../../../crds/src/status.rs");

/// The doc comment above the first line that starts with `declaration`, as one line.
pub fn meaning(source: &str, declaration: &str) -> Result<String, GenerateError> {
    let mut comment: Vec<&str> = Vec::new();
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push(text.trim());
        } else if line.starts_with(declaration) && !comment.is_empty() {
            return Ok(comment.join(" "));
        } else if !line.starts_with("#[") {
            comment.clear();
        }
    }
    Err(GenerateError::NotExplained(declaration.to_owned()))
}

/// The table in the module's own documentation.
pub fn module_table(source: &str) -> String {
    source
        .lines()
        .filter_map(|line| line.strip_prefix("//! "))
        .filter(|line| line.starts_with('|'))
        .fold(String::new(), |table, line| table + line + "\n")
}
