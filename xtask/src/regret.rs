//! `cargo xtask regret TRACE...`: what policies of purging would have cost on recorded lives of spans, as multiples of the least
//! that anybody could pay who knew the future. docs/decay.md explains it and shows the result.

mod policy;
mod pool;
mod trace;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use faultless_heap::decay::{Decay, HOLD_MAX_NS, HOLD_MIN_NS};

use crate::arguments::Arguments;
use crate::failure::{Failure, Result, usage};
use policy::{Fixed, Policy};
use pool::{Cost, optimum, replay};
use trace::Step;

const MS: u64 = 1_000_000;

/// A policy's name, how it is made, and how often the thread looks that purges for it.
type Candidate = (&'static str, fn() -> Box<dyn Policy>, u64);

const CANDIDATES: [Candidate; 9] = [
    ("shipped", || Box::new(Decay::new()), HOLD_MIN_NS),
    ("shipped, looking each 25 ms", || Box::new(Decay::new()), 25 * MS),
    ("shipped, 50 ms at most", || Box::new(held_at_most(50 * MS)), 50 * MS),
    ("at once", || Box::new(Fixed(0)), MS),
    ("10 ms", || Box::new(Fixed(10 * MS)), 10 * MS),
    ("50 ms", || Box::new(Fixed(50 * MS)), 50 * MS),
    ("250 ms", || Box::new(Fixed(HOLD_MAX_NS)), HOLD_MAX_NS),
    ("1 s", || Box::new(Fixed(1000 * MS)), 1000 * MS),
    ("never", || Box::new(Fixed(u64::MAX)), MS),
];

/// The shipped policy with another longest hold.
fn held_at_most(hold_ns: u64) -> Decay {
    let mut decay = Decay::new();
    decay.set_hold_max(hold_ns);
    decay
}

/// What is compared with is at least this, in ns: a policy that costs half a millisecond where nothing would do is not bad.
const WORTH_NS: f64 = 1e6;

/// What a program costs under each policy, all of its processes together.
#[derive(Default)]
struct Line {
    least: Cost,
    costs: [Cost; CANDIDATES.len()],
}

impl Line {
    fn add(&mut self, steps: &[Step]) {
        add(&mut self.least, optimum(steps));
        for ((_, make, tick_ns), cost) in CANDIDATES.iter().zip(&mut self.costs) {
            add(cost, replay(steps, &mut *make(), *tick_ns));
        }
    }

    fn regret(&self, candidate: usize) -> f64 {
        self.costs[candidate].total() / self.least.total().max(WORTH_NS)
    }
}

fn add(sum: &mut Cost, cost: Cost) {
    sum.idle += cost.idle;
    sum.purge += cost.purge;
    sum.refault += cost.refault;
}

/// Reads the traces, and prints a table of regrets for each half of the programs.
pub fn run(arguments: Arguments) -> Result<()> {
    let files = arguments.words()?;
    if files.is_empty() {
        return usage("regret needs traces: FAULTLESS=trace:PREFIX writes PREFIX.PID (docs/decay.md)");
    }
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    for file in files {
        let failed = |reason: String| Failure::Wrong(format!("cannot read {file}: {reason}"));
        let bytes = fs::read(&file).map_err(|error| failed(error.to_string()))?;
        let steps = trace::parse(&bytes).map_err(failed)?;
        lines.entry(program_of(&file)).or_default().add(&steps);
    }
    print!("{}", table(&lines));
    Ok(())
}

/// The name of a trace without the process's number.
fn program_of(file: &str) -> String {
    let path = Path::new(file);
    let name = if path.extension().is_some_and(|end| end.to_string_lossy().parse::<u32>().is_ok()) {
        path.file_stem()
    } else {
        path.file_name()
    };
    name.map_or_else(|| file.to_owned(), |name| name.to_string_lossy().into_owned())
}

fn table(lines: &BTreeMap<String, Line>) -> String {
    let mut text = heading();
    let is_worth = |line: &Line| line.least.total().max(line.costs[0].total()) >= WORTH_NS;
    let (worth, small): (Vec<_>, Vec<_>) = lines.iter().partition(|(_, line)| is_worth(line));
    // Every other one, so that both halves hold programs and cases of all kinds.
    for (half, name) in ["first half", "second half"].into_iter().enumerate() {
        let of_half: Vec<_> = worth.iter().skip(half).step_by(2).collect();
        for (program, line) in &of_half {
            text.push_str(&row(program, line));
        }
        if !of_half.is_empty() {
            text.push_str(&summary(name, &of_half.iter().map(|(_, line)| *line).collect::<Vec<_>>()));
        }
    }
    if !small.is_empty() {
        let names: Vec<&str> = small.iter().map(|(name, _)| name.as_str()).collect();
        text.push_str(&format!("\nLess than a millisecond, at best and as shipped: {}\n", names.join(", ")));
    }
    text
}

fn heading() -> String {
    let names: Vec<&str> = CANDIDATES.iter().map(|(name, _, _)| *name).collect();
    let rule = "--:|".repeat(CANDIDATES.len() + 2);
    format!(
        "| program | best, ms | {} | shipped: idle, purge, refault, ms |\n|---|{rule}\n",
        names.join(" | ")
    )
}

fn row(program: &str, line: &Line) -> String {
    let regrets: Vec<String> = (0..CANDIDATES.len()).map(|candidate| times(line.regret(candidate))).collect();
    let Cost { idle, purge, refault } = line.costs[0];
    format!(
        "| {program} | {} | {} | {}, {}, {} |\n",
        milliseconds(line.least.total()),
        regrets.join(" | "),
        milliseconds(idle),
        milliseconds(purge),
        milliseconds(refault)
    )
}

/// Geometric mean and worst of a half.
fn summary(name: &str, lines: &[&Line]) -> String {
    let of = |candidate: usize| {
        let regrets = lines.iter().map(|line| line.regret(candidate));
        let mean = (regrets.clone().map(f64::ln).sum::<f64>() / lines.len() as f64).exp();
        format!("**{}** ({})", times(mean), times(regrets.fold(0.0, f64::max)))
    };
    let cells: Vec<String> = (0..CANDIDATES.len()).map(of).collect();
    format!("| **{name}**: mean (worst) | | {} | |\n", cells.join(" | "))
}

fn times(regret: f64) -> String {
    if regret < 10.0 { format!("{regret:.2}") } else { format!("{regret:.0}") }
}

fn milliseconds(ns: f64) -> String {
    let ms = ns / 1e6;
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_one_program_share_its_name() {
        assert_eq!(program_of("/x/gcc.123"), "gcc");
        assert_eq!(program_of("case-a.b"), "case-a.b");
        assert_eq!(program_of("case-a.b.77"), "case-a.b");
    }

    #[test]
    fn halves_have_their_means_and_what_is_too_small_is_named() {
        let line = |ns: f64| Line {
            least: Cost { idle: ns, ..Cost::default() },
            costs: [Cost { idle: 2.0 * ns, ..Cost::default() }; CANDIDATES.len()],
        };
        let lines = [("a", 2e6), ("b", 3e6), ("c", 10.0)].map(|(name, ns)| (name.to_owned(), line(ns)));
        let text = table(&lines.into());
        assert!(text.contains("| a | 2.0 | 2.00 | 2.00 "), "{text}");
        assert!(text.contains("**second half**: mean (worst) | | **2.00** (2.00)"), "{text}");
        assert!(text.contains("as shipped: c"), "{text}");
    }
}
