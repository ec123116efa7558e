//! The glibc that the shared library needs: checked whenever it is built as shipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::failure::{Failure, Result, wrong};
use crate::sandbox::tool;
use crate::workspace::output;

/// The newest glibc that the library may need: that of RHEL 7, the oldest still met.
const BASELINE: Version = Version(2, 17);

/// A glibc version, major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32, u32);

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "GLIBC_{}.{}", self.0, self.1)
    }
}

/// The symbols that a library takes from glibc, by the version that brought them.
pub type Needed = BTreeMap<Version, BTreeSet<String>>;

/// Checks that a library loads with the oldest glibc; what it takes from glibc.
pub fn check(library: &Path) -> Result<Needed> {
    let symbols = output(Command::new(tool("objdump", "binutils")?).arg("-T").arg(library))?;
    // An old glibc keeps these in libdl and libpthread, which the library does not ask to be loaded.
    let is_elsewhere = |symbol: &&str| *symbol == "dlsym" || symbol.starts_with("pthread_");
    if let Some(symbol) = hard_references(&symbols).find(is_elsewhere) {
        return wrong(format!("{symbol} is not weak: the library would not load with glibc before 2.34"));
    }
    let needed = needed(&symbols)?;
    match needed.iter().find(|(version, _)| **version > BASELINE) {
        Some((version, symbols)) => wrong(format!("{symbols:?} need {version}; the baseline is {BASELINE}")),
        None => Ok(needed),
    }
}

/// The symbols that must be found for the library to load, from `objdump -T`: its second column is `w` for a weak one.
fn hard_references(symbols: &str) -> impl Iterator<Item = &str> {
    let is_hard = |line: &&str| line.contains("*UND*") && line.split_whitespace().nth(1) != Some("w");
    symbols.lines().filter(is_hard).filter_map(|line| line.split_whitespace().last())
}

/// The symbols that the library takes from glibc, by the version that brought them, from `objdump -T`.
fn needed(symbols: &str) -> Result<Needed> {
    let mut needed = Needed::new();
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
