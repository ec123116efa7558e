//! What every granule is: a flat table of tags, span records and slab bitmaps, indexed by granule.
//!
//! The fields are atomics only so that shared references are sound. A guarded one has a lock, named at the field, or belongs to whoever
//! owns the block, and that orders its accesses; so all are Relaxed, which on x86-64 and aarch64 is a plain load or store. A *hint* is
//! read, and some are written, without a lock: any value that it ever had must do, and what matters is read again under a lock. Where
//! a guarded field is read without its lock the reader says why that does.

mod record;

pub use record::{Record, SlabRecord, State, Waiting};

use crate::granule::{GRANULE_SHIFT, Span, bytes_of};
use crate::os::{self, HUGE_PAGE_BYTES};
use crate::reservation::{BITMAP_BYTES, RECORD_BYTES, Reservation, TAG_BYTES};
use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

// ORDERING: Relaxed for every cell of this module, see above.
const PLAIN: Ordering = Ordering::Relaxed;

macro_rules! cells {
    ($($(#[$doc:meta])* $name:ident: $atomic:ty => $plain:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name($atomic);

        impl $name {
            /// Starts with `value`.
            #[allow(dead_code, reason = "some cells only lie in the tables, which begin as zero bytes")]
            pub const fn new(value: $plain) -> Self {
                Self(<$atomic>::new(value))
            }

            /// The value.
            #[inline(always)]
            pub fn get(&self) -> $plain {
                self.0.load(PLAIN)
            }

            /// Replaces the value.
            #[inline(always)]
            pub fn set(&self, value: $plain) {
                self.0.store(value, PLAIN);
            }
        }
    )*};
}

cells! {
    /// A byte guarded by a lock.
    Guarded8: AtomicU8 => u8;
    /// 16 bits guarded by a lock.
    Guarded16: AtomicU16 => u16;
    /// 32 bits guarded by a lock.
    Guarded32: AtomicU32 => u32;
    /// 64 bits guarded by a lock.
    Guarded64: AtomicU64 => u64;
    /// A size guarded by a lock.
    GuardedSize: AtomicUsize => usize;
    /// A byte that may be old.
    Hint8: AtomicU8 => u8;
    /// 32 bits that may be old.
    Hint32: AtomicU32 => u32;
    /// 64 bits that may be old.
    Hint64: AtomicU64 => u64;
    /// A size that may be old.
    HintSize: AtomicUsize => usize;
}

const _: () = assert!(size_of::<Guarded32>() == TAG_BYTES);

/// What `free` must know of a slab: its class and its shard, in one load. Zero for a granule of no slab.
///
/// The class is held times 16, as many bytes as its list takes in a thread's cache: `free` has its place there without a shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub usize);

impl Tag {
    /// log2 of what a class is multiplied by.
    pub const CLASS_SHIFT: u32 = 4;
    const SHARD_SHIFT: u32 = 12;

    /// Of a slab.
    pub const fn new(class: usize, shard: usize) -> Self {
        Self(class << Self::CLASS_SHIFT | shard << Self::SHARD_SHIFT)
    }

    /// The size class, 0 for no slab.
    #[inline(always)]
    pub const fn class(self) -> usize {
        (self.0 & ((1 << Self::SHARD_SHIFT) - 1)) >> Self::CLASS_SHIFT
    }

    /// The number of the shard that the slab belongs to.
    pub const fn shard(self) -> usize {
        self.0 >> Self::SHARD_SHIFT
    }
}

/// The tables of one reservation.
pub struct PageMap {
    /// The address range.
    pub reservation: Reservation,
    /// Spans into which page tables were moved: each may have split a mapping in three.
    moved_spans: AtomicUsize,
    /// Whether there ever was a huge page.
    has_huge_pages: AtomicBool,
}

impl PageMap {
    /// Tables of a reservation that does not exist yet.
    pub const fn new() -> Self {
        Self {
            reservation: Reservation::new(),
            moved_spans: AtomicUsize::new(0),
            has_huge_pages: AtomicBool::new(false),
        }
    }

    /// The granule of an address, if the tables know it.
    #[inline(always)]
    pub fn granule_of(&self, address: usize) -> Option<u32> {
        let granule = address.wrapping_sub(self.reservation.base()) >> GRANULE_SHIFT;
        (granule < self.reservation.limit() as usize).then_some(granule as u32)
    }

    /// Size class of the blocks in a granule; 0 where it is no slab.
    #[inline(always)]
    pub fn class_of(&self, granule: u32) -> usize {
        self.tag(granule).class()
    }

    /// The tag of a granule.
    pub fn tag(&self, granule: u32) -> Tag {
        debug_assert!(granule < self.reservation.limit());
        // SAFETY: `granule_of` or the span heap gave a granule below the limit, whose tag is committed.
        unsafe { tag_of(self.reservation.base(), granule as usize) }
    }

    /// Size class of the block at an address: 0 where it is no block of a slab for sure.
    #[inline(always)]
    pub fn class_of_block(&self, address: usize) -> usize {
        self.tag_at(address).map_or(0, Tag::class)
    }

    /// Shard of the block at an address: 0 where it is no block of a slab for sure.
    pub fn shard_of_block(&self, address: usize) -> usize {
        self.tag_at(address).map_or(0, Tag::shard)
    }

    /// The tag of the granule of an address, `None` where that is no multiple of 16 or outside the reservation.
    #[inline(always)]
    pub fn tag_at(&self, address: usize) -> Option<Tag> {
        let (base, granule) = self.reservation.granule_of_block(address)?;
        // SAFETY: the granule is below the limit, so its tag is committed.
        Some(unsafe { tag_of(base, granule) })
    }

    /// Sets the tags of `granules` from `first` on.
    pub fn set_tag(&self, first: u32, granules: u32, tag: Tag) {
        assert!(first + granules <= self.reservation.limit());
        let table = self.reservation.base() as *const Guarded32;
        for granule in first..first + granules {
            // SAFETY: asserted to be below the limit.
            unsafe { (*table.add(granule as usize)).set(tag.0 as u32) };
        }
    }

    /// The record of a granule behind the tables.
    ///
    /// # Panics
    /// If the granule is not committed.
    #[inline]
    pub fn record(&self, granule: u32) -> &Record {
        let reservation = &self.reservation;
        let committed = reservation.first_granule()..reservation.limit();
        // SAFETY: the table of this reservation, and as far as it is committed.
        unsafe { record_of(reservation.records(), committed, granule) }
    }

    /// The granule of an address, if it is one behind the tables, and its record.
    #[inline]
    pub fn record_at(&self, address: usize) -> Option<(u32, &Record)> {
        let reservation = &self.reservation;
        let committed = reservation.first_granule() as usize..reservation.limit() as usize;
        let granule = address.wrapping_sub(reservation.base()) >> GRANULE_SHIFT;
        if !committed.contains(&granule) {
            return None;
        }
        // SAFETY: the table of this reservation, as far as it is committed; zero bytes are a valid record.
        Some((granule as u32, unsafe { &*(reservation.records() as *const Record).add(granule) }))
    }

    /// Says whether page tables were moved into the span that starts at `granule`.
    pub fn set_moved(&self, granule: u32, moved: bool) {
        let record = self.record(granule);
        match (record.is_moved(), moved) {
            (false, true) => self.moved_spans.fetch_add(1, PLAIN),
            (true, false) => self.moved_spans.fetch_sub(1, PLAIN),
            _ => return,
        };
        record.note_moved(moved);
    }

    /// Spans into which page tables were moved and that were not renewed since.
    pub fn moved_spans(&self) -> usize {
        self.moved_spans.load(PLAIN)
    }

    /// The memory from a granule on is a huge page.
    pub fn set_huge(&self, first: u32) {
        self.has_huge_pages.store(true, PLAIN);
        self.record(first).huge.set(1);
    }

    /// Makes ready to purge a committed range of whole granules or less: huge pages that go only in part become small ones.
    ///
    /// # Safety
    /// Nobody needs the contents of the range.
    pub unsafe fn break_huge_pages(&self, address: usize, bytes: usize) {
        if !self.has_huge_pages.load(PLAIN) {
            return;
        }
        let end = address + bytes;
        let first_page = address & !(HUGE_PAGE_BYTES - 1);
        for start in (first_page..end).step_by(HUGE_PAGE_BYTES) {
            let Some((_, record)) = self.record_at(start) else { continue };
            if record.huge.get() == 0 {
                continue;
            }
            record.huge.set(0);
            if start < address || start + HUGE_PAGE_BYTES > end {
                // SAFETY: the page at this address is in the caller's range.
                unsafe { os::break_huge_page(start.max(address)) };
            }
        }
    }

    /// Gives the pages of such a range back to the kernel. False: refused.
    ///
    /// # Safety
    /// As for [`PageMap::break_huge_pages`].
    pub unsafe fn purge(&self, address: usize, bytes: usize) -> bool {
        // SAFETY: the caller's contract is the same.
        unsafe {
            self.break_huge_pages(address, bytes);
            os::purge(address, bytes)
        }
    }

    /// As [`PageMap::purge`], of what was moved to a place that was lost then; nothing, if nothing was.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn purge_moved(&self, address: usize, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the caller's contract is the same.
            unsafe { self.purge(address, bytes) };
        }
    }

    /// The bitmap words of a slab that starts at `granule` and is `granules` long; a set bit is a free block.
    pub fn bitmap(&self, granule: u32, granules: u32) -> &[Guarded64] {
        let reservation = &self.reservation;
        let committed = reservation.first_granule()..reservation.limit();
        // SAFETY: the table of this reservation, and as far as it is committed.
        unsafe { bitmap_of(reservation.bitmaps(), committed, granule, granules) }
    }

    /// The tables as they are now.
    #[inline]
    pub fn tables(&self) -> Tables<'_> {
        let reservation = &self.reservation;
        Tables {
            base: reservation.base(),
            records: reservation.records(),
            bitmaps: reservation.bitmaps(),
            committed: (reservation.first_granule(), reservation.limit()),
            map: PhantomData,
        }
    }

    /// Gives back the whole pages of a free span's bitmaps and of the records inside it: a slab writes its own anew, and a record of
    /// zeros is that of a granule at which nothing starts.
    ///
    /// # Safety
    /// The caller owns the span, which is no slab and in no list.
    pub unsafe fn purge_tables(&self, span: Span) {
        for (start, end) in self.tables_of(span).map(whole_pages) {
            if start < end {
                // SAFETY: the tables are committed as far as the reservation; these pages tell of the caller's span only.
                unsafe { os::purge(start, end - start) };
            }
        }
    }

    /// Gives back the pages that tell of both ends of a part of a clean span and of its neighbours in there:
    /// [`PageMap::purge_tables`] of the part left them.
    ///
    /// # Safety
    /// The caller holds the span heap's lock, and `whole` is a clean span that `part` is in.
    pub unsafe fn purge_tables_around(&self, part: Span, whole: Span) {
        let page = os::page_bytes();
        // Of records those of the part's first and last granule, and of its neighbours' beside them: these may lie in the next page.
        let reaches = [0, 2 * RECORD_BYTES];
        let wholes = self.tables_of(whole).map(whole_pages);
        for ((table, reach), (first, last)) in self.tables_of(part).into_iter().zip(reaches).zip(wholes) {
            let (start, end) = whole_pages(table);
            let (from, to) = ((table.0 - reach) & !(page - 1), (table.1 + reach).next_multiple_of(page));
            let edges = if start < end { [(from, start), (end, to)] } else { [(from, to), (to, to)] };
            for (from, to) in edges.map(|(from, to)| (from.max(first), to.min(last))) {
                if from < to {
                    // SAFETY: pages of the tables of granules that nobody has, see above.
                    unsafe { os::purge(from, to - from) };
                }
            }
        }
    }

    /// Where the kernel uses huge pages by itself: gives back what those that a part of a clean span had, and that reached beyond it, brought
    /// in of the rest. It reads as zero, but is resident.
    ///
    /// # Safety
    /// As for [`PageMap::purge_tables_around`].
    pub unsafe fn purge_huge_around(&self, part: Span, whole: Span) {
        if !self.reservation.are_huge_pages_everywhere() {
            return;
        }
        let ((start, bytes), (first, all)) = (self.range(part), self.range(whole));
        let from = first.max(start & !(HUGE_PAGE_BYTES - 1));
        let to = (first + all).min((start + bytes).next_multiple_of(HUGE_PAGE_BYTES));
        if to - from > bytes {
            // SAFETY: committed memory that nobody has, see above.
            unsafe { os::purge(from, to - from) };
        }
    }

    /// From where to where, as addresses, the bitmaps of a span lie, and its records but for those of the first and the last granule:
    /// they say how long a free span is.
    fn tables_of(&self, span: Span) -> [(usize, usize); 2] {
        let (first, granules) = (span.first as usize, span.granules as usize);
        let bitmaps = self.reservation.bitmaps() + first * BITMAP_BYTES;
        let records = self.reservation.records() + (first + 1) * RECORD_BYTES;
        let inner = granules.saturating_sub(2);
        [(bitmaps, bitmaps + granules * BITMAP_BYTES), (records, records + inner * RECORD_BYTES)]
    }

    /// Address of a granule.
    #[inline]
    pub fn address(&self, granule: u32) -> usize {
        self.reservation.address(granule)
    }

    /// Granules from this one to the next whose address is a multiple of `align` granules, a power of two.
    pub fn offset_to(&self, granule: u32, align: u32) -> u32 {
        let number = self.address(granule) >> GRANULE_SHIFT;
        (number.next_multiple_of(align as usize) - number) as u32
    }

    /// Address and bytes of a span.
    pub fn range(&self, span: Span) -> (usize, usize) {
        (self.address(span.first), bytes_of(span.granules))
    }
}

/// Where the tables of a [`PageMap`] are, read once for many look-ups. They never move and only grow, and what a caller has before it
/// asks for them is in them.
#[derive(Clone, Copy)]
pub struct Tables<'map> {
    base: usize,
    records: usize,
    bitmaps: usize,
    committed: (u32, u32),
    map: PhantomData<&'map PageMap>,
}

impl<'map> Tables<'map> {
    /// The slab of this class that an address lies in, if it lies in one: its first granule, and its record.
    #[inline(always)] // As `HomeSlabs::find`.
    pub fn slab_of(&self, address: usize, class: usize) -> Option<(u32, SlabRecord<'map>)> {
        debug_assert_ne!(class, 0, "what is no slab has this");
        let granule = address.wrapping_sub(self.base) >> GRANULE_SHIFT;
        if granule >= self.committed.1 as usize {
            return None;
        }
        // SAFETY: below the limit, so its tag is committed.
        let tag = unsafe { tag_of(self.base, granule) };
        if tag.class() != class {
            return None;
        }
        // SAFETY: a slab's granule, so its record is committed, and those of all of its slab.
        let record = |granule: usize| unsafe { &*(self.records as *const Record).add(granule) };
        let first = record(granule).first.get();
        Some((first, record(first as usize).slab()))
    }

    /// The word of a slab's bitmap that a block's bit is in.
    ///
    /// # Safety
    /// The slab that begins at `first` has a block of that index.
    #[inline(always)] // As `HomeSlabs::put_one`.
    pub unsafe fn bitmap_word(&self, first: u32, index: u32) -> &'map Guarded64 {
        let bitmap = (self.bitmaps + first as usize * BITMAP_BYTES) as *const Guarded64;
        // SAFETY: the caller says so, so the word is in the slab's part of the table, which is committed as its records are.
        unsafe { &*bitmap.add((index / u64::BITS) as usize) }
    }

    /// As [`PageMap::bitmap`].
    #[inline]
    pub fn bitmap(&self, granule: u32, granules: u32) -> &'map [Guarded64] {
        // SAFETY: `PageMap::tables` took all of this from one reservation, which lives as long.
        unsafe { bitmap_of(self.bitmaps, self.committed.0..self.committed.1, granule, granules) }
    }
}

/// # Safety
/// A table of tags lies at `tags`, and the granule's is committed.
#[inline(always)]
unsafe fn tag_of(tags: usize, granule: usize) -> Tag {
    // SAFETY: the caller says so; zero bytes are a valid tag.
    Tag(unsafe { (*(tags as *const Guarded32).add(granule)).get() } as usize)
}

/// # Safety
/// A table of records lies at `records`, its part of the granules `committed` is committed for as long as the answer lives.
#[inline(always)]
unsafe fn record_of<'map>(records: usize, committed: Range<u32>, granule: u32) -> &'map Record {
    assert!(committed.contains(&granule));
    // SAFETY: asserted to be committed; zero bytes are a valid record.
    unsafe { &*(records as *const Record).add(granule as usize) }
}

/// # Safety
/// As [`record_of`], of a table of bitmaps.
#[inline(always)]
unsafe fn bitmap_of<'map>(
    bitmaps: usize,
    committed: Range<u32>,
    granule: u32,
    granules: u32,
) -> &'map [Guarded64] {
    assert!(granule >= committed.start && granule + granules <= committed.end);
    let start = (bitmaps + granule as usize * BITMAP_BYTES) as *const Guarded64;
    // SAFETY: asserted to be committed; adjacent granules have adjacent bitmaps.
    unsafe { core::slice::from_raw_parts(start, granules as usize * BITMAP_BYTES / 8) }
}

/// The whole pages of a range.
fn whole_pages((start, end): (usize, usize)) -> (usize, usize) {
    let page = os::page_bytes();
    (start.next_multiple_of(page), end & !(page - 1))
}

impl Default for PageMap {
    fn default() -> Self {
        Self::new()
    }
}
