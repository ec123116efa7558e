//! The lists of a cache, and how `free` finds that of a block.

use super::ahead::Ahead;
use super::demand::Demand;
use crate::magazine::{self, Magazine};
use crate::page_map::{Guarded8, Tag};
use crate::size_class::{CLASSES, GOING_HOME};
use core::sync::atomic::{AtomicI32, AtomicUsize, Ordering, compiler_fence};

/// A list for each class, and one more for those small blocks that are other shards': they go home instead of being used by this
/// thread, maybe beside the neighbours of somebody else (passive false sharing).
pub const BINS: usize = CLASSES + GOING_HOME;

/// The bin of a class's blocks that belong to other shards. Larger blocks have none.
pub const fn foreign_bin(class: usize) -> usize {
    if class == 0 || class > GOING_HOME { class } else { CLASSES - 1 + class }
}

/// The other way.
pub const fn class_of_bin(bin: usize) -> usize {
    if bin < CLASSES { bin } else { bin + 1 - CLASSES }
}

/// A `head` that sends its owner to the slow path: the bin was revoked, or never holds anything.
pub const GATE: usize = 1;

/// One class's list in a thread cache.
#[repr(C)]
pub struct Bin {
    /// First block, 0 or [`GATE`]. Synchronization: stored by the owner; exchanged with GATE by a revoker.
    pub head: AtomicUsize,
    /// How many more blocks the list may hold. Synchronization: owner only.
    pub room: AtomicI32,
    /// Most blocks the list may hold. Synchronization: the cache's lock.
    pub capacity: Capacity,
    /// Whether the thread takes such blocks. Synchronization: the cache's lock.
    pub demand: Demand,
    /// What is fetched ahead. Synchronization: owner only.
    pub ahead: Ahead,
}

/// A number of blocks, a magazine's at most, in 8 bits.
pub struct Capacity(Guarded8);

impl Capacity {
    /// The number.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.get().into()
    }

    /// Another.
    #[inline]
    pub fn set(&self, blocks: u32) {
        debug_assert!(u8::try_from(blocks).is_ok());
        self.0.set(blocks as u8);
    }
}

const _: () = assert!(size_of::<Bin>() == 1 << Tag::CLASS_SHIFT);

/// The tag of no class in a cache's shard. Synchronization: written by the owner, or before there is one.
#[repr(transparent)]
pub struct OwnTag(AtomicUsize);

impl OwnTag {
    /// Of a shard.
    pub const fn new(shard: usize) -> Self {
        Self(AtomicUsize::new(Tag::new(0, shard).0))
    }

    /// The tag.
    #[inline(always)]
    pub fn get(&self) -> Tag {
        // ORDERING: Relaxed, here and below; who reads another's is as well off with the one before.
        Tag(self.0.load(Ordering::Relaxed))
    }

    /// The tag, for the owner.
    ///
    /// # Safety
    /// This thread owns the cache, or it is one that nobody writes to.
    #[inline(always)]
    pub unsafe fn get_own(&self) -> Tag {
        // SAFETY: nobody else writes it. Not by an atomic load, which would be an instruction of its own in each `free`.
        Tag(unsafe { *self.0.as_ptr() })
    }

    /// Another shard. By the owner, or before there is one.
    pub fn set(&self, shard: usize) {
        // ORDERING: Relaxed, as in `get`.
        self.0.store(Tag::new(0, shard).0, Ordering::Relaxed);
    }
}

/// What is left of a tag where that of a cache of another shard is taken off: the class is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest(Tag);

/// Which of a cache's bins: so many bytes behind the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

impl Place {
    /// The bin of blocks with this tag in a cache of the tag `own`, which has no class, if both are of one shard; else what is left of
    /// the tag.
    #[inline(always)]
    pub fn of_own(tag: Tag, own: Tag) -> Result<Self, Rest> {
        // What is left of a tag of this shard is the class.
        let rest = tag.0 ^ own.0;
        if rest < CLASSES * size_of::<Bin>() { Ok(Self(rest)) } else { Err(Rest(Tag(rest))) }
    }

    /// The bin of another shard's blocks in a cache that is not theirs.
    #[inline(always)]
    pub fn of_foreign(Rest(tag): Rest) -> Self {
        // A class is below CLASSES, and so this below BINS.
        Self(foreign_bin(tag.class()) * size_of::<Bin>())
    }

    /// Whether the bin holds blocks of the cache's own shard, or may.
    #[inline(always)]
    pub fn is_own(self) -> bool {
        self.0 < CLASSES * size_of::<Bin>()
    }

    /// The bin.
    #[inline(always)]
    pub fn of(self, bins: &[Bin; BINS]) -> &Bin {
        // SAFETY: both of the above are whole bins, since tags are multiples of a bin's bytes, and below BINS.
        unsafe { &*in_one_register(bins.as_ptr().byte_add(self.0)) }
    }
}

/// The same pointer, of which the compiler does not know that it is a sum. What lies there is addressed by one register then, not two: of such an
/// address processors hand on at once what was stored there last, and `room` and `head` were stored by the operation before.
#[inline(always)]
#[expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read through it")]
fn in_one_register(mut bin: *const Bin) -> *const Bin {
    // SAFETY: there is no instruction.
    unsafe { core::arch::asm!("/* {0} */", inout(reg) bin, options(pure, nomem, nostack, preserves_flags)) };
    bin
}

impl Bin {
    /// One that sends every operation to the slow path.
    pub const fn gated() -> Self {
        Self {
            head: AtomicUsize::new(GATE),
            room: AtomicI32::new(0),
            capacity: Capacity(Guarded8::new(0)),
            demand: Demand::new(),
            ahead: Ahead::new(),
        }
    }

    /// Takes a small block, and fetches ahead what will be read for others; 0: the list is empty or revoked.
    ///
    /// # Safety
    /// This thread owns the cache, one of whose classes' list it is, or the cache is gated.
    #[inline(always)]
    pub unsafe fn take(&self) -> usize {
        let mut next = 0;
        let block = self.pop(|head| {
            // SAFETY: a block of this list; if it was just revoked its memory is still committed.
            next = unsafe { magazine::next(head) };
            next
        });
        if block != 0 {
            magazine::fetch_ahead(self.ahead.of(next));
        }
        block
    }

    /// Takes the first one, of which `next_of` knows the next; 0: the list is empty or revoked. By the owner.
    #[inline(always)]
    pub fn pop(&self, next_of: impl FnOnce(usize) -> usize) -> usize {
        // ORDERING: Relaxed; owner only. The fence keeps the compiler from reading `head` before `room` is changed; for the
        // processor, the revoker's barrier does that.
        let room = self.room.load(Ordering::Relaxed);
        self.room.store(room.wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let head = self.head.load(Ordering::Relaxed);
        if head <= GATE {
            self.room.store(self.room.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
            return 0;
        }
        self.head.store(next_of(head), Ordering::Relaxed);
        // ORDERING: for the compiler, as above: whoever has the block may overwrite its link, and this thread change `room` again, only
        // after `head` is stored, or the sum may fit with this operation still under way.
        compiler_fence(Ordering::SeqCst);
        head
    }

    /// Puts one in front, of which `link` says that another is the next, after `room` was counted down, which may have shown that the list
    /// `is_full`; false if so, or if the list is revoked, or the one is its first already. By the owner.
    #[inline(always)]
    pub fn push(&self, is_full: bool, first: usize, link: impl FnOnce(usize)) -> bool {
        // ORDERING: as in `pop`.
        compiler_fence(Ordering::SeqCst);
        let head = self.head.load(Ordering::Relaxed);
        if is_full || head == GATE || head == first {
            self.room.store(self.room.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            return false;
        }
        link(head);
        // ORDERING: for the compiler: the link before `head`, and both before `room` changes again, as in `pop`.
        compiler_fence(Ordering::SeqCst);
        self.head.store(first, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        true
    }

    /// Takes one off `room`; true if that made it negative. By the owner.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn count_down(&self) -> bool {
        // SAFETY: the owner's own counter. One instruction, whose flags the compiler cannot use from Rust.
        unsafe {
            core::arch::asm!(
                "dec dword ptr [{bin} + {room}]",
                "js {negative}",
                bin = in(reg) self,
                room = const core::mem::offset_of!(Self, room),
                negative = label { return true },
                options(nostack)
            );
        }
        false
    }

    /// Takes one off `room`; true if that made it negative. By the owner.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub fn count_down(&self) -> bool {
        // ORDERING: Relaxed; owner only.
        let room = self.room.load(Ordering::Relaxed).wrapping_sub(1);
        self.room.store(room, Ordering::Relaxed);
        room < 0
    }

    /// Most blocks it may hold.
    pub fn capacity(&self) -> i32 {
        self.capacity.get() as i32
    }

    /// What is in it. Under the cache's lock, by the owner, when it is open, or was gated when it was empty: by a fork in a signal handler.
    pub fn list(&self) -> Magazine {
        // ORDERING: Relaxed; revokers are excluded by the lock.
        let (head, room) = (self.head.load(Ordering::Relaxed), self.room.load(Ordering::Relaxed));
        let head = if head == GATE { 0 } else { head };
        Magazine { head, count: (self.capacity() - room) as u32 }
    }

    /// Turns a revoked bin into an empty one. Under the cache's lock, by the owner.
    pub fn open(&self) {
        // ORDERING: Relaxed; revokers are excluded by the lock.
        if self.head.load(Ordering::Relaxed) == GATE {
            self.replace(Magazine::EMPTY);
        }
    }

    /// Installs a list. Under the cache's lock, by the owner.
    pub fn replace(&self, list: Magazine) {
        // ORDERING: Relaxed; revokers are excluded by the lock, whose release publishes both.
        self.room.store(self.capacity() - list.count as i32, Ordering::Relaxed);
        self.head.store(list.head, Ordering::Relaxed);
    }
}
