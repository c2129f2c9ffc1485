//! Numbers on the server's command line.

/// A fixed number of decimals when that keeps every digit, the shortest form otherwise (D20):
/// with one decimal 10 is `10.0` and 10.25 is `10.25`.
pub fn fixed(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    if text.parse() == Ok(number) { text } else { minimal(number) }
}

/// The shortest digits that read back the same, never with an exponent: `30`, `0.2`, `2.5`.
pub fn minimal(number: f64) -> String {
    format!("{number}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(10.0, 1, "10.0")]
    #[case(0.5, 1, "0.5")]
    #[case(10.1, 1, "10.1")]
    #[case(1200.0, 1, "1200.0")]
    #[case(0.8, 2, "0.80")]
    #[case(0.2, 2, "0.20")]
    #[case(1.0, 2, "1.00")]
    #[case(0.95, 2, "0.95")]
    #[case(0.05, 2, "0.05")]
    fn decimals_are_fixed_when_that_is_exact(#[case] number: f64, #[case] decimals: usize, #[case] text: &str) {
        assert_eq!(fixed(number, decimals), text);
    }

    #[rstest]
    #[case(0.04, 1, "0.04")]
    #[case(10.25, 1, "10.25")]
    #[case(0.75, 1, "0.75")]
    #[case(0.125, 2, "0.125")]
    #[case(0.004, 2, "0.004")]
    #[case(0.999, 2, "0.999")]
    #[case(0.000_000_1, 2, "0.0000001")]
    fn digits_are_never_lost(#[case] number: f64, #[case] decimals: usize, #[case] text: &str) {
        assert_eq!(fixed(number, decimals), text);
    }

    #[rstest]
    #[case(30.0, "30")]
    #[case(0.2, "0.2")]
    #[case(2.50, "2.5")]
    #[case(1e21, "1000000000000000000000")]
    fn minimal_has_no_exponent_and_no_needless_zero(#[case] number: f64, #[case] text: &str) {
        assert_eq!(minimal(number), text);
    }

    proptest! {
        #[test]
        fn every_form_always_reads_back_the_same(number in 0.0..1e9_f64, decimals in 0_usize..4) {
            let text = fixed(number, decimals);
            prop_assert_eq!(text.parse::<f64>().ok(), Some(number), "{}", text);
            prop_assert_eq!(minimal(number).parse::<f64>().ok(), Some(number));
        }
    }
}
