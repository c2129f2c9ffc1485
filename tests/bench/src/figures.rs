//! Figures with their bounds: what is promised, and whether it was kept.

use std::time::Duration;

use crate::edit::EditTimes;
use crate::floor::FloorRun;
use crate::kinds::Kind;
use crate::run::OperatorRun;
use crate::verdict::Verdict;

/// Bounds on what grows with the number of resources are for this many.
pub const JUDGED: u32 = 1000;
/// With fewer, what the operator asks once, and the edit, weigh too much in a figure per resource.
const ENOUGH: u32 = 100;

/// The convergence takes at most this many times as long as the floor.
const TIME_FACTOR: f64 = 1.5;
/// Requests per resource until all is quiet, Events included.
const REQUESTS_EACH: f64 = 10.0;
/// Processor time in seconds until all is quiet.
const CPU_SECONDS: f64 = 7.0;
/// Peak of the resident memory in MiB.
const MEMORY_MIB: f64 = 60.0;
/// The slowest of some scrapes in a row.
const SCRAPE: Duration = Duration::from_millis(100);
/// Seconds until an edit in the middle of the convergence is served.
const EDIT_SECONDS: f64 = 5.0;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// What came out.
    pub value: String,
    /// The same without an operator.
    pub floor: Option<String>,
    /// What is promised.
    pub bound: String,
    /// Whether it was kept.
    pub verdict: Verdict,
}

/// How a figure is judged.
pub struct Judge {
    /// How many resources there were.
    pub resources: u32,
}

impl Judge {
    /// A bound for [`JUDGED`] only.
    pub fn at_full_size(&self, met: bool) -> Verdict {
        if self.resources == JUDGED { Verdict::of(met) } else { Verdict::NotJudged("for 1,000 resources only") }
    }

    /// A bound for [`ENOUGH`] or more.
    fn at_some_size(&self, met: bool) -> Verdict {
        if self.resources >= ENOUGH { Verdict::of(met) } else { Verdict::NotJudged("for 100 resources or more") }
    }
}

/// Everything that is promised, in the order in which it is printed.
pub fn figures(resources: u32, settled: Duration, run: &OperatorRun, floor: Option<&FloorRun>) -> Vec<Figure> {
    let judge = Judge { resources };
    let mut figures = vec![
        time(&judge, run, floor),
        requests(&judge, run, floor),
        cpu(&judge, run),
        memory(&judge, run),
        scrape(&judge, run),
        settled_requests(settled, run),
    ];
    figures.extend(run.edits.iter().flat_map(|(kind, times)| edit(*kind, *times)));
    figures
}

/// Whether every bound that was judged was kept.
pub fn all_met(figures: &[Figure]) -> bool {
    figures.iter().all(|figure| figure.verdict != Verdict::Missed)
}

fn time(judge: &Judge, run: &OperatorRun, floor: Option<&FloorRun>) -> Figure {
    let seconds = run.all_ready.as_secs_f64();
    let (verdict, factor) = match floor {
        Some(floor) => {
            let factor = seconds / floor.all_ready.as_secs_f64();
            (judge.at_full_size(factor <= TIME_FACTOR), format!(" ({factor:.2} x)"))
        }
        None => (Verdict::NotJudged("no floor"), String::new()),
    };
    Figure {
        name: "all ready after".to_owned(),
        value: format!("{seconds:.1} s{factor}"),
        floor: floor.map(|floor| format!("{:.1} s", floor.all_ready.as_secs_f64())),
        bound: format!("{TIME_FACTOR} x floor"),
        verdict,
    }
}

fn requests(judge: &Judge, run: &OperatorRun, floor: Option<&FloorRun>) -> Figure {
    let resources = judge.resources;
    let each = per_resource(run.requests.total(), resources);
    Figure {
        name: "requests per resource".to_owned(),
        value: format!("{each:.2}"),
        floor: floor.map(|floor| format!("{:.2}", per_resource(floor.requests.total(), resources))),
        bound: format!("{REQUESTS_EACH}"),
        verdict: judge.at_some_size(each <= REQUESTS_EACH),
    }
}

fn cpu(judge: &Judge, run: &OperatorRun) -> Figure {
    Figure {
        name: "CPU time of the operator".to_owned(),
        value: format!("{:.2} s", run.usage.cpu_seconds),
        floor: None,
        bound: format!("{CPU_SECONDS} s"),
        verdict: judge.at_full_size(run.usage.cpu_seconds <= CPU_SECONDS),
    }
}

fn memory(judge: &Judge, run: &OperatorRun) -> Figure {
    let peak = mib(run.usage.peak_memory);
    Figure {
        name: "peak memory of the operator".to_owned(),
        value: format!("{peak:.1} MiB"),
        floor: None,
        bound: format!("{MEMORY_MIB} MiB"),
        verdict: judge.at_full_size(peak <= MEMORY_MIB),
    }
}

fn scrape(judge: &Judge, run: &OperatorRun) -> Figure {
    let millis = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
    let (slowest, kib) = (run.scrape.slowest, run.scrape.bytes / 1024);
    Figure {
        name: format!("/metrics of all of them, {kib} KiB"),
        value: millis(slowest),
        floor: None,
        bound: millis(SCRAPE),
        verdict: judge.at_full_size(slowest <= SCRAPE),
    }
}

fn settled_requests(settled: Duration, run: &OperatorRun) -> Figure {
    let (value, verdict) = match &run.settled {
        Some(requests) => (requests.total().to_string(), Verdict::of(requests.total() == 0)),
        None if settled.is_zero() => ("-".to_owned(), Verdict::NotJudged("not asked for")),
        None => ("never quiet".to_owned(), Verdict::Missed),
    };
    Figure {
        name: format!("requests in {} settled s", settled.as_secs()),
        value,
        floor: None,
        bound: "0".to_owned(),
        verdict,
    }
}

fn edit(kind: Kind, times: Option<EditTimes>) -> [Figure; 2] {
    let figure = |what: &str, took: Option<Duration>| Figure {
        name: format!("edit of {kind}: {what}"),
        value: took.map_or_else(|| "-".to_owned(), |took| format!("{:.2} s", took.as_secs_f64())),
        floor: None,
        bound: format!("{EDIT_SECONDS} s"),
        verdict: match took {
            Some(took) => Verdict::of(took.as_secs_f64() <= EDIT_SECONDS),
            None => Verdict::NotJudged("all Ready too soon"),
        },
    };
    [
        figure(&format!("{} updated", kind.workload()), times.map(|times| times.carried)),
        figure("generation observed", times.map(|times| times.observed)),
    ]
}

/// A count divided by the number of resources.
#[allow(clippy::cast_precision_loss, reason = "requests of one run are few")]
pub fn per_resource(count: u64, resources: u32) -> f64 {
    count as f64 / f64::from(resources)
}

/// KiB as MiB.
#[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
pub fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::audit::Requests;
    use crate::machine::Usage;
    use crate::scrape::Scrape;

    /// A run that meets every bound, and a floor.
    fn good() -> (OperatorRun, FloorRun) {
        let second = Duration::from_secs(1);
        let run = OperatorRun {
            all_ready: second * 60,
            requests: requests_of(9_900),
            usage: Usage { cpu_seconds: 6.0, peak_memory: 50 * 1024 },
            scrape: Scrape { slowest: Duration::from_millis(9), ..Scrape::default() },
            edits: Kind::ALL.map(|kind| (kind, Some(EditTimes { carried: second, observed: second * 2 }))).into(),
            settled: Some(Requests::default()),
            components: Vec::new(),
        };
        (run, FloorRun { all_ready: second * 50, requests: requests_of(4_000), components: Vec::new() })
    }

    fn requests_of(count: u32) -> Requests {
        let mut requests = Requests::default();
        (0..count).for_each(|_| requests.add("create", "daemonsets", false));
        requests
    }

    fn judged(resources: u32, run: &OperatorRun, floor: Option<&FloorRun>) -> Vec<(String, Verdict)> {
        let figures = figures(resources, Duration::from_mins(1), run, floor);
        figures.into_iter().map(|figure| (figure.name, figure.verdict)).collect()
    }

    #[test]
    fn a_run_within_all_bounds_meets_them_all() {
        let (run, floor) = good();
        let judged = judged(1000, &run, Some(&floor));
        assert!(judged.len() == 12 && judged.iter().all(|(_, verdict)| *verdict == Verdict::Met), "{judged:?}");
    }

    #[rstest]
    #[case("all ready after", |run: &mut OperatorRun| run.all_ready = Duration::from_secs(76))]
    #[case("requests per resource", |run: &mut OperatorRun| run.requests = requests_of(10_001))]
    #[case("CPU time of the operator", |run: &mut OperatorRun| run.usage.cpu_seconds = 7.01)]
    #[case("peak memory of the operator", |run: &mut OperatorRun| run.usage.peak_memory = 60 * 1024 + 1)]
    #[case("/metrics of all of them, 0 KiB", |run: &mut OperatorRun| run.scrape.slowest = Duration::from_millis(101))]
    #[case("requests in 60 settled s", |run: &mut OperatorRun| run.settled = Some(requests_of(1)))]
    #[case("requests in 60 settled s", |run: &mut OperatorRun| run.settled = None)]
    #[case("edit of LMCacheEngine: DaemonSet updated", |run: &mut OperatorRun| edit_of(run, 0).carried = LATE)]
    #[case("edit of CacheBlendEngine: generation observed", |run: &mut OperatorRun| edit_of(run, 1).observed = LATE)]
    #[case("edit of LMCacheCoordinator: Deployment updated", |run: &mut OperatorRun| edit_of(run, 2).carried = LATE)]
    fn a_figure_beyond_its_bound_is_missed(#[case] name: &str, #[case] spoil: impl Fn(&mut OperatorRun)) {
        let (mut run, floor) = good();
        spoil(&mut run);
        let judged = judged(1000, &run, Some(&floor));
        let missed: Vec<_> = judged.iter().filter(|(_, verdict)| *verdict == Verdict::Missed).collect();
        assert!(missed.len() == 1 && missed[0].0 == name, "{judged:?}");
    }

    const LATE: Duration = Duration::from_millis(5001);

    fn edit_of(run: &mut OperatorRun, index: usize) -> &mut EditTimes {
        run.edits[index].1.get_or_insert(EditTimes { carried: Duration::ZERO, observed: Duration::ZERO })
    }

    #[test]
    fn bounds_for_a_thousand_resources_are_not_held_against_another_number() {
        let (mut run, floor) = good();
        run.usage = Usage { cpu_seconds: 100.0, peak_memory: 1 << 20 };
        run.all_ready = Duration::from_hours(1);
        let figures = figures(1001, Duration::from_mins(1), &run, Some(&floor));
        assert!(all_met(&figures), "{figures:?}");
    }

    #[test]
    fn a_figure_per_resource_is_judged_when_there_are_enough_of_them() {
        let (mut run, _) = good();
        run.requests = requests_of(1100);
        for (resources, verdict) in [(99, Verdict::NotJudged("for 100 resources or more")), (100, Verdict::Missed)] {
            let judged = judged(resources, &run, None);
            assert!(judged.contains(&("requests per resource".to_owned(), verdict)), "{judged:?}");
        }
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let (mut run, _) = good();
        run.edits = Kind::ALL.map(|kind| (kind, None)).into();
        run.settled = None;
        let figures = figures(1000, Duration::ZERO, &run, None);
        let open = figures.iter().filter(|figure| matches!(figure.verdict, Verdict::NotJudged(_))).count();
        assert!(open == 8 && all_met(&figures), "{figures:?}");
    }
}
