//! The settings of glibc's malloc that the environment can carry.

use std::fmt;

/// A variable and the value it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Name of the variable.
    pub variable: &'static str,
    /// Value.
    pub value: String,
}

/// The variables that glibc reads, and the tunables that they are another name for.
///
/// Source: glibc's `elf/dl-tunables.list`; unchanged from 2.26 on.
pub const VARIABLES: &[(&str, &str)] = &[
    ("MALLOC_ARENA_MAX", "glibc.malloc.arena_max"),
    ("MALLOC_ARENA_TEST", "glibc.malloc.arena_test"),
    ("MALLOC_CHECK_", "glibc.malloc.check"),
    ("MALLOC_MMAP_MAX_", "glibc.malloc.mmap_max"),
    ("MALLOC_MMAP_THRESHOLD_", "glibc.malloc.mmap_threshold"),
    ("MALLOC_PERTURB_", "glibc.malloc.perturb"),
    ("MALLOC_TOP_PAD_", "glibc.malloc.top_pad"),
    ("MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold"),
];

/// The tunable that a variable is another name for; none where glibc does not read it.
#[must_use]
pub fn tunable_of(variable: &str) -> Option<&'static str> {
    VARIABLES.iter().find(|(known, _)| *known == variable).map(|(_, tunable)| *tunable)
}

/// glibc's starting value of both thresholds.
pub const DEFAULT_THRESHOLD_BYTES: u64 = 128 << 10;

/// Largest mmap threshold that every version of glibc accepts on 64-bit machines; before 2.35 a higher one is ignored.
/// Source: `HEAP_MAX_SIZE / 2` in glibc's `malloc/arena.c`.
pub const LARGEST_MMAP_THRESHOLD_BYTES: u64 = 32 << 20;

/// Length and alignment of a heap of a thread's arena on 64-bit machines: `HEAP_MAX_SIZE` in glibc's `malloc/arena.c`.
pub const ARENA_HEAP_BYTES: u64 = 64 << 20;

/// A limit that malloc sets itself and `ld.so --list-tunables` does not tell, in some versions of glibc.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    tunable: &'static str,
    largest: u64,
    /// The first version that has it.
    since: (u32, u32),
    /// The first version that has it no more.
    before: Option<(u32, u32)>,
}

/// On 64-bit machines; a value beyond them is ignored.
///
/// Source: the functions `do_set_…` in glibc's `malloc/malloc.c` of each version; 2.36 was seen to do so. Before 2.30 any
/// `tcache_count` was taken.
const LIMITS: &[Limit] = &[
    Limit {
        tunable: "glibc.malloc.mmap_threshold",
        largest: LARGEST_MMAP_THRESHOLD_BYTES,
        since: (2, 26),
        before: Some((2, 35)),
    },
    Limit { tunable: "glibc.malloc.mxfast", largest: 160, since: (2, 31), before: Some((2, 43)) },
    Limit { tunable: "glibc.malloc.tcache_count", largest: 65_535, since: (2, 30), before: None },
    Limit { tunable: "glibc.malloc.tcache_max", largest: 1032, since: (2, 26), before: Some((2, 42)) },
    // Blocks with their header stay below 4 MiB.
    Limit { tunable: "glibc.malloc.tcache_max", largest: 4_194_280, since: (2, 42), before: None },
];

impl Limit {
    /// The limit that this value is beyond; of all versions where that of glibc is not known.
    #[must_use]
    pub fn passed_by(tunable: &str, value: u64, glibc: Option<(u32, u32)>) -> Option<&'static Self> {
        LIMITS.iter().find(|limit| {
            let holds =
                |version| limit.since <= version && limit.before.is_none_or(|before| version < before);
            limit.tunable == tunable && value > limit.largest && glibc.is_none_or(holds)
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.largest)?;
        if self.largest == LARGEST_MMAP_THRESHOLD_BYTES {
            write!(to, " (32 MiB)")?;
        }
        match self.before {
            Some((major, minor)) => write!(to, ": glibc before {major}.{minor} ignores it"),
            None => write!(to, ": glibc ignores it"),
        }
    }
}

/// The value of `GLIBC_TUNABLES` without the settings of malloc; none when nothing else is in it.
#[must_use]
pub fn tunables_without_malloc(value: &str) -> Option<String> {
    let kept: Vec<&str> = value.split(':').filter(|entry| !entry.starts_with("glibc.malloc.")).collect();
    let kept = kept.join(":");
    (!kept.is_empty()).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_tunables_stay() {
        let value = "glibc.malloc.arena_max=1:glibc.rtld.nns=4:glibc.malloc.check=1";
        assert_eq!(tunables_without_malloc(value).as_deref(), Some("glibc.rtld.nns=4"));
        assert_eq!(tunables_without_malloc("glibc.malloc.arena_max=1"), None);
    }
}
