//! From chunk to chunk through a stretch of memory that an arena owns.

use std::collections::HashSet;

use faultless_records::glibc_heap::{ALIGNMENT, LEAST_CHUNK_BYTES, SizeWord};

use super::window::Window;

/// Bytes of a fencepost's header: what stands where a stretch ends without a top chunk.
const FENCEPOST_BYTES: u64 = 16;

/// What a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The program has it, or a thread's cache.
    Used,
    /// In a bin, with its flags and its links.
    Binned {
        /// Size and flags as stored.
        stored: u64,
        /// The next one in its bin.
        next: u64,
        /// The one before.
        previous: u64,
    },
    /// In a fast bin.
    Fast,
    /// The rest at the end, from which new chunks are cut.
    Top,
    /// Marks of an end; nobody's.
    Fencepost,
}

/// A chunk as the walk met it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Where its header begins.
    pub address: u64,
    /// Bytes, header included.
    pub bytes: u64,
    /// What it is.
    pub kind: Kind,
}

/// Where a walk could not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The chunk.
    pub address: u64,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// What to walk.
pub struct Stretch<'fast> {
    /// The first chunk.
    pub first: u64,
    /// No chunk reaches beyond.
    pub end: u64,
    /// The arena's top chunk, wherever it is.
    pub top: u64,
    /// Whether the arena is a thread's: its chunks say so.
    pub is_of_thread_arena: bool,
    /// Chunks in fast bins, which look used.
    pub fast: &'fast HashSet<u64>,
}

/// Visits every chunk in ascending order and returns where the stretch ends.
///
/// # Errors
/// [`Fault`]; what was visited before it may be true.
pub fn walk(
    window: &mut Window<'_>,
    stretch: &Stretch<'_>,
    mut visit: impl FnMut(&mut Window<'_>, Chunk),
) -> Result<u64, Fault> {
    let mut address = stretch.first;
    let mut size = read_size(window, address)?;
    let mut fenceposts = 0;
    while address < stretch.end {
        let fault = |reason| Fault { address, reason };
        let bytes = size.bytes();
        let left = stretch.end - address;
        if bytes == 0 {
            // The second fencepost of a thread's heap; a few bytes of padding may follow.
            if fenceposts == 0 || left > LEAST_CHUNK_BYTES {
                return Err(fault("its size is 0"));
            }
            visit(window, Chunk { address, bytes: left, kind: Kind::Fencepost });
            return Ok(stretch.end);
        }
        if !bytes.is_multiple_of(ALIGNMENT) || bytes > left {
            return Err(fault("its size leads out of the heap"));
        }
        if address == stretch.top {
            visit(window, Chunk { address, bytes, kind: Kind::Top });
            return Ok(address + bytes);
        }
        if bytes == FENCEPOST_BYTES {
            visit(window, Chunk { address, bytes, kind: Kind::Fencepost });
            address += bytes;
            fenceposts += 1;
            if address == stretch.end {
                return Ok(address);
            }
            // Two of them end a stretch of the main arena, and behind a top of the least size a third.
            let next = read_size(window, address);
            if fenceposts > 1 && !next.is_ok_and(|next| next.bytes() == FENCEPOST_BYTES && fenceposts == 2) {
                return Ok(address);
            }
            size = next?;
            continue;
        }
        if let Some(reason) = objection(size, left, fenceposts) {
            return Err(fault(reason));
        }
        // Before the next one's head, which may lie far away.
        let [stored, forward, back] = window.words::<3>(address + 8).ok_or(fault("it cannot be read"))?;
        let [footer, next] = window
            .words::<2>(address + bytes)
            .ok_or(Fault { address: address + bytes, reason: "it cannot be read" })?;
        let next = SizeWord(next);
        // What was left of the top of a thread's heap: 48 bytes make one fencepost of 32, without the arena's flag.
        let is_marked = size.is_of_thread_arena() == stretch.is_of_thread_arena;
        if !is_marked && bytes == LEAST_CHUNK_BYTES && next.bytes() == 0 && left - bytes <= LEAST_CHUNK_BYTES
        {
            visit(window, Chunk { address, bytes, kind: Kind::Fencepost });
            address += bytes;
            fenceposts += 1;
            size = next;
            continue;
        }
        let kind = match (next.previous_is_used(), is_marked) {
            (true, false) => return Err(fault("it says that it belongs to another kind of arena")),
            (true, true) if stretch.fast.contains(&address) => Kind::Fast,
            (true, true) => Kind::Used,
            (false, _) if footer != bytes => return Err(fault("it is free, and its two sizes differ")),
            (false, _) => Kind::Binned { stored, next: forward, previous: back },
        };
        visit(window, Chunk { address, bytes, kind });
        address += bytes;
        size = next;
    }
    Err(Fault { address, reason: "the heap ends before its last chunk" })
}

/// Why a chunk in a stretch, of which so much is left, cannot have this size if it is neither top nor fencepost.
fn objection(size: SizeWord, left: u64, fenceposts: u32) -> Option<&'static str> {
    if size.bytes() < LEAST_CHUNK_BYTES || fenceposts > 0 {
        Some("its size is smaller than any chunk's")
    } else if size.is_mapping() {
        Some("it says that it is a mapping of its own")
    } else if size.bytes() == left {
        Some("it ends where a top chunk or a fencepost should be")
    } else {
        None
    }
}

fn read_size(window: &mut Window<'_>, address: u64) -> Result<SizeWord, Fault> {
    let read = address.checked_add(8).and_then(|place| window.words::<1>(place));
    read.map(|[size]| SizeWord(size)).ok_or(Fault { address, reason: "it cannot be read" })
}
