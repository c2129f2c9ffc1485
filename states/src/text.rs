//! Bounded text: what people and the API server can take in.

/// Longest phase message in bytes: the API server refuses an Event whose note is longer than 1 KiB.
pub(crate) const PHASE_MESSAGE_LIMIT: usize = 1024;

/// Longest condition message in bytes (`metav1.Condition`).
pub(crate) const CONDITION_MESSAGE_LIMIT: usize = 32_768;

const NAMED: usize = 3;
const ELLIPSIS: char = '…';

/// `text` in at most `limit` bytes, cut between two characters and marked with an ellipsis.
pub(crate) fn truncate(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let room = limit.saturating_sub(ELLIPSIS.len_utf8());
    let mut cut = text[..text.floor_char_boundary(room)].to_owned();
    cut.push(ELLIPSIS);
    cut
}

/// The first three items, and how many more there are: `a, b, c and 4 more`.
pub(crate) fn name_some(items: &[&str]) -> String {
    let named = items.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match items.len().checked_sub(NAMED) {
        None | Some(0) => named,
        Some(more) => format!("{named} and {more} more"),
    }
}

/// What troubles each location: `a: x; b: y; c: z; and 4 more`, or `a, b, c and 4 more: x` when all say the same.
/// Expects `(location, message)` sorted.
pub(crate) fn name_troubles(troubles: &[(&str, &str)]) -> String {
    let Some((_, first)) = troubles.first() else { return String::new() };
    if troubles.iter().all(|(_, message)| message == first) {
        let locations: Vec<&str> = troubles.iter().map(|(location, _)| *location).collect();
        return format!("{}: {first}", name_some(&locations));
    }
    let mut parts: Vec<String> =
        troubles.iter().take(NAMED).map(|(location, message)| format!("{location}: {message}")).collect();
    if troubles.len() > NAMED {
        parts.push(format!("and {} more", troubles.len() - NAMED));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::short("abc", 3, "abc")]
    #[case::cut("abcdefgh", 6, "abc…")]
    #[case::never_inside_a_character("ääää", 6, "ä…")]
    #[case::hardly_any_room("abcdefgh", 3, "…")]
    fn truncates_between_characters(#[case] text: &str, #[case] limit: usize, #[case] expected: &str) {
        assert_eq!(truncate(text, limit), expected);
    }

    #[rstest]
    #[case::none(&[], "")]
    #[case::three(&["a", "b", "c"], "a, b, c")]
    #[case::more(&["a", "b", "c", "d", "e"], "a, b, c and 2 more")]
    fn names_three_and_counts_the_rest(#[case] items: &[&str], #[case] expected: &str) {
        assert_eq!(name_some(items), expected);
    }

    #[rstest]
    #[case::one(&[("a", "x")], "a: x")]
    #[case::alike(&[("a", "x"), ("b", "x"), ("c", "x"), ("d", "x")], "a, b, c and 1 more: x")]
    #[case::different(&[("a", "x"), ("b", "y"), ("c", "x"), ("d", "z")], "a: x; b: y; c: x; and 1 more")]
    fn says_a_shared_trouble_once(#[case] troubles: &[(&str, &str)], #[case] expected: &str) {
        assert_eq!(name_troubles(troubles), expected);
    }
}
