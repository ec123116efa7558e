//! What makes the figures of a comparison doubtful: runs that did other work than they seem to, and processes that nothing reached.

use std::time::Duration;

use faultless_records::measurement::{Ending, Measurement};
use faultless_records::quantity::{count, size};

use crate::effect::{Figures, LEAST_TIME};
use crate::verdict::{ArmResult, endings};

/// The first run of a command that was made before does so many times the work of the later ones, and so much more.
const FAR_MORE: u32 = 3;
const LEAST_MORE: Duration = Duration::from_millis(100);
const LEAST_MORE_FAULTS: u64 = 10_000;

/// Arms take as long when the clock differs by no more than this part, and the processor, which others use, too, by no more than that.
const SAME_ELAPSED: f64 = 0.03;
const SAME_PROCESSOR: f64 = 0.25;
/// What the kernel takes of the processor time differs by such a part of it only where another amount of work was done in the same time.
const OTHER_KERNEL_PART: f64 = 0.25;

/// A process of the observing run, at the moment when it was largest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The name of its program's file.
    pub name: String,
    /// Resident bytes.
    pub bytes: u64,
    /// Whether Faultless was loaded; true where it could not be seen.
    pub is_reached: bool,
    /// Whether its program is linked statically.
    pub is_static: bool,
    /// Whether its program defines `malloc` itself, which no library takes the place of.
    pub has_own_malloc: bool,
}

/// A process that nothing reached, or that left no report, is the one that matters when it is so large, and so many times as large as all
/// others.
const LEAST_LARGE_BYTES: u64 = 4 << 20;
const FAR_LARGER: u64 = 2;

/// Whether a process of so many bytes is the one that matters, where the largest of the others is of so many.
#[must_use]
pub fn is_far_larger(bytes: u64, others: u64) -> bool {
    bytes > LEAST_LARGE_BYTES.max(FAR_LARGER * others)
}

/// What the runs themselves show, beside the first look, which is in no figure.
#[must_use]
pub fn of_runs(look: &Measurement, arms: &[ArmResult]) -> Vec<String> {
    let Some(as_is) = arms.first() else { return Vec::new() };
    let doubts = [
        other_ending(look, as_is),
        other_work(look, as_is),
        time_limit(arms).or_else(|| fixed_time(arms)),
        no_faults(look),
    ];
    doubts.into_iter().flatten().collect()
}

fn no_faults(look: &Measurement) -> Option<String> {
    (!look.has_faults())
        .then(|| "this kernel counts no page faults, as in gVisor: only times and sizes are compared".into())
}

fn other_ending(look: &Measurement, as_is: &ArmResult) -> Option<String> {
    let endings = endings(as_is);
    let measured: Vec<String> = endings.iter().map(ToString::to_string).collect();
    (!endings.contains(&look.ending)).then(|| {
        format!(
            "the first look ended with {}, the measured runs with {}: each run must find what the first one found \
             (sh -c 'rm -rf out; CMD')",
            look.ending,
            measured.join(" or ")
        )
    })
}

/// What was made stays made: of a build the later runs do next to nothing.
fn other_work(look: &Measurement, as_is: &ArmResult) -> Option<String> {
    let processor = as_is.runs.iter().map(Measurement::processor).max()?;
    let faults = as_is.runs.iter().map(|run| run.minor_faults).max()?;
    let is_longer = look.processor() > (processor * FAR_MORE).max(processor + LEAST_MORE);
    let is_more = look.minor_faults > (faults * u64::from(FAR_MORE)).max(faults + LEAST_MORE_FAULTS);
    (is_longer || is_more).then(|| {
        format!(
            "the first look took {:.3} s of processor time and {} minor faults, a measured run {:.3} s and {} at most, as where a \
             command finds its work done: let each run do all of it (sh -c 'make clean && make')",
            look.processor().as_secs_f64(),
            count(look.minor_faults),
            processor.as_secs_f64(),
            count(faults)
        )
    })
}

fn time_limit(arms: &[ArmResult]) -> Option<String> {
    arms.iter().flat_map(endings).all(Ending::is_time_limit).then(|| {
        "every run was ended by its time limit (exit status 124): what it used until then is compared, not how much it did with it"
            .into()
    })
}

/// What does a fixed amount of work ends sooner when the kernel takes less of its time.
fn fixed_time(arms: &[ArmResult]) -> Option<String> {
    let base = Figures::of(&arms.first()?.runs)?;
    let is_alike = |one: f64, other: f64, part: f64| (one - other).abs() <= other * part;
    let in_kernel = |figures: &Figures| figures.system.median / figures.processor.median.max(LEAST_TIME);
    arms.iter().skip(1).find_map(|arm| {
        let figures = Figures::of(&arm.runs)?;
        let is_fixed = is_alike(figures.elapsed.median, base.elapsed.median, SAME_ELAPSED)
            && is_alike(figures.processor.median, base.processor.median, SAME_PROCESSOR)
            && (figures.system.median - base.system.median).abs() >= LEAST_TIME
            && (in_kernel(&figures) - in_kernel(&base)).abs() > OTHER_KERNEL_PART;
        is_fixed.then(|| {
            format!(
                "as it is the kernel took {:.2} s of the processor time, under {} {:.2} s, and both took as long, as where a command \
                 runs for a fixed time and does more or less in it: let it do a fixed amount of work, or compare how much it did",
                base.system.median, arm.name, figures.system.median
            )
        })
    })
}

/// The largest process by far, where Faultless did not serve it.
#[must_use]
pub fn of_reach(observed: &[Observed]) -> Option<String> {
    let is_served = |seen: &&Observed| seen.is_reached && !seen.has_own_malloc;
    let served = observed.iter().filter(is_served).map(|seen| seen.bytes).max().unwrap_or(0);
    let largest = observed.iter().filter(|seen| !is_served(seen)).max_by_key(|seen| seen.bytes)?;
    is_far_larger(largest.bytes, served).then(|| {
        let why = match largest {
            Observed { has_own_malloc: true, .. } => {
                "defines malloc itself: no arm reached it, neither Faultless nor a setting of libc's"
            }
            Observed { is_static: true, .. } => {
                "had not loaded Faultless: it is linked statically, and of all arms settings of libc alone reach it, if its malloc \
                 is glibc's"
            }
            _ => {
                "had not loaded Faultless: no arm reached it, for it gains privilege, or its environment was cleaned before (env -i)"
            }
        };
        format!("the largest process, {} with {}, {why}", largest.name, size(largest.bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::tests::runs;
    use crate::verdict::Role;

    fn as_is(elapsed_s: f64, faults: u64) -> [ArmResult; 1] {
        [ArmResult { name: "libc as is".into(), role: Role::AsIs, runs: runs(elapsed_s, faults, 20, 2) }]
    }

    fn look(elapsed_s: f64, faults: u64) -> Measurement {
        runs(elapsed_s, faults, 20, 2).remove(1)
    }

    #[test]
    fn a_first_run_far_beyond_the_others_did_other_work() {
        let made = of_runs(&look(12.0, 900_000), &as_is(0.002, 180));
        assert_eq!(made.len(), 1);
        assert!(made[0].contains("took 10.800 s") && made[0].contains("900,000 minor faults"), "{made:?}");
        assert_eq!(of_runs(&look(0.5, 90_000), &as_is(0.4, 180)).len(), 1, "by its faults");
        assert_eq!(of_runs(&look(12.0, 180), &as_is(0.002, 180)).len(), 1, "by its time");
        assert!(of_runs(&look(2.0, 4_000), &as_is(1.0, 4_000)).is_empty(), "cold caches");
        assert!(of_runs(&look(1.0, 25_000), &as_is(1.0, 10_000)).is_empty(), "less than three times as many");
        assert!(of_runs(&look(0.05, 4_000), &as_is(0.005, 400)).is_empty(), "too little to count");
    }

    #[test]
    fn a_kernel_that_counts_no_faults_is_told() {
        let told = of_runs(&look(1.0, 0), &as_is(1.0, 0));
        assert!(told[0].contains("this kernel counts no page faults"), "{told:?}");
    }

    #[test]
    fn an_ending_of_the_first_run_that_did_not_come_back_is_told() {
        let mut first = look(1.0, 400);
        assert!(of_runs(&first, &as_is(1.0, 400)).is_empty());
        first.ending = Ending::Exited(3);
        let told = of_runs(&first, &as_is(1.0, 400));
        assert!(told[0].contains("with exit status 3, the measured runs with exit status 0"), "{told:?}");
    }

    #[test]
    fn arms_that_take_as_long_with_another_part_of_it_in_the_kernel_run_for_a_fixed_time() {
        let arm = |name: &str, user_s: f64, system_s: f64, elapsed_s: f64| {
            let mut runs = runs(elapsed_s, 400, 20, 2);
            for run in &mut runs {
                run.user = Duration::from_secs_f64(user_s);
                run.system = Duration::from_secs_f64(system_s);
            }
            ArmResult { name: name.into(), role: Role::AsIs, runs }
        };
        let told = |other: ArmResult| of_runs(&look(1.0, 400), &[arm("libc as is", 0.2, 0.7, 1.0), other]);
        let doubts = told(arm("Faultless", 0.85, 0.01, 1.01));
        assert!(
            doubts[0].contains("took 0.70 s of the processor time, under Faultless 0.01 s"),
            "{doubts:?}"
        );
        assert!(told(arm("Faultless", 0.2, 0.01, 0.3)).is_empty(), "it ended sooner");
        assert!(told(arm("Faultless", 0.2, 0.01, 1.0)).is_empty(), "it waits for something else");
        assert!(told(arm("Faultless", 0.3, 0.6, 1.0)).is_empty(), "noise");
        let brief = [arm("libc as is", 0.02, 0.07, 0.1), arm("Faultless", 0.085, 0.001, 0.101)];
        assert_eq!(of_runs(&look(0.1, 400), &brief).len(), 1);
        for (base, other) in [((0.002, 0.003), (0.0, 0.006)), ((0.008, 0.002), (0.001, 0.009))] {
            let short = [arm("libc as is", base.0, base.1, 0.016), arm("Faultless", other.0, other.1, 0.016)];
            assert!(of_runs(&look(0.016, 400), &short).is_empty(), "too little to count");
        }
    }

    #[test]
    fn what_every_time_limit_ended_did_not_end_by_its_work() {
        let mut arms = [as_is(1.0, 400), as_is(1.0, 400)].concat();
        let mut first = look(1.0, 400);
        first.ending = Ending::TIME_LIMIT;
        let mut told = |ending| {
            arms[1].runs.iter_mut().chain([&mut first]).for_each(|run| run.ending = ending);
            arms[0].runs.iter_mut().for_each(|run| run.ending = Ending::TIME_LIMIT);
            first.ending = Ending::TIME_LIMIT;
            of_runs(&first, &arms).join("; ")
        };
        let said = told(Ending::TIME_LIMIT);
        assert!(said.starts_with("every run was ended by its time limit"), "{said}");
        assert_eq!(told(Ending::Exited(0)), "", "one arm ended by itself");
    }

    #[test]
    fn a_process_that_was_not_reached_is_named_where_it_is_the_largest_by_far() {
        let seen = |name: &str, mib: u64, is_reached| Observed {
            name: name.into(),
            bytes: mib << 20,
            is_reached,
            is_static: false,
            has_own_malloc: false,
        };
        let told = of_reach(&[seen("sh", 2, true), seen("postgres", 30, false)]).unwrap();
        assert!(told.starts_with("the largest process, postgres with 30 MiB, had not loaded"), "{told}");
        assert_eq!(of_reach(&[seen("java", 20, true), seen("helper", 30, false)]), None);
        assert_eq!(of_reach(&[seen("sh", 2, true), seen("busybox", 3, false)]), None);
        let linked = Observed { is_static: true, ..seen("busybox", 9, false) };
        assert!(of_reach(&[linked]).unwrap().contains("settings of libc alone reach it"));
        let own = Observed { has_own_malloc: true, ..seen("rustc", 135, true) };
        let told = of_reach(&[seen("cargo", 30, true), own]).unwrap();
        assert!(told.starts_with("the largest process, rustc with 135 MiB, defines malloc itself"), "{told}");
        assert_eq!(of_reach(&[]), None);
    }
}
