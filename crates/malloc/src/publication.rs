//! The statistics page: what the heap holds, for a reader outside the process (`faultless heap`), when `FAULTLESS=publish:on` asks.
//!
//! A thread of ours counts the heap every 250 ms and writes the page between two steps of its sequence number. The reader finds
//! the page in this library's data by its first word and by its own address in the third, and only reads.
//!
//! Without the option nobody touches the page: it is a few KiB of zeros that cost no memory.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use faultless_heap::global::HEAP;
use faultless_heap::message::say;
use faultless_heap::os;
use faultless_heap::stats::Snapshot;

/// First word of the page; `records::faultless_page` knows it, too, and the places of all words.
const MAGIC: u64 = u64::from_le_bytes(*b"FLTLPAGE");
const VERSION: u64 = 1;
const WORDS: usize = 512;
const CLASSES_AT: usize = 32;
const PERIOD_NS: u64 = 250_000_000;

#[repr(C, align(4096))]
struct Page([AtomicU64; WORDS]);

/// Synchronization: written by the publishing thread alone, read by other processes.
#[used]
static PAGE: Page = Page([const { AtomicU64::new(0) }; WORDS]);
static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Notes that the page is wanted; [`start`] makes it.
pub fn ask(is_wanted: bool) {
    // ORDERING: Relaxed; set and read by the thread that starts the process.
    IS_ASKED.store(is_wanted, Ordering::Relaxed);
}

/// Starts to publish, if it was asked for.
pub fn start() {
    // ORDERING: Relaxed, as in `ask`.
    if IS_ASKED.load(Ordering::Relaxed) && !os::start_thread(publish) {
        say(format_args!("cannot publish statistics: no thread could be started"));
    }
}

unsafe extern "C" fn publish(_: *mut c_void) -> *mut c_void {
    os::name_thread(c"faultless-stats");
    loop {
        write(&Snapshot::take(&HEAP));
        os::sleep_ns(PERIOD_NS);
    }
}

fn write(snapshot: &Snapshot) {
    // ORDERING: Relaxed throughout but for the fences; only this thread writes, and a reader takes the words for one picture if the
    // sequence number is even and the same before and after. The fences keep the words between its two steps.
    let put = |place: usize, value: u64| PAGE.0[place].store(value, Ordering::Relaxed);
    let sequence = PAGE.0[4].load(Ordering::Relaxed);
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
