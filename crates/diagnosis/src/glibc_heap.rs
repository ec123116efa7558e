//! glibc's heaps walked through nothing but reads of memory: which chunks are in use, which are free, and which of the free
//! ones hold pages. Pure: the memory is a trait, so that a live process, a core file and a test's array are walked alike.
//!
//! Everything read is checked before it is believed: a live process changes under the walk, a core file may be damaged.
//! Every loop is bounded by what the arena says it owns.

pub mod account;
pub mod arenas;
pub mod bins;
mod caches;
pub mod choice;
mod chunks;
#[cfg(any(test, feature = "made-heaps"))]
pub mod made;
pub mod mapped;
mod owners;
pub mod page_states;
pub mod pages;
mod parameters;
pub mod sizes;
pub mod stretches;
#[cfg(test)]
mod tests;
pub mod trap;
pub mod walk;
mod window;

use faultless_records::mappings::Mapping;
pub use faultless_records::pagemap::{PAGE_BYTES, Page};

/// What a walk reads.
pub trait Memory {
    /// Fills `buffer` from `address` on; false where not all of it can be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool;

    /// As [`Memory::read`], for long stretches: pages without memory need not be touched.
    fn read_sparse(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.read(address, buffer)
    }

    /// Whether it may change under the walk, so that a second look may see more than the first.
    fn changes(&self) -> bool {
        true
    }

    /// How many threads there are, where that is known: no more can have a cache.
    fn threads(&self) -> Option<usize> {
        None
    }

    /// Lets the process go on for a moment, longer after more looks, so that a thread which changes its cache is through with that, or
    /// waits for a processor.
    fn let_go_on(&self, _looks: u32) {}

    /// Whether the walk has to end: who waits for it has waited for long enough.
    fn is_overdue(&self) -> bool {
        false
    }

    /// The mappings as they are now, where they may be others than those that the walk began with.
    fn areas(&self) -> Option<Vec<Area>> {
        None
    }

    /// State of `count` pages from `address` on; none where it is not known, as in a core file.
    fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>>;

    /// The first page from `address` on that may have memory, or `end` if there is none below; `address` where that can be told only
    /// page by page.
    fn next_present(&self, address: u64, _end: u64) -> u64 {
        address
    }
}

/// A mapping, as far as the walk is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Whether it can be written to.
    pub is_writable: bool,
    /// Whether it is private and no file's.
    pub is_anonymous: bool,
    /// Whether it is the one that `brk` moves.
    pub is_break: bool,
}

impl Area {
    /// Whether `address` lies in it.
    #[must_use]
    pub fn holds(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// What `brk` moves as one area, and other writable memory that touches as one: locked pages, advice and protection divide a
/// mapping, and malloc goes on across that. `areas` are in ascending order.
#[must_use]
pub fn joined(areas: impl IntoIterator<Item = Area>) -> Vec<Area> {
    let mut all: Vec<Area> = Vec::new();
    for area in areas {
        let touched = all.last_mut().filter(|last| {
            let is_alike = last.is_break == area.is_break && last.is_anonymous && area.is_anonymous;
            last.end == area.start && is_alike && (area.is_break || (last.is_writable && area.is_writable))
        });
        match touched {
            Some(last) => {
                last.end = area.end;
                last.is_writable |= area.is_writable;
            }
            None => all.push(area),
        }
    }
    all
}

/// The areas of a process.
#[must_use]
pub fn areas(mappings: &[Mapping]) -> Vec<Area> {
    joined(mappings.iter().map(|mapping| Area {
        start: mapping.start,
        end: mapping.end,
        is_writable: mapping.is_writable(),
        is_anonymous: mapping.is_anonymous()
            || mapping.name.starts_with(b"[anon")
            || mapping.name == b"[heap]",
        is_break: mapping.name == b"[heap]",
    }))
}

/// The area that holds `address`; `areas` are in ascending order.
#[must_use]
pub fn area_of(areas: &[Area], address: u64) -> Option<&Area> {
    let behind = areas.partition_point(|area| area.start <= address);
    areas[..behind].last().filter(|area| area.holds(address))
}
