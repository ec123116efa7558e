//! How glibc lays out its heaps: offsets by version, and the structs read from bytes at those offsets.
//!
//! Sources: malloc/malloc.c and malloc/arena.c of the versions named in [`VERSIONS`], and the debugging information of builds that
//! `docs/heap.md` lists. All figures are of 64-bit little-endian machines, where x86-64 and aarch64 agree.

/// Versions of glibc whose heaps are known; `docs/heap.md` has what was tried with which.
pub const VERSIONS: &str = "2.28 to 2.44";

/// Bytes of a chunk's header: its size, and before that the size of a free predecessor.
pub const CHUNK_HEADER_BYTES: u64 = 16;
/// Chunks begin at multiples of this.
pub const ALIGNMENT: u64 = 16;
/// The smallest chunk that is not a fencepost.
pub const LEAST_CHUNK_BYTES: u64 = 32;
/// `sizeof (struct malloc_chunk)`: what a trim leaves at the front of a free chunk.
pub const CHUNK_STRUCT_BYTES: u64 = 48;
/// `NBINS - 1`: the unsorted bin, 62 small and 64 large ones.
pub const BINS: usize = 127;
/// `NFASTBINS`, where there are any.
const FAST_BINS: usize = 10;
/// Sizes that a heap of a thread's arena may be aligned to: 64 MiB, and four huge pages of 2 MiB or 1 GiB
/// (`glibc.malloc.hugetlb=2` up to glibc 2.42).
pub const HEAP_ALIGNMENTS: [u64; 3] = [64 << 20, 8 << 20, 4 << 30];

/// Offsets within `struct malloc_state`, `struct malloc_par`, `heap_info` and the thread cache of one family of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// First minor version of glibc 2 that has it.
    pub since: u32,
    /// `sizeof (heap_info)`.
    pub heap_info_bytes: u64,
    /// `sizeof (struct malloc_state)`.
    pub state_bytes: u64,
    /// Offset of the fast bins; since 2.43 there are none.
    pub fast_bins: Option<usize>,
    /// Offset of `top`; `last_remainder` and the bins follow, and at the same distances all the rest.
    pub top: usize,
    /// Offset of `n_mmaps` in `struct malloc_par`.
    pub mmap_count: usize,
    /// Offset of `mmapped_mem` in `struct malloc_par`; `max_mmapped_mem` and `sbrk_base` follow.
    pub mmapped_bytes: usize,
    /// Offset of `thp_pagesize` in `struct malloc_par`.
    pub huge_page: Option<usize>,
    /// Whether links of singly linked lists are stored XORed with their own address (2.32: "safe linking").
    pub links_are_mangled: bool,
    /// The cache of each thread.
    pub cache: CacheLayout,
    /// Whether `malloc_info` counts the top chunk as free (2.31).
    pub info_counts_top: bool,
    /// By how much a block with a mapping of its own calls itself smaller than the mapping (2.43).
    pub mapped_head_bytes: u64,
}

/// `tcache_perthread_struct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLayout {
    /// Number of lists.
    pub lists: usize,
    /// Bytes of each number at its start: 1 up to 2.29, then 2.
    pub count_bytes: usize,
    /// Whether the numbers say how many more blocks a list takes (2.42) rather than how many it holds.
    pub counts_down: bool,
    /// Lists from here on hold chunks of up to twice the size of the list before; all others hold chunks of one size.
    pub small_lists: usize,
}

const CACHE_2_28: CacheLayout =
    CacheLayout { lists: 64, count_bytes: 1, counts_down: false, small_lists: 64 };
const CACHE_2_30: CacheLayout = CacheLayout { count_bytes: 2, ..CACHE_2_28 };
const CACHE_2_42: CacheLayout = CacheLayout { lists: 76, counts_down: true, ..CACHE_2_30 };

const LAYOUT_2_28: Layout = Layout {
    since: 28,
    heap_info_bytes: 32,
    state_bytes: 2200,
    fast_bins: Some(16),
    top: 96,
    mmap_count: 40,
    mmapped_bytes: 56,
    huge_page: None,
    links_are_mangled: false,
    cache: CACHE_2_28,
    info_counts_top: false,
    mapped_head_bytes: 0,
};
const LAYOUT_2_30: Layout = Layout { since: 30, cache: CACHE_2_30, ..LAYOUT_2_28 };
const LAYOUT_2_31: Layout = Layout { since: 31, info_counts_top: true, ..LAYOUT_2_30 };
const LAYOUT_2_32: Layout = Layout { since: 32, links_are_mangled: true, ..LAYOUT_2_31 };
/// `heap_info` knows its page size, and the parameters those of huge pages.
const LAYOUT_2_35: Layout = Layout {
    since: 35,
    heap_info_bytes: 48,
    mmap_count: 60,
    mmapped_bytes: 80,
    huge_page: Some(40),
    ..LAYOUT_2_32
};
const LAYOUT_2_42: Layout = Layout { since: 42, cache: CACHE_2_42, ..LAYOUT_2_35 };
/// Without fast bins; the parameters gain a mode of huge pages.
const LAYOUT_2_43: Layout = Layout {
    since: 43,
    state_bytes: 2112,
    fast_bins: None,
    top: 8,
    mmap_count: 68,
    mmapped_bytes: 88,
    huge_page: Some(48),
    mapped_head_bytes: CHUNK_HEADER_BYTES,
    ..LAYOUT_2_42
};

/// Every layout, the newest first.
pub const LAYOUTS: [Layout; 7] =
    [LAYOUT_2_43, LAYOUT_2_42, LAYOUT_2_35, LAYOUT_2_32, LAYOUT_2_31, LAYOUT_2_30, LAYOUT_2_28];

impl Layout {
    /// The layout of a version; none for those before 2.28. A version newer than all known gets the newest layout, and
    /// what is read by it is validated like everything else.
    #[must_use]
    pub fn of(version: (u32, u32)) -> Option<&'static Self> {
        let (major, minor) = version;
        LAYOUTS.iter().find(|layout| major == 2 && layout.since <= minor)
    }

    /// Offset of the first bin's links.
    #[must_use]
    pub fn bins(&self) -> usize {
        self.top + 16
    }

    /// Offset of the link to the next arena.
    #[must_use]
    pub fn next(&self) -> usize {
        self.bins() + BINS * 16 + 16
    }

    /// The address that the links of an empty bin hold, for the arena at `state`: as if its two links were a chunk's.
    #[must_use]
    pub fn bin_address(&self, state: u64, bin: usize) -> u64 {
        state.wrapping_add((self.bins() + bin * 16) as u64).wrapping_sub(CHUNK_HEADER_BYTES)
    }

    /// Bytes of a chunk that holds a thread's cache.
    #[must_use]
    pub fn cache_chunk_bytes(&self) -> u64 {
        let bytes = self.cache.bytes() as u64;
        (bytes + 8).next_multiple_of(ALIGNMENT)
    }

    /// Where the first chunk of an arena begins, from the start of its first heap.
    #[must_use]
    pub fn first_chunk(&self) -> u64 {
        (self.heap_info_bytes + self.state_bytes).next_multiple_of(ALIGNMENT)
    }
}

impl CacheLayout {
    /// `sizeof (tcache_perthread_struct)`.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lists * (self.count_bytes + 8)
    }

    /// The number at the start of each list, and its first block.
    #[must_use]
    pub fn list(&self, bytes: &[u8], list: usize) -> Option<(u16, u64)> {
        let number = match self.count_bytes {
            1 => u16::from(*bytes.get(list)?),
            _ => u16::from_le_bytes(bytes.get(list * 2..list * 2 + 2)?.try_into().ok()?),
        };
        Some((number, word(bytes, self.lists * self.count_bytes + list * 8)?))
    }

    /// Whether a chunk of this size may be in this list.
    #[must_use]
    pub fn takes(&self, list: usize, chunk_bytes: u64) -> bool {
        if list < self.small_lists {
            return chunk_bytes == LEAST_CHUNK_BYTES + list as u64 * ALIGNMENT;
        }
        // Lists of large chunks are by powers of two above the largest small chunk.
        let largest = LEAST_CHUNK_BYTES + (self.small_lists as u64 - 1) * ALIGNMENT;
        let above = (list - self.small_lists) as u32;
        let (Some(of_chunk), Some(of_small)) = (chunk_bytes.checked_ilog2(), largest.checked_ilog2()) else {
            return false;
        };
        chunk_bytes > largest && of_chunk == of_small + above
    }
}

/// `struct malloc_state`: one arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaState {
    /// The lock word; not 0 while a thread works on the arena.
    pub lock: u32,
    /// Whether its memory is not (any more) one piece.
    pub is_noncontiguous: bool,
    /// First chunk of each fast bin, 0 where empty.
    pub fast_bins: Vec<u64>,
    /// The top chunk.
    pub top: u64,
    /// `fd` and `bk` of each bin, the unsorted one first.
    pub bins: Vec<(u64, u64)>,
    /// The next arena; the last one leads to the main one.
    pub next: u64,
    /// Threads attached.
    pub threads: u64,
    /// Bytes it has from the system now.
    pub system_bytes: u64,
    /// The most it had.
    pub max_system_bytes: u64,
}

impl ArenaState {
    /// Reads it from [`Layout::state_bytes`] bytes.
    #[must_use]
    pub fn parse(bytes: &[u8], layout: &Layout) -> Option<Self> {
        let at = |offset| word(bytes, offset);
        let fast_bins = match layout.fast_bins {
            Some(offset) => (0..FAST_BINS).map(|bin| at(offset + bin * 8)).collect::<Option<_>>()?,
            None => Vec::new(),
        };
        let bin = |bin: usize| Some((at(layout.bins() + bin * 16)?, at(layout.bins() + bin * 16 + 8)?));
        let next = layout.next();
        Some(Self {
            lock: half(bytes, 0)?,
            is_noncontiguous: half(bytes, 4)? & 2 != 0,
            fast_bins,
            top: at(layout.top)?,
            bins: (0..BINS).map(bin).collect::<Option<_>>()?,
            next: at(next)?,
            threads: at(next + 16)?,
            system_bytes: at(next + 24)?,
            max_system_bytes: at(next + 32)?,
        })
    }
}

/// `heap_info`: the start of each heap of a thread's arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapInfo {
    /// Its arena.
    pub arena: u64,
    /// The heap before this one, 0 for the first.
    pub previous: u64,
    /// Bytes in use from its start.
    pub bytes: u64,
    /// Bytes that are readable and writable.
    pub accessible_bytes: u64,
}

impl HeapInfo {
    /// Bytes to read.
    pub const BYTES: usize = 32;

    /// Reads it.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            arena: word(bytes, 0)?,
            previous: word(bytes, 8)?,
            bytes: word(bytes, 16)?,
            accessible_bytes: word(bytes, 24)?,
        })
    }
}

/// The figures of `struct malloc_par` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// `trim_threshold`, in bytes.
    pub trim_threshold_bytes: u64,
    /// `top_pad`, in bytes.
    pub top_pad_bytes: u64,
    /// `mmap_threshold`, in bytes; it moves.
    pub mmap_threshold_bytes: u64,
    /// Unit of the main heap when it is told to use huge pages; otherwise 0.
    pub huge_page_bytes: u64,
    /// Blocks with a mapping of their own.
    pub mmap_count: u32,
    /// Their most at one time.
    pub max_mmap_count: u32,
    /// Bytes of those mappings.
    pub mmapped_bytes: u64,
    /// Their most at one time.
    pub max_mmapped_bytes: u64,
    /// Where the main heap began, 0 before the first block.
    pub main_start: u64,
    /// Lists of a thread's cache in use.
    pub cache_lists: u64,
    /// Blocks that a list of a thread's cache may hold.
    pub cache_count: u64,
}

impl Parameters {
    /// Bytes to read.
    pub const BYTES: usize = 136;

    /// Reads it.
    #[must_use]
    pub fn parse(bytes: &[u8], layout: &Layout) -> Option<Self> {
        let after = layout.mmapped_bytes;
        Some(Self {
            trim_threshold_bytes: word(bytes, 0)?,
            top_pad_bytes: word(bytes, 8)?,
            mmap_threshold_bytes: word(bytes, 16)?,
            huge_page_bytes: layout.huge_page.map_or(Some(0), |offset| word(bytes, offset))?,
            mmap_count: half(bytes, layout.mmap_count)?,
            max_mmap_count: half(bytes, layout.mmap_count + 8)?,
            mmapped_bytes: word(bytes, after)?,
            max_mmapped_bytes: word(bytes, after + 8)?,
            main_start: word(bytes, after + 16)?,
            cache_lists: word(bytes, after + 24)?,
            cache_count: word(bytes, after + 40)?,
        })
    }
}

/// The word of a chunk's header that holds its size and three flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeWord(pub u64);

impl SizeWord {
    /// Bytes of the chunk, header included.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0 & !7
    }

    /// Whether the chunk before it is in use.
    #[must_use]
    pub fn previous_is_used(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether it is a mapping of its own.
    #[must_use]
    pub fn is_mapping(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether it belongs to a thread's arena.
    #[must_use]
    pub fn is_of_thread_arena(self) -> bool {
        self.0 & 4 != 0
    }
}

/// Undoes the mangling of a link that stands at `place`.
#[must_use]
pub fn link(place: u64, stored: u64, layout: &Layout) -> u64 {
    if layout.links_are_mangled { stored ^ (place >> 12) } else { stored }
}

/// Where the head of a block with a mapping of its own stands that malloc aligned: before the multiples of powers of two above
/// `start`, the nearest first.
pub fn heads_of_aligned(start: u64) -> impl Iterator<Item = u64> {
    let nearest = start.checked_add(CHUNK_HEADER_BYTES + CHUNK_STRUCT_BYTES);
    let multiples = std::iter::successors(nearest, |multiple| {
        let power = multiple & multiple.wrapping_neg();
        multiple.checked_add(power)
    });
    multiples.map(|multiple| multiple - CHUNK_HEADER_BYTES)
}

/// The 8 bytes at an offset.
#[must_use]
pub fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(offset..offset.checked_add(8)?)?.try_into().ok()?))
}

fn half(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(offset..offset.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets as the debugging information of Debian's builds states them.
    #[test]
    fn offsets_are_those_of_the_debugging_information() {
        for (version, next, max_system, state, cache) in [
            ((2, 31), 2160, 2192, 2200, 640),
            ((2, 36), 2160, 2192, 2200, 640),
            ((2, 41), 2160, 2192, 2200, 640),
            ((2, 43), 2072, 2104, 2112, 760),
            ((2, 44), 2072, 2104, 2112, 760),
        ] {
            let layout = Layout::of(version).unwrap();
            assert_eq!(layout.next(), next, "{version:?}");
            assert_eq!(layout.next() + 32, max_system);
            assert_eq!(layout.state_bytes, state);
            assert_eq!(layout.cache.bytes(), cache);
        }
        assert_eq!(Layout::of((2, 27)), None);
        assert_eq!(Layout::of((2, 29)).unwrap().since, 28);
        assert_eq!(Layout::of((2, 99)).unwrap().since, 43);
    }

    #[test]
    fn the_first_block_of_an_arena_is_where_debuggers_show_it() {
        assert_eq!(Layout::of((2, 31)).unwrap().first_chunk() + CHUNK_HEADER_BYTES, 0x8d0);
        assert_eq!(Layout::of((2, 36)).unwrap().first_chunk() + CHUNK_HEADER_BYTES, 0x8e0);
        assert_eq!(Layout::of((2, 31)).unwrap().cache_chunk_bytes(), 0x290);
        assert_eq!(Layout::of((2, 28)).unwrap().cache_chunk_bytes(), 0x250);
    }

    #[test]
    fn lists_of_a_thread_cache_take_chunks_of_their_size() {
        let cache = Layout::of((2, 42)).unwrap().cache;
        assert!(cache.takes(0, 32) && cache.takes(63, 1040) && !cache.takes(1, 32));
        assert!(cache.takes(64, 1056) && cache.takes(64, 2032) && !cache.takes(64, 1040));
        assert!(cache.takes(65, 2048) && !cache.takes(64, 2048) && !cache.takes(65, 4096));
    }

    #[test]
    fn the_head_of_an_aligned_block_stands_before_a_multiple_of_each_power_of_two() {
        let start = 0x7f00_0000_3000;
        let distances: Vec<u64> = heads_of_aligned(start).map(|head| head - start + 16).take(10).collect();
        assert_eq!(distances, [64, 128, 256, 512, 1024, 2048, 0x1000, 0x5000, 0xd000, 0x1_d000]);
        assert_eq!(heads_of_aligned(u64::MAX - 8).count(), 0);
        assert!(heads_of_aligned(0).count() < 64);
    }

    #[test]
    fn bytes_that_are_cut_off_give_nothing() {
        for layout in &LAYOUTS {
            let whole = usize::try_from(layout.state_bytes).unwrap();
            for length in 0..whole {
                assert_eq!(ArenaState::parse(&vec![0; length], layout), None, "{length}");
            }
            assert!(ArenaState::parse(&vec![0xff; whole], layout).is_some());
        }
        assert_eq!(HeapInfo::parse(&[0; 31]), None);
        assert_eq!(Parameters::parse(&[0; 40], &LAYOUTS[0]), None);
    }

    #[test]
    fn each_field_is_read_from_its_place() {
        // Each half of a word is its own offset.
        let bytes: Vec<u8> = (0..2200_u32).step_by(4).flat_map(u32::to_le_bytes).collect();
        let word = |offset: u64| offset | (offset + 4) << 32;
        let mut state = ArenaState::parse(&bytes, &LAYOUT_2_35).unwrap();
        assert_eq!((state.fast_bins.len(), state.fast_bins[9]), (10, word(88)));
        assert_eq!((state.bins.len(), state.bins[126]), (127, (word(2128), word(2136))));
        assert_eq!((state.lock, state.top, state.next, state.threads), (0, word(96), word(2160), word(2176)));
        assert_eq!((state.system_bytes, state.max_system_bytes), (word(2184), word(2192)));
        assert!(!state.is_noncontiguous);
        state = ArenaState::parse(&[&[0, 0, 0, 0, 3], &bytes[5..]].concat(), &LAYOUT_2_35).unwrap();
        assert!(state.is_noncontiguous);
        let of_newest = ArenaState::parse(&bytes, &LAYOUT_2_43).unwrap();
        assert_eq!((of_newest.fast_bins.len(), of_newest.top, of_newest.bins[0].0), (0, word(8), word(24)));
        let info = HeapInfo::parse(&bytes).unwrap();
        assert_eq!(
            (info.arena, info.previous, info.bytes, info.accessible_bytes),
            (word(0), word(8), word(16), word(24))
        );
        let expected = Parameters {
            trim_threshold_bytes: word(0),
            top_pad_bytes: word(8),
            mmap_threshold_bytes: word(16),
            huge_page_bytes: word(40),
            mmap_count: 60,
            max_mmap_count: 68,
            mmapped_bytes: word(80),
            max_mmapped_bytes: word(88),
            main_start: word(96),
            cache_lists: word(104),
            cache_count: word(120),
        };
        assert_eq!(Parameters::parse(&bytes, &LAYOUT_2_35), Some(expected));
        let size = SizeWord(0x45);
        assert_eq!(
            (size.bytes(), size.previous_is_used(), size.is_mapping(), size.is_of_thread_arena()),
            (0x40, true, false, true)
        );
    }

    #[test]
    fn a_mangled_link_leads_where_it_led() {
        let layout = Layout::of((2, 36)).unwrap();
        let place = 0x7f12_3456_7890;
        assert_eq!(link(place, 0x5555_0000_1230 ^ (place >> 12), layout), 0x5555_0000_1230);
        assert_eq!(link(place, 0x1230, Layout::of((2, 31)).unwrap()), 0x1230);
    }
}
