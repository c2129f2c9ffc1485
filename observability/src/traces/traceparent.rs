//! The W3C header `traceparent`, as the annotation `lmcache.ai/traceparent` carries it.

use std::fmt;
use std::str::FromStr;

/// What a version 00 header is long; later versions may append fields after a dash.
const LENGTH: usize = 55;
/// Longer values are not looked at.
const LIMIT: usize = 512;
const SAMPLED: u8 = 1;

/// Where a span stands: its trace, its id, and whether it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// Id of the trace; never all zero.
    pub trace_id: [u8; 16],
    /// Id of the span; never all zero.
    pub span_id: [u8; 8],
    /// Whether the one who began the trace keeps it.
    pub sampled: bool,
}

/// Why a text is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "want 00-<32 hexadecimal digits>-<16 hexadecimal digits>-<2 hexadecimal digits> in lower case, ids not all zero"
)]
pub struct InvalidTraceparent;

impl FromStr for TraceContext {
    type Err = InvalidTraceparent;

    /// Reads a header of version 00, and of later ones what they share with it. Never panics, and looks at 512 bytes at most.
    fn from_str(text: &str) -> Result<Self, InvalidTraceparent> {
        let text = text.trim().as_bytes();
        if text.len() > LIMIT || text.len() < LENGTH {
            return Err(InvalidTraceparent);
        }
        let (head, rest) = text.split_at(LENGTH);
        let version = hex::<1>(&head[..2]).ok_or(InvalidTraceparent)?[0];
        let dashes = [2, 35, 52].iter().all(|at| head[*at] == b'-');
        let ends = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest[0] == b'-' };
        if version == u8::MAX || !dashes || !ends {
            return Err(InvalidTraceparent);
        }
        let trace_id = hex::<16>(&head[3..35]).filter(|id| *id != [0; 16]).ok_or(InvalidTraceparent)?;
        let span_id = hex::<8>(&head[36..52]).filter(|id| *id != [0; 8]).ok_or(InvalidTraceparent)?;
        let flags = hex::<1>(&head[53..]).ok_or(InvalidTraceparent)?[0];
        Ok(TraceContext { trace_id, span_id, sampled: flags & SAMPLED != 0 })
    }
}

impl fmt::Display for TraceContext {
    /// The header of version 00.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.sampled) * SAMPLED;
        write!(f, "00-{}-{}-{flags:02x}", to_hex(&self.trace_id), to_hex(&self.span_id))
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Exactly `N` bytes from lower-case hexadecimal digits, as trace and span ids are written.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    hex(text.as_bytes())
}

fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    if digits.len() != N * 2 {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[rstest]
    #[case::sampled(&format!("00-{TRACE}-{SPAN}-01"), true)]
    #[case::not_sampled(&format!("00-{TRACE}-{SPAN}-00"), false)]
    #[case::other_flags_are_ignored(&format!("00-{TRACE}-{SPAN}-03"), true)]
    #[case::blanks_around(&format!(" 00-{TRACE}-{SPAN}-01\n"), true)]
    #[case::a_later_version(&format!("cc-{TRACE}-{SPAN}-01"), true)]
    #[case::a_later_version_with_more(&format!("cc-{TRACE}-{SPAN}-01-what-ever"), true)]
    fn a_header_is_read(#[case] text: &str, #[case] sampled: bool) {
        let context: TraceContext = text.parse().unwrap();
        assert_eq!((to_hex(&context.trace_id).as_str(), to_hex(&context.span_id).as_str()), (TRACE, SPAN), "{text}");
        assert_eq!(context.sampled, sampled, "{text}");
    }

    #[rstest]
    #[case::empty("")]
    #[case::words("not a traceparent")]
    #[case::no_trace(&format!("00-{}-{SPAN}-01", "0".repeat(32)))]
    #[case::no_span(&format!("00-{TRACE}-{}-01", "0".repeat(16)))]
    #[case::upper_case(&format!("00-{}-{SPAN}-01", TRACE.to_uppercase()))]
    #[case::more_in_version_0(&format!("00-{TRACE}-{SPAN}-01-more"))]
    #[case::invalid_version(&format!("ff-{TRACE}-{SPAN}-01"))]
    #[case::later_version_without_dash(&format!("cc-{TRACE}-{SPAN}-01x"))]
    #[case::short(&format!("00-{TRACE}-{SPAN}-1"))]
    #[case::other_separator(&format!("00_{TRACE}-{SPAN}-01"))]
    #[case::not_ascii(&format!("00-{}-{SPAN}-01", "ä".repeat(16)))]
    #[case::endless(&format!("cc-{TRACE}-{SPAN}-01-{}", "x".repeat(1 << 20)))]
    fn anything_else_is_refused(#[case] text: &str) {
        assert_eq!(text.parse::<TraceContext>(), Err(InvalidTraceparent), "{}", &text[..text.len().min(80)]);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,600}", bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = text.parse::<TraceContext>();
            let _ = String::from_utf8_lossy(&bytes).parse::<TraceContext>();
        }

        #[test]
        fn nearly_right_headers_do_not_make_it_panic(
            text in "[0-9a-f]{2}[-_0]?[0-9a-fA-Gä]{30,33}-?[0-9a-f]{15,17}[-x]?[0-9a-f]{1,3}(-.{0,5})?"
        ) {
            if let Ok(context) = text.parse::<TraceContext>() {
                prop_assert!(context.trace_id != [0; 16] && context.span_id != [0; 8]);
            }
        }

        #[test]
        fn what_is_written_is_read_back(trace_id: [u8; 16], span_id: [u8; 8], sampled: bool) {
            prop_assume!(trace_id != [0; 16] && span_id != [0; 8]);
            let context = TraceContext { trace_id, span_id, sampled };
            prop_assert_eq!(context.to_string().parse(), Ok(context));
        }
    }
}
