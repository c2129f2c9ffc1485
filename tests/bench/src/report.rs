//! The report as text.

use lmcache_testbed::ComponentMemory;

use crate::audit::Requests;
use crate::figures::{Figure, mib, per_resource};
use crate::table::table;

/// Figures, floor and bounds side by side.
pub fn figures(figures: &[Figure]) -> String {
    let mut rows = vec![["", "operator", "floor", "at most", ""].map(str::to_owned)];
    for figure in figures {
        let verdict = figure.verdict.text();
        let floor = figure.floor.clone().unwrap_or_else(|| "-".to_owned());
        rows.push([figure.name.clone(), figure.value.clone(), floor, figure.bound.clone(), verdict]);
    }
    table(&rows)
}

/// Requests by verb and resource.
pub fn requests(requests: &Requests, resources: u32) -> String {
    let mut rows = vec![["verb", "resource", "requests", "per resource", "refused"].map(str::to_owned)];
    for (verb, resource, count) in requests.rows() {
        rows.push([
            verb.to_owned(),
            resource.to_owned(),
            count.all.to_string(),
            format!("{:.2}", per_resource(count.all, resources)),
            count.refused.to_string(),
        ]);
    }
    let total = requests.total();
    rows.push(
        ["all", "", &total.to_string(), &format!("{:.2}", per_resource(total, resources)), ""].map(str::to_owned),
    );
    table(&rows)
}

/// Peak memory of the cluster's components, with the operator and without it.
pub fn components(run: &[ComponentMemory], floor: Option<&[ComponentMemory]>) -> String {
    let mut rows = vec![["component", "operator", "floor"].map(str::to_owned)];
    for component in run {
        let without = floor.into_iter().flatten().find(|it| it.name == component.name);
        let peak = |it: &ComponentMemory| format!("{:.0} MiB", mib(it.peak));
        let without = without.map_or_else(|| "-".to_owned(), peak);
        rows.push([component.name.to_owned(), peak(component), without]);
    }
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_do_not_end_in_blanks() {
        let mut counted = Requests::default();
        counted.add("patch", "lmcachecoordinators/status", true);
        (0..3).for_each(|_| counted.add("create", "events", false));
        let expected = "\
\u{20} verb    resource                    requests  per resource  refused
\u{20} create  events                      3         1.50          0
\u{20} patch   lmcachecoordinators/status  1         0.50          1
\u{20} all                                 4         2.00
";
        assert_eq!(requests(&counted, 2), expected);
    }

    #[test]
    fn memory_stands_beside_that_of_the_floor() {
        let memory = |peak| vec![ComponentMemory { name: "etcd", resident: 0, peak }];
        let expected = "\u{20} component  operator  floor\n\u{20} etcd       2 MiB     1 MiB\n";
        assert_eq!(components(&memory(2048), Some(&memory(1024))), expected);
    }
}
