//! Claims: a range of addresses, what it is, and how that is known.

use std::collections::BTreeMap;
use std::rc::Rc;

use faultless_records::contents::Extent;

use super::kind::Kind;

/// How well something is known; a stronger claim wins over a weaker one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// Only the layout of the mappings speaks for it.
    Pattern,
    /// Something else points to it: a variable, a stack pointer.
    Pointer,
    /// The kernel's own word.
    Kernel,
    /// It was read in the memory, and its parts agree with each other.
    Contents,
}

impl Strength {
    /// Word for tables and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pattern => "pattern",
            Self::Pointer => "pointer",
            Self::Kernel => "kernel",
            Self::Contents => "contents",
        }
    }
}

/// How something is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// How well.
    pub strength: Strength,
    /// What was found, the same words for all of its kind.
    pub proof: &'static str,
    /// What was found in this one: the arena, the thread, the library.
    pub detail: Rc<str>,
}

impl Evidence {
    /// Evidence without particulars.
    #[must_use]
    pub fn plain(strength: Strength, proof: &'static str) -> Self {
        Self { strength, proof, detail: "".into() }
    }

    /// Evidence with particulars.
    #[must_use]
    pub fn with(strength: Strength, proof: &'static str, detail: impl Into<Rc<str>>) -> Self {
        Self { strength, proof, detail: detail.into() }
    }
}

/// One claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Where.
    pub extent: Extent,
    /// What.
    pub kind: Kind,
    /// How it is known.
    pub evidence: Evidence,
    /// Which call of [`Claims::add`] made it: pieces of one claim have one number.
    pub number: u32,
}

/// Claims that do not overlap: of two for the same address the stronger stays, of two as strong the earlier.
#[derive(Debug, Default)]
pub struct Claims {
    by_start: BTreeMap<u64, Claim>,
    made: u32,
}

impl Claims {
    /// Adds a claim where no stronger one stands.
    pub fn add(&mut self, extent: Extent, kind: Kind, evidence: Evidence) {
        if extent.start >= extent.end {
            return;
        }
        self.made = self.made.saturating_add(1);
        let number = self.made;
        let mut from = extent.start;
        for old in self.within(extent) {
            if old.evidence.strength >= evidence.strength {
                let free = Extent { start: from, end: old.extent.start };
                self.put(free, kind, &evidence, number);
                from = old.extent.end;
                continue;
            }
            // The weaker one keeps what lies outside.
            self.by_start.remove(&old.extent.start);
            let (start, end) = (old.extent.start, old.extent.end);
            self.put(Extent { start, end: extent.start }, old.kind, &old.evidence, old.number);
            self.put(Extent { start: extent.end, end }, old.kind, &old.evidence, old.number);
        }
        self.put(Extent { start: from, end: extent.end }, kind, &evidence, number);
    }

    fn put(&mut self, extent: Extent, kind: Kind, evidence: &Evidence, number: u32) {
        if extent.start < extent.end {
            let claim = Claim { extent, kind, evidence: evidence.clone(), number };
            self.by_start.insert(extent.start, claim);
        }
    }

    /// The claims that overlap a range, ascending and whole.
    #[must_use]
    pub fn within(&self, extent: Extent) -> Vec<Claim> {
        let before = self.by_start.range(..extent.start).next_back();
        let before = before.map(|(_, claim)| claim).filter(|claim| claim.extent.end > extent.start);
        let inside = self.by_start.range(extent.start..extent.end.max(extent.start)).map(|(_, claim)| claim);
        before.into_iter().chain(inside).cloned().collect()
    }

    /// The claim that covers an address.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<&Claim> {
        let (_, claim) = self.by_start.range(..=address).next_back()?;
        claim.extent.contains(address).then_some(claim)
    }

    /// The pieces of a range that nobody claims.
    #[must_use]
    pub fn gaps(&self, extent: Extent) -> Vec<Extent> {
        let mut gaps = Vec::new();
        let mut from = extent.start;
        for claim in self.within(extent) {
            if claim.extent.start > from {
                gaps.push(Extent { start: from, end: claim.extent.start });
            }
            from = claim.extent.end;
        }
        if from < extent.end {
            gaps.push(Extent { start: from, end: extent.end });
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn evidence(strength: Strength) -> Evidence {
        Evidence::plain(strength, "test")
    }

    fn extent(start: u64, end: u64) -> Extent {
        Extent { start, end }
    }

    #[test]
    fn the_stronger_claim_wins_and_the_weaker_keeps_the_rest() {
        let mut claims = Claims::default();
        claims.add(extent(10, 30), Kind::ThreadStack, evidence(Strength::Pattern));
        claims.add(extent(20, 25), Kind::GlibcHeap, evidence(Strength::Contents));
        claims.add(extent(0, 40), Kind::JavaHeap, evidence(Strength::Pattern));
        let all: Vec<(u64, u64, Kind)> = claims
            .within(extent(0, 100))
            .iter()
            .map(|claim| (claim.extent.start, claim.extent.end, claim.kind))
            .collect();
        let (stack, heap, java) = (Kind::ThreadStack, Kind::GlibcHeap, Kind::JavaHeap);
        assert_eq!(all, [(0, 10, java), (10, 20, stack), (20, 25, heap), (25, 30, stack), (30, 40, java)]);
        assert_eq!(claims.gaps(extent(35, 50)), [extent(40, 50)]);
        assert_eq!(claims.at(24).map(|claim| claim.kind), Some(heap));
        assert_eq!(claims.at(40), None);
    }

    proptest! {
        #[test]
        fn claims_never_overlap_and_every_address_has_its_strongest(
            wanted in proptest::collection::vec((0_u64..60, 0_u64..20, 0..4_usize), 0..30)
        ) {
            let strengths = [Strength::Pattern, Strength::Pointer, Strength::Kernel, Strength::Contents];
            let mut claims = Claims::default();
            let mut strongest = [None; 80];
            for (start, bytes, strength) in wanted {
                let strength = strengths[strength];
                claims.add(Extent::new(start, bytes), Kind::Unknown, evidence(strength));
                for place in strongest.iter_mut().skip(start as usize).take(bytes as usize) {
                    *place = (*place).max(Some(strength));
                }
            }
            let all = claims.within(extent(0, 100));
            prop_assert!(all.windows(2).all(|pair| pair[0].extent.end <= pair[1].extent.start));
            for (address, strength) in strongest.iter().enumerate() {
                let found = claims.at(address as u64).map(|claim| claim.evidence.strength);
                prop_assert_eq!(found, *strength);
            }
        }
    }
}
