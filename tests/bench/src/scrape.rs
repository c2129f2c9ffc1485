//! The operator's `/metrics`, as Prometheus asks for it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const TIMES: usize = 20;
const REQUEST: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
    Accept: application/openmetrics-text; version=1.0.0\r\n\r\n";

/// What some scrapes in a row have shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    /// The longest of them, from the connection to the last byte.
    pub slowest: Duration,
    /// Length of the last answer.
    pub bytes: usize,
    /// Spans that the collector took.
    pub spans_exported: u64,
    /// Spans that never reached it.
    pub spans_dropped: u64,
}

impl Scrape {
    /// Asks [`TIMES`] times.
    pub async fn of(address: &str) -> Result<Self> {
        let mut scrape = Self::default();
        for _ in 0..TIMES {
            let begun = Instant::now();
            let text = get(address).await?;
            scrape.slowest = scrape.slowest.max(begun.elapsed());
            scrape.bytes = text.len();
            scrape.spans_exported = sum(&text, "lmcache_operator_trace_spans_exported_total");
            scrape.spans_dropped = sum(&text, "lmcache_operator_trace_spans_dropped_total");
        }
        Ok(scrape)
    }
}

async fn get(address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    stream.write_all(REQUEST.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    ensure!(text.starts_with("HTTP/1.1 200 ") && text.contains("# EOF"), "{text}");
    Ok(text)
}

/// All series of a counter, added up.
fn sum(text: &str, counter: &str) -> u64 {
    let series = text.lines().filter_map(|line| line.strip_prefix(counter));
    series.filter_map(|rest| rest.split_whitespace().nth(usize::from(rest.starts_with('{')))?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_series_of_a_counter_are_added_up() {
        let text = "# TYPE a counter\na_total{reason=\"x\"} 3\na_total{reason=\"y\"} 4\na_total_b 9\nb_total 5\n";
        assert_eq!(["a_total", "b_total", "none"].map(|counter| sum(text, counter)), [7, 5, 0]);
    }
}
