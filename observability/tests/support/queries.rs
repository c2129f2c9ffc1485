//! Which metric families a query asks for.

/// The families that a `PromQL` expression names, as they stand in `# TYPE` lines: without the ending of a histogram's
/// series. Recorded series count as families.
pub fn families(expr: &str) -> Vec<String> {
    let mut found: Vec<String> = identifiers(expr)
        .filter(|word| ["lmcache_operator_", "process_", "kube_"].iter().any(|prefix| word.starts_with(prefix)))
        .map(|word| {
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|ending| word.strip_suffix(ending));
            histogram.filter(|_| !word.ends_with("_total")).unwrap_or(word).to_owned()
        })
        .collect();
    found.extend(identifiers(expr).filter(|word| word.contains(':')).map(str::to_owned));
    found.sort();
    found.dedup();
    found
}

/// Words outside of strings, label values included in none.
fn identifiers(expr: &str) -> impl Iterator<Item = &str> {
    let outside = expr.split('"').step_by(2);
    outside.flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')))
}
