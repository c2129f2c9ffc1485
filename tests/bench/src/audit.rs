//! Requests of the operator, counted from the API server's audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Deserialize;

const POLL: Duration = Duration::from_millis(100);

/// How often a verb was used on a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Requests.
    pub all: u64,
    /// Requests that were answered with a code of 400 or more.
    pub refused: u64,
}

/// Requests by verb and resource. Watches and Leases are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(BTreeMap<(String, String), Count>);

impl Requests {
    /// Counts one request.
    pub fn add(&mut self, verb: &str, resource: &str, refused: bool) {
        let count = self.0.entry((verb.to_owned(), resource.to_owned())).or_default();
        count.all += 1;
        count.refused += u64::from(refused);
    }

    /// All requests.
    pub fn total(&self) -> u64 {
        self.0.values().map(|count| count.all).sum()
    }

    /// Verb, resource and count, the most frequent first.
    pub fn rows(&self) -> Vec<(&str, &str, Count)> {
        let mut rows: Vec<_> =
            self.0.iter().map(|((verb, resource), count)| (verb.as_str(), resource.as_str(), *count)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.2.all));
        rows
    }

    fn add_line(&mut self, line: &str) -> Result<()> {
        let entry: Entry = serde_json::from_str(line).context("a line of the audit log is damaged")?;
        let object = entry.object_ref.unwrap_or_default();
        // A watch is told when it starts and when it ends, everything else once.
        if entry.stage == "ResponseStarted" || entry.verb == "watch" || object.resource == "leases" {
            return Ok(());
        }
        let resource = match (object.resource.as_str(), object.subresource.as_str()) {
            ("", _) => entry.request_uri.split('?').next().unwrap_or_default().to_owned(),
            (resource, "") => resource.to_owned(),
            (resource, subresource) => format!("{resource}/{subresource}"),
        };
        self.add(&entry.verb, &resource, entry.response_status.is_some_and(|status| status.code >= 400));
        Ok(())
    }
}

/// What is read of an `audit.k8s.io/v1` Event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    object_ref: Option<Object>,
    response_status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

/// An audit log, read as it grows.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    offset: u64,
}

impl AuditLog {
    /// From its beginning; it need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, offset: 0 }
    }

    /// Adds what has been written since the last call.
    pub fn read_into(&mut self, requests: &mut Requests) -> Result<()> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.path.display())),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may still be half written.
        let Some(end) = text.rfind('\n') else { return Ok(()) };
        self.offset += u64::try_from(end + 1)?;
        text[..end].lines().try_for_each(|line| requests.add_line(line))
    }

    /// Adds what is written until no request has come for `quiet`. Says whether that happened within `limit`.
    pub async fn until_quiet(&mut self, requests: &mut Requests, quiet: Duration, limit: Duration) -> Result<bool> {
        let started = Instant::now();
        let (mut before, mut since) = (None, started);
        while started.elapsed() < limit {
            self.read_into(requests)?;
            if before != Some(requests.total()) {
                (before, since) = (Some(requests.total()), Instant::now());
            } else if since.elapsed() >= quiet {
                return Ok(true);
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(false)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write as _;

    use rstest::rstest;

    use super::*;

    fn line(stage: &str, verb: &str, uri: &str, object: &str, code: u16) -> String {
        format!(
            r#"{{"kind":"Event","stage":"{stage}","verb":"{verb}","requestURI":"{uri}",{object}"responseStatus":{{"metadata":{{}},"code":{code}}}}}"#
        )
    }

    fn counted(lines: &[String]) -> Vec<(String, String, u64, u64)> {
        let mut requests = Requests::default();
        for line in lines {
            requests.add_line(line).unwrap();
        }
        requests.rows().into_iter().map(|(v, r, c)| (v.to_owned(), r.to_owned(), c.all, c.refused)).collect()
    }

    #[test]
    fn requests_are_counted_by_verb_and_resource_without_watches_and_leases() {
        let events = r#""objectRef":{"resource":"events"},"#;
        let leases = r#""objectRef":{"resource":"leases"},"#;
        let lines = [
            line("ResponseComplete", "create", "/apis/e", events, 201),
            line("ResponseStarted", "watch", "/apis/e?watch=true", events, 200),
            line("ResponseComplete", "watch", "/apis/e?watch=true", events, 200),
            line("ResponseComplete", "update", "/apis/l", leases, 200),
            line("ResponseComplete", "get", "/version?timeout=1s", "", 200),
        ];
        let expected = [("create", "events", 1, 0), ("get", "/version", 1, 0)];
        assert_eq!(counted(&lines), expected.map(|(v, r, all, bad)| (v.to_owned(), r.to_owned(), all, bad)));
    }

    #[rstest]
    #[case("lmcacheengines", "daemonsets")]
    #[case("cacheblendengines", "daemonsets")]
    #[case("lmcachecoordinators", "deployments")]
    fn requests_for_every_kind_are_counted_apart(#[case] resource: &str, #[case] workload: &str) {
        let status = format!(r#""objectRef":{{"resource":"{resource}","subresource":"status","name":"x"}},"#);
        let child = format!(r#""objectRef":{{"resource":"{workload}","name":"x","apiGroup":"apps"}},"#);
        let listed = format!(r#""objectRef":{{"resource":"{resource}","apiGroup":"lmcache.lmcache.ai"}},"#);
        let lines = [
            line("ResponseComplete", "patch", "/apis/x", &status, 200),
            line("ResponseComplete", "patch", "/apis/x", &status, 409),
            line("ResponseComplete", "patch", "/apis/x", &status, 200),
            line("ResponseComplete", "patch", "/apis/x", &child, 201),
            line("ResponseComplete", "patch", "/apis/x", &child, 409),
            line("ResponseComplete", "list", "/apis/x?limit=500", &listed, 200),
            line("ResponseStarted", "watch", "/apis/x?watch=true", &listed, 200),
        ];
        let status = format!("{resource}/status");
        let expected = [("patch", &*status, 3, 1), ("patch", workload, 2, 1), ("list", resource, 1, 0)];
        assert_eq!(counted(&lines), expected.map(|(v, r, all, bad)| (v.to_owned(), r.to_owned(), all, bad)));
    }

    #[test]
    fn a_line_that_is_half_written_is_read_when_it_is_whole() {
        let path = std::env::temp_dir().join(format!("bench-audit-{}.log", std::process::id()));
        let text = line("ResponseComplete", "get", "/version", "", 200);
        let mut file = File::create(&path).unwrap();
        let (mut log, mut requests) = (AuditLog::new(path.clone()), Requests::default());
        for part in [text.as_str(), "\n", &text[..20], &text[20..], "\n"] {
            file.write_all(part.as_bytes()).unwrap();
            log.read_into(&mut requests).unwrap();
        }
        std::fs::remove_file(path).unwrap();
        assert_eq!(requests.total(), 2, "{requests:?}");
    }

    #[test]
    fn a_log_that_does_not_exist_yet_is_empty() {
        let mut requests = Requests::default();
        AuditLog::new(PathBuf::from("/nowhere/audit.log")).read_into(&mut requests).unwrap();
        assert_eq!(requests, Requests::default());
    }
}
