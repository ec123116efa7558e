//! `/proc/PID/pagemap`: eight bytes for each page. Source: Documentation/admin-guide/mm/pagemap.rst of the kernel.

/// Bytes of a page on x86-64, and the least that a page has anywhere.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 8;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// A guard (`MADV_GUARD_INSTALL`): nobody may touch it, it has no memory, and the kernel calls it swapped, too. Since Linux 6.15.
const GUARD: u64 = 1 << 58;

/// State of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// It has no memory; if it belongs to no file it reads as zero.
    Absent,
    /// It has memory.
    Resident,
    /// It lies in swap.
    Swapped,
}

/// The pages of whole entries.
#[must_use]
pub fn parse(bytes: &[u8]) -> Vec<Page> {
    let entries = bytes.chunks_exact(ENTRY_BYTES);
    entries
        .map(|entry| {
            let entry = entry.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
            match entry {
                entry if entry & PRESENT != 0 => Page::Resident,
                entry if entry & (SWAPPED | GUARD) == SWAPPED => Page::Swapped,
                _ => Page::Absent,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_highest_bits_tell_the_state_but_of_guards() {
        let mut bytes = Vec::new();
        for entry in [PRESENT | 0x1234, SWAPPED | 77, SWAPPED | GUARD | 77, 1 << 55] {
            bytes.extend(u64::to_le_bytes(entry));
        }
        bytes.extend([0xff; 7]);
        assert_eq!(parse(&bytes), [Page::Resident, Page::Swapped, Page::Absent, Page::Absent]);
    }
}
