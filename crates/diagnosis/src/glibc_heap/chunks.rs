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
        let head = Head { address, size, left: stretch.end - address, fenceposts };
        let bytes = size.bytes();
        match head.place(stretch.top)? {
            Place::Last => {
                visit(window, Chunk { address, bytes: head.left, kind: Kind::Fencepost });
                return Ok(stretch.end);
            }
            Place::Top => {
                visit(window, Chunk { address, bytes, kind: Kind::Top });
                return Ok(address + bytes);
            }
            Place::Fencepost => {
                visit(window, Chunk { address, bytes, kind: Kind::Fencepost });
                address += bytes;
                fenceposts += 1;
                match read_behind_fencepost(window, address, stretch.end, fenceposts)? {
                    Some(next) => size = next,
                    None => return Ok(address),
                }
            }
            Place::Between => {
                let (kind, next) = head.read_body(window, stretch)?;
                visit(window, Chunk { address, bytes, kind });
                address += bytes;
                fenceposts += u32::from(kind == Kind::Fencepost);
                size = next;
            }
        }
    }
    Err(Fault { address, reason: "the heap ends before its last chunk" })
}

/// A chunk of which only the size was read, and where in its stretch it lies.
struct Head {
    address: u64,
    size: SizeWord,
    /// Bytes from here to the end of the stretch.
    left: u64,
    /// Fenceposts in front of it.
    fenceposts: u32,
}

/// What the size alone tells about a chunk.
enum Place {
    /// The second fencepost of a thread's heap, which has no size; a few bytes of padding may follow.
    Last,
    /// The arena's top chunk.
    Top,
    /// A fencepost of the usual size.
    Fencepost,
    /// Anything else: its contents tell what it is.
    Between,
}

impl Head {
    fn place(&self, top: u64) -> Result<Place, Fault> {
        let bytes = self.size.bytes();
        if bytes == 0 {
            let is_last = self.fenceposts > 0 && self.left <= LEAST_CHUNK_BYTES;
            return if is_last { Ok(Place::Last) } else { Err(self.fault("its size is 0")) };
        }
        if !bytes.is_multiple_of(ALIGNMENT) || bytes > self.left {
            return Err(self.fault("its size leads out of the heap"));
        }
        if self.address == top {
            return Ok(Place::Top);
        }
        if bytes == FENCEPOST_BYTES {
            return Ok(Place::Fencepost);
        }
        self.objection().map_or(Ok(Place::Between), |reason| Err(self.fault(reason)))
    }

    /// Why a chunk that is neither top nor fencepost cannot have this size.
    fn objection(&self) -> Option<&'static str> {
        if self.size.bytes() < LEAST_CHUNK_BYTES || self.fenceposts > 0 {
            Some("its size is smaller than any chunk's")
        } else if self.size.is_mapping() {
            Some("it says that it is a mapping of its own")
        } else if self.size.bytes() == self.left {
            Some("it ends where a top chunk or a fencepost should be")
        } else {
            None
        }
    }

    /// What the chunk is, by its contents and the flags of the next one, and the size of that.
    fn read_body(&self, window: &mut Window<'_>, stretch: &Stretch<'_>) -> Result<(Kind, SizeWord), Fault> {
        let (address, bytes) = (self.address, self.size.bytes());
        // Read before the next chunk's head: that may lie far away, and the window would have to come back.
        let body = window.words::<3>(address + 8);
        let [footer, next] = window
            .words::<2>(address + bytes)
            .ok_or(Fault { address: address + bytes, reason: "it cannot be read" })?;
        let next = SizeWord(next);
        let is_marked = self.size.is_of_thread_arena() == stretch.is_of_thread_arena;
        // If 48 bytes are left of the top of a thread's heap, its first fencepost has 32 bytes and lacks the arena's flag.
        let is_at_end = next.bytes() == 0 && self.left - bytes <= LEAST_CHUNK_BYTES;
        if !is_marked && bytes == LEAST_CHUNK_BYTES && is_at_end {
            return Ok((Kind::Fencepost, next));
        }
        let kind = match (next.previous_is_used(), is_marked) {
            (true, false) => return Err(self.fault("it says that it belongs to another kind of arena")),
            (true, true) if stretch.fast.contains(&address) => Kind::Fast,
            (true, true) => Kind::Used,
            (false, _) if footer != bytes => {
                return Err(self.fault("it is free, and its two sizes differ"));
            }
            (false, _) => {
                // What is in use may begin with a guard, which nobody can read.
                let [stored, next, previous] = body.ok_or(self.fault("it cannot be read"))?;
                Kind::Binned { stored, next, previous }
            }
        };
        Ok((kind, next))
    }

    fn fault(&self, reason: &'static str) -> Fault {
        Fault { address: self.address, reason }
    }
}

/// The size of what lies behind a fencepost; none where the stretch ends there. Two fenceposts end a stretch of the main arena,
/// or three where its top had the least size.
fn read_behind_fencepost(
    window: &mut Window<'_>,
    address: u64,
    end: u64,
    fenceposts: u32,
) -> Result<Option<SizeWord>, Fault> {
    if address == end {
        return Ok(None);
    }
    let next = read_size(window, address);
    let is_third = |next: SizeWord| next.bytes() == FENCEPOST_BYTES && fenceposts == 2;
    if fenceposts > 1 && !next.is_ok_and(is_third) {
        return Ok(None);
    }
    next.map(Some)
}

fn read_size(window: &mut Window<'_>, address: u64) -> Result<SizeWord, Fault> {
    let read = address.checked_add(8).and_then(|place| window.words::<1>(place));
    read.map(|[size]| SizeWord(size)).ok_or(Fault { address, reason: "it cannot be read" })
}
