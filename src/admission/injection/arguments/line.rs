//! A command line as vLLM's parser sees it.

use super::flag::{Flag, Occurrence};

/// Command and arguments, one behind the other.
pub(super) struct Line<'a> {
    tokens: Vec<&'a str>,
    /// How many of the tokens stand in the command.
    in_command: usize,
    /// Where the flags end: at a lone `--`, or at the end.
    flags_end: usize,
}

impl<'a> Line<'a> {
    pub(super) fn new(command: &[&'a str], args: &[&'a str]) -> Self {
        let tokens = [command, args].concat();
        let flags_end = tokens.iter().position(|token| *token == "--").unwrap_or(tokens.len());
        Line { tokens, in_command: command.len(), flags_end }
    }

    /// How many of the tokens stand in the command.
    pub(super) fn in_command(&self) -> usize {
        self.in_command
    }

    /// The place in the arguments behind the last flag.
    pub(super) fn end(&self) -> usize {
        self.flags_end.saturating_sub(self.in_command)
    }

    pub(super) fn token(&self, at: usize) -> &'a str {
        self.tokens[at]
    }

    /// The occurrences of a flag, in their order.
    pub(super) fn occurrences<'b>(&'b self, flag: &'b Flag) -> impl DoubleEndedIterator<Item = Occurrence<'a>> + 'b {
        (0..self.flags_end).filter_map(|at| self.occurrence(at)).filter(|it| flag.is(it))
    }

    fn occurrence(&self, at: usize) -> Option<Occurrence<'a>> {
        let token = self.tokens[at];
        if !is_flag(token) {
            return None;
        }
        let (key, joined) = match token.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (token, None),
        };
        let next = || self.tokens[..self.flags_end].get(at + 1).copied().filter(|next| !is_flag(next));
        Some(Occurrence { at, key, value: joined.or_else(next) })
    }
}

/// Whether the parser takes a token for a flag: not negative numbers, a lone dash, or what holds blanks.
fn is_flag(token: &str) -> bool {
    let Some(rest) = token.strip_prefix('-') else { return false };
    let name = rest.split('=').next().unwrap_or_default();
    !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit() || first == '.') && !name.contains(' ')
}
