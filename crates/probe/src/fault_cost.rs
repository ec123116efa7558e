//! What a page fault costs on this machine, measured on memory of our own.

use std::time::Duration;

use nix::libc;

use crate::clock::thread_processor_time;

/// Batches of pages that are timed, and the pages of each.
const BATCHES: usize = 16;
const BATCH_PAGES: usize = 64;
const PAGE_BYTES: usize = 4096;

/// Processor time that a fault takes which brings in a fresh page, in seconds: no more in nine of ten batches. That of one batch is twice
/// or half that of another, as what others do and where the page was before decide. None where no memory can be had.
#[must_use]
pub fn of_fresh_page_s() -> Option<f64> {
    let bytes = BATCHES * BATCH_PAGES * PAGE_BYTES;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, which nobody else knows, is made where the kernel chooses.
    let start =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is ours. Huge pages would come 512 at a fault.
    unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
    let batch_time = |batch| {
        let begun = thread_processor_time()?;
        for page in 0..BATCH_PAGES {
            // SAFETY: the byte lies inside of the mapping.
            unsafe { start.cast::<u8>().add((batch * BATCH_PAGES + page) * PAGE_BYTES).write_volatile(1) };
        }
        Some(thread_processor_time()?.saturating_sub(begun))
    };
    let batches: Option<Vec<Duration>> = (0..BATCHES).map(batch_time).collect();
    // SAFETY: the mapping is ours, and nothing points into it any more.
    unsafe { libc::munmap(start, bytes) };
    let mut batches = batches?;
    batches.sort_unstable();
    Some(batches[BATCHES * 9 / 10].as_secs_f64() / BATCH_PAGES as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fault_takes_between_a_few_nanoseconds_and_a_millisecond() {
        let cost_s = of_fresh_page_s().unwrap();
        assert!((20e-9..1e-3).contains(&cost_s), "{cost_s}");
    }
}
