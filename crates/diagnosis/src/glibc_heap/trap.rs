//! Where most of the memory lies that is free and stays resident: that decides what helps.

use faultless_records::glibc_heap::Parameters;

use super::PAGE_BYTES;
use super::walk::HeapWalk;
use crate::setting::DEFAULT_THRESHOLD_BYTES;

/// Less than this is not worth a remedy, nor is less than a quarter of what is resident.
pub const LEAST_TRAPPED_BYTES: u64 = 8 << 20;

/// Less than this in use is what any program has.
const LEAST_IN_USE_BYTES: u64 = 32 << 20;

/// Of what is resident, less than this part may be free where nearly all is in use.
const LITTLE_TRAPPED: u64 = 10;

/// Whether nearly all of the memory that malloc has is in use by the program, and it is worth a word.
#[must_use]
pub fn is_in_use(walk: &HeapWalk) -> bool {
    let resident = walk.total.holding.resident_bytes + walk.mapped.resident_bytes;
    walk.residency_is_known
        // What these hold looks as if it were in use.
        && walk.changed_caches == 0
        && resident >= LEAST_IN_USE_BYTES
        && walk.total.trapped_bytes() < resident / LITTLE_TRAPPED
}

/// Where more than half of what is trapped lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trap {
    /// In the top chunk of the main heap, which is no larger than what a free keeps.
    MainTop(Hold),
    /// In other whole pages that `malloc_trim(0)` gives back.
    Returnable,
    /// In the top chunks of threads' arenas; with what keeps them, where malloc's parameters were found.
    ThreadTops(Option<Hold>),
    /// In parts of pages with blocks in use.
    Pinned,
    /// In the caches of threads, which hold more blocks than they do by default, or not.
    Cached {
        /// Whether they hold more.
        is_raised: bool,
    },
}

/// What keeps a top at a free, the trim threshold or the top pad, and where it comes from: that decides who can lower it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The threshold at which glibc starts.
    Default,
    /// The threshold, raised by glibc to so many bytes.
    Raised(u64),
    /// The threshold, set to so many bytes by the program or its environment.
    Set(u64),
    /// The pad, set to more than the threshold.
    Pad(u64),
}

impl Hold {
    /// glibc raises both thresholds together, that of trimming to twice the other. Source: `__libc_free` in its `malloc/malloc.c`.
    fn of(parameters: &Parameters) -> Self {
        let (trim, mmap) = (parameters.trim_threshold_bytes, parameters.mmap_threshold_bytes);
        if parameters.top_pad_bytes > trim {
            Self::Pad(parameters.top_pad_bytes)
        } else if trim == DEFAULT_THRESHOLD_BYTES {
            Self::Default
        } else if mmap > DEFAULT_THRESHOLD_BYTES && trim == mmap.saturating_mul(2) {
            Self::Raised(trim)
        } else {
            Self::Set(trim)
        }
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Default => DEFAULT_THRESHOLD_BYTES,
            Self::Raised(bytes) | Self::Set(bytes) | Self::Pad(bytes) => bytes,
        }
    }
}

impl Trap {
    /// The one of a process; none where little is trapped, or no place has most of it.
    #[must_use]
    pub fn of(walk: &HeapWalk) -> Option<Self> {
        let total = &walk.total;
        let trapped = total.trapped_bytes();
        if !walk.residency_is_known
            || trapped < LEAST_TRAPPED_BYTES
            || trapped < total.holding.resident_bytes / 4
        {
            return None;
        }
        let of_threads = walk.arenas.iter().filter(|arena| !arena.is_main);
        let tops: u64 = of_threads.map(|arena| arena.account.top_bytes).sum();
        let main_top = main_top(walk).filter(|(_, bytes)| *bytes > trapped / 2);
        if let Some((hold, _)) = main_top {
            return Some(Self::MainTop(hold));
        }
        let hold = walk.parameters.as_ref().map(Hold::of);
        let places = [
            (Self::Returnable, total.returnable_bytes),
            // The rest of what is kept are pages in which heads of free chunks stand.
            (Self::ThreadTops(hold), total.kept_bytes().min(tops)),
            (Self::Pinned, total.holding.pinned_bytes),
            (
                Self::Cached { is_raised: total.cached.blocks > most_cached(walk) },
                total.cached_resident_bytes,
            ),
        ];
        places.into_iter().find(|(_, bytes)| *bytes > trapped / 2).map(|(trap, _)| trap)
    }
}

/// The most blocks that the caches of threads hold by default. Source: `TCACHE_FILL_COUNT` in glibc's `malloc/malloc.c`.
fn most_cached(walk: &HeapWalk) -> u64 {
    let each = if walk.layout.cache.counts_down { 16 } else { 7 };
    (walk.caches * walk.layout.cache.lists * each) as u64
}

/// What keeps the main heap's top, and the bytes of it at least that a trim would give back; none where the top is larger than that, so
/// that something else keeps it. Of the top a free leaves the pad and less than two pages.
fn main_top(walk: &HeapWalk) -> Option<(Hold, u64)> {
    let hold = Hold::of(walk.parameters.as_ref()?);
    let main = &walk.arenas.iter().find(|arena| arena.is_main)?.account;
    let bytes = main.returnable_bytes.saturating_sub(main.binned.bytes + main.fast.bytes);
    (main.top_bytes < hold.bytes().saturating_add(2 * PAGE_BYTES)).then_some((hold, bytes))
}
