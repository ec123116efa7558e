//! glibc's introspection functions, with what is true here, and our own.
//!
//! glibc's words mean here: *arena* the slabs and the free spans that may hold pages; *mmapped* the large blocks.

use crate::libc::{self, EINVAL, File, set_errno};
use core::ffi::{c_char, c_int};
use core::fmt::{self, Write};
use faultless_heap::global::{self, HEAP, purger};
use faultless_heap::os;
use faultless_heap::stats::Snapshot;

/// glibc's `struct mallinfo2`; sizes in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Mallinfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

/// glibc's `struct mallinfo`; sizes in bytes, cut off at `INT_MAX`.
#[repr(C)]
pub struct Mallinfo {
    fields: [c_int; 10],
}

/// glibc's `mallinfo2`: `uordblks` bytes in small blocks, `hblks`/`hblkhd` number and bytes of large ones, `fsmblks` bytes in
/// thread caches, `fordblks` free bytes, `keepcost` bytes that `malloc_trim` returns at least.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo2() -> Mallinfo2 {
    let snapshot = Snapshot::take(&HEAP);
    let free = snapshot.small_free_bytes() + snapshot.dirty_bytes;
    Mallinfo2 {
        arena: snapshot.small_used_bytes() + free,
        ordblks: snapshot.classes.iter().map(|class| class.blocks - class.used).sum(),
        smblks: snapshot.classes.iter().map(|class| class.cached).sum(),
        hblks: snapshot.large.blocks,
        hblkhd: snapshot.large.live,
        usmblks: 0,
        fsmblks: snapshot.cached_bytes(),
        uordblks: snapshot.small_used_bytes(),
        fordblks: free,
        keepcost: snapshot.dirty_bytes,
    }
}

/// glibc's `mallinfo`; as [`mallinfo2`], cut off at `INT_MAX`.
#[unsafe(no_mangle)]
pub extern "C" fn mallinfo() -> Mallinfo {
    let wide = mallinfo2();
    let sizes = [
        wide.arena,
        wide.ordblks,
        wide.smblks,
        wide.hblks,
        wide.hblkhd,
        wide.usmblks,
        wide.fsmblks,
        wide.uordblks,
        wide.fordblks,
        wide.keepcost,
    ];
    Mallinfo { fields: sizes.map(|size| c_int::try_from(size).unwrap_or(c_int::MAX)) }
}

/// glibc's `mallopt`: 1 for its parameters, which have nothing to tune here, 0 for unknown ones.
#[unsafe(no_mangle)]
pub extern "C" fn mallopt(parameter: c_int, _value: c_int) -> c_int {
    // M_MXFAST 1, M_NLBLKS 2, M_GRAIN 3, M_KEEP 4, M_TRIM_THRESHOLD -1 … M_PERTURB -6, M_ARENA_TEST -7, M_ARENA_MAX -8.
    c_int::from(matches!(parameter, 1..=4 | -8..=-1))
}

/// glibc's `malloc_trim`: gives back every page that can be given back, from all threads' caches; 1 if there was any. The
/// padding is ignored: nothing of the heap is contiguous.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_trim(_padding: usize) -> c_int {
    c_int::from(global::trim() > 0)
}

/// glibc's `malloc_stats`: our statistics on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn malloc_stats() {
    print();
}

/// Prints the statistics on standard error.
pub fn print() {
    // Apart from this: a small stack need not hold what is to be written while the snapshot is taken.
    #[inline(never)]
    fn print_snapshot(snapshot: &Snapshot) {
        write(snapshot, &mut os::StandardError::new());
    }
    print_snapshot(&Snapshot::take(&HEAP));
}

/// Writes the statistics to what takes as much as it can.
pub fn write(snapshot: &Snapshot, out: &mut impl Write) {
    let _ = snapshot.write(out);
    let (looks, looks_ns) = purger::work();
    if looks > 0 {
        let milliseconds = looks_ns / 1_000_000;
        let _ = writeln!(out, "  purger        {milliseconds:>12}  ms in {looks} looks");
    }
}

struct Stream(*mut File);

impl Write for Stream {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the caller of `malloc_info` passes an open stream.
        if unsafe { libc::write(self.0, text.as_bytes()) } { Ok(()) } else { Err(fmt::Error) }
    }
}

/// glibc's `malloc_info`: the statistics as XML, in glibc's format with one heap. -1 with `EINVAL` if `options` is not 0.
///
/// # Safety
/// `file` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, file: *mut File) -> c_int {
    if options != 0 {
        set_errno(EINVAL);
        return -1;
    }
    let snapshot = Snapshot::take(&HEAP);
    if write_xml(&snapshot, &mut Stream(file)).is_ok() { 0 } else { -1 }
}

fn write_xml(snapshot: &Snapshot, out: &mut impl Write) -> fmt::Result {
    writeln!(out, "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>")?;
    let (mut free_blocks, mut from) = (0, 1);
    for class in snapshot.classes.iter().skip(1) {
        let free = class.blocks - class.used;
        if free > 0 {
            let (to, total) = (class.block_bytes, free * class.block_bytes);
            writeln!(out, "  <size from=\"{from}\" to=\"{to}\" total=\"{total}\" count=\"{free}\"/>")?;
        }
        free_blocks += free;
        from = class.block_bytes + 1;
    }
    let cached = snapshot.cached_bytes();
    // Counted at different moments where other threads allocate.
    let rest = snapshot.small_free_bytes().saturating_sub(cached);
    let cached_blocks: usize = snapshot.classes.iter().map(|class| class.cached).sum();
    let rest_blocks = free_blocks.saturating_sub(cached_blocks);
    let (large, now, peak) = (snapshot.large, snapshot.span_bytes, snapshot.span_peak_bytes);
    let totals = |out: &mut dyn Write| {
        writeln!(out, "<total type=\"fast\" count=\"{cached_blocks}\" size=\"{cached}\"/>")?;
        writeln!(out, "<total type=\"rest\" count=\"{rest_blocks}\" size=\"{rest}\"/>")
    };
    let system = |out: &mut dyn Write| {
        writeln!(out, "<system type=\"current\" size=\"{now}\"/>\n<system type=\"max\" size=\"{peak}\"/>")?;
        writeln!(out, "<aspace type=\"total\" size=\"{now}\"/>\n<aspace type=\"mprotect\" size=\"{now}\"/>")
    };
    writeln!(out, "</sizes>")?;
    totals(out)?;
    system(out)?;
    writeln!(out, "</heap>")?;
    totals(out)?;
    writeln!(out, "<total type=\"mmap\" count=\"{}\" size=\"{}\"/>", large.blocks, large.live)?;
    system(out)?;
    writeln!(out, "</malloc>")
}

/// Version of the library, a C string.
#[unsafe(no_mangle)]
pub extern "C" fn faultless_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Gives back every page that can be given back, from all threads' caches. Returns the bytes.
#[unsafe(no_mangle)]
pub extern "C" fn faultless_trim() -> usize {
    global::trim()
}
