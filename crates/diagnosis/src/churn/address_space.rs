//! The mappings that a process made while it was looked at, kept as the kernel keeps them: cut, replaced, moved.

use std::collections::BTreeMap;

use faultless_records::contents::Extent;
use faultless_records::memory_call::Operation;
use faultless_records::pagemap::PAGE_BYTES;

/// A run of addresses that one call made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// When it was made.
    pub born_ns: u64,
    /// What made it.
    pub origin: Operation,
    /// The bytes it had when it was made.
    pub made_bytes: u64,
    /// It was made by the process itself, not by one that it is a copy of.
    pub is_own: bool,
    /// The call chain that made it, where that was taken.
    pub stack: Option<u32>,
}

/// A part of a mapping that is there no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// What it was a part of.
    pub mapping: Mapping,
    /// Its bytes.
    pub bytes: u64,
    /// The mapping itself goes on: it was made smaller.
    pub goes_on: bool,
}

impl Ended {
    /// Whether the mapping went as a whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.goes_on && self.bytes == self.mapping.made_bytes
    }
}

/// All mappings of one process that are known.
#[derive(Debug, Clone, Default)]
pub struct AddressSpace {
    /// By first address; the end comes first in the value.
    parts: BTreeMap<u64, (u64, Mapping)>,
}

impl AddressSpace {
    /// Makes a mapping; what it replaces has ended.
    pub fn map(&mut self, start: u64, bytes: u64, mapping: Mapping) -> Vec<Ended> {
        let ended = self.unmap(start, bytes);
        if bytes > 0 {
            self.parts.insert(start, (start.saturating_add(bytes), mapping));
        }
        ended
    }

    /// Takes a range away and returns what was known in it.
    pub fn unmap(&mut self, start: u64, bytes: u64) -> Vec<Ended> {
        self.cut(start, bytes)
            .into_iter()
            .map(|(from, to, mapping)| Ended { mapping, bytes: to - from, goes_on: false })
            .collect()
    }

    /// Moves or resizes a mapping; it keeps its birth. What it shrank by, or came to lie on, has ended.
    pub fn remap(&mut self, old: u64, old_bytes: u64, new: u64, new_bytes: u64) -> Vec<Ended> {
        let taken = self.cut(old, old_bytes);
        let mapping = taken.first().map(|(_, _, mapping)| Mapping { made_bytes: new_bytes, ..*mapping });
        let Some(mapping) = mapping else { return self.unmap(new, new_bytes) };
        let mut ended = self.map(new, new_bytes, mapping);
        if new_bytes < old_bytes {
            ended.push(Ended { mapping, bytes: old_bytes - new_bytes, goes_on: true });
        }
        ended
    }

    /// Takes note of a range that is mapped, of which not more is known; returns the bytes of it that were not known before. What was
    /// is the neighbours that the kernel joined a new mapping to, or a mapping whose permissions changed.
    pub fn learn(&mut self, start: u64, bytes: u64) -> u64 {
        let of_unknown_age =
            Mapping { born_ns: 0, origin: Operation::MapFile, made_bytes: bytes, is_own: false, stack: None };
        let known: u64 = self.map(start, bytes, of_unknown_age).iter().map(|part| part.bytes).sum();
        bytes.saturating_sub(known)
    }

    /// Takes note of a range that was reserved before anything else that is known.
    pub fn reserved_before(&mut self, range: Extent) {
        let (born_ns, origin, made_bytes) = (0, Operation::MapReserve, range.bytes());
        let reserved = Mapping { born_ns, origin, made_bytes, is_own: false, stack: None };
        self.map(range.start, made_bytes, reserved);
    }

    /// The range and the mapping that holds an address.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<(u64, u64, Mapping)> {
        let (start, (end, mapping)) = self.parts.range(..=address).next_back()?;
        (address < *end).then_some((*start, *end, *mapping))
    }

    /// Everything that is there.
    pub fn parts(&self) -> impl Iterator<Item = Ended> {
        self.parts.iter().map(|(start, (end, mapping))| Ended {
            mapping: *mapping,
            bytes: end - start,
            goes_on: false,
        })
    }

    /// The same mappings in a copy of the process, which did not make them.
    #[must_use]
    pub fn copied(&self) -> Self {
        let mut copy = self.clone();
        for (_, mapping) in copy.parts.values_mut() {
            mapping.is_own = false;
        }
        copy
    }

    fn cut(&mut self, start: u64, bytes: u64) -> Vec<(u64, u64, Mapping)> {
        let end = start.saturating_add(bytes);
        let mut taken = Vec::new();
        if bytes == 0 {
            return taken;
        }
        let before = self.parts.range(..start).next_back().map(|(first, _)| *first);
        let within: Vec<u64> =
            before.into_iter().chain(self.parts.range(start..end).map(|(first, _)| *first)).collect();
        for first in within {
            let Some((last, mapping)) = self.parts.get(&first).copied() else { continue };
            let (from, to) = (first.max(start), last.min(end));
            if from >= to {
                continue;
            }
            self.parts.remove(&first);
            if first < from {
                self.parts.insert(first, (from, mapping));
            }
            if to < last {
                self.parts.insert(to, (last, mapping));
            }
            taken.push((from, to, mapping));
        }
        taken
    }
}

/// A length as the kernel takes it: whole pages.
#[must_use]
pub fn whole_pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(born_ns: u64, made_bytes: u64) -> Mapping {
        Mapping { born_ns, origin: Operation::MapAnonymous, made_bytes, is_own: true, stack: None }
    }

    #[test]
    fn a_hole_leaves_both_sides_and_none_of_the_pieces_is_whole() {
        let mut space = AddressSpace::default();
        assert_eq!(space.map(0x1000, 0x5000, mapping(1, 0x5000)), []);
        let ended = space.unmap(0x2000, 0x1000);
        assert_eq!(ended, [Ended { mapping: mapping(1, 0x5000), bytes: 0x1000, goes_on: false }]);
        assert!(!ended[0].is_whole());
        assert_eq!(space.at(0x1fff).unwrap().1, 0x2000);
        assert_eq!(space.at(0x2000), None);
        assert_eq!(space.at(0x3000).unwrap().0, 0x3000);
        let rest: u64 = space.unmap(0, u64::MAX).iter().map(|ended| ended.bytes).sum();
        assert_eq!(rest, 0x4000);
        assert_eq!(space.parts().count(), 0);
    }

    #[test]
    fn a_mapping_over_others_ends_them() {
        let mut space = AddressSpace::default();
        space.map(0x1000, 0x1000, mapping(1, 0x1000));
        space.map(0x2000, 0x2000, mapping(2, 0x2000));
        let ended = space.map(0x1000, 0x2000, mapping(3, 0x2000));
        assert_eq!(ended.iter().map(|ended| ended.mapping.born_ns).collect::<Vec<_>>(), [1, 2]);
        assert!(ended[0].is_whole() && !ended[1].is_whole());
        assert_eq!(space.at(0x2fff).unwrap().2.born_ns, 3);
        assert_eq!(space.at(0x3000).unwrap().2.born_ns, 2);
    }

    #[test]
    fn a_moved_mapping_keeps_its_birth() {
        let mut space = AddressSpace::default();
        space.map(0x1000, 0x2000, mapping(7, 0x2000));
        assert_eq!(space.remap(0x1000, 0x2000, 0x9000, 0x4000), []);
        assert_eq!(space.at(0x1000), None);
        let ended = space.unmap(0x9000, 0x4000);
        assert!(ended[0].is_whole() && ended[0].mapping.born_ns == 7);
        space.map(0x1000, 0x3000, mapping(8, 0x3000));
        let shrunk = space.remap(0x1000, 0x3000, 0x1000, 0x1000);
        assert_eq!(shrunk.iter().map(|ended| ended.bytes).sum::<u64>(), 0x2000);
        assert!(shrunk[0].goes_on && !shrunk[0].is_whole());
    }

    #[test]
    fn of_a_range_joined_to_its_neighbours_only_the_new_part_is_learned() {
        let mut space = AddressSpace::default();
        assert_eq!(space.learn(0x9000, 0x1000), 0x1000);
        assert_eq!(space.learn(0x8000, 0x2000), 0x1000, "one more below");
        assert_eq!(space.learn(0x8000, 0x2000), 0, "other permissions, or the same addresses again");
        assert_eq!(space.learn(0x4000, 0x1000), 0x1000);
        assert_eq!(space.learn(0x4000, 0x6000), 0x3000, "what lay between two");
        assert_eq!(space.parts().count(), 1);
    }

    #[test]
    fn nonsense_is_survived() {
        let mut space = AddressSpace::default();
        space.map(u64::MAX - 10, 100, mapping(1, 100));
        space.map(0, 0, mapping(1, 0));
        assert_eq!(
            space.remap(5, 0, u64::MAX, u64::MAX),
            [Ended { mapping: mapping(1, 100), bytes: 0, goes_on: false }][..0]
        );
        space.unmap(0, u64::MAX);
        assert_eq!(space.copied().parts().count(), 0);
    }
}
