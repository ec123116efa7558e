//! Where `struct malloc_par` is, found by what its fields must be to each other.

use faultless_records::glibc_heap::{Layout, Parameters};

use super::{Area, PAGE_BYTES, area_of};

/// Most threads' arenas and lists that a setting may ask for.
const MOST_COUNT: u64 = u16::MAX as u64;

/// Where addresses of libraries are; thresholds are below, or above where somebody asked for more than there can be.
const POINTERS: std::ops::Range<u64> = 1 << 46..1 << 57;

/// The parameters of malloc in a data segment of libc, with their address. Where several places fit, the one nearest to the
/// main arena is taken: both are variables of one source file. Without a main heap they are known by the blocks they count.
#[must_use]
pub fn find(
    data: &[u8],
    (start, main_arena): (u64, u64),
    is_without_heap: bool,
    layout: &Layout,
    areas: &[Area],
) -> Option<(u64, Parameters)> {
    let offsets = (0..data.len().saturating_sub(Parameters::BYTES)).step_by(8);
    let fitting = offsets.filter_map(|offset| {
        let parameters = Parameters::parse(&data[offset..], layout)?;
        fits(&parameters, is_without_heap, layout, areas).then_some((start + offset as u64, parameters))
    });
    let is_apart = |address: u64| {
        address + Parameters::BYTES as u64 <= main_arena || address >= main_arena + layout.state_bytes
    };
    fitting.filter(|(address, _)| is_apart(*address)).min_by_key(|(address, _)| address.abs_diff(main_arena))
}

fn fits(parameters: &Parameters, is_without_heap: bool, layout: &Layout, areas: &[Area]) -> bool {
    let is_start_of_heap = parameters.main_start != 0
        && parameters.main_start.is_multiple_of(16)
        && area_of(areas, parameters.main_start).is_some_and(|area| area.is_writable && area.is_anonymous);
    let is_main_start = match is_without_heap {
        true => parameters.main_start == 0 && parameters.mmap_count > 0,
        false => is_start_of_heap,
    };
    // Since 2.42 only the small lists are numbered here.
    let lists = if layout.cache.counts_down { layout.cache.small_lists } else { layout.cache.lists };
    is_main_start
        && parameters.mmap_count <= parameters.max_mmap_count
        && parameters.mmapped_bytes <= parameters.max_mmapped_bytes
        && is_of_mappings(parameters, layout)
        && parameters.cache_lists <= lists as u64 + 12
        && parameters.cache_count <= MOST_COUNT
        // Somebody may have set the threshold to 0, but then the lists are there.
        && (parameters.mmap_threshold_bytes != 0 || parameters.cache_lists != 0)
        && !POINTERS.contains(&parameters.mmap_threshold_bytes)
}

/// Whether the bytes can be those of the mappings. Since 2.43 each `mremap` adds what a block calls itself smaller than its mapping.
fn is_of_mappings(parameters: &Parameters, layout: &Layout) -> bool {
    let (count, bytes) = (u64::from(parameters.mmap_count), parameters.mmapped_bytes);
    match layout.mapped_head_bytes {
        0 => bytes.is_multiple_of(PAGE_BYTES) && (count == 0) == (bytes == 0),
        head_bytes => bytes.is_multiple_of(head_bytes) && count * PAGE_BYTES <= bytes,
    }
}
