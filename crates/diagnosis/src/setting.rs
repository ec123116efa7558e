//! The settings of glibc's malloc that the environment can carry.

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

/// glibc's starting value of both thresholds.
pub const DEFAULT_THRESHOLD_BYTES: u64 = 128 << 10;

/// Largest mmap threshold that glibc accepts on 64-bit machines; a higher one is ignored.
/// Source: `HEAP_MAX_SIZE / 2` in glibc's `malloc/arena.c`.
pub const LARGEST_MMAP_THRESHOLD_BYTES: u64 = 32 << 20;

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
