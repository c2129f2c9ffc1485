//! Values of flags: how they are read, and what is said when they cannot be.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use lmcache_observability::LogFormat;

/// Where a server listens, or that it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// The server is switched off.
    Off,
    /// The server listens there.
    At(ListenAddress),
}

/// `[host]:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Name or IP address without brackets; empty means every interface.
    pub host: String,
    /// TCP port; 0 lets the system choose one.
    pub port: u16,
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Sorted, without repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespaces(pub(super) Vec<String>);

pub(super) fn bind(text: &str) -> Result<Bind, String> {
    if text == "0" {
        return Ok(Bind::Off);
    }
    let wanted = || "want [host]:port such as :8443, or 0 to switch it off".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(wanted)?;
    let port = port.parse().map_err(|_| format!("port {port:?} is not between 0 and 65535"))?;
    let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) if inner.parse::<std::net::Ipv6Addr>().is_ok() => inner,
        Some(inner) => return Err(format!("{inner:?} is not an IPv6 address")),
        None if host.contains([':', '[', ']', '/', ' ']) => return Err(wanted()),
        None => host,
    };
    Ok(Bind::At(ListenAddress { host: host.to_owned(), port }))
}

/// A pause between two rounds; `None` means that there are no rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval(pub(super) Option<Duration>);

/// A whole number with the unit `s`, `m` or `h`, at least a second; or 0.
pub(super) fn interval(text: &str) -> Result<Interval, String> {
    if text == "0" || text == "0s" {
        return Ok(Interval(None));
    }
    let wanted = || "want a duration such as 60s or 5m, or 0 to switch it off".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wanted)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wanted()),
    };
    let number: u64 = number.parse().map_err(|_| wanted())?;
    let seconds = number.checked_mul(unit).filter(|seconds| (1..=86_400).contains(seconds));
    seconds
        .map(|seconds| Interval(Some(Duration::from_secs(seconds))))
        .ok_or_else(|| "want between 1s and 24h, or 0".to_owned())
}

/// What Go's flag package reads as a boolean.
pub(super) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("want true or false".to_owned()),
    }
}

pub(super) fn namespace(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is no name of a namespace: want lower case letters, digits and inner dashes, at most 63"))
}

pub(super) fn namespaces(text: &str) -> Result<Namespaces, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    let names = names.map(namespace).collect::<Result<BTreeSet<_>, _>>()?;
    Ok(Namespaces(names.into_iter().collect()))
}

pub(super) fn domain(text: &str) -> Result<String, String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text.len() <= 253 && text.split('.').all(is_dns_label) {
        return Ok(text.to_owned());
    }
    Err("want a DNS domain such as cluster.local".to_owned())
}

/// Shortest lifetime of a certificate, and the longest that every clock can count.
const VALIDITY: std::ops::RangeInclusive<u64> = 10..=100 * 365 * 86_400;

/// `90d`, `2160h`, `1h30m`.
pub(super) fn validity(text: &str) -> Result<Duration, String> {
    let wanted = || "want a duration such as 90d, 2160h or 1h30m".to_owned();
    let (mut seconds, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wanted)?;
        let number: u64 = rest[..unit].parse().map_err(|_| wanted())?;
        let factor = match rest.as_bytes()[unit] {
            b'd' => 86_400,
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return Err(wanted()),
        };
        seconds = number.checked_mul(factor).and_then(|more| seconds.checked_add(more)).ok_or_else(wanted)?;
        rest = &rest[unit + 1..];
    }
    if VALIDITY.contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    Err("want a duration between 10s and 36500d".to_owned())
}

/// `https://host:port`, without a path.
pub(super) fn webhook_url(text: &str) -> Result<String, String> {
    let wanted = || "want https://host:port, without a path".to_owned();
    let text = text.strip_suffix('/').unwrap_or(text);
    let rest = text.strip_prefix("https://").ok_or_else(wanted)?;
    match bind(rest) {
        Ok(Bind::At(address)) if !address.host.is_empty() => Ok(text.to_owned()),
        _ => Err(wanted()),
    }
}

/// The host of a [`webhook_url`], without brackets, and its port.
pub(crate) fn url_host(url: &str) -> Option<ListenAddress> {
    match bind(url.strip_prefix("https://")?) {
        Ok(Bind::At(address)) => Some(address),
        _ => None,
    }
}

/// What names of objects can begin with; the longest name has 34 more characters.
pub(super) fn name_prefix(text: &str) -> Result<String, String> {
    if is_dns_label(text) && text.len() <= 47 {
        return Ok(text.to_owned());
    }
    Err("want lower case letters, digits and inner dashes, at most 47".to_owned())
}

/// RFC 1123.
fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "auto" => Ok(LogFormat::Auto),
        "json" => Ok(LogFormat::Json),
        "human" => Ok(LogFormat::Human),
        _ => Err("want auto, json or human".to_owned()),
    }
}

pub(super) fn zap_encoder(text: &str) -> Result<LogFormat, String> {
    match text {
        "json" => Ok(LogFormat::Json),
        "console" => Ok(LogFormat::Human),
        _ => Err("want json or console".to_owned()),
    }
}

/// zap counts verbosity upwards: 1 is debug, more is finer.
pub(super) fn zap_level(text: &str) -> Result<&'static str, String> {
    match (text.to_ascii_lowercase().as_str(), text.parse::<u8>()) {
        ("debug", _) | (_, Ok(1)) => Ok("debug"),
        ("info", _) => Ok("info"),
        ("error" | "panic", _) => Ok("error"),
        (_, Ok(2..)) => Ok("trace"),
        _ => Err("want debug, info, error, panic or a number above 0".to_owned()),
    }
}
