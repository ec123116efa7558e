//! Where most of the memory lies that is free and stays resident: that decides what helps.

use faultless_records::glibc_heap::Parameters;

use super::walk::HeapWalk;
use crate::setting::DEFAULT_THRESHOLD_BYTES;

/// Less than this is not worth a remedy, nor is less than a quarter of what is resident.
const LEAST_TRAPPED_BYTES: u64 = 8 << 20;

/// Where more than half of what is trapped lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trap {
    /// In the top chunk of the main heap, which is below the trim threshold.
    MainTop(TrimThreshold),
    /// In other whole pages that `malloc_trim(0)` gives back.
    Returnable,
    /// In the top chunks of threads' arenas; with the threshold, where malloc's parameters were found.
    ThreadTops(Option<TrimThreshold>),
    /// In parts of pages with blocks in use.
    Pinned,
    /// In the caches of threads.
    Cached,
}

/// The trim threshold of a process, and where it comes from: that decides who can lower it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimThreshold {
    /// glibc's own, at which it starts.
    Default,
    /// Raised by glibc to so many bytes.
    Raised(u64),
    /// Set to so many bytes, by the program or its environment.
    Set(u64),
}

impl TrimThreshold {
    /// glibc raises both thresholds together, this one to twice the other. Source: `__libc_free` in its `malloc/malloc.c`.
    fn of(parameters: &Parameters) -> Self {
        let (trim, mmap) = (parameters.trim_threshold_bytes, parameters.mmap_threshold_bytes);
        if trim == DEFAULT_THRESHOLD_BYTES {
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
            Self::Raised(bytes) | Self::Set(bytes) => bytes,
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
        if let Some((threshold, _)) = main_top {
            return Some(Self::MainTop(threshold));
        }
        let threshold = walk.parameters.as_ref().map(TrimThreshold::of);
        let places = [
            (Self::Returnable, total.returnable_bytes),
            // The rest of what is kept are pages in which heads of free chunks stand.
            (Self::ThreadTops(threshold), total.kept_bytes().min(tops)),
            (Self::Pinned, total.holding.pinned_bytes),
            (Self::Cached, total.cached_resident_bytes),
        ];
        places.into_iter().find(|(_, bytes)| *bytes > trapped / 2).map(|(trap, _)| trap)
    }
}

/// The trim threshold, and the bytes of the main heap's top at least that a trim would give back; none where the top is above the
/// threshold, so that something else keeps it.
fn main_top(walk: &HeapWalk) -> Option<(TrimThreshold, u64)> {
    let threshold = TrimThreshold::of(walk.parameters.as_ref()?);
    let main = &walk.arenas.iter().find(|arena| arena.is_main)?.account;
    let bytes = main.returnable_bytes.saturating_sub(main.binned.bytes + main.fast.bytes);
    (main.top_bytes < threshold.bytes()).then_some((threshold, bytes))
}
