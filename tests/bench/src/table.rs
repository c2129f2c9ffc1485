//! Text in columns.

use std::fmt::Write as _;

/// Columns as wide as their widest cell, two blanks between them.
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let line = row.iter().zip(widths).fold(String::from(" "), |mut line, (cell, width)| {
            let _ = write!(line, " {cell:width$} ");
            line
        });
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
