//! How long things took.

use std::time::Duration;

/// Times of single requests.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// Of these requests.
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Latencies(times)
    }

    /// So many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The time that this part of all, from 0 to 1, did not exceed; zero when there are none.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn quantile(&self, part: f64) -> Duration {
        let rank = (part * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).or(self.0.last()).copied().unwrap_or_default()
    }
}

/// A histogram of the API server's: upper ends of its buckets in seconds, and how many are not above them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets(Vec<(f64, f64)>);

impl Buckets {
    /// Reads the buckets of a series from a page of metrics: those lines that contain all these labels.
    pub fn read(page: &str, name: &str, labels: &[&str]) -> Self {
        let lines = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix("_bucket{"));
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for line in lines.filter(|line| labels.iter().all(|label| line.contains(label))) {
            let end = line.split_once("le=\"").and_then(|(_, rest)| rest.split('"').next()?.parse::<f64>().ok());
            let count = line.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok());
            let (Some(end), Some(count)) = (end, count) else { continue };
            match buckets.iter_mut().find(|(other, _)| other.total_cmp(&end).is_eq()) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((end, count)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        Buckets(buckets)
    }

    /// What has been added since an earlier look.
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |end: f64| {
            before.0.iter().find(|(other, _)| other.total_cmp(&end).is_eq()).map_or(0.0, |(_, count)| *count)
        };
        Buckets(self.0.iter().map(|(end, count)| (*end, count - earlier(*end))).collect())
    }

    /// The quantile in seconds, as Prometheus estimates it: evenly spread in each bucket. `None` when nothing was counted.
    fn quantile(&self, part: f64) -> Option<f64> {
        let all = self.0.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
        let rank = part * all;
        let mut below = (0.0, 0.0);
        for (end, count) in &self.0 {
            if *count >= rank {
                let (start, before) = below;
                let inside = (rank - before) / (count - before).max(f64::MIN_POSITIVE);
                return Some(if end.is_finite() { start + (end - start) * inside } else { start });
            }
            below = (*end, *count);
        }
        None
    }

    /// The quantile for a person.
    pub fn text(&self, part: f64) -> String {
        self.quantile(part).map_or_else(|| "-".to_owned(), |seconds| shown(Duration::from_secs_f64(seconds)))
    }
}

/// A time in milliseconds.
pub fn shown(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_time_that_was_measured() {
        let times = Latencies::new((1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|part| times.quantile(part).as_millis()), [1, 50, 99, 100]);
        assert_eq!(Latencies::default().quantile(0.5), Duration::ZERO);
    }

    #[test]
    fn a_histogram_is_read_from_a_page_of_metrics() {
        let page = "# TYPE t histogram\n\
            t_bucket{name=\"a\",op=\"x\",le=\"0.005\"} 50\nt_bucket{name=\"a\",op=\"x\",le=\"0.025\"} 100\n\
            t_bucket{name=\"a\",op=\"x\",le=\"+Inf\"} 100\nt_bucket{name=\"b\",le=\"0.005\"} 7\nt_sum{name=\"a\"} 1\n";
        let buckets = Buckets::read(page, "t", &["name=\"a\""]);
        assert_eq!(buckets.0.len(), 3, "{buckets:?}");
        assert_eq!(buckets.text(0.5), "5.00 ms");
        assert_eq!(buckets.text(0.75), "15.00 ms");
        assert_eq!(buckets.since(&buckets).text(0.5), "-");
    }
}
