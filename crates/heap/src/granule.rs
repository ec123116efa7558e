//! The granule: 64 KiB, the unit in which the reservation is divided.

/// log2 of the bytes of one granule.
pub const GRANULE_SHIFT: u32 = 16;

/// Bytes of one granule. Every page size of Linux on x86-64 and aarch64 divides it.
pub const GRANULE_BYTES: usize = 1 << GRANULE_SHIFT;

/// Granules that hold `bytes`, or `None` where that number does not fit the page map.
pub fn granules_for(bytes: usize) -> Option<u32> {
    u32::try_from(bytes.div_ceil(GRANULE_BYTES)).ok()
}

/// Bytes of `granules`.
pub const fn bytes_of(granules: u32) -> usize {
    (granules as usize) << GRANULE_SHIFT
}

/// A run of granules, which belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first of them.
    pub first: u32,
    /// How many they are.
    pub granules: u32,
}
