//! Types that any bytes make a value of, and slices of them over a region's bytes.

/// A type of which every pattern of bytes is a value: numbers, arrays of them, structures of them without gaps.
///
/// # Safety
/// The type has no padding, no pointers or references, no values that are not allowed (no `bool`, `char`, enum), and no interior
/// mutability; it is `Copy` and needs no drop.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($kind:ty)*) => {$(
        // SAFETY: a number: all patterns are values, and there is no padding.
        unsafe impl Plain for $kind {}
    )*};
}

plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

// SAFETY: an array has no padding of its own.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// As many values as fit into the bytes; what is left over at the end is not shown. Empty if they are misaligned or the type has
/// no size.
pub fn view<T: Plain>(bytes: &[u8]) -> &[T] {
    if size_of::<T>() == 0 || !bytes.as_ptr().cast::<T>().is_aligned() {
        return &[];
    }
    // SAFETY: aligned and long enough by the lines around; every pattern of bytes is a value of T.
    unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
}

/// As [`view`], to be written to.
pub fn view_mut<T: Plain>(bytes: &mut [u8]) -> &mut [T] {
    if size_of::<T>() == 0 || !bytes.as_ptr().cast::<T>().is_aligned() {
        return &mut [];
    }
    let count = bytes.len() / size_of::<T>();
    // SAFETY: as in `view`; every value of T is a pattern of bytes, and the borrow is the only one.
    unsafe { core::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_values_as_fit_are_shown() {
        #[repr(align(16))]
        struct Aligned([u8; 24]);
        let mut aligned = Aligned([0; 24]);
        let bytes = &mut aligned.0[..];
        view_mut::<u64>(bytes).copy_from_slice(&[1, 2, 3]);
        assert_eq!(view::<[u64; 2]>(bytes), [[1, 2]]);
        assert_eq!(view::<u64>(&bytes[..23]).len(), 2);
        assert_eq!(view::<u64>(&bytes[1..]), [0u64; 0], "misaligned");
        assert_eq!(view::<[u64; 0]>(bytes).len(), 0);
        view_mut::<f32>(bytes)[0] = 1.0;
        assert_eq!(view::<u64>(bytes)[0], 0x3f80_0000);
    }
}
