//! Cache colouring (Bonwick, "The Slab Allocator", USENIX Summer 1994): where in its span what it holds begins. Spans begin at multiples
//! of 64 KiB; if what they hold did, too, first lines would share one set of the first-level cache and few of the second, and their
//! pages few of the TLB. A program that walks along many arrays, or down a column of many rows, would find only as many of them there as
//! a set has ways (8 to 16). Pure.

/// Of most processors' caches; where lines are longer, several colours are one.
pub const LINE_BYTES: usize = 64;

/// Below `parts`, by the number of a span. Fibonacci hashing: spans equally far apart, as those of one size are, get parts equally far
/// apart.
#[inline]
pub fn part_of(first: u32, parts: u32) -> u32 {
    (position_of(first, parts) >> 32) as u32
}

/// As [`part_of`], in the upper half; below, how far into the part, of 2^32.
#[inline]
pub fn position_of(first: u32, parts: u32) -> u64 {
    u64::from(first.wrapping_mul(0x9e37_79b9)) * u64::from(parts)
}
