//! The case of "System CPU usage and glibc" (Chandrasekaran, 2021): a loaded gallery, and requests that come all at once or gradually.

use std::path::Path;

use super::programs::{Programs, kernel, run};
use super::sample::Sample;
use super::summary::{columns, count, decimal, median};
use crate::failure::Result;

/// The scratch buffers of one request, for the program and for people.
const SHAPES: &[(&str, &str)] = &[
    ("scratch=0", "no scratch buffers"),
    ("scratch=65536 buffers=16", "16 scratch buffers of 64 KiB"),
    ("scratch=1048576 buffers=4", "4 scratch buffers of 1 MiB"),
    ("scratch=4194304 buffers=1", "1 scratch buffer of 4 MiB"),
];

/// How requests come, for the program and for people.
const ARRIVALS: &[(&str, &str)] = &[
    ("arrival=burst", "burst"),
    ("arrival=ramp", "ramp"),
    ("arrival=burst threads=late", "burst that starts the threads"),
];

/// Closes the ways in which libc gives scratch buffers back.
const TUNED: &[(&str, &str)] =
    &[("MALLOC_MMAP_THRESHOLD_", "16777216"), ("MALLOC_TRIM_THRESHOLD_", "67108864")];

/// Where the gallery and the scratch buffers come from.
struct Arm<'a> {
    name: &'static str,
    data: &'static str,
    preload: Option<&'a Path>,
    settings: &'static [(&'static str, &'static str)],
}

fn arms(programs: &Programs) -> Vec<Arm<'_>> {
    let ours = Some(programs.library.as_path());
    let arm = |name, data, preload| Arm { name, data, preload, settings: &[] };
    let mut arms = vec![
        arm("std::vector; libc", "data=vector", None),
        Arm { settings: TUNED, ..arm("std::vector; libc tuned", "data=vector", None) },
    ];
    if let Some(jemalloc) = &programs.jemalloc {
        arms.push(arm("std::vector; jemalloc", "data=vector", Some(jemalloc)));
    }
    arms.extend([
        arm("std::vector; Faultless", "data=vector", ours),
        arm("region private, by use, small; libc", "data=region shared=0 pages=1 populate=2", None),
        arm("region private, populated, small; libc", "data=region shared=0 pages=1 populate=0", None),
        arm("region private, populated, huge; libc", "data=region shared=0 pages=0 populate=0", None),
        arm("region shared, by use, small; libc", "data=region shared=1 pages=1 populate=2", None),
        arm("region shared, populated, small; libc", "data=region shared=1 pages=1 populate=0", None),
        arm("region shared, populated, huge; libc", "data=region shared=1 pages=0 populate=0", None),
        arm("region private, populated, huge; Faultless", "data=region shared=0 pages=0 populate=0", ours),
        arm("region shared, populated, huge; Faultless", "data=region shared=1 pages=0 populate=0", ours),
    ]);
    arms
}

/// Runs all arms in all cases, round after round.
pub fn measure(programs: &Programs, rounds: usize, is_quick: bool) -> Result<Vec<Sample>> {
    let (searchers, mebibytes) = if is_quick { (16, 128) } else { (96, 512) };
    let mut samples = Vec::new();
    for round in 0..rounds {
        for (shape, shape_name) in SHAPES {
            for (arrival, arrival_name) in ARRIVALS {
                eprintln!("gallery: round {} of {rounds}, {shape_name}, {arrival_name}", round + 1);
                for arm in arms(programs) {
                    let words = format!(
                        "{} {shape} {arrival} searchers={searchers} mebibytes={mebibytes} requests=4",
                        arm.data
                    );
                    let mut arguments: Vec<String> = words.split(' ').map(str::to_owned).collect();
                    arguments.push(format!("library={}", programs.library_text()));
                    if let Some(figures) = run(&programs.gallery, &arguments, arm.preload, arm.settings)? {
                        let case = format!("{shape_name}, {arrival_name}");
                        samples.push(Sample {
                            program: "gallery",
                            arm: arm.name.to_owned(),
                            case,
                            round,
                            figures,
                        });
                    }
                }
            }
        }
    }
    Ok(samples)
}

/// Data: faults on the gallery. Scratch: faults on scratch buffers, for each request. Threads: faults of starting the threads, where the
/// burst starts them.
const HEAD: &[&str] = &[
    "",
    "burst: data",
    "scratch",
    "system s",
    "median ms",
    "ramp: data",
    "scratch",
    "system s",
    "median ms",
    "threads",
];

/// The medians as a table for each shape of scratch buffers.
pub fn table(samples: &[Sample]) -> String {
    let mut text = format!("Gallery (kernel {}), the stage in which all searchers take part\n", kernel());
    let mut arms: Vec<&str> = Vec::new();
    for sample in samples {
        if !arms.contains(&sample.arm.as_str()) {
            arms.push(&sample.arm);
        }
    }
    for (_, shape) in SHAPES {
        let of = |arm: &str, arrival: &str| {
            let (arm, case) = (arm.to_owned(), format!("{shape}, {arrival}"));
            samples.iter().filter(move |sample| sample.case == case && sample.arm == arm)
        };
        let rows: Vec<Vec<String>> = arms
            .iter()
            .map(|arm| {
                let mut row = vec![(*arm).to_owned()];
                for (_, arrival) in &ARRIVALS[..2] {
                    let figure = |name| median(of(arm, arrival), name);
                    row.extend([
                        count(figure("data_faults")),
                        decimal(figure("scratch_faults") / figure("requests"), 1),
                        decimal(figure("system_s"), 3),
                        decimal(figure("median_s") * 1e3, 1),
                    ]);
                }
                let late = |name| median(of(arm, ARRIVALS[2].1), name);
                row.push(count(late("start_faults") + late("other_faults")));
                row
            })
            .collect();
        text.push_str(&format!("\nFaults with {shape}\n{}", columns(HEAD, &rows)));
    }
    text.push('\n');
    text
}
