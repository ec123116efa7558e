//! Size classes: which block size serves a request, and how a slab of that size is laid out. Pure.
//!
//! Steps of 16 bytes up to 128, then four classes per doubling up to 32 KiB, so above 64 bytes a block is at most 25 % larger
//! than asked (10 % on average over uniform sizes).
//!
//! From 2 KiB on a block is a cache line longer than that, and so an odd number of lines. Else the first lines of all blocks would share
//! few sets of the caches, those of rows of 1,024 numbers, 8 KiB each, a single set of the first level, and who walks down a column
//! would miss at each step. Blocks that have to begin at multiples of more than a line have classes of their own, one for each power of
//! two.

use crate::colour::{self, LINE_BYTES};
use crate::granule::GRANULE_BYTES;

/// Number of class indices; class 0 means "not a small block".
pub const CLASSES: usize = PLAIN + ALIGNED;
/// Of requests without alignment.
const PLAIN: usize = 41;
/// Behind them, of powers of two from [`LINED_FROM`] to [`ALIGNED_MAX`], whose blocks begin at multiples of their sizes.
const ALIGNED: usize = (ALIGNED_MAX.ilog2() - LINED_FROM.ilog2() + 1) as usize;

/// From this size on blocks are a line longer.
const LINED_FROM: u32 = 2048;
const LINE: u32 = LINE_BYTES as u32;
/// The largest power of two among the classes.
const ALIGNED_MAX: u32 = 32 * 1024;

/// Classes up to this one, 512 bytes, whose blocks go home together when a thread of another shard frees them. Of the smaller ones
/// several lie in a cache line, or in a pair of lines that CPUs fetch together; and who makes blocks for others to free wants them
/// back. (`xmalloc`, 16 to 512 bytes, 8 threads: 25 MiB, and 68 MiB with 128 bytes here; more than 512 bytes win nothing.)
pub const GOING_HOME: usize = 16;

/// Largest request, in bytes, that a slab serves.
pub const SMALL_MAX: usize = (ALIGNED_MAX + LINE) as usize;

/// Block sizes in bytes, by class.
const SIZES: [u32; CLASSES] = sizes();

const fn sizes() -> [u32; CLASSES] {
    let mut table = [0; CLASSES];
    let mut class = 1;
    let mut size: u32 = 16;
    while class < PLAIN {
        table[class] = if size < LINED_FROM { size } else { size + LINE };
        let step = if size < 128 { 16 } else { 1 << (size.ilog2() - 2) };
        size += step;
        class += 1;
    }
    while class < CLASSES {
        table[class] = LINED_FROM << (class - PLAIN);
        class += 1;
    }
    table
}

/// All classes, and none of them twice, by the size of their blocks.
pub const BY_SIZE: [usize; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let mut place = class;
        while SIZES[table[place - 1]] > SIZES[class] {
            table[place] = table[place - 1];
            place -= 1;
        }
        table[place] = class;
        class += 1;
    }
    table
};

/// Requests up to this many bytes are looked up in steps of 16, larger ones in steps of 128 with a line added.
const FINE_MAX: usize = 2048;
const FINE_ENTRIES: usize = FINE_MAX / 16 + 1;
const COARSE_ENTRIES: usize = ALIGNED_MAX as usize / 128 + 1;

const fn smallest_class_holding(bytes: usize) -> Scaled {
    let mut class = 1;
    while (SIZES[class] as usize) < bytes {
        class += 1;
    }
    Scaled::new(class)
}

/// A class as the tables hold it: times 16, the bytes of a cache's list, so that nobody has to multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scaled(u16);

const _: () = assert!((CLASSES - 1) * Scaled::BY <= u16::MAX as usize);

impl Scaled {
    const BY: usize = 16;

    /// Of a class below [`CLASSES`].
    #[inline(always)]
    pub const fn new(class: usize) -> Self {
        Self((class * Self::BY) as u16)
    }

    /// The class.
    #[inline(always)]
    pub const fn class(self) -> usize {
        self.0 as usize / Self::BY
    }

    /// Bytes from the start of an array to its entry for the class.
    #[inline(always)]
    pub const fn offset_in<T>(self) -> usize {
        const { assert!(size_of::<T>().is_multiple_of(Self::BY)) };
        self.0 as usize * (size_of::<T>() / Self::BY)
    }
}

static FINE: [Scaled; FINE_ENTRIES] = {
    let mut table = [Scaled(0); FINE_ENTRIES];
    let mut i = 0;
    while i < FINE_ENTRIES {
        table[i] = smallest_class_holding(i * 16);
        i += 1;
    }
    table
};

static COARSE: [Scaled; COARSE_ENTRIES] = {
    let mut table = [Scaled(0); COARSE_ENTRIES];
    let mut i = 0;
    while i < COARSE_ENTRIES {
        table[i] = smallest_class_holding(i * 128 + LINE_BYTES);
        i += 1;
    }
    table
};

/// The class that serves `bytes`, or `None` above 2,048.
#[inline(always)]
pub fn fine_class_of(bytes: usize) -> Option<Scaled> {
    if bytes <= FINE_MAX { Some(FINE[(bytes + 15) >> 4]) } else { None }
}

/// The class that serves `bytes`, more than 2,048, or `None` above [`SMALL_MAX`].
#[inline(always)]
pub fn coarse_class_of(bytes: usize) -> Option<Scaled> {
    debug_assert!(bytes > FINE_MAX);
    if bytes <= SMALL_MAX { Some(COARSE[(bytes + (127 - LINE_BYTES)) >> 7]) } else { None }
}

/// The class that serves `bytes`, or `None` above [`SMALL_MAX`].
#[inline(always)]
pub fn class_of(bytes: usize) -> Option<usize> {
    let scaled = if bytes <= FINE_MAX { fine_class_of(bytes) } else { coarse_class_of(bytes) };
    scaled.map(Scaled::class)
}

/// The request whose class is the smallest that holds `bytes` and has all its blocks at multiples of `align`, or `None` where `align` is
/// more than a line, or no slab holds `bytes`.
///
/// Blocks begin at a line of their slab, so block `i`, `i * size` behind, is aligned exactly when `size` is a multiple. Sizes lie powers
/// of two apart, and from `LINED_FROM` on are whole lines: where their distance is less than `align` each multiple of it is one,
/// elsewhere each is a multiple. So the next multiple will do.
#[inline(always)]
pub fn aligned_request(bytes: usize, align: usize) -> Option<usize> {
    debug_assert!(align.is_power_of_two());
    if bytes > SMALL_MAX || align > LINE_BYTES {
        return None;
    }
    Some((bytes.max(1) + (align - 1)) & !(align - 1))
}

/// As [`aligned_request`], of more than a line: the class, since no request without alignment has it.
pub fn aligned_class_of(bytes: usize, align: usize) -> Option<usize> {
    debug_assert!(align.is_power_of_two() && align > LINE_BYTES);
    if bytes > ALIGNED_MAX as usize || align > ALIGNED_MAX as usize {
        return None;
    }
    let bytes = bytes.max(1).next_multiple_of(align);
    match class_of(bytes) {
        Some(class) if SIZES[class] < LINED_FROM => Some(class),
        _ => Some(PLAIN + (bytes.next_power_of_two().ilog2() - LINED_FROM.ilog2()) as usize),
    }
}

/// Block size in bytes of `class`.
#[inline(always)]
pub fn size(class: usize) -> usize {
    SIZES[class] as usize
}

/// Granules of one slab of `class`: enough for 7 blocks or more, and for little behind the last.
pub const fn slab_granules(class: usize) -> u32 {
    match SIZES[class] {
        0..=4096 => 1,
        4097..=16384 => 2,
        _ => 4,
    }
}

/// Blocks in one slab of `class`.
#[inline]
pub const fn slab_blocks(class: usize) -> u32 {
    SLAB_BLOCKS[class] as u32
}

/// A table, not a division: it is asked for with every magazine. Class 0 has no slabs.
static SLAB_BLOCKS: [u16; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        table[class] = (slab_granules(class) * GRANULE_BYTES as u32 / SIZES[class]) as u16;
        class += 1;
    }
    table
};

/// Bytes of a magazine, of blocks up to 2 KiB and of larger ones; lines of their own do not count. The latter would be so few in the former
/// that every second or third call took a slow path.
const MAGAZINE_BYTES: (u32, u32) = (24 * 1024, 64 * 1024);
/// Blocks of a magazine at least, however large, and at most.
const MAGAZINE_BLOCKS: (u32, u32) = (8, 192);

/// Most blocks one magazine holds: 24 KiB worth, 64 KiB of blocks above 2 KiB, the lines of their own not counted; 8 at least, 192 at most.
#[inline]
pub fn magazine_max(class: usize) -> u32 {
    MAGAZINE_MAX[class]
}

/// Whether a magazine of the class holds more bytes, because its blocks would be few: they are larger than 2 KiB.
pub const fn has_few(class: usize) -> bool {
    SIZES[class] > LINED_FROM
}

/// Blocks a thread cache may hold outside the budget: 512 bytes worth, at most 8 blocks; so all of a thread's lists together,
/// those of other shards' blocks among them, are less than 14 KiB.
#[inline]
pub fn magazine_min(class: usize) -> u32 {
    MAGAZINE_MIN[class]
}

/// Full magazines of a class that are `bytes` at most, but not more than `most`.
pub const fn magazines_in(bytes: u32, most: u32) -> [u32; CLASSES] {
    let mut table = blocks_in(MAGAZINE_BYTES, MAGAZINE_BLOCKS);
    let mut class = 1;
    while class < CLASSES {
        let magazines = bytes / (table[class] * SIZES[class]);
        table[class] = if magazines < most { magazines } else { most };
        class += 1;
    }
    table
}

/// Tables, not divisions: they are asked for with every magazine.
static MAGAZINE_MAX: [u32; CLASSES] = blocks_in(MAGAZINE_BYTES, MAGAZINE_BLOCKS);
static MAGAZINE_MIN: [u32; CLASSES] = blocks_in((512, 512), (0, 8));

/// By class, the blocks in so many bytes, of small blocks and of larger ones, but not fewer than `least` and not more than `most`. Class 0
/// has no blocks.
const fn blocks_in((small, larger): (u32, u32), (least, most): (u32, u32)) -> [u32; CLASSES] {
    let mut table = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let is_lined = class < PLAIN && SIZES[class] > LINED_FROM;
        let bytes = if has_few(class) { larger } else { small };
        let blocks = bytes / (SIZES[class] - if is_lined { LINE } else { 0 });
        table[class] = if blocks < least {
            least
        } else if blocks > most {
            most
        } else {
            blocks
        };
        class += 1;
    }
    table
}

/// By class, the most lines by which the first block lies behind the start of its slab: as many as the blocks leave. None where a line
/// holds several, nor where they have to begin at multiples of their size.
static SPARE_LINES: [u32; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 1;
    while class < PLAIN {
        let spare = slab_granules(class) * GRANULE_BYTES as u32 % SIZES[class];
        table[class] = if SIZES[class] < LINED_FROM { 0 } else { spare / LINE };
        class += 1;
    }
    table
};

/// Bytes from the start of the slab at `first` to its first block, by the slab's colour.
#[inline]
pub fn slab_offset(class: usize, first: u32) -> usize {
    colour::part_of(first, SPARE_LINES[class] + 1) as usize * LINE_BYTES
}

static RECIPROCALS: [u64; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        table[class] = (1u64 << 32).div_ceil(SIZES[class] as u64);
        class += 1;
    }
    table
};

/// Finds the blocks of a slab by their offsets, without dividing.
#[derive(Clone, Copy, Debug)]
pub struct Locator {
    reciprocal: u64,
    size: usize,
}

impl Locator {
    /// For the slabs of a class.
    #[inline]
    pub fn of(class: usize) -> Self {
        Self { reciprocal: RECIPROCALS[class], size: size(class) }
    }

    /// The size of the blocks.
    #[inline]
    pub fn size(self) -> usize {
        self.size
    }

    /// Splits a byte offset, below 2^32, from the first block of a slab into (block index, offset within the block). Exact within a
    /// slab; behind it the index, too, lies behind the last block's.
    #[inline]
    pub fn locate(self, offset: usize) -> (u32, usize) {
        let index = ((offset as u64 * self.reciprocal) >> 32) as u32;
        (index, offset.wrapping_sub(index as usize * self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::granule::bytes_of;

    #[test]
    fn every_request_gets_the_smallest_block_that_holds_it() {
        for bytes in 0..=SMALL_MAX {
            let class = class_of(bytes).unwrap();
            assert!(size(class) >= bytes);
            assert!(class == 1 || size(class - 1) < bytes.max(1), "{bytes}");
        }
        assert_eq!(class_of(SMALL_MAX + 1), None);
        assert_eq!(size(PLAIN - 1), SMALL_MAX);
    }

    #[test]
    fn waste_is_at_most_a_quarter_above_64_bytes() {
        for bytes in 65..=SMALL_MAX {
            assert!(size(class_of(bytes).unwrap()) * 4 <= bytes * 5 + 64);
        }
    }

    #[test]
    fn locate_agrees_with_division_everywhere() {
        for class in 1..CLASSES {
            for offset in 0..slab_granules(class) as usize * GRANULE_BYTES {
                assert_eq!(
                    Locator::of(class).locate(offset),
                    ((offset / size(class)) as u32, offset % size(class))
                );
            }
        }
    }

    #[test]
    fn an_aligned_request_gets_the_smallest_block_whose_size_is_a_multiple() {
        for align in (0..=16).map(|shift| 1 << shift) {
            // Where no more than a line is asked for plain classes serve; the others are theirs who ask for more.
            let classes = if align > LINE_BYTES { 1..CLASSES } else { 1..PLAIN };
            let most = if align > LINE_BYTES { ALIGNED_MAX as usize } else { SMALL_MAX };
            let multiples: Vec<usize> = classes.map(size).filter(|size| size.is_multiple_of(align)).collect();
            for bytes in 0..=SMALL_MAX + 1 {
                let holding = multiples.iter().copied().filter(|&size| size >= bytes);
                let class = if align > LINE_BYTES {
                    aligned_class_of(bytes, align)
                } else {
                    aligned_request(bytes, align).map(|bytes| class_of(bytes).unwrap())
                };
                let smallest = holding.min().filter(|_| bytes <= most);
                assert_eq!(class.map(size), smallest, "{bytes} bytes at multiples of {align}");
            }
        }
        assert_eq!((aligned_class_of(usize::MAX, 1 << 63), aligned_request(usize::MAX, 1)), (None, None));
    }

    #[test]
    fn classes_by_size_ascend() {
        let sizes = BY_SIZE.map(size);
        assert!(sizes.is_sorted_by(|smaller, larger| smaller < larger) && sizes[0] == 0, "{sizes:?}");
    }

    #[test]
    fn few_blocks_of_a_class_begin_in_the_same_set_and_all_stay_in_their_slabs() {
        const SETS: usize = 64;
        for class in (1..PLAIN).filter(|&class| size(class) > LINED_FROM as usize) {
            let granules = slab_granules(class);
            let slabs = 1024 / slab_blocks(class);
            let mut begin = [0; SETS];
            for first in (0..slabs).map(|slab| 16 + slab * granules) {
                let blocks = slab_blocks(class) as usize;
                let offset = slab_offset(class, first);
                assert!(
                    offset.is_multiple_of(LINE_BYTES) && offset + blocks * size(class) <= bytes_of(granules)
                );
                (0..blocks).for_each(|block| begin[(offset + block * size(class)) / LINE_BYTES % SETS] += 1);
            }
            let most = begin.into_iter().max().unwrap();
            assert!(most <= 32, "{most} of 1,024 blocks of {} bytes begin in one of 64 sets", size(class));
        }
    }
}
