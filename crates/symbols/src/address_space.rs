//! What is mapped where in a process, kept up to date by records of new mappings.

use std::collections::BTreeMap;
use std::ops::Range;

/// A stretch of addresses and what the caller keeps of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped<T> {
    /// First address and the one behind the last.
    pub range: Range<u64>,
    /// Where in the file `range` begins, in bytes.
    pub file_offset: u64,
    /// What it is.
    pub what: T,
}

/// The mappings of one process. That something was unmapped is not recorded by the kernel: an old mapping stays until
/// another takes its place.
#[derive(Debug, Clone)]
pub struct AddressSpace<T> {
    /// By their first addresses; they do not overlap.
    mapped: BTreeMap<u64, Mapped<T>>,
}

impl<T> Default for AddressSpace<T> {
    fn default() -> Self {
        Self { mapped: BTreeMap::new() }
    }
}

impl<T: Clone> AddressSpace<T> {
    /// Puts a mapping in the place of whatever was there; returns the first addresses of mappings that are gone or begin
    /// elsewhere now.
    pub fn map(&mut self, new: Mapped<T>) -> Vec<u64> {
        let Range { start, end } = new.range;
        if start >= end {
            return Vec::new();
        }
        let before = self.mapped.range(..start).next_back().filter(|(_, old)| old.range.end > start);
        let inside = self.mapped.range(start..end);
        let touched: Vec<u64> = before.into_iter().chain(inside).map(|(start, _)| *start).collect();
        let mut gone = Vec::new();
        for key in touched {
            let Some(old) = self.mapped.remove(&key) else { continue };
            if old.range.end > end {
                let cut = end - old.range.start;
                let tail = Mapped {
                    range: end..old.range.end,
                    file_offset: old.file_offset.wrapping_add(cut),
                    what: old.what.clone(),
                };
                self.mapped.insert(end, tail);
            }
            if old.range.start < start {
                self.mapped.insert(key, Mapped { range: old.range.start..start, ..old });
            } else {
                gone.push(key);
            }
        }
        self.mapped.insert(start, new);
        gone
    }

    /// The mapping that holds an address.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<&Mapped<T>> {
        let (_, mapped) = self.mapped.range(..=address).next_back()?;
        mapped.range.contains(&address).then_some(mapped)
    }

    /// The first mapping above an address.
    #[must_use]
    pub fn above(&self, address: u64) -> Option<&Mapped<T>> {
        self.mapped.range(address..).next().map(|(_, mapped)| mapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(range: Range<u64>, what: char) -> Mapped<char> {
        Mapped { range, file_offset: 0, what }
    }

    fn shown(space: &AddressSpace<char>) -> Vec<(Range<u64>, u64, char)> {
        space.mapped.values().map(|mapped| (mapped.range.clone(), mapped.file_offset, mapped.what)).collect()
    }

    #[test]
    fn a_new_mapping_cuts_those_it_covers() {
        let mut space = AddressSpace::default();
        space.map(mapped(10..50, 'a'));
        assert!(space.map(mapped(20..30, 'b')).is_empty(), "a still begins where it began");
        assert_eq!(shown(&space), [(10..20, 0, 'a'), (20..30, 0, 'b'), (30..50, 20, 'a')]);
        assert_eq!(space.map(mapped(15..40, 'c')), [20, 30]);
        assert_eq!(shown(&space), [(10..15, 0, 'a'), (15..40, 0, 'c'), (40..50, 30, 'a')]);
        assert_eq!(space.at(39).map(|mapped| mapped.what), Some('c'));
        assert_eq!(space.at(50), None);
        assert_eq!(space.at(9), None);
        assert_eq!(space.above(41), None);
        assert_eq!(space.above(16).map(|mapped| mapped.range.start), Some(40));
    }

    #[test]
    fn empty_and_turned_ranges_change_nothing() {
        let mut space = AddressSpace::default();
        space.map(mapped(10..20, 'a'));
        space.map(mapped(15..15, 'b'));
        #[allow(clippy::reversed_empty_ranges, reason = "what a damaged record may say")]
        space.map(mapped(18..12, 'b'));
        assert_eq!(shown(&space), [(10..20, 0, 'a')]);
    }
}
