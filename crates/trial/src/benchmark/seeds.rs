//! The cells of the suite `seeds`: which forms of which case run with how many threads.
//!
//! Each case has forms of its own and one whose sizes and pauses are drawn at random, from a seed that is printed.

use faultless_records::bench::{Cell, Size, Suite};

use super::catalogue::Wish;

/// Name of the program that does nothing: page faults of all others are counted above its.
pub const EMPTY: &str = "empty";

/// Name of the case that needs a Java runtime instead of a C program.
pub const JVM: &str = "jvm";

/// The source of that case's program, class `Bursts`.
pub const BURSTS: &str = include_str!("seeds/Bursts.java");

/// Its heap is as large from the start as it ever gets, so that what changes is native memory.
pub const JAVA_OPTIONS: &[&str] = &["-Xms192m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:+AlwaysPreTouch"];

/// One case.
struct Case {
    workload: &'static str,
    forms: &'static [Form],
    /// Numbers of threads of the random form.
    random_threads: &'static [u32],
}

/// One form of a case.
struct Form {
    variant: &'static str,
    threads: &'static [u32],
    /// Whether a quick campaign leaves it out.
    is_slow: bool,
}

const fn form(variant: &'static str, threads: &'static [u32]) -> Form {
    Form { variant, threads, is_slow: false }
}

const fn slow(variant: &'static str, threads: &'static [u32]) -> Form {
    Form { variant, threads, is_slow: true }
}

const CHURN_THREADS: &[u32] = &[1, 2, 8];

const CASES: &[Case] = &[
    Case {
        workload: "churn",
        forms: &[
            form("64K", CHURN_THREADS),
            slow("126K", CHURN_THREADS),
            form("127K", CHURN_THREADS),
            form("128K", CHURN_THREADS),
            slow("129K", CHURN_THREADS),
            slow("135K", CHURN_THREADS),
            slow("256K", CHURN_THREADS),
            form("1M", CHURN_THREADS),
            slow("4M", CHURN_THREADS),
            form("8M", CHURN_THREADS),
            slow("31M", CHURN_THREADS),
            slow("33M", CHURN_THREADS),
            form("64M", CHURN_THREADS),
            form("two", CHURN_THREADS),
            form("three", CHURN_THREADS),
        ],
        random_threads: CHURN_THREADS,
    },
    Case { workload: "dgemm", forms: &[form("4M", &[1, 2])], random_threads: &[1, 2] },
    Case {
        workload: "loop1m",
        forms: &[form("untouched", &[1]), form("touched", &[1])],
        random_threads: &[1],
    },
    Case {
        workload: "release",
        forms: &[
            form("block", &[1]),
            form("nodes", &[1]),
            form("survivors", &[1]),
            form("exit", &[16]),
            form("sleep", &[16]),
        ],
        random_threads: &[1],
    },
    Case {
        workload: "phases",
        forms: &[form("0ms", &[1, 2]), form("10ms", &[1, 2]), form("1s", &[1, 2]), slow("5s", &[1, 2])],
        random_threads: &[1, 2],
    },
    Case { workload: "spike", forms: &[form("launch", &[1])], random_threads: &[1] },
    Case { workload: "parked_random", forms: &[form("futex", &[16, 300])], random_threads: &[16, 300] },
    Case { workload: "pool", forms: &[form("bursts", &[64])], random_threads: &[64] },
    Case { workload: "hundred", forms: &[form("little", &[1]), form("some", &[1])], random_threads: &[1] },
    Case {
        workload: "sparse",
        forms: &[form("once", &[1]), form("again", &[1]), form("buffers", &[1]), form("zeroed", &[1])],
        random_threads: &[1],
    },
    Case { workload: "grow", forms: &[form("one", &[1]), form("two", &[1])], random_threads: &[1] },
];

/// Threads of the case `jvm`.
const JVM_THREADS: u32 = 300;

/// The cells of all cases whose name is wanted, in the order of the table; before them the empty program's, one for each
/// number of threads.
pub fn cells(wish: &Wish, sizes: &[Size], wants: impl Fn(&str) -> bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for case in CASES.iter().filter(|case| wants(case.workload)) {
        for &size in sizes {
            let forms = case.forms.iter().filter(|form| !(form.is_slow && wish.is_quick));
            // Elsewhere the number of threads is what the case is about.
            let is_users = matches!(case.workload, "churn" | "dgemm") && !wish.threads.is_empty();
            let threads = |usual: &'static [u32]| -> &[u32] { if is_users { &wish.threads } else { usual } };
            for form in forms {
                push(&mut cells, case.workload, size, form.variant, threads(form.threads));
            }
            let random = format!("random:{}", wish.seed);
            push(&mut cells, case.workload, size, &random, threads(case.random_threads));
        }
    }
    if wants(JVM) {
        for &size in sizes {
            for java in &wish.javas {
                push(&mut cells, JVM, size, &java.to_string(), &[JVM_THREADS]);
                if !wish.is_quick {
                    push(&mut cells, JVM, size, &format!("{java}-random:{}", wish.seed), &[JVM_THREADS]);
                }
            }
        }
    }
    let mut counts: Vec<u32> =
        cells.iter().filter(|cell| cell.workload != JVM).filter_map(|cell| cell.threads).collect();
    counts.sort_unstable();
    counts.dedup();
    let mut all = Vec::new();
    push(&mut all, EMPTY, Size::Small, "none", &counts);
    all.extend(cells);
    all
}

fn push(cells: &mut Vec<Cell>, workload: &str, size: Size, variant: &str, threads: &[u32]) {
    cells.extend(threads.iter().map(|&threads| Cell {
        suite: Suite::Seeds,
        workload: workload.to_owned(),
        size: Some(size),
        threads: Some(threads),
        variant: Some(variant.to_owned()),
    }));
}

/// Names of the cases, in the order of the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.workload).chain([JVM])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(is_quick: bool) -> Wish {
        Wish { is_quick, seed: 7, javas: vec![17, 25], ..Wish::default() }
    }

    fn cells(wish: &Wish, wants: impl Fn(&str) -> bool) -> Vec<Cell> {
        super::cells(wish, &[Size::Small], wants)
    }

    #[test]
    fn the_empty_program_runs_with_every_number_of_threads_that_a_case_has() {
        let cells = cells(&wish(false), |_| true);
        let empty: Vec<u32> =
            cells.iter().filter(|cell| cell.workload == EMPTY).filter_map(|cell| cell.threads).collect();
        assert_eq!(empty, [1, 2, 8, 16, 64, 300]);
        let is_covered = |cell: &Cell| empty.contains(&cell.threads.unwrap());
        assert!(cells.iter().all(is_covered));
    }

    #[test]
    fn every_case_has_a_random_form_with_the_seed_in_its_name() {
        let cells = cells(&wish(false), |_| true);
        for name in names() {
            let mut forms = cells.iter().filter(|cell| cell.workload == name);
            assert!(forms.any(|cell| cell.variant.as_ref().unwrap().ends_with("random:7")), "{name}");
        }
    }

    #[test]
    fn churn_runs_at_every_size_of_the_table_with_one_two_and_eight_threads() {
        assert_eq!(cells(&wish(false), |name| name == "churn").len(), 3 + 16 * 3);
        let quick = cells(&wish(true), |name| name == "churn");
        assert!(quick.len() < 3 + 9 * 3 + 1, "{}", quick.len());
    }

    #[test]
    fn there_are_as_many_cells_as_the_document_says() {
        let count = |is_quick, sizes: &[Size], javas: &[u32]| {
            let wish = Wish { javas: javas.to_vec(), ..wish(is_quick) };
            super::cells(&wish, sizes, |_| true).len()
        };
        let both = [Size::Small, Size::Large];
        assert_eq!((count(true, &both[..1], &[]), count(true, &both[..1], &[17])), (73, 74));
        assert_eq!((count(false, &both, &[]), count(false, &both, &[17])), (186, 190));
    }

    #[test]
    fn without_java_there_is_no_case_jvm() {
        let without = Wish { javas: Vec::new(), ..wish(false) };
        assert!(cells(&without, |_| true).iter().all(|cell| cell.workload != JVM));
        assert_eq!(cells(&wish(true), |name| name == JVM).len(), 2);
    }

    #[test]
    fn the_number_of_threads_is_the_users_only_where_it_may_be() {
        let three = Wish { threads: vec![3], ..wish(true) };
        let cells = cells(&three, |name| name == "dgemm" || name == "parked_random");
        let counts = |name: &str| -> Vec<u32> {
            cells.iter().filter(|cell| cell.workload == name).filter_map(|cell| cell.threads).collect()
        };
        assert_eq!(counts("dgemm"), [3, 3]);
        assert_eq!(counts("parked_random"), [16, 300, 16, 300]);
    }
}
