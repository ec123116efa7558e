//! `cargo xtask dist`: the copyable static binary, and the library with its glibc baseline checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::arguments::Arguments;
use crate::failure::{At, Failure, Result, wrong};
use crate::library::{Profile, build};
use crate::workspace::{cargo, output, succeed, target};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The newest glibc that the library may need: that of RHEL 7, the oldest still met.
const BASELINE: Version = Version(2, 17);

/// What an old glibc keeps in libdl and libpthread, which the library does not ask to be loaded: these it may only refer to
/// weakly.
const ELSEWHERE: &[&str] =
    &["dlsym", "pthread_create", "pthread_join", "pthread_key_create", "pthread_setspecific"];

/// A glibc version, major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32);

/// Runs the task.
pub fn run(arguments: Arguments) -> Result<()> {
    arguments.end()?;
    let library = build(Profile::Dist)?;
    let symbols = output(Command::new("objdump").arg("-T").arg(&library))?;
    if let Some(symbol) =
        hard_references(&symbols).find(|symbol| ELSEWHERE.contains(symbol) || symbol.starts_with("pthread_"))
    {
        return wrong(format!("{symbol} is not weak: the library would not load with glibc before 2.34"));
    }
    let needed = needed(&symbols)?;
    println!("{} needs", library.display());
    for (Version(major, minor), symbols) in &needed {
        println!("  GLIBC_{major}.{minor}: {}", symbols.iter().cloned().collect::<Vec<_>>().join(" "));
    }
    if let Some((Version(major, minor), symbols)) = needed.iter().find(|(version, _)| **version > BASELINE) {
        let Version(base_major, base_minor) = BASELINE;
        return wrong(format!(
            "{symbols:?} need GLIBC_{major}.{minor}; the baseline is GLIBC_{base_major}.{base_minor}"
        ));
    }

    let binary = static_binary(&library)?;
    let folder = target()?.join("dist-out");
    fs::create_dir_all(&folder).at(&folder)?;
    for file in [&library, &binary] {
        let copy = folder.join(file.file_name().unwrap_or_default());
        fs::copy(file, &copy).at(file)?;
        println!("{} ({} bytes)", copy.display(), fs::metadata(&copy).at(&copy)?.len());
    }
    succeed(Command::new(folder.join("faultless")).arg("--version"))
}

/// Builds the tool with libc inside. Only its own crate is told so: with the whole workspace told, procedural
/// macros do not build.
fn static_binary(library: &Path) -> Result<std::path::PathBuf> {
    let target = target()?;
    let mut command = cargo();
    command.args([
        "rustc",
        "--package",
        "faultless-cli",
        "--bin",
        "faultless",
        "--release",
        "--target",
        TRIPLE,
    ]);
    command.arg("--target-dir").arg(&target).env("FAULTLESS_SO", library);
    succeed(command.args(["--", "-C", "target-feature=+crt-static"]))?;
    let binary = target.join(TRIPLE).join("release/faultless");
    let headers = output(Command::new("readelf").args(["--program-headers", "--wide"]).arg(&binary))?;
    if headers.contains("INTERP") { wrong(format!("{} is not static", binary.display())) } else { Ok(binary) }
}

/// The symbols that must be found for the library to load, from `objdump -T`: its second column is `w` for a weak one.
fn hard_references(symbols: &str) -> impl Iterator<Item = &str> {
    let is_hard = |line: &&str| line.contains("*UND*") && line.split_whitespace().nth(1) != Some("w");
    symbols.lines().filter(is_hard).filter_map(|line| line.split_whitespace().last())
}

/// The symbols that the library takes from glibc, by the version that brought them, from `objdump -T`.
fn needed(symbols: &str) -> Result<BTreeMap<Version, BTreeSet<String>>> {
    let mut needed: BTreeMap<Version, BTreeSet<String>> = BTreeMap::new();
    for line in symbols.lines().filter(|line| line.contains("*UND*")) {
        let mut words = line.split_whitespace().rev();
        let (Some(symbol), Some(version)) = (words.next(), words.next()) else { continue };
        let Some(version) = version.trim_matches(['(', ')']).strip_prefix("GLIBC_") else { continue };
        let unknown = || Failure::Wrong(format!("cannot read the version GLIBC_{version} of {symbol}"));
        needed.entry(parse(version).ok_or_else(unknown)?).or_default().insert(symbol.to_owned());
    }
    Ok(needed)
}

/// `2.14` or `2.2.5`; a patch level never decides.
fn parse(version: &str) -> Option<Version> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some(Version(numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_references_are_told_from_hard_ones() {
        let lines = "0000000000000000  w   DF *UND*  0000000000000000 (GLIBC_2.2.5) dlsym\n\
                     0000000000000000      DF *UND*  0000000000000000 (GLIBC_2.2.5) mmap\n";
        assert_eq!(hard_references(lines).collect::<Vec<_>>(), ["mmap"]);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let lines = "0000000000000000      DF *UND*  0000000000000000 (GLIBC_2.2.5) mmap\n\
                     0000000000000000      DF *UND*  0000000000000000 (GLIBC_2.14) memcpy\n\
                     0000000000000000  w   D  *UND*  0000000000000000  Base        __rseq_size\n\
                     0000000000001000 g    DF .text  0000000000000010  Base        malloc\n";
        let needed = needed(lines).unwrap();
        assert_eq!(needed.keys().copied().collect::<Vec<_>>(), [Version(2, 2), Version(2, 14)]);
        assert!(Version(2, 2) < BASELINE && Version(2, 34) > BASELINE);
    }
}
