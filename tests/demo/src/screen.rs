//! What the person sees: short aligned lines on stdout, bold only on a terminal.

use std::io::{self, IsTerminal as _, Write as _};

/// Width of a line where nobody says otherwise.
const DEFAULT_WIDTH: usize = 140;
/// Narrower than this nothing can be read.
const MINIMUM_WIDTH: usize = 60;
/// A last column narrower than this is left to the terminal to break.
const MINIMUM_ROOM: usize = 24;

/// Standard output.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    bold: bool,
    width: usize,
}

impl Screen {
    /// Looks whether there is a terminal and how wide it is.
    pub fn new() -> Self {
        let stdout = io::stdout();
        let columns = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| usize::from(size.ws_col));
        let width = if columns == 0 { DEFAULT_WIDTH } else { columns.max(MINIMUM_WIDTH) };
        Self { bold: stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none(), width }
    }

    /// Begins a part of the story.
    pub fn heading(&self, text: &str) -> io::Result<()> {
        let (on, off) = if self.bold { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        self.put(&format!("\n{on}{text}{off}"))
    }

    /// One line as it is.
    pub fn line(&self, text: &str) -> io::Result<()> {
        self.put(text)
    }

    /// Rows in aligned columns. The first row is the header; what is too long for the last column goes on below.
    pub fn table<const N: usize>(&self, rows: &[[String; N]]) -> io::Result<()> {
        let mut columns = Columns::new(&[0; N]);
        for row in rows {
            columns.widen(&row[..N - 1]);
        }
        let room = self.width.saturating_sub(columns.line(&[const { String::new() }; N]).len()).max(MINIMUM_ROOM);
        for row in rows {
            let mut cells = row.clone();
            for part in wrap(&row[N - 1], room) {
                cells[N - 1] = part;
                self.put(columns.line(&cells).trim_end())?;
                cells = std::array::from_fn(|_| String::new());
            }
        }
        Ok(())
    }

    /// One row, cut where the line ends.
    pub fn row(&self, columns: &Columns, cells: &[String]) -> io::Result<()> {
        self.put(&cut(columns.line(cells).trim_end(), self.width))
    }

    #[allow(clippy::unused_self, reason = "it belongs to the screen")]
    fn put(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    }
}

/// Widths of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns(Vec<usize>);

impl Columns {
    /// At least so wide.
    pub fn new(widths: &[usize]) -> Self {
        Self(widths.to_vec())
    }

    /// Makes room for a row.
    pub fn widen(&mut self, cells: &[String]) {
        self.0.resize(self.0.len().max(cells.len()), 0);
        for (width, cell) in self.0.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }

    fn line(&self, cells: &[String]) -> String {
        let padded: Vec<_> = cells.iter().zip(&self.0).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("  {}", padded.join("  "))
    }
}

/// Breaks a text between words into lines of at most `width` characters; a longer word has a line of its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{}...", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_so_far() {
        let mut columns = Columns::new(&[0, 10]);
        columns.widen(&cells(&["NAME", "PHASE", "MESSAGE"]));
        assert_eq!(columns.line(&cells(&["NAME", "PHASE", "MESSAGE"])), "  NAME  PHASE       MESSAGE");
        columns.widen(&cells(&["longer", "Ready", ""]));
        assert_eq!(columns.line(&cells(&["longer", "Ready", ""])), "  longer  Ready              ");
    }

    #[test]
    fn a_text_is_broken_between_words() {
        assert_eq!(wrap("waiting for gpu-1, gpu-2", 14), ["waiting for", "gpu-1, gpu-2"]);
        assert_eq!(wrap("a-word-that-is-too-long for it", 8), ["a-word-that-is-too-long", "for it"]);
        assert_eq!(wrap("", 8), [""]);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_between_characters() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("ü is a letter", 8), "ü is...");
    }
}
