//! Which layout a libc has: that of its version, if that fits, else the one by which most can be explained.

use faultless_records::glibc_heap::{LAYOUTS, Layout};

use super::arenas::{self, Data, Search};
use super::walk::{self, HeapWalk};
use super::{Area, Memory};

/// What became of a libc.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Its heaps.
    Walked(Box<HeapWalk>),
    /// Its malloc was never asked for memory: another one serves this process, or none.
    Unused,
    /// Nothing in its data looks like an arena of any known version.
    Nothing,
}

/// Walks the heaps of the libc with this data. The layout of `version` is taken if arenas are found by it; distributions
/// carry changes back, and the version is not always known, so otherwise every layout is tried.
#[must_use]
pub fn walk(memory: &dyn Memory, areas: &[Area], data: &Data, version: Option<(u32, u32)>) -> Outcome {
    let walked = |layout| match arenas::search(memory, areas, data, layout) {
        Search::Arenas(ring) => Outcome::Walked(Box::new(walk::walk(memory, areas, &ring))),
        Search::Unused => Outcome::Unused,
        Search::Nothing => Outcome::Nothing,
    };
    let expected = version.and_then(Layout::of).map(walked);
    if let Some(outcome @ (Outcome::Walked(_) | Outcome::Unused)) = expected {
        return outcome;
    }
    let mut best: Option<Box<HeapWalk>> = None;
    let mut is_unused = false;
    for layout in &LAYOUTS {
        match walked(layout) {
            Outcome::Walked(walk) if best.as_ref().is_none_or(|best| rank(&walk) > rank(best)) => {
                best = Some(walk)
            }
            Outcome::Unused => is_unused = true,
            _ => {}
        }
    }
    match best {
        Some(walk) => Outcome::Walked(walk),
        None if is_unused => Outcome::Unused,
        None => Outcome::Nothing,
    }
}

/// Exact before torn; then by what only the right layout finds: threads' caches, malloc's parameters, mapped blocks.
fn rank(walk: &HeapWalk) -> (bool, u64, bool, u64) {
    (walk.is_exact(), walk.total.cached.blocks, walk.parameters.is_some(), walk.mapped.found_blocks)
}
