//! What pages the kernel gave: read from `smaps`, and why they are not huge where that can be told.

use super::facts::{kib_field, own_file};
use crate::os::{self, Lines};

/// What a region's memory consists of at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// Bytes in memory and in the page tables.
    pub resident_bytes: usize,
    /// Of these, bytes in huge pages.
    pub huge_bytes: usize,
    /// Of these, locked bytes.
    pub locked_bytes: usize,
    /// Bytes of the pages that the mapping is made of; more than the system's page for required huge pages.
    pub page_bytes: usize,
    /// Why transparent huge pages do not come by themselves here, if a setting says so.
    pub obstacle: Option<Obstacle>,
}

/// A setting that keeps transparent huge pages away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// `/sys/kernel/mm/transparent_hugepage/enabled` says never.
    Never,
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled` says never or deny: it is what counts for shared regions.
    SharedNever,
    /// The process was started with `PR_SET_THP_DISABLE`.
    Disabled,
    /// The kernel has none.
    Missing,
}

/// Sums up the mappings that lie in `base..base + bytes`; `None` where `/proc` cannot be read. Walks the page tables of the whole
/// process: not for a fast path.
pub fn read(base: usize, bytes: usize, page_bytes: usize, obstacle: Option<Obstacle>) -> Option<Pages> {
    let mut lines = own_file("smaps")?;
    let mut sum = Pages { resident_bytes: 0, huge_bytes: 0, locked_bytes: 0, page_bytes, obstacle };
    let (mut is_ours, mut before_bytes) = (false, 0);
    while let Some(line) = lines.next_line() {
        match addresses(line) {
            Some((from, to)) => {
                is_ours = from >= base && to <= base + bytes;
                before_bytes = sum.resident_bytes;
            }
            None if is_ours => sum.take(line, before_bytes),
            None => {}
        }
    }
    Some(sum)
}

impl Pages {
    /// Takes a line of a mapping; so many bytes are resident of those before it.
    fn take(&mut self, line: &str, before_bytes: usize) {
        let field = |key| kib_field(line, key);
        // Pages of the pool are not in Rss.
        let of_pool = field("Private_Hugetlb:").or_else(|| field("Shared_Hugetlb:"));
        let huge = field("AnonHugePages:").or_else(|| field("ShmemPmdMapped:"));
        let add = |sum: &mut usize, bytes: Option<usize>| *sum = sum.saturating_add(bytes.unwrap_or(0));
        add(&mut self.resident_bytes, field("Rss:").or(of_pool));
        add(&mut self.huge_bytes, huge.or_else(|| field("FilePmdMapped:")).or(of_pool));
        // Not `Locked:`, which of a file is this mapping's share of what several map. The flags come last.
        if line.strip_prefix("VmFlags:").is_some_and(|flags| flags.split(' ').any(|flag| flag == "lo")) {
            self.locked_bytes += self.resident_bytes - before_bytes;
        }
    }
}

/// The range of a mapping's first line, such as `7f00-7f01 rw-p …`.
fn addresses(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split(' ').next()?.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}

/// Bytes of a transparent huge page; `None` where the kernel has none.
pub fn transparent_page_bytes() -> Option<usize> {
    os::read_number(c"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
}

/// What keeps transparent huge pages from coming by themselves, to memory that was asked for or mapped without.
pub fn obstacle(is_shared: bool, is_asked: bool) -> Option<Obstacle> {
    if transparent_page_bytes().is_none() {
        return Some(Obstacle::Missing);
    }
    if os::are_huge_pages_disabled(is_asked) {
        return Some(Obstacle::Disabled);
    }
    let says = |path, words: &[&str]| {
        let mut lines = Lines::open(path)?;
        let line = lines.next_line()?;
        Some(words.iter().any(|word| chosen(line) == Some(word)))
    };
    if is_shared {
        let path = c"/sys/kernel/mm/transparent_hugepage/shmem_enabled";
        return (says(path, &["never", "deny"]) == Some(true)).then_some(Obstacle::SharedNever);
    }
    let path = c"/sys/kernel/mm/transparent_hugepage/enabled";
    (says(path, &["never"]) == Some(true)).then_some(Obstacle::Never)
}

/// The word in brackets, which is the one in force.
fn chosen(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_mapping_add_up() {
        let mut sum =
            Pages { resident_bytes: 0, huge_bytes: 0, locked_bytes: 0, page_bytes: 4096, obstacle: None };
        for line in [
            "Rss:  8 kB",
            "AnonHugePages: 4 kB",
            "ShmemPmdMapped: 0 kB",
            "Locked: 4 kB",
            "VmFlags: rd lo sd ",
        ] {
            sum.take(line, 0);
        }
        assert_eq!((sum.resident_bytes, sum.huge_bytes, sum.locked_bytes), (8192, 4096, 8192));
        sum.take("Shared_Hugetlb: 2048 kB", 8192);
        assert_eq!((sum.resident_bytes, sum.huge_bytes), (8192 + (2 << 20), 4096 + (2 << 20)));
    }

    #[test]
    fn first_lines_of_mappings_are_told_from_fields() {
        assert_eq!(addresses("7f00-7f10 rw-p 00000000 00:00 0"), Some((0x7f00, 0x7f10)));
        assert_eq!(addresses("Rss:   4 kB"), None);
        assert_eq!(addresses("THPeligible:    1"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_line_of_smaps_is_too_strange(line in ".{0,200}", digits in "[0-9a-f]{0,20}") {
            for line in [line.clone(), format!("{digits}-{digits} {line}"), format!("Rss: {digits} kB")] {
                let _ = (addresses(&line), chosen(&line));
                let mut sum = Pages { resident_bytes: 0, huge_bytes: 0, locked_bytes: 0, page_bytes: 1, obstacle: None };
                sum.take(&line, 0);
            }
        }
    }

    #[test]
    fn the_setting_in_force_is_the_one_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }
}
