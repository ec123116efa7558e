//! How fast memory is brought in: first touch, MAP_POPULATE, and regions of every kind.

use faultless_records::quantity::several;

use super::programs::{Programs, kernel, run};
use super::sample::Sample;
use super::summary::{columns, count, decimal, median};
use crate::failure::Result;

const MIB: u64 = 1 << 20;

/// One way to bring memory in.
struct Arm {
    name: String,
    /// Behind the method and the size.
    arguments: Option<[String; 3]>,
    method: &'static str,
}

fn arms(threads: usize) -> Vec<Arm> {
    let plain = |name: &str, method| Arm { name: name.to_owned(), arguments: None, method };
    let mut arms =
        vec![plain("first touch, one thread", "touch"), plain("MAP_POPULATE, one thread", "map_populate")];
    let mut region = |shared: u32, sharing: &str, pages: u32, kind: &str, threads: usize| {
        let name = format!("region, {sharing}, {kind}, {}", several(threads as u64, "thread"));
        let arguments = Some([shared.to_string(), pages.to_string(), threads.to_string()]);
        arms.push(Arm { name, arguments, method: "region" });
    };
    let mut counts = vec![1];
    counts.extend((threads > 1).then_some(threads));
    for threads in counts {
        for (shared, sharing) in [(0, "private"), (1, "shared")] {
            for (pages, kind) in [(1, "small pages"), (0, "huge wanted"), (2, "huge required")] {
                region(shared, sharing, pages, kind, threads);
            }
        }
    }
    arms
}

/// Sizes in MiB.
fn sizes(is_quick: bool) -> &'static [u64] {
    if is_quick { &[256] } else { &[1024, 4096] }
}

/// Runs all arms, round after round.
pub fn measure(programs: &Programs, rounds: usize, is_quick: bool) -> Result<Vec<Sample>> {
    let threads = std::thread::available_parallelism().map_or(1, |number| number.get()).min(16);
    let mut samples = Vec::new();
    for round in 0..rounds {
        for &mebibytes in sizes(is_quick) {
            eprintln!("populate: round {} of {rounds}, {mebibytes} MiB", round + 1);
            for arm in arms(threads) {
                let mut arguments = vec![arm.method.to_owned(), (mebibytes * MIB).to_string()];
                if let Some(more) = &arm.arguments {
                    arguments.push(programs.library_text());
                    arguments.extend(more.iter().cloned());
                }
                if let Some(figures) = run(&programs.populate, &arguments, None, &[])? {
                    let case = format!("{mebibytes} MiB");
                    samples.push(Sample { program: "populate", arm: arm.name, case, round, figures });
                }
            }
        }
    }
    Ok(samples)
}

/// The medians as a table for each size.
pub fn table(samples: &[Sample]) -> String {
    let mut text = format!("Populating (kernel {})\n", kernel());
    let mut cases: Vec<&str> = samples.iter().map(|sample| sample.case.as_str()).collect();
    cases.dedup();
    cases.sort_unstable();
    cases.dedup();
    for case in cases {
        let of = |arm: &str| {
            let arm = arm.to_owned();
            samples.iter().filter(move |sample| sample.case == case && sample.arm == arm)
        };
        let mut arms: Vec<&str> = Vec::new();
        for sample in samples.iter().filter(|sample| sample.case == case) {
            if !arms.contains(&sample.arm.as_str()) {
                arms.push(&sample.arm);
            }
        }
        let gib =
            case.split(' ').next().and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0;
        let rows: Vec<Vec<String>> = arms
            .iter()
            .map(|arm| {
                let elapsed_s = median(of(arm), "elapsed_s");
                vec![
                    (*arm).to_owned(),
                    decimal(elapsed_s, 3),
                    decimal(gib / elapsed_s, 1),
                    decimal(median(of(arm), "user_s") + median(of(arm), "system_s"), 3),
                    count(median(of(arm), "faults")),
                    decimal(100.0 * median(of(arm), "huge_bytes") / (gib * 1024.0 * MIB as f64), 0),
                    count(median(of(arm), "search_faults")),
                ]
            })
            .collect();
        let head = ["", "s", "GiB/s", "CPU s", "faults", "% huge", "faults of the search"];
        text.push_str(&format!("\n{case}\n{}", columns(&head, &rows)));
    }
    let has_pool = samples.iter().any(|sample| sample.arm.contains("required"));
    if !has_pool {
        text.push_str("\nhuge pages required: not run, the kernel's pool is empty here\n");
    }
    text.push('\n');
    text
}
