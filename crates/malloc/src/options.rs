//! The one variable: `FAULTLESS=key:value,key:value`. What is not understood is named once and ignored.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering};
use faultless_heap::global::{HEAP, purger};
use faultless_heap::lock::Lock;
use faultless_heap::message::say;
use faultless_heap::os::FileIdentity;
use faultless_heap::reservation::HugePages;
use faultless_heap::span_heap::PurgeMode;
use faultless_heap::trace;

/// Longest report prefix, in bytes.
pub const PREFIX_MAX: usize = 1024;

/// Most bytes of an option that a line about it shows, each of which may take six.
const SHOWN_MAX: usize = 60;

/// What the process does at its end.
pub struct AtExit {
    /// Print statistics to standard error.
    pub statistics: bool,
    /// End a trace.
    pub trace: bool,
    /// What standard error is at the start: who closes it may have another file there at the end.
    standard_error: Option<FileIdentity>,
    prefix: [u8; PREFIX_MAX],
    prefix_bytes: usize,
}

impl AtExit {
    /// Start of the report's path; empty for no report.
    pub fn report_prefix(&self) -> &[u8] {
        &self.prefix[..self.prefix_bytes]
    }

    /// Whether anything is to be written.
    pub fn has_results(&self) -> bool {
        self.statistics || self.trace || self.prefix_bytes > 0
    }

    /// Whether what was standard error at the start still is.
    pub fn may_speak(&self) -> bool {
        self.standard_error.is_some() && self.standard_error == FileIdentity::of_standard_error()
    }
}

/// What to do at the end of the process.
pub static AT_EXIT: Lock<AtExit> = Lock::new(AtExit {
    statistics: false,
    trace: false,
    standard_error: None,
    prefix: [0; PREFIX_MAX],
    prefix_bytes: 0,
});

/// Whether the statistics page is wanted. Synchronization: the thread that starts the process.
pub static PUBLISHES: AtomicBool = AtomicBool::new(false);

/// Whether there were options: without, the process has nothing to write at its end. Synchronization: as above.
pub static ARE_GIVEN: AtomicBool = AtomicBool::new(false);

/// Reads the options from the environment that the kernel passed.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings.
pub unsafe fn read(environment: *const *const c_char) {
    let mut at = environment;
    // SAFETY: the caller's array is null-terminated.
    while !at.is_null() && unsafe { !(*at).is_null() } {
        // SAFETY: an entry of the caller's array.
        let entry = unsafe { CStr::from_ptr(*at) }.to_bytes();
        if let Some(value) = entry.strip_prefix(b"FAULTLESS=") {
            apply_all(value);
        }
        // SAFETY: not the terminator, so one more entry follows.
        at = unsafe { at.add(1) };
    }
}

/// Apart from what every process runs: it is long.
#[cold]
#[inline(never)]
fn apply_all(value: &[u8]) {
    let mut is_off = false;
    for option in value.split(|&byte| byte == b',').filter(|option| !option.is_empty()) {
        apply(option, &mut is_off);
    }
    // For good, so when all are read. Where nothing is purged there is nothing for it to do.
    if is_off || HEAP.purge_mode() == PurgeMode::Never {
        purger::switch_off();
    }
    AT_EXIT.lock().standard_error = FileIdentity::of_standard_error();
    // ORDERING: Relaxed; the end of the process comes later.
    ARE_GIVEN.store(true, Ordering::Relaxed);
}

fn apply(option: &[u8], is_off: &mut bool) {
    let mut parts = option.splitn(2, |&byte| byte == b':');
    let (key, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if takes(key, value, is_off) {
        return;
    }
    let text = core::str::from_utf8(option).unwrap_or("(not UTF-8)");
    // What is expected is to fit into the line, too.
    let text = &text[..text.floor_char_boundary(SHOWN_MAX)];
    match expected(key) {
        Some(expected) => say(format_args!("ignored FAULTLESS option {text:?}: expected {expected}")),
        None => say(format_args!(
            "ignored unknown FAULTLESS option {text:?}: the keys are stats, report, publish, purge, purger, thrift, trace, huge_pages"
        )),
    }
}

/// Does what an option says, but for the purger, of which `is_off` becomes what is said last; whether it could be understood.
fn takes(key: &[u8], value: &[u8], is_off: &mut bool) -> bool {
    match (key, value) {
        (b"stats", b"exit") => AT_EXIT.lock().statistics = true,
        (b"stats", b"off") => AT_EXIT.lock().statistics = false,
        (b"report", prefix) if (1..=PREFIX_MAX).contains(&prefix.len()) => {
            let mut at_exit = AT_EXIT.lock();
            at_exit.prefix[..prefix.len()].copy_from_slice(prefix);
            at_exit.prefix_bytes = prefix.len();
        }
        (b"purge", b"auto") => HEAP.set_purge_mode(PurgeMode::Auto),
        (b"purge", b"now") => HEAP.set_purge_mode(PurgeMode::Now),
        (b"purge", b"never") => HEAP.set_purge_mode(PurgeMode::Never),
        (b"huge_pages", b"auto") => HEAP.set_huge_pages(HugePages::Auto),
        (b"huge_pages", b"never") => HEAP.set_huge_pages(HugePages::Never),
        (b"huge_pages", b"always") => HEAP.set_huge_pages(HugePages::Always),
        (b"trace", prefix) if (1..=trace::PREFIX_MAX).contains(&prefix.len()) => {
            AT_EXIT.lock().trace = true;
            HEAP.start_trace(prefix);
        }
        (b"publish", b"on" | b"off") => {
            // ORDERING: Relaxed; the same thread reads it afterwards.
            PUBLISHES.store(value == b"on", Ordering::Relaxed);
        }
        (b"purger", b"auto" | b"off") => *is_off = value == b"off",
        (b"thrift", price) if price_ns(price).is_some() => {
            HEAP.set_price(price_ns(price).unwrap_or_default());
        }
        _ => return false,
    }
    true
}

/// The values that a key has; nothing for an unknown one.
fn expected(key: &[u8]) -> Option<&'static str> {
    const { assert!(PREFIX_MAX == 1024 && trace::PREFIX_MAX == 256) };
    Some(match key {
        b"stats" => "stats:exit or stats:off",
        b"report" => "report:PATH_PREFIX, 1 to 1024 bytes",
        b"trace" => "trace:PATH_PREFIX, 1 to 256 bytes",
        b"purge" => "purge:auto, now or never",
        b"huge_pages" => "huge_pages:never, auto or always",
        b"publish" => "publish:on or off",
        b"purger" => "purger:auto or off",
        b"thrift" => "thrift:N, microseconds of CPU time for a MiB in a second, 1 to 1000000",
        _ => return None,
    })
}

/// The price in ns that a number of microseconds stands for.
fn price_ns(digits: &[u8]) -> Option<u64> {
    let microseconds: u64 = core::str::from_utf8(digits).ok()?.parse().ok()?;
    (1..=1_000_000).contains(&microseconds).then_some(microseconds * 1000)
}
