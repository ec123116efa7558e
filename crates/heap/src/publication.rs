//! The statistics page: what the heap holds, for a reader outside the process (`faultless heap`), when the program or
//! `FAULTLESS=publish:on` asks.
//!
//! A thread of ours counts the heap every 250 ms and writes the page between two steps of its sequence number. The reader finds
//! the page in the program's or library's data by its first word and by its own address in the third, and only reads.
//!
//! Unless it is asked for nobody touches the page: it is a few KiB of zeros that cost no memory.

use crate::global::{HEAP, purger};
use crate::os;
use crate::stats::Snapshot;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// First word of the page; `records::faultless_page` knows it, too, and the places of all words.
const MAGIC: u64 = u64::from_le_bytes(*b"FLTLPAGE");
const VERSION: u64 = 1;
const WORDS: usize = 512;
const CLASSES_AT: usize = 32;
const PERIOD_NS: u64 = 250_000_000;

#[repr(C, align(4096))]
struct Page([AtomicU64; WORDS]);

/// Synchronization: written by the publishing thread alone, read by other processes.
static PAGE: Page = Page([const { AtomicU64::new(0) }; WORDS]);

/// The process that publishes: one that is forked has no thread for it, and may ask for one. Synchronization: any thread.
static PUBLISHER: AtomicU32 = AtomicU32::new(0);
/// Bit of that: its thread is being started. No process has such a number.
const STARTING: u32 = 1 << 31;
/// Time in ns between two looks whether another thread could start it.
const LOOK_PAUSE_NS: u64 = 1_000_000;

/// Shows `faultless heap` what the heap of this process holds: from now on a thread of ours counts it every 250 ms. Whether that
/// thread runs; it is false where none can be started.
pub fn publish() -> bool {
    let own = os::process_id();
    loop {
        // ORDERING: Relaxed throughout; whose exchange finds another number starts the thread, and nothing else hangs on it.
        let before = PUBLISHER.load(Ordering::Relaxed);
        if before == own {
            return true;
        }
        if before == own | STARTING {
            os::sleep_ns(LOOK_PAUSE_NS);
            continue;
        }
        let starting = own | STARTING;
        if PUBLISHER.compare_exchange(before, starting, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            continue;
        }
        let is_started = os::start_thread(keep_publishing);
        // Else a later call tries again. The thread may have ended already, as the process does.
        let after = if is_started { own } else { 0 };
        let _ = PUBLISHER.compare_exchange(starting, after, Ordering::Relaxed, Ordering::Relaxed);
        return is_started;
    }
}

unsafe extern "C" fn keep_publishing(_: *mut c_void) -> *mut c_void {
    os::name_thread(c"faultless-stats");
    loop {
        write(&Snapshot::take(&HEAP));
        os::sleep_ns(PERIOD_NS);
        // All threads of the program have ended, and it ends with the last of ours.
        if matches!(HEAP.caches.counts(), (0, 1..)) {
            // ORDERING: Relaxed; as in `publish`.
            PUBLISHER.store(0, Ordering::Relaxed);
            purger::end_before_another();
            return core::ptr::null_mut();
        }
    }
}

fn write(snapshot: &Snapshot) {
    // ORDERING: Relaxed throughout but for the fences; only this thread writes, and a reader takes the words for one picture if the
    // sequence number is even and the same before and after. The fences keep the words between its two steps.
    let put = |place: usize, value: u64| PAGE.0[place].store(value, Ordering::Relaxed);
    // A fork may have met the thread between its two steps: odd is what it is while it is written.
    let sequence = PAGE.0[4].load(Ordering::Relaxed).next_multiple_of(2);
    put(4, sequence + 1);
    fence(Ordering::Release);
    let large = &snapshot.large;
    let head = [
        VERSION,
        (&raw const PAGE).addr() as u64,
        u64::from(os::process_id()),
        sequence + 1,
        os::now_ns(),
        snapshot.classes.len() as u64,
        snapshot.threads as u64,
        snapshot.threads_peak as u64,
        large.blocks as u64,
        large.live as u64,
        large.live_peak as u64,
        snapshot.span_bytes as u64,
        snapshot.span_peak_bytes as u64,
        snapshot.dirty_bytes as u64,
        snapshot.purged_bytes,
        snapshot.purges,
        snapshot.purges_refused,
    ];
    for (place, value) in (1..).zip(head) {
        put(place, value);
    }
    for (class, stats) in snapshot.classes.iter().enumerate() {
        let figures = [stats.block_bytes, stats.slabs, stats.blocks, stats.used, stats.cached, stats.transit];
        for (place, figure) in (CLASSES_AT + class * figures.len()..WORDS).zip(figures) {
            put(place, figure as u64);
        }
    }
    put(0, MAGIC);
    fence(Ordering::Release);
    put(4, sequence + 2);
}
