//! Resource quantities in the form in which the API server stores them, so that an object that was
//! applied and read back equals the one that was rendered (`1024Gi` comes back as `1Ti`, `0.5` as `500m`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, ResourceRequirements, Volume};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: [(&str, u32); 10] =
    [("n", 0), ("u", 3), ("m", 6), ("", 9), ("k", 12), ("M", 15), ("G", 18), ("T", 21), ("P", 24), ("E", 27)];
const NANO: i128 = 1_000_000_000;

/// The canonical form of a quantity. Exponent notation and what is no quantity come back as written.
pub fn canonical(text: &str) -> String {
    canonicalise(text.trim()).unwrap_or_else(|| text.to_owned())
}

/// A whole number of binary gigabytes.
pub fn gibibytes(count: u64) -> Quantity {
    Quantity(canonical(&format!("{count}Gi")))
}

/// Makes every quantity of a container canonical.
pub fn normalise_container(container: &mut Container) {
    if let Some(resources) = &mut container.resources {
        normalise_resources(resources);
    }
    for variable in container.env.iter_mut().flatten() {
        let field = variable.value_from.as_mut().and_then(|source| source.resource_field_ref.as_mut());
        if let Some(divisor) = field.and_then(|field| field.divisor.as_mut()) {
            normalise(divisor);
        }
    }
}

/// Makes requests and limits canonical.
pub fn normalise_resources(resources: &mut ResourceRequirements) {
    resources.requests.iter_mut().flat_map(BTreeMap::values_mut).for_each(normalise);
    resources.limits.iter_mut().flat_map(BTreeMap::values_mut).for_each(normalise);
}

/// Makes the quantities of a volume canonical.
pub fn normalise_volume(volume: &mut Volume) {
    if let Some(limit) = volume.empty_dir.as_mut().and_then(|empty| empty.size_limit.as_mut()) {
        normalise(limit);
    }
    let claim = volume.ephemeral.as_mut().and_then(|ephemeral| ephemeral.volume_claim_template.as_mut());
    if let Some(resources) = claim.and_then(|claim| claim.spec.resources.as_mut()) {
        resources.requests.iter_mut().flat_map(BTreeMap::values_mut).for_each(normalise);
        resources.limits.iter_mut().flat_map(BTreeMap::values_mut).for_each(normalise);
    }
}

fn normalise(quantity: &mut Quantity) {
    quantity.0 = canonical(&quantity.0);
}

fn canonicalise(text: &str) -> Option<String> {
    let (number, suffix) =
        text.split_at(text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len()));
    let nanos = parse_nanos(number)?;
    if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        let nanos = nanos.checked_mul(1_i128 << bits)?;
        // Small and fractional byte counts are shown in decimal.
        let whole = nanos % NANO == 0 && nanos.abs() >= 1024 * NANO;
        return Some(if whole { binary(nanos / NANO) } else { decimal(nanos) });
    }
    let (_, exponent) = DECIMAL.iter().find(|(name, _)| *name == suffix)?;
    let scaled = nanos.checked_mul(10_i128.pow(*exponent))?;
    Some(decimal(round_up(scaled, NANO)))
}

/// Reads digits with at most nine decimals as billionths.
fn parse_nanos(number: &str) -> Option<i128> {
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || whole.len() > 18 || fraction.len() > 9 || !plain(whole) || !plain(fraction)
    {
        return None;
    }
    let value: i128 = format!("{whole}{fraction:0<9}").parse().ok()?;
    Some(if negative { -value } else { value })
}

fn binary(mut count: i128) -> String {
    let mut suffix = "";
    for (name, _) in BINARY {
        if count % 1024 != 0 {
            break;
        }
        count /= 1024;
        suffix = name;
    }
    format!("{count}{suffix}")
}

fn decimal(nanos: i128) -> String {
    let largest = DECIMAL.iter().rev().find(|(_, exponent)| nanos % 10_i128.pow(*exponent) == 0);
    match largest {
        Some((suffix, exponent)) if nanos != 0 => format!("{}{suffix}", nanos / 10_i128.pow(*exponent)),
        _ => "0".to_owned(),
    }
}

/// Billionths of the smallest unit are rounded away from zero, as the API server does.
fn round_up(value: i128, unit: i128) -> i128 {
    let rest = value % unit;
    value / unit + rest.signum()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("15Gi", "15Gi")]
    #[case("1024Gi", "1Ti")]
    #[case("1.5Gi", "1536Mi")]
    #[case("0.5Ki", "512")]
    #[case("1024", "1024")]
    #[case("1000Mi", "1000Mi")]
    #[case("4", "4")]
    #[case("0.5", "500m")]
    #[case("500m", "500m")]
    #[case("1000m", "1")]
    #[case("1.5", "1500m")]
    #[case("2000", "2k")]
    #[case("1500M", "1500M")]
    #[case("0", "0")]
    #[case("0Gi", "0")]
    #[case("100Gi", "100Gi")]
    #[case("-1.5", "-1500m")]
    #[case("0.1n", "1n")]
    fn quantities_come_as_the_api_server_stores_them(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(canonical(text), expected);
        assert_eq!(canonical(expected), expected, "not stable");
    }

    #[rstest]
    #[case("1e3")]
    #[case("many")]
    #[case("")]
    #[case("1.2.3")]
    fn what_is_not_understood_stays_as_written(#[case] text: &str) {
        assert_eq!(canonical(text), text);
    }

    #[test]
    fn whole_gibibytes_take_the_largest_unit() {
        assert_eq!((gibibytes(23).0.as_str(), gibibytes(2048).0.as_str()), ("23Gi", "2Ti"));
    }
}
