//! A granule's record: what the span that starts there is, in one cache line whatever that is.
//!
//! Some fields are the same for every span. Others mean what the span's state says, and are reached through a view of it alone:
//! [`SlabRecord`], [`LargeRecord`], [`FreeRecord`]. A view of another state ends a debug build.

use super::{Guarded8, Guarded16, Guarded32, Guarded64, Hint8};
use crate::reservation::RECORD_BYTES;

/// What the span that starts at a granule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// No span starts here. Zero, so that untouched records say so.
    Interior = 0,
    /// Free, reads as zero. Also on the last granule.
    Clean = 1,
    /// Free, may be resident. Also on the last granule.
    Dirty = 2,
    /// Cut into blocks.
    Slab = 3,
    /// One block, given to the program.
    Large = 4,
    /// Free, kept by a shard.
    Kept = 5,
    /// A large block that a thread freed and keeps.
    Cached = 6,
}

/// Which list of `span_heap` waits for a dirty span's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Waiting {
    /// Not in a list.
    None = 0,
    /// To be purged with the next batch.
    Pending = 1,
    /// Held until its deadline.
    Held = 2,
}

/// A list link: a granule, or 0 for none (granule 0 is always a table).
pub type Link = Guarded32;

/// One per granule; describes the span that starts there. A cache line of its own: neighbouring slabs are other threads'.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Record {
    /// A [`State`]. Synchronization: the span heap's lock while free; the block's owner (large) or the class lock.
    state: Guarded8,
    /// A [`Waiting`]; free spans. Synchronization: the span heap's lock.
    waiting: Guarded8,
    /// Slab: `list`. Free: `bin`. Large: `had_no_pages`. Synchronization: as `state`.
    bin: Guarded8,
    /// Bit 0: page tables were moved here, so the mapping is split. Synchronization: as `state`.
    flags: Guarded8,
    /// Slab. Synchronization: the class lock. Large: `has_lost_rest`, the lock of the rests.
    quiet: Guarded8,
    /// On the first granule of the memory of a huge page: 1 if it was brought in as one and nothing of it was purged since.
    /// Synchronization: none needed; who purges a part twice breaks what is broken.
    pub huge: Hint8,
    /// The number of the span heap that its memory belongs to, plus one; 0: nobody said yet, and it is the first. On the first granule of
    /// a span and the last of a free one. Synchronization: none; it is never another, but for 0, in the time of this memory.
    pub heap: Hint8,
    /// Length in granules. Synchronization: as `state`.
    pub granules: Guarded32,
    /// First granule of the span: on every granule of a slab, on the last of a free span. Synchronization: as `state`.
    pub first: Guarded32,
    /// List of slabs of a class, or of free spans of a size. Synchronization: the list's lock. Of large blocks that a thread keeps: that
    /// thread.
    pub prev: Link,
    /// As `prev`; also of what a shard keeps. Large: `rest`, the block's owner.
    pub next: Link,
    /// Free: order in time. Synchronization: the span heap's lock. Slab: `shard`, written before a block leaves it, and under the class
    /// locks of both shards when it moves. Large: of the blocks that have rests, that of the rests.
    older: Link,
    /// As `older`. Slab: `start`, written before a block leaves it.
    newer: Link,
    /// Slab. Synchronization: the class lock.
    free_blocks: Guarded16,
    /// Slab: `hint`. Large: `offset`. Synchronization: as `state`.
    hint: Guarded16,
    /// Slab. Synchronization: the class lock.
    relist_at: Guarded16,
    /// Slab: `purged_pages`. Free: `freed_at`. Large: `bytes`. Synchronization: as `state`.
    value: Guarded64,
    /// Free. Synchronization: the span heap's lock. Slab: `unused_from`, the class lock. Large: `rest_since`, the lock of the rests.
    deadline: Guarded64,
}

const _: () = assert!(size_of::<Record>() == RECORD_BYTES);

impl Record {
    /// What starts here.
    #[inline]
    pub fn state(&self) -> State {
        match self.state.get() {
            1 => State::Clean,
            2 => State::Dirty,
            3 => State::Slab,
            4 => State::Large,
            5 => State::Kept,
            6 => State::Cached,
            _ => State::Interior,
        }
    }

    /// Says what starts here.
    #[inline]
    pub fn set_state(&self, state: State) {
        self.state.set(state as u8);
    }

    /// Whether page tables were moved into this span.
    pub fn is_moved(&self) -> bool {
        self.flags.get() & 1 != 0
    }

    /// The count of moved spans is the page map's.
    pub(super) fn note_moved(&self, moved: bool) {
        self.flags.set(u8::from(moved));
    }

    /// What is known of the slab that starts here.
    #[inline(always)]
    pub fn slab(&self) -> SlabRecord<'_> {
        debug_assert_eq!(self.state(), State::Slab);
        SlabRecord(self)
    }

    /// As [`Record::slab`], if one does: for who looks without its lock.
    #[inline(always)]
    pub fn as_slab(&self) -> Option<SlabRecord<'_>> {
        (self.state() == State::Slab).then_some(SlabRecord(self))
    }

    /// A slab of so many blocks starts here, all free; those of `unused_from` and more read as zero.
    #[inline(always)]
    pub fn make_slab(&self, granules: u32, blocks: u32, unused_from: u32) -> SlabRecord<'_> {
        self.granules.set(granules);
        self.free_blocks.set(blocks as u16);
        self.hint.set(0);
        self.relist_at.set(0);
        self.value.set(0);
        self.deadline.set(u64::from(unused_from));
        self.set_state(State::Slab);
        SlabRecord(self)
    }

    /// What is known of the large block that starts here, live or kept by a thread.
    #[inline(always)]
    pub fn large(&self) -> LargeRecord<'_> {
        debug_assert!(matches!(self.state(), State::Large | State::Cached), "{:?}", self.state());
        LargeRecord(self)
    }

    /// As [`Record::large`], if a thread keeps one that starts here: for who has no part in it.
    #[inline]
    pub fn as_cached(&self) -> Option<LargeRecord<'_>> {
        (self.state() == State::Cached).then_some(LargeRecord(self))
    }

    /// A large block of so many usable bytes lies in the span that starts here, `offset` bytes from its start.
    #[inline(always)]
    pub fn make_large(&self, bytes: usize, offset: usize) -> LargeRecord<'_> {
        self.value.set(bytes as u64);
        self.hint.set(offset as u16);
        self.next.set(0);
        self.set_state(State::Large);
        LargeRecord(self)
    }

    /// What is known of the free span that starts here, in lists or on the way there.
    #[inline(always)]
    pub fn free(&self) -> FreeRecord<'_> {
        // Inside: an atomic load is made even if nobody looks at the result.
        debug_assert!(
            matches!(self.state(), State::Clean | State::Dirty | State::Interior),
            "{:?}",
            self.state()
        );
        FreeRecord(self)
    }
}

/// A view's fields, and those of the record that they lie in.
macro_rules! view {
    ($(#[$doc:meta])* $view:ident { $($(#[$field_doc:meta])* $get:ident, $set:ident: $plain:ty = $field:ident as $stored:ty;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $view<'map>(&'map Record);

        impl $view<'_> {$(
            $(#[$field_doc])*
            #[inline(always)]
            pub fn $get(self) -> $plain {
                self.0.$field.get() as $plain
            }

            $(#[$field_doc])*
            #[inline(always)]
            pub fn $set(self, value: $plain) {
                self.0.$field.set(value as $stored);
            }
        )*}
    };
}

view! {
    /// A slab's record.
    SlabRecord {
        /// Which list of its class it is in, if it is in one.
        list, set_list: usize = bin as u8;
        /// How often the purger has looked since a block last left or came back; `slab::SETTLED` where nobody has to look.
        quiet, set_quiet: u8 = quiet as u8;
        /// The shard that it belongs to. May be read without a lock by whoever has a block, and again under the lock.
        shard, set_shard: usize = older as u32;
        /// The low half of its first block's address. Written before a block leaves it, and read as `shard`.
        start, set_start: u32 = newer as u32;
        /// Free blocks.
        free_blocks, set_free_blocks: u32 = free_blocks as u16;
        /// With so many free blocks it is to be looked at whether it belongs into another list.
        relist_at, set_relist_at: u32 = relist_at as u16;
        /// No bitmap word before this one has a free block.
        hint, set_hint: u16 = hint as u16;
        /// One bit per page that was purged and holds no block since.
        purged_pages, set_purged_pages: u64 = value as u64;
        /// Blocks of this index and more never left it since its memory came from the kernel, and read as zero.
        unused_from, set_unused_from: u32 = deadline as u64;
    }
}

view! {
    /// A large block's record.
    LargeRecord {
        /// Usable bytes.
        bytes, set_bytes: usize = value as u64;
        /// Bytes from the start of its span to the block.
        offset, set_offset: usize = hint as u16;
        /// Bytes of pages around it that were left when it became smaller.
        rest, set_rest: usize = next as u32;
        /// When that was, or when they went, ns.
        rest_since, set_rest_since: u64 = deadline as u64;
        /// The block that became smaller before it.
        older, set_older: u32 = older as u32;
        /// The block that became smaller after it.
        newer, set_newer: u32 = newer as u32;
    }
}

impl SlabRecord<'_> {
    /// Length in granules.
    #[inline(always)]
    pub fn granules(self) -> u32 {
        self.0.granules.get()
    }
}

impl LargeRecord<'_> {
    /// Whether its pages are the first there, and small; or it was cleared. What it holds shows then whether it was filled.
    #[inline(always)]
    pub fn had_no_pages(self) -> bool {
        self.0.bin.get() == 1
    }

    /// Whether the pages around it that were left went back.
    pub fn has_lost_rest(self) -> bool {
        self.0.quiet.get() == 1
    }
    /// Says whether they went back.
    pub fn set_has_lost_rest(self, has_lost: bool) {
        self.0.quiet.set(u8::from(has_lost));
    }
    /// Says whether its pages are the first there, and small, or it was cleared.
    #[inline(always)]
    pub fn set_had_no_pages(self, had_none: bool) {
        self.0.bin.set(u8::from(had_none));
    }
}

view! {
    /// A free span's record. Of a clean one only the list of its size matters.
    FreeRecord {
        /// Evidence bin of `decay`.
        bin, set_bin: u8 = bin as u8;
        /// When it was freed, ns.
        freed_at, set_freed_at: u64 = value as u64;
        /// Held: purge when this time, ns, has come.
        deadline, set_deadline: u64 = deadline as u64;
        /// The one before it in the order of time.
        older, set_older: u32 = older as u32;
        /// The one behind it in the order of time.
        newer, set_newer: u32 = newer as u32;
    }
}

impl FreeRecord<'_> {
    /// Which list of dirty spans it is in.
    pub fn waiting(self) -> Waiting {
        match self.0.waiting.get() {
            1 => Waiting::Pending,
            2 => Waiting::Held,
            _ => Waiting::None,
        }
    }

    /// Since when and until when it is free, and for what size.
    #[inline(always)]
    pub fn set_times(self, bin: u8, freed_at: u64, deadline: u64) {
        self.set_bin(bin);
        self.set_freed_at(freed_at);
        self.set_deadline(deadline);
    }

    /// Says which list of dirty spans it is in.
    pub fn set_waiting(self, waiting: Waiting) {
        self.0.waiting.set(waiting as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_of_one_record_share_its_fields_and_begin_anew_with_its_state() {
        let record = Record::default();
        record.free().set_freed_at(7);
        record.free().set_older(9);
        let slab = record.make_slab(2, 100, 100);
        slab.set_shard(63);
        assert_eq!((slab.purged_pages(), slab.free_blocks(), slab.shard(), slab.hint()), (0, 100, 63, 0));
        assert_eq!(record.granules.get(), 2);
        let large = record.make_large(123 << 20, 4032);
        large.set_had_no_pages(true);
        assert_eq!(
            (large.bytes(), large.offset(), large.had_no_pages(), record.as_slab().is_none()),
            (123 << 20, 4032, true, true)
        );
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_view_of_another_state_is_refused() {
        let refuses = |state: State, look: fn(&Record)| {
            let record = Record::default();
            record.set_state(state);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| look(&record))).is_err()
        };
        let states = [
            State::Interior,
            State::Clean,
            State::Dirty,
            State::Slab,
            State::Large,
            State::Kept,
            State::Cached,
        ];
        for state in states {
            let is_free = matches!(state, State::Interior | State::Clean | State::Dirty);
            let is_large = matches!(state, State::Large | State::Cached);
            assert_eq!(refuses(state, |record| _ = record.slab()), state != State::Slab);
            assert_eq!(refuses(state, |record| _ = record.large()), !is_large);
            assert_eq!(refuses(state, |record| _ = record.free()), !is_free);
        }
    }
}
