//! What `malloc_info` would write, from the walk.

use faultless_records::malloc_info::{Heap, MallocInfo, Size, Total};

use super::bins::Listed;
use super::walk::{Arena, HeapWalk};

/// The document that the process would write, byte for byte the same figures.
#[must_use]
pub fn malloc_info(walk: &HeapWalk) -> MallocInfo {
    let mapped = Total { count: walk.mapped.blocks, bytes: walk.mapped.bytes };
    MallocInfo { heaps: walk.arenas.iter().map(|arena| heap(arena, walk)).collect(), mapped }
}

fn heap(arena: &Arena, walk: &HeapWalk) -> Heap {
    let size = |list: &Listed| Size { from: list.from, to: list.to, total: list.total, count: list.count };
    let lists = &arena.lists;
    let (unsorted, sorted) = match lists.bins.split_first() {
        Some((unsorted, sorted)) => (Some(*unsorted), sorted),
        None => (None, [].as_slice()),
    };
    let mut rest = Total::default();
    for list in &lists.bins {
        rest.count += list.count;
        rest.bytes += list.total;
    }
    if walk.layout.info_counts_top {
        rest.count += 1;
        rest.bytes += arena.account.top_bytes;
    }
    let fast = lists.fast.iter().fold(Total::default(), |sum, list| Total {
        count: sum.count + list.count,
        bytes: sum.bytes + list.total,
    });
    let space = |bytes: fn(&super::walk::Heap) -> u64| match arena.is_main {
        true => arena.system_bytes,
        false => arena.heaps.iter().map(bytes).sum(),
    };
    Heap {
        sizes: lists.fast.iter().chain(sorted).filter(|list| list.count > 0).map(size).collect(),
        unsorted: unsorted.filter(|list| list.count > 0).as_ref().map(size),
        fast: walk.layout.fast_bins.is_some().then_some(fast),
        rest,
        system_bytes: arena.system_bytes,
        max_system_bytes: arena.max_system_bytes,
        total_bytes: space(|heap| heap.bytes),
        accessible_bytes: space(|heap| heap.accessible_bytes),
        heaps: (!arena.is_main).then_some(arena.heaps.len() as u64),
    }
}
