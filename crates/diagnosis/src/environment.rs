//! Variables of the environment that mean to change malloc and do not, or not as their author believes.
//!
//! The paper that this tool repeats prints two of them without the underscore they end with; set like that they do
//! nothing, and nothing says so.

use std::num::ParseIntError;

use faultless_records::allocator::Allocator;
use faultless_records::tunables::Tunable;

use crate::setting::{Limit, VARIABLES, tunable_of};

/// What the checks are made on.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'facts> {
    /// All variables.
    pub variables: &'facts [(String, String)],
    /// Version of glibc; none when it is not known.
    pub glibc: Option<(u32, u32)>,
    /// What `ld.so --list-tunables` printed; empty when it cannot.
    pub tunables: &'facts [Tunable],
    /// The allocator that the command runs with as it is.
    pub allocator: Allocator,
    /// Entries of `LD_PRELOAD` that name no file.
    pub missing_preloads: &'facts [String],
}

/// A variable that does not do what it seems to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its name.
    pub variable: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

/// From this version on glibc's debugging allocator is a library of its own.
const DEBUG_LIBRARY_SINCE: (u32, u32) = (2, 34);

/// From this version on glibc has no fast bins and takes their tunable without a word (`do_set_mxfast`).
const NO_FAST_BINS_SINCE: (u32, u32) = (2, 43);

/// From this version on glibc takes nothing of tunables that it cannot read as a whole (`parse_tunables_string`).
const WHOLE_OR_NOTHING_SINCE: (u32, u32) = (2, 39);

/// The names of mallopt's parameters, which are not names of variables.
const PARAMETERS: &[&str] = &[
    "M_ARENA_MAX",
    "M_ARENA_TEST",
    "M_CHECK_ACTION",
    "M_MMAP_MAX",
    "M_MMAP_THRESHOLD",
    "M_PERTURB",
    "M_TOP_PAD",
    "M_TRIM_THRESHOLD",
];

/// Variables that other allocators read, by the start of the name.
const FOREIGN: &[(&str, Allocator)] = &[
    ("MALLOC_CONF", Allocator::Jemalloc),
    ("_RJEM_MALLOC_CONF", Allocator::Jemalloc),
    ("TCMALLOC_", Allocator::Tcmalloc),
    ("MIMALLOC_", Allocator::Mimalloc),
    ("TBB_MALLOC_", Allocator::Tbbmalloc),
    ("SCUDO_OPTIONS", Allocator::Scudo),
];

/// All findings, in the order of the variables.
#[must_use]
pub fn check(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, value) in facts.variables {
        let messages = match name.as_str() {
            "GLIBC_TUNABLES" => check_tunables(value, facts),
            "FAULTLESS" => crate::options::check(value),
            "LD_PRELOAD" => facts
                .missing_preloads
                .iter()
                .map(|entry| format!("names {entry}, which is no file; the loader passes over it"))
                .collect(),
            _ => check_name(name, value, facts).into_iter().collect(),
        };
        findings.extend(messages.into_iter().map(|message| Finding { variable: name.clone(), message }));
    }
    findings
}

fn check_name(name: &str, value: &str, facts: &Facts<'_>) -> Option<String> {
    if let Some((_, allocator)) = FOREIGN.iter().find(|(start, _)| name.starts_with(start)) {
        return match facts.allocator {
            runs if runs == *allocator => None,
            // One that is linked into the program shows in no file.
            Allocator::Libc => Some(format!(
                "is read by {allocator} only, of which no library is loaded: no effect unless it is linked into the program"
            )),
            other => {
                Some(format!("is read by {allocator} only, and the command runs with {other}: no effect"))
            }
        };
    }
    if let Some(tunable) = tunable_of(name) {
        return check_known(name, tunable, value, facts);
    }
    if PARAMETERS.contains(&name) {
        let right = similar(&name.replacen("M_", "MALLOC_", 1));
        let right = right.map_or(String::new(), |right| format!("; the variable is {right}"));
        return Some(format!(
            "is a parameter of mallopt(3), not a variable that glibc reads: no effect{right}"
        ));
    }
    if name == "MALLOC_TRACE" {
        let library = "and, from glibc 2.34 on, with libc_malloc_debug.so preloaded";
        return Some(format!("has an effect only in programs that call mtrace(3), {library}"));
    }
    if !name.to_ascii_uppercase().starts_with("MALLOC") {
        return None;
    }
    Some(match similar(name) {
        Some(right) => format!("is no variable that glibc reads: no effect; the right name is {right}"),
        None => "is no variable that glibc reads: no effect on malloc".into(),
    })
}

fn check_known(name: &str, tunable: &str, value: &str, facts: &Facts<'_>) -> Option<String> {
    if facts.allocator != Allocator::Libc && facts.allocator != Allocator::LibcDebug {
        return Some(format!(
            "is read by glibc's malloc only, and the command runs with {}: no effect",
            facts.allocator
        ));
    }
    if name == "MALLOC_CHECK_" {
        return needs_debug_library(facts);
    }
    check_value(tunable, value, facts)
}

fn needs_debug_library(facts: &Facts<'_>) -> Option<String> {
    let is_separate = facts.glibc.is_some_and(|version| version >= DEBUG_LIBRARY_SINCE);
    (is_separate && facts.allocator != Allocator::LibcDebug)
        .then(|| "has no effect from glibc 2.34 on unless libc_malloc_debug.so.0 is preloaded".into())
}

/// Source for the way numbers are read: `_dl_strtoul` in glibc's `elf/dl-minimal.c`.
fn check_value(tunable: &str, value: &str, facts: &Facts<'_>) -> Option<String> {
    if tunable == "glibc.malloc.mxfast" && facts.glibc.is_some_and(|version| version >= NO_FAST_BINS_SINCE) {
        return Some("has no effect from glibc 2.43 on, which has no fast bins".into());
    }
    let text = value.trim_start_matches([' ', '\t']);
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let Some((number, rest)) = leading_number(digits) else {
        return Some(format!("has the value '{value}', which is no number: glibc reads 0 or ignores it"));
    };
    let Ok(number) = number else {
        return Some(format!(
            "has the value '{value}' of more than 64 bits: glibc reads {} or ignores it",
            u64::MAX
        ));
    };
    if !rest.is_empty() {
        let is_size = ["_threshold", "_pad"].iter().any(|end| tunable.ends_with(end));
        let meant = with_unit(number, rest)
            .filter(|_| is_size)
            .map_or(String::new(), |bytes| format!("; write {bytes}"));
        return Some(format!(
            "has the value '{value}': glibc knows no units and reads {number} or ignores it{meant}"
        ));
    }
    let number = if is_negative { number.wrapping_neg() } else { number };
    if let Some(limit) = Limit::passed_by(tunable, number, facts.glibc) {
        return Some(format!("has the value {value}, above {limit}"));
    }
    let known = facts.tunables.iter().find(|known| known.name == tunable)?;
    let (minimum, maximum) = (known.minimum?, known.maximum?);
    (number < minimum || number > maximum)
        .then(|| format!("has the value {value}, outside of {minimum} to {maximum}: glibc ignores it"))
}

/// Decimal, `0x…` or octal `0…`, then whatever follows; an error in place of a number that is too large.
fn leading_number(text: &str) -> Option<(Result<u64, ParseIntError>, &str)> {
    let (radix, digits) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (16, digits),
        None if text.starts_with('0') => (8, text),
        None => (10, text),
    };
    let end = digits.find(|character: char| !character.is_digit(radix)).unwrap_or(digits.len());
    (end > 0).then(|| (u64::from_str_radix(&digits[..end], radix), &digits[end..]))
}

fn with_unit(number: u64, unit: &str) -> Option<u64> {
    let shift = match unit.to_ascii_lowercase().trim() {
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

fn check_tunables(value: &str, facts: &Facts<'_>) -> Vec<String> {
    if facts.glibc.is_some_and(|version| version >= WHOLE_OR_NOTHING_SINCE)
        && let Some(flaw) = flaw_of_tunables(value)
    {
        return vec![format!("{flaw}: glibc ignores all of the variable")];
    }
    let mut messages = Vec::new();
    for entry in value.split(':').filter(|entry| !entry.is_empty()) {
        let Some((name, value)) = entry.split_once('=') else {
            messages.push(format!("has the entry '{entry}' without a value: no effect"));
            continue;
        };
        if value.contains("glibc.") {
            messages.push(format!("has the entry '{entry}': entries are separated by colons"));
            continue;
        }
        let is_known = facts.tunables.is_empty() || facts.tunables.iter().any(|known| known.name == name);
        let is_about_malloc = name.starts_with("glibc.malloc.");
        if !is_known {
            let names = facts.tunables.iter().map(|known| known.name.as_str());
            let right = nearest(name, names)
                .map_or(String::new(), |right| format!("; the right name may be {right}"));
            messages.push(format!("names {name}, which this glibc does not know: no effect{right}"));
        } else if is_about_malloc && !matches!(facts.allocator, Allocator::Libc | Allocator::LibcDebug) {
            messages.push(format!("sets {name}, and the command runs with {}: no effect", facts.allocator));
        } else if name == "glibc.malloc.check" {
            messages
                .extend(needs_debug_library(facts).map(|message| format!("sets {name}, which {message}")));
        } else if is_about_malloc {
            messages.extend(
                check_value(name, value, facts).map(|message| format!("sets {name}, which {message}")),
            );
        }
    }
    messages
}

/// For what glibc cannot read tunables as a whole.
fn flaw_of_tunables(value: &str) -> Option<String> {
    let has_two = |entry: &&str| entry.matches('=').count() > 1;
    if let Some(entry) = value.split(':').find(has_two) {
        return Some(format!("has the entry '{entry}' with two '=', where entries are separated by colons"));
    }
    // One without a value is passed over if another follows.
    match value.rsplit(':').next()? {
        "" if value.is_empty() => None,
        "" => Some("ends with a colon".into()),
        last => (!last.contains('=')).then(|| format!("ends with the entry '{last}' without a value")),
    }
}

/// The variable that was probably meant: the same but for underscores and case, or two letters away.
fn similar(name: &str) -> Option<&'static str> {
    let plain = |name: &str| name.trim_end_matches('_').to_ascii_uppercase();
    let names = || VARIABLES.iter().map(|(known, _)| *known);
    names().find(|known| plain(known) == plain(name)).or_else(|| nearest(&name.to_ascii_uppercase(), names()))
}

fn nearest<'name>(name: &str, names: impl Iterator<Item = &'name str>) -> Option<&'name str> {
    let (distance, found) =
        names.map(|known| (edit_distance(name, known), known)).min_by_key(|(distance, _)| *distance)?;
    (distance <= 2).then_some(found)
}

/// Levenshtein's distance between two short ASCII names.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, from) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, to) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunables() -> Vec<Tunable> {
        faultless_records::tunables::parse(
            "glibc.malloc.arena_max: 0x0 (min: 0x1, max: 0xffffffffffffffff)\n\
             glibc.malloc.mmap_max: 0 (min: 0, max: 2147483647)\n\
             glibc.malloc.mmap_threshold: 0x0 (min: 0x0, max: 0xffffffffffffffff)\n\
             glibc.malloc.mxfast: 0x0 (min: 0x0, max: 0xffffffffffffffff)\n\
             glibc.malloc.perturb: 0 (min: 0, max: 255)\n\
             glibc.malloc.tcache_count: 0x0 (min: 0x0, max: 0xffffffffffffffff)\n\
             glibc.malloc.tcache_max: 0x0 (min: 0x0, max: 0xffffffffffffffff)\n\
             glibc.malloc.trim_threshold: 0x0 (min: 0x0, max: 0xffffffffffffffff)\n\
             glibc.rtld.nns: 0x4 (min: 0x1, max: 0x10)\n",
        )
    }

    fn findings_with(allocator: Allocator, glibc: (u32, u32), pairs: &[(&str, &str)]) -> Vec<String> {
        let variables: Vec<(String, String)> =
            pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let tunables = tunables();
        let facts = Facts {
            variables: &variables,
            glibc: Some(glibc),
            tunables: &tunables,
            allocator,
            missing_preloads: &["/no/such.so".to_owned()],
        };
        check(&facts).into_iter().map(|finding| finding.message).collect()
    }

    fn findings(pairs: &[(&str, &str)]) -> Vec<String> {
        findings_with(Allocator::Libc, (2, 36), pairs)
    }

    #[test]
    fn the_papers_own_variables_lack_their_underscore() {
        let found = findings(&[("MALLOC_MMAP_MAX", "0"), ("MALLOC_TRIM_THRESHOLD", "-1")]);
        assert!(found[0].ends_with("no effect; the right name is MALLOC_MMAP_MAX_"));
        assert!(found[1].ends_with("no effect; the right name is MALLOC_TRIM_THRESHOLD_"));
    }

    #[test]
    fn right_settings_are_passed_in_silence() {
        let right = [
            ("MALLOC_MMAP_MAX_", "0"),
            ("MALLOC_TRIM_THRESHOLD_", "-1"),
            ("MALLOC_ARENA_MAX", "2"),
            ("MALLOC_MMAP_THRESHOLD_", "0x500000"),
            ("GLIBC_TUNABLES", "glibc.malloc.arena_max=2:glibc.rtld.nns=8"),
            ("PATH", "/bin"),
        ];
        assert_eq!(findings(&right), Vec::<String>::new());
    }

    #[test]
    fn misspelt_names_are_answered_with_the_right_one() {
        for (wrong, right) in [
            ("MALLOC_ARENA_MAX_", "MALLOC_ARENA_MAX"),
            ("MALLOC_MMAP_TRESHOLD_", "MALLOC_MMAP_THRESHOLD_"),
            ("malloc_top_pad_", "MALLOC_TOP_PAD_"),
            ("M_MMAP_THRESHOLD", "MALLOC_MMAP_THRESHOLD_"),
        ] {
            assert!(findings(&[(wrong, "1")])[0].ends_with(right), "{wrong}");
        }
        assert!(findings(&[("MALLOCOPTIONS", "disclaim")])[0].ends_with("no effect on malloc"));
        for (one, other, distance) in
            [("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(edit_distance(one, other), distance, "{one} {other}");
        }
    }

    #[test]
    fn values_that_glibc_reads_otherwise_are_named() {
        assert!(
            findings(&[("MALLOC_TRIM_THRESHOLD_", "64M")])[0]
                .contains("reads 64 or ignores it; write 67108864")
        );
        assert!(
            findings(&[("MALLOC_ARENA_MAX", "2k")])[0].ends_with("reads 2 or ignores it"),
            "a number, not a size"
        );
        for (value, bytes) in [("64k", 64 << 10), ("0100KiB", 64 << 10), ("0x10 gb", 16_u64 << 30)] {
            let found = &findings(&[("MALLOC_TOP_PAD_", value)])[0];
            assert!(found.ends_with(&format!("; write {bytes}")), "{found}");
        }
        assert!(findings(&[("MALLOC_MMAP_MAX_", "off")])[0].contains("no number"));
        assert!(findings(&[("MALLOC_MMAP_MAX_", "-1")])[0].contains("outside of 0 to 2147483647"));
        assert!(findings(&[("MALLOC_ARENA_MAX", "0")])[0].contains("outside of 1"));
        let beyond = &findings(&[("MALLOC_TRIM_THRESHOLD_", "99999999999999999999")])[0];
        assert!(
            beyond.contains("more than 64 bits: glibc reads 18446744073709551615 or ignores it"),
            "{beyond}"
        );
        assert!(findings(&[("MALLOC_TRIM_THRESHOLD_", "0x")])[0].contains("no number"));
    }

    #[test]
    fn limits_depend_on_the_version() {
        let large = [("MALLOC_MMAP_THRESHOLD_", "41943040")];
        assert_eq!(findings_with(Allocator::Libc, (2, 36), &large).len(), 0);
        assert!(findings_with(Allocator::Libc, (2, 31), &large)[0].contains("32 MiB"));
        let check = [("MALLOC_CHECK_", "3")];
        assert!(findings_with(Allocator::Libc, (2, 36), &check)[0].contains("libc_malloc_debug"));
        assert_eq!(findings_with(Allocator::Libc, (2, 33), &check).len(), 0);
        assert_eq!(findings_with(Allocator::LibcDebug, (2, 36), &check).len(), 0);
    }

    #[test]
    fn values_beyond_mallocs_own_limits_are_named_though_the_loader_takes_them() {
        let said = |glibc, name: &str, value: &str| {
            let entry = format!("glibc.malloc.{name}={value}");
            findings_with(Allocator::Libc, glibc, &[("GLIBC_TUNABLES", &entry)])
        };
        for (glibc, name, largest, beyond) in [
            ((2, 36), "tcache_count", "65535", "65536"),
            ((2, 36), "mxfast", "160", "161"),
            ((2, 36), "tcache_max", "1032", "1033"),
            ((2, 42), "tcache_max", "4194280", "4194281"),
            ((2, 34), "mmap_threshold", "33554432", "33554433"),
        ] {
            assert_eq!(said(glibc, name, largest), Vec::<String>::new(), "{name}");
            let found = said(glibc, name, beyond).join(" ");
            let start = format!("sets glibc.malloc.{name}, which has the value {beyond}, above {largest}");
            assert!(found.starts_with(&start) && found.ends_with(" ignores it"), "{found}");
        }
        assert_eq!(said((2, 28), "tcache_count", "65536").len(), 0, "any was taken");
        assert!(
            said((2, 43), "mxfast", "64")[0]
                .ends_with("no effect from glibc 2.43 on, which has no fast bins")
        );
    }

    #[test]
    fn settings_of_an_allocator_that_does_not_run_have_no_effect() {
        assert!(findings(&[("MALLOC_CONF", "dirty_decay_ms:0")])[0].contains("read by jemalloc only"));
        let found = findings_with(Allocator::Mimalloc, (2, 36), &[("MALLOC_CONF", "x:1")]);
        assert!(found[0].ends_with("runs with mimalloc: no effect"));
        assert_eq!(findings_with(Allocator::Jemalloc, (2, 36), &[("MALLOC_CONF", "x:1")]).len(), 0);
        let found = findings_with(Allocator::Jemalloc, (2, 36), &[("MALLOC_ARENA_MAX", "2")]);
        assert!(found[0].contains("runs with jemalloc: no effect"));
    }

    #[test]
    fn settings_of_an_allocator_that_may_be_linked_into_the_program_are_not_said_to_have_no_effect() {
        for name in ["MALLOC_CONF", "_RJEM_MALLOC_CONF", "MIMALLOC_VERBOSE", "TCMALLOC_SAMPLE_PARAMETER"] {
            let found = findings(&[(name, "1")]).remove(0);
            assert!(found.ends_with("no effect unless it is linked into the program"), "{name}: {found}");
        }
    }

    #[test]
    fn tunables_are_checked_by_name_value_and_separator() {
        let one = |value| findings(&[("GLIBC_TUNABLES", value)]).remove(0);
        assert!(one("glibc.malloc.arenamax=2").contains("the right name may be glibc.malloc.arena_max"));
        assert!(one("glibc.malloc.arena_max").contains("without a value"));
        assert!(one("glibc.malloc.perturb=300").contains("outside of 0 to 255"));
        assert!(one("glibc.malloc.mmap_max=0,glibc.malloc.arena_max=1").contains("separated by colons"));
    }

    #[test]
    fn tunables_that_a_newer_glibc_cannot_read_as_a_whole_are_said_to_have_no_effect_at_all() {
        let of =
            |glibc, value| findings_with(Allocator::Libc, glibc, &[("GLIBC_TUNABLES", value)]).join("; ");
        for (value, flaw) in [
            ("glibc.malloc.arena_max=2:", "ends with a colon"),
            ("glibc.malloc.arena_max=2:glibc.malloc.perturb", "'glibc.malloc.perturb' without a value"),
            ("glibc.rtld.nns=8=9:glibc.malloc.arena_max=2", "'glibc.rtld.nns=8=9' with two '='"),
        ] {
            let found = of((2, 39), value);
            assert!(
                found.contains(flaw) && found.ends_with(": glibc ignores all of the variable"),
                "{value}: {found}"
            );
            assert!(!of((2, 38), value).contains("all of the variable"), "{value}");
        }
        assert_eq!(of((2, 39), ""), "");
        assert_eq!(of((2, 39), "glibc.malloc.arena_max=2"), "");
        let passed_over = of((2, 39), "glibc.malloc.perturb:glibc.malloc.arena_max=2");
        assert_eq!(passed_over, "has the entry 'glibc.malloc.perturb' without a value: no effect");
    }

    #[test]
    fn a_preload_that_is_not_there_is_named() {
        assert!(findings(&[("LD_PRELOAD", "/no/such.so")])[0].contains("/no/such.so"));
    }
}
