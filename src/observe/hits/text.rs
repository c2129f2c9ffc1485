//! The two counters in the metrics text of a cache server. The text is read piece by piece and never held.

/// Tokens that lookups asked for, and those of them that were found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tokens {
    /// Found in the cache.
    pub hit: f64,
    /// Asked for.
    pub requested: f64,
}

/// Names of the counters, as present servers publish them.
const PRESENT: [&str; 2] = ["lmcache_mp_lookup_hit_tokens_total", "lmcache_mp_lookup_requested_tokens_total"];
/// Names of the counters, as older servers publish them.
const OLDER: [&str; 2] = ["lmcache:num_hit_tokens_total", "lmcache:num_requested_tokens_total"];
/// No line that matters is longer.
const LINE_LIMIT: usize = 16 * 1024;

/// Reads the Prometheus text format, or `OpenMetrics`: both write a sample as name, labels and value. Whatever else stands
/// in the text is skipped, and nothing in it is an error.
#[derive(Debug, Default)]
pub struct Reader {
    line: Vec<u8>,
    too_long: bool,
    present: Sums,
    older: Sums,
}

#[derive(Debug, Default)]
struct Sums {
    seen: bool,
    tokens: Tokens,
}

impl Reader {
    /// Takes the next piece of the text.
    pub fn push(&mut self, piece: &[u8]) {
        let mut parts = piece.split(|byte| *byte == b'\n');
        self.append(parts.next().unwrap_or_default());
        for part in parts {
            self.end_line();
            self.append(part);
        }
    }

    /// The sums over all labels, 0 for a counter that is not there; `None` when neither is. Present names win over older ones.
    pub fn finish(mut self) -> Option<Tokens> {
        self.end_line();
        let family = if self.present.seen { self.present } else { self.older };
        family.seen.then_some(family.tokens)
    }

    fn append(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > LINE_LIMIT {
            self.too_long = true;
            self.line.clear();
        } else if !self.too_long {
            self.line.extend_from_slice(part);
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !std::mem::take(&mut self.too_long)
            && let Some((name, value)) = std::str::from_utf8(&line).ok().and_then(sample)
        {
            self.present.add(PRESENT, name, value);
            self.older.add(OLDER, name, value);
        }
        // The buffer is used again.
        self.line = line;
        self.line.clear();
    }
}

impl Sums {
    fn add(&mut self, names: [&str; 2], name: &str, value: f64) {
        let [hit, requested] = names;
        let sum = match name {
            _ if name == hit => &mut self.tokens.hit,
            _ if name == requested => &mut self.tokens.requested,
            _ => return,
        };
        *sum += value;
        self.seen = true;
    }
}

/// Name and value of a sample; `None` for comments, for other lines, and for a value that no counter can have.
fn sample(line: &str) -> Option<(&str, f64)> {
    let line = line.trim_start();
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    let rest = match rest.strip_prefix('{') {
        Some(labels) => after_labels(labels)?,
        None => rest,
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (!name.starts_with('#') && value.is_finite() && value >= 0.0).then_some((name, value))
}

/// What follows the brace that ends the labels; braces inside of quotes do not count.
fn after_labels(text: &str) -> Option<&str> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return text.get(at + 1..),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn read(text: &[u8], piece: usize) -> Option<Tokens> {
        let mut reader = Reader::default();
        text.chunks(piece.max(1)).for_each(|piece| reader.push(piece));
        reader.finish()
    }

    #[rstest]
    #[case::nothing("", 0.0, 0.0)]
    #[case::present("lmcache_mp_lookup_hit_tokens_total 5\nlmcache_mp_lookup_requested_tokens_total 9\n", 5.0, 9.0)]
    #[case::older(
        "lmcache:num_hit_tokens_total{w=\"0\"} 5.0\nlmcache:num_requested_tokens_total{w=\"0\"} 9.0",
        5.0,
        9.0
    )]
    #[case::summed_over_labels(
        "lmcache_mp_lookup_hit_tokens_total{model=\"a\"} 1e2\nlmcache_mp_lookup_hit_tokens_total{model=\"b}\\\" 7\"} 3\n",
        103.0,
        0.0
    )]
    #[case::present_wins("lmcache:num_hit_tokens_total 50\nlmcache_mp_lookup_hit_tokens_total 5", 5.0, 0.0)]
    #[case::timestamps_and_exemplars(
        "lmcache_mp_lookup_hit_tokens_total 5 1700000000000\nlmcache_mp_lookup_requested_tokens_total 9 # {trace_id=\"x\"} 1",
        5.0,
        9.0
    )]
    #[case::comments(
        "# HELP lmcache_mp_lookup_hit_tokens_total 7\n# TYPE lmcache_mp_lookup_hit_tokens_total counter",
        0.0,
        0.0
    )]
    #[case::other_names("lmcache_mp_lookup_hit_tokens_total_sum 7\nxlmcache:num_hit_tokens_total 8", 0.0, 0.0)]
    #[case::no_counter(
        "lmcache_mp_lookup_hit_tokens_total NaN\nlmcache_mp_lookup_hit_tokens_total -1\nlmcache_mp_lookup_hit_tokens_total +Inf",
        0.0,
        0.0
    )]
    #[case::broken_labels("lmcache_mp_lookup_hit_tokens_total{a=\"b 7\nlmcache_mp_lookup_hit_tokens_total 2", 2.0, 0.0)]
    #[case::windows_lines("lmcache_mp_lookup_hit_tokens_total 5\r\n", 5.0, 0.0)]
    fn reads_both_families_and_skips_the_rest(#[case] text: &str, #[case] hit: f64, #[case] requested: f64) {
        for piece in [1, 7, text.len()] {
            let expected = (hit + requested > 0.0).then_some(Tokens { hit, requested });
            assert_eq!(read(text.as_bytes(), piece), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_line_without_end_costs_no_memory() {
        let mut reader = Reader::default();
        for _ in 0..1000 {
            reader.push(&[b'x'; 4096]);
        }
        assert!(reader.line.capacity() <= 2 * LINE_LIMIT, "{}", reader.line.capacity());
        reader.push(b"\nlmcache_mp_lookup_hit_tokens_total 5\n");
        assert_eq!(reader.finish(), Some(Tokens { hit: 5.0, requested: 0.0 }));
    }

    proptest! {
        #[test]
        fn never_panics_and_never_counts_what_no_counter_has(text in any::<Vec<u8>>(), piece in 1..64_usize) {
            let tokens = read(&text, piece).unwrap_or_default();
            prop_assert!(tokens.hit >= 0.0 && tokens.requested >= 0.0);
        }

        #[test]
        fn pieces_do_not_matter(lines in proptest::collection::vec("(lmcache_mp_lookup_(hit|requested)_tokens_total|x)(\\{[a-z\"\\\\}]{0,6}\\})? [0-9.e-]{1,4}", 0..8), piece in 1..64_usize) {
            let text = lines.join("\n");
            prop_assert_eq!(read(text.as_bytes(), piece), read(text.as_bytes(), usize::MAX));
        }
    }
}
