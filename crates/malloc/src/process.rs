//! Start and end of the process.

use crate::options::{self, ARE_GIVEN, AT_EXIT, PUBLISHES};
use crate::statistics;
use core::ffi::{c_char, c_int};
use core::fmt::Write;
use core::sync::atomic::Ordering;
use faultless_heap::global::{self, HEAP};
use faultless_heap::message::{Line, say};
use faultless_heap::os::elf::objects;
use faultless_heap::stats::Snapshot;
use faultless_heap::{os, stats};

#[used]
#[unsafe(link_section = ".init_array")]
static START: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

unsafe extern "C" fn start(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    #[cfg(feature = "forks")]
    let forks_are_announced = crate::forks::look();
    #[cfg(not(feature = "forks"))]
    let forks_are_announced = false;
    global::begin(forks_are_announced);
    #[cfg(all(feature = "operators", target_arch = "x86_64"))]
    crate::cpp_abi::find_at_start();
    // A setuid program must not write where its caller says.
    if !os::is_privileged() {
        // SAFETY: the loader passes the environment of the process.
        unsafe { options::read(environment) };
        // Each child is to have a report or a page of its own, however it is forked.
        // ORDERING: Relaxed; this thread has just set it.
        if ARE_GIVEN.load(Ordering::Relaxed) {
            global::handle_forks();
        }
        // ORDERING: Relaxed; this thread has just set it.
        if PUBLISHES.load(Ordering::Relaxed) && !faultless_heap::publish() {
            say(format_args!("cannot publish statistics: no thread could be started"));
        }
    }
}

extern "C" fn end() {
    // ORDERING: Relaxed; written at the start of the process.
    if ARE_GIVEN.load(Ordering::Relaxed) {
        os::without_ending_by_writes(write_results);
    }
}

#[cold]
#[inline(never)]
fn write_results() {
    // Held by a thread that is at its end, too.
    let Some(at_exit) = AT_EXIT.try_lock() else { return };
    let may_speak = at_exit.may_speak();
    if at_exit.has_results() && !HEAP.can_be_counted() {
        if may_speak {
            say(format_args!(
                "nothing is reported: exit was called in a signal handler that interrupted malloc or free"
            ));
        }
        return;
    }
    let trace_is_lost = !HEAP.end_trace();
    if is_idle_copy() {
        return;
    }
    if at_exit.statistics && may_speak {
        statistics::print();
    }
    if trace_is_lost && may_speak {
        say(format_args!("cannot write the whole trace to the file that FAULTLESS=trace:PREFIX names"));
    }
    let prefix = at_exit.report_prefix();
    if prefix.is_empty() {
        return;
    }
    let mut path = [0u8; options::PREFIX_MAX + 16];
    let mut suffix = Line::new();
    // A `Line` never fails: it cuts, and this is short.
    let _ = write!(suffix, ".{}", os::process_id());
    let suffix = suffix.as_bytes();
    path[..prefix.len()].copy_from_slice(prefix);
    path[prefix.len()..prefix.len() + suffix.len()].copy_from_slice(suffix);
    let written = core::ffi::CStr::from_bytes_until_nul(&path).ok().and_then(|path| {
        let mut file = os::File::create(path)?;
        stats::write_report(&HEAP, &mut file).ok()
    });
    if written.is_none() && may_speak {
        let name = core::str::from_utf8(prefix).unwrap_or("(not UTF-8)");
        say(format_args!("cannot write the report to {name}.{}", os::process_id()));
    }
}

/// Whether calls go to another copy before this one, or to another allocator: two paths of this library were preloaded, or the program
/// was linked with it. Who served has more to say, and the report's place is the same.
fn is_idle_copy() -> bool {
    let mut is_first = None;
    objects(|object| {
        is_first = object.find(c"malloc").map(|_| object.contains(end as *const () as usize));
        is_first.is_some()
    });
    // One that is hidden in a library serves that alone.
    is_first == Some(false) && Snapshot::take(&HEAP).span_peak_bytes == 0
}
