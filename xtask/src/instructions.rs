//! `cargo xtask instructions`: instructions of malloc and free, counted by callgrind.
//!
//! A driver makes N and 2N pairs, and the difference of the two counts is that of N pairs without the start of
//! the process. The driver's own loop is measured with two functions of one instruction each and subtracted.
//!
//! `--check` counts a subset and compares it with the figures in `xtask/instructions.txt`, and counts the pages of the library's text
//! that a process runs from its start to its end (`crates/malloc/order.ld` puts them side by side).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::Arguments;
use crate::failure::{At, Failure, Result, wrong};
use crate::library::{Profile, build};
use crate::programs::source;
use crate::sandbox::{Sandbox, tool};
use crate::workspace::{TemporaryFolder, c_compiler, succeed};

const SIZES_BYTES: [u64; 5] = [16, 64, 1_000, 4_000, 20_000];
const PAIRS: u64 = 20_000;
/// A count may exceed the stored figure by this much.
const TOLERANCE: f64 = 0.03;
/// Lines `MODE BYTES INSTRUCTIONS`; a mode is one of the driver's.
const STORED: &str = include_str!("../instructions.txt");
/// The pages of the library that a start may run: the first 64 KiB, which the kernel maps at the first fault. Any other brings in as much.
const START_PAGES: u64 = 16;
/// `ret` of the empty malloc and of the empty free.
const EMPTY_PAIR: f64 = 2.0;

/// What one call, or one pair of calls, costs on average.
struct Cost {
    malloc: f64,
    free: f64,
    pair: f64,
}

/// Runs the task.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let preload = arguments.option("--preload")?;
    let is_check = arguments.switch("--check");
    arguments.end()?;
    tool("valgrind", "valgrind")?;
    let library = match preload {
        Some(path) => PathBuf::from(&path).canonicalize().at(Path::new(&path))?,
        None => build(Profile::Dist)?,
    };
    count(TemporaryFolder::new("instructions")?.path(), &library, is_check)
}

/// Builds the driver in the folder and counts what it runs.
fn count(folder: &Path, library: &Path, is_check: bool) -> Result<()> {
    let sandbox = Sandbox::new(folder, "pairs", library)?;
    let words = ["-O2", "-fno-builtin", "-fno-plt", "-o"].map(Path::new);
    succeed(c_compiler().args(words).args([sandbox.path("pairs"), source("pairs.c")]))?;

    if is_check {
        return check(&sandbox);
    }
    println!("instructions per call under {}, glibc's beside it; last in, first out", library.display());
    println!(
        "{:>8}  {:>8} {:>8} {:>8}  {:>8} {:>8} {:>8}",
        "bytes", "malloc", "free", "pair", "glibc", "free", "pair"
    );
    for size_bytes in SIZES_BYTES {
        let ours = cost(&sandbox, true, size_bytes)?;
        let glibc = cost(&sandbox, false, size_bytes)?;
        println!(
            "{size_bytes:>8}  {:>8.2} {:>8.2} {:>8.2}  {:>8.2} {:>8.2} {:>8.2}",
            ours.malloc, ours.free, ours.pair, glibc.malloc, glibc.free, glibc.pair
        );
    }
    Ok(())
}

/// Compares each stored figure with a count of today.
fn check(sandbox: &Sandbox) -> Result<()> {
    let mut worse = 0;
    for line in STORED.lines().filter(|line| !line.starts_with('#')) {
        let (mode, size_bytes, stored) = stored_figure(line)?;
        let empty = match mode {
            "batch" => "empty-batch",
            "drawn" => "empty-drawn",
            _ => "empty",
        };
        let now = per_pair(sandbox, true, mode, size_bytes, None)?
            - per_pair(sandbox, true, empty, size_bytes, None)?
            + EMPTY_PAIR;
        let verdict = if now > stored * (1.0 + TOLERANCE) {
            worse += 1;
            "WORSE"
        } else if now < stored * (1.0 - TOLERANCE) {
            "better: store it"
        } else {
            "ok"
        };
        println!(
            "{mode:<7} {size_bytes:>6} bytes: {now:>7.2} instructions a pair, stored {stored:>7.2}  {verdict}"
        );
    }
    if worse > 0 {
        return wrong(format!("{worse} counts exceed the stored figure by more than 3 %"));
    }
    let pages = start_pages(sandbox)?;
    println!(
        "start and end: {} pages of text, all of them to be among the library's first {START_PAGES}",
        pages.len()
    );
    match pages.first().zip(pages.last()) {
        // Where valgrind loads the library its text begins in the first of the pages that count.
        Some((&first, &last)) if last < first / START_PAGES * START_PAGES + START_PAGES => Ok(()),
        _ => {
            wrong(format!("a start runs the pages {pages:x?}: name its functions in crates/malloc/order.ld"))
        }
    }
}

/// The pages of the library's text that a process runs which allocates and frees once.
fn start_pages(sandbox: &Sandbox) -> Result<BTreeSet<u64>> {
    let counts = sandbox.path("start");
    let options = ["--dump-instr=yes", "--compress-pos=no", "--compress-strings=no"].map(str::to_owned);
    callgrind(sandbox, true, &counts, &options, ["malloc", "1000", "1"])?;
    let text = std::fs::read_to_string(&counts).at(&counts)?;
    Ok(pages_of(&text, &sandbox.library().to_string_lossy()))
}

/// The pages of an object in what callgrind wrote: after `ob=PATH` lines `0xADDRESS LINE COUNT`, until the next object.
fn pages_of(text: &str, object: &str) -> BTreeSet<u64> {
    let mut is_it = false;
    let addresses = text.lines().filter_map(|line| {
        if let Some(path) = line.strip_prefix("ob=") {
            is_it = path == object;
        }
        let address = line.strip_prefix("0x").filter(|_| is_it)?.split(' ').next()?;
        u64::from_str_radix(address, 16).ok()
    });
    addresses.map(|address| address >> 12).collect()
}

/// Reads a line of [`STORED`].
fn stored_figure(line: &str) -> Result<(&str, u64, f64)> {
    let mut words = line.split_whitespace();
    let mut read = || Some((words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?));
    read().ok_or_else(|| Failure::Wrong(format!("xtask/instructions.txt: cannot read {line:?}")))
}

fn cost(sandbox: &Sandbox, preload: bool, size_bytes: u64) -> Result<Cost> {
    let each = |mode, inside| per_pair(sandbox, preload, mode, size_bytes, inside);
    let pair = each("malloc", None)? - each("empty", None)? + EMPTY_PAIR;
    Ok(Cost { malloc: each("malloc", Some("malloc"))?, free: each("malloc", Some("free"))?, pair })
}

/// Instructions of one round of the loop; with `inside`, only those within that function and what it calls.
fn per_pair(
    sandbox: &Sandbox,
    preload: bool,
    mode: &str,
    size_bytes: u64,
    inside: Option<&str>,
) -> Result<f64> {
    let count =
        |pairs| collected(sandbox, preload, [mode, &size_bytes.to_string(), &u64::to_string(&pairs)], inside);
    Ok((count(2 * PAIRS)? - count(PAIRS)?) / PAIRS as f64)
}

fn collected(sandbox: &Sandbox, preload: bool, words: [&str; 3], inside: Option<&str>) -> Result<f64> {
    let options: Vec<String> =
        inside.map(|function| format!("--toggle-collect={function}")).into_iter().collect();
    let text = callgrind(sandbox, preload, Path::new("/dev/null"), &options, words)?;
    parse(&text).ok_or_else(|| Failure::Wrong(format!("valgrind: no count\n{text}")))
}

/// Runs the driver under callgrind; what that says.
fn callgrind(
    sandbox: &Sandbox,
    preload: bool,
    counts: &Path,
    options: &[String],
    words: [&str; 3],
) -> Result<String> {
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", counts.display()));
    command.args(options).current_dir(sandbox.path("")).env_remove("LD_PRELOAD");
    if preload {
        command.env("LD_PRELOAD", sandbox.library());
    }
    command.arg(sandbox.path("pairs")).args(words);
    let output =
        command.output().map_err(|error| Failure::Missing(format!("cannot start valgrind: {error}")))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    // The loader only warns, and glibc's calls would be counted under the library's name.
    if text.contains("cannot be preloaded") {
        return wrong(format!("{} is not loaded\n{text}", sandbox.library().display()));
    }
    if output.status.success() { Ok(text) } else { wrong(format!("valgrind: {}\n{text}", output.status)) }
}

/// The number in callgrind's line `==PID== Collected : NUMBER`.
fn parse(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_figures_can_be_read() {
        let mut lines = STORED.lines().filter(|line| !line.starts_with('#'));
        assert!(lines.clone().count() > 0 && lines.all(|line| stored_figure(line).is_ok()));
        assert!(stored_figure("malloc 64").is_err());
    }

    #[test]
    fn pages_are_those_of_the_one_object() {
        let text = "ob=/a.so\nfn=f\n0x1000 0 1\n0x1fff 0 1\ncob=/b.so\n0x3000 0 9\nob=/b.so\n0x7000 0 1\n";
        assert_eq!(pages_of(text, "/a.so").into_iter().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn the_count_is_found_among_other_lines() {
        assert_eq!(parse("==7== Events    : Ir\n==7== Collected : 1234\n==7==\n"), Some(1234.0));
        assert_eq!(parse("==7== Events    : Ir\n"), None);
    }
}
