//! The workloads of `crates/workloads/bench` by suite, and which cells a campaign runs.

use std::collections::HashSet;

use faultless_records::bench::{Cell, Size, Suite};

use super::programs::PROGRAMS;
use super::seeds;

/// Name of the C file and the suite it belongs to, in the order of the table.
pub const WORKLOADS: &[(Suite, &str)] = &[
    (Suite::Sun, "threadtest"),
    (Suite::Sun, "mtmalloctest"),
    (Suite::Classic, "larson"),
    (Suite::Classic, "cache_scratch"),
    (Suite::Classic, "cache_thrash"),
    (Suite::Classic, "xmalloc"),
    (Suite::Classic, "sh6"),
    (Suite::Classic, "sh8"),
    (Suite::Classic, "pareto"),
    (Suite::Classic, "migrate"),
    (Suite::Classic, "simple_loop"),
    (Suite::Classic, "live_loop"),
    (Suite::Classic, "large_blocks"),
    (Suite::Classic, "realloc_grow"),
    (Suite::Classic, "calloc_mix"),
    (Suite::Classic, "cross_random"),
    (Suite::Classic, "size_loops"),
    (Suite::Classic, "slow_motion"),
    (Suite::Classic, "raw_brk"),
    (Suite::Classic, "strings"),
    (Suite::Classic, "trees"),
    (Suite::Threads, "parked"),
    (Suite::Threads, "thread_churn"),
    (Suite::Threads, "pools"),
];

/// Programs of the suite `drawn`, and in a quick campaign.
pub const DRAWN: u32 = 40;
const DRAWN_QUICK: u32 = 12;
/// The C file that they all are.
const DRAWN_WORKLOAD: &str = "drawn";
/// The largest number that it takes.
const DRAWN_LAST: u32 = i32::MAX.cast_unsigned();

/// The article's thread counts.
const SUN_THREADS: &[u32] = &[1, 2, 4, 6, 8, 10];
const SUN_THREADS_QUICK: &[u32] = &[1, 2, 8];
const CLASSIC_THREADS: &[u32] = &[1, 2, 8];
const CLASSIC_THREADS_QUICK: &[u32] = &[2];

/// What the user wants to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// Suites and workloads by name; empty: all, but `drawn` and `seeds` only where the campaign is not quick.
    pub names: Vec<String>,
    /// Thread counts of `sun` and `classic`, of `drawn` by turns; empty: the usual ones.
    pub threads: Vec<u32>,
    /// Sizes; empty: both, or the small one of a quick campaign.
    pub sizes: Vec<Size>,
    /// Fewer thread counts, and the small size only.
    pub is_quick: bool,
    /// What the programs of `drawn` and the random forms of `seeds` are drawn from.
    pub seed: u32,
    /// Java versions that can run here.
    pub javas: Vec<u32>,
}

/// The cells of a wish, in the order of the table. `is_installed` tells of a real program whether it can run here.
///
/// # Errors
/// A name that is neither a suite nor a workload, with what would have been.
pub fn cells(wish: &Wish, is_installed: impl Fn(&str) -> bool) -> Result<Vec<Cell>, String> {
    if let Some(unknown) = wish.names.iter().find(|name| !is_known(name)) {
        return Err(format!(
            "there is no suite or workload {unknown}; `faultless bench --list` names them, and a command of your own stands behind --"
        ));
    }
    let wants = |suite: Suite, workload: &str| {
        let is_usual = wish.names.is_empty() && !(wish.is_quick && suite.takes_a_seed());
        is_usual || wish.names.iter().any(|name| name == suite.name() || name == workload)
    };
    let sizes: &[Size] = match (wish.sizes.as_slice(), wish.is_quick) {
        ([], true) => &[Size::Small],
        ([], false) => &[Size::Small, Size::Large],
        (sizes, _) => sizes,
    };
    let mut cells = Vec::new();
    for suite in Suite::ALL {
        for (_, workload) in WORKLOADS.iter().filter(|(of, workload)| *of == suite && wants(suite, workload))
        {
            for &size in sizes {
                let threads = threads_of(suite, workload, size, wish);
                cells.extend(threads.into_iter().map(|threads| Cell {
                    suite,
                    workload: (*workload).to_owned(),
                    size: Some(size),
                    threads: Some(threads),
                    variant: None,
                }));
            }
        }
        if suite == Suite::Programs {
            let programs = PROGRAMS.iter().filter(|program| {
                wants(suite, program.name) && program.needs.iter().all(|needed| is_installed(needed))
            });
            cells.extend(programs.map(|program| Cell {
                suite,
                workload: program.name.to_owned(),
                size: None,
                threads: None,
                variant: None,
            }));
        }
        if suite == Suite::Drawn && wants(suite, DRAWN_WORKLOAD) {
            cells.extend(sizes.iter().flat_map(|&size| drawn(wish, size)));
        }
        if suite == Suite::Seeds {
            cells.extend(seeds::cells(wish, sizes, |workload| wants(suite, workload)));
        }
    }
    // A thread count or size that was named twice.
    let mut seen = HashSet::new();
    cells.retain(|cell| seen.insert(cell.clone()));
    Ok(cells)
}

/// The programs of one size, of numbers in a row, with each number of threads by turns.
fn drawn(wish: &Wish, size: Size) -> impl Iterator<Item = Cell> {
    let threads = threads_of(Suite::Drawn, DRAWN_WORKLOAD, size, wish);
    let count = if wish.is_quick { DRAWN_QUICK } else { DRAWN };
    let seed = wish.seed;
    (0..count).zip(threads.into_iter().cycle()).map(move |(index, threads)| Cell {
        suite: Suite::Drawn,
        workload: DRAWN_WORKLOAD.to_owned(),
        size: Some(size),
        threads: Some(threads),
        variant: Some((seed.wrapping_add(index) & DRAWN_LAST).to_string()),
    })
}

/// The only cell of a campaign on a command of the user's.
#[must_use]
pub fn of_command(name: &str) -> Cell {
    Cell { suite: Suite::Command, workload: name.to_owned(), size: None, threads: None, variant: None }
}

fn is_known(name: &str) -> bool {
    Suite::ALL.iter().any(|suite| suite.has_programs() && suite.name() == name)
        || WORKLOADS.iter().any(|(_, workload)| *workload == name)
        || PROGRAMS.iter().any(|program| program.name == name)
        || seeds::names().any(|workload| workload == name)
}

fn threads_of(suite: Suite, workload: &str, size: Size, wish: &Wish) -> Vec<u32> {
    // In this suite the number of threads is what the workload is about.
    if suite == Suite::Threads {
        return match (workload, size) {
            ("parked", Size::Small) => vec![500],
            ("parked", Size::Large) => vec![2000],
            ("pools", _) => vec![64],
            _ => vec![8],
        };
    }
    let usual = match (suite, wish.is_quick) {
        (Suite::Sun, false) => SUN_THREADS,
        (Suite::Sun, true) => SUN_THREADS_QUICK,
        (Suite::Drawn, _) => CLASSIC_THREADS,
        (_, false) => CLASSIC_THREADS,
        (_, true) => CLASSIC_THREADS_QUICK,
    };
    if wish.threads.is_empty() { usual.to_vec() } else { wish.threads.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(names: &[&str]) -> Wish {
        Wish { names: names.iter().map(|&name| name.into()).collect(), ..Wish::default() }
    }

    #[test]
    fn the_articles_program_runs_with_the_articles_threads_at_both_sizes() {
        let cells = cells(&wish(&["threadtest"]), |_| true).unwrap();
        assert_eq!(cells.len(), 12);
        assert_eq!(cells[5].threads, Some(10));
        assert_eq!(cells[6].size, Some(Size::Large));
    }

    #[test]
    fn a_suite_is_all_its_workloads_and_programs_only_what_is_installed() {
        let quick = Wish { is_quick: true, ..wish(&["threads", "programs"]) };
        let cells = cells(&quick, |needed| needed == "perl").unwrap();
        let names: Vec<&str> = cells.iter().map(|cell| cell.workload.as_str()).collect();
        assert_eq!(names, ["perl", "parked", "thread_churn", "pools"]);
    }

    #[test]
    fn a_quick_campaign_has_what_is_drawn_and_the_seeds_only_when_they_are_named() {
        let has = |suite: Suite, names: &[&str], is_quick| {
            let cells = cells(&Wish { is_quick, ..wish(names) }, |_| true).unwrap();
            cells.iter().any(|cell| cell.suite == suite)
        };
        for (suite, name) in [(Suite::Seeds, "seeds"), (Suite::Seeds, "churn"), (Suite::Drawn, "drawn")] {
            assert!(has(suite, &[], false) && has(suite, &[name], true));
            assert!(!has(suite, &[], true) && !has(suite, &["sun"], false));
        }
    }

    #[test]
    fn programs_are_drawn_from_numbers_in_a_row_with_threads_by_turns() {
        let of = |is_quick, threads: &[u32]| {
            let wish = Wish { is_quick, threads: threads.to_vec(), seed: DRAWN_LAST, ..wish(&["drawn"]) };
            let cells = cells(&wish, |_| true).unwrap();
            let first: Vec<_> =
                cells.iter().take(3).map(|cell| (cell.variant.clone(), cell.threads)).collect();
            (cells.len(), first)
        };
        let (count, first) = of(true, &[]);
        let expected = [(DRAWN_LAST, 1), (0, 2), (1, 8)];
        assert_eq!(count, DRAWN_QUICK as usize);
        assert_eq!(first, expected.map(|(number, threads)| (Some(number.to_string()), Some(threads))));
        assert_eq!(of(false, &[4]).0, 2 * DRAWN as usize);
        assert!(of(true, &[4]).1.iter().all(|(_, threads)| *threads == Some(4)));
    }

    #[test]
    fn thread_counts_of_the_user_do_not_change_how_many_threads_park() {
        let few = Wish { threads: vec![3], is_quick: true, ..wish(&["sh6", "parked"]) };
        let counts: Vec<_> = cells(&few, |_| true).unwrap().into_iter().map(|cell| cell.threads).collect();
        assert_eq!(counts, [Some(3), Some(500)]);
    }

    #[test]
    fn what_is_named_twice_runs_once() {
        let twice = Wish {
            threads: vec![1, 2, 1],
            sizes: vec![Size::Small, Size::Small],
            ..wish(&["sun", "threadtest"])
        };
        assert_eq!(cells(&twice, |_| true).unwrap().len(), 2 * 2);
    }

    #[test]
    fn an_unknown_name_is_refused() {
        for name in ["larsen", Suite::Command.name()] {
            assert!(cells(&wish(&[name]), |_| true).unwrap_err().contains(name));
        }
    }
}
