//! Regions for C: `fl_region_*`, as `include/faultless.h` documents them. A handle is the Rust region's own pointer.

use crate::libc::{ECANCELED, EINVAL, ENOMEM, set_errno};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::fmt::{self, Write};
use core::mem::ManuallyDrop;
use core::ops::ControlFlow;
use core::ptr::{NonNull, null_mut};
use faultless_heap::os::Access;
use faultless_heap::region::{
    self, Limit, Obstacle, PageWish, Populate, Progress, Region, RegionError, RegionOptions, Sharing,
};

/// `fl_region`; only ever behind a pointer.
#[repr(C)]
pub struct Handle {
    _opaque: [u8; 0],
}

/// `fl_region_progress`; not 0 cancels.
pub type ProgressFunction = unsafe extern "C" fn(*mut c_void, usize, usize) -> c_int;

/// `fl_region_options`.
#[repr(C)]
pub struct Options {
    bytes: usize,
    shared: c_int,
    pages: c_int,
    populate: c_int,
    locked: c_int,
    unchecked: c_int,
    threads: c_uint,
    name: *const c_char,
    huge_page_bytes: usize,
    progress: Option<ProgressFunction>,
    context: *mut c_void,
    reserved: [usize; 4],
}

const MESSAGE_BYTES: usize = 384;

/// `fl_region_error`.
#[repr(C)]
pub struct ErrorReport {
    code: c_int,
    errno_value: c_int,
    needed_bytes: usize,
    available_bytes: usize,
    message: [u8; MESSAGE_BYTES],
}

/// `fl_region_pages`.
#[repr(C)]
pub struct PagesReport {
    resident_bytes: usize,
    huge_bytes: usize,
    locked_bytes: usize,
    page_bytes: usize,
    obstacle: c_int,
}

/// Text in a C string's room: what does not fit is cut.
struct Message<'a> {
    bytes: &'a mut [u8; MESSAGE_BYTES],
    used: usize,
}

impl Write for Message<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MESSAGE_BYTES - 1 - self.used;
        let copied = text.floor_char_boundary(room.min(text.len()));
        self.bytes[self.used..self.used + copied].copy_from_slice(&text.as_bytes()[..copied]);
        self.used += copied;
        Ok(())
    }
}

/// `FL_REGION_*`.
fn code(error: &RegionError) -> c_int {
    match error {
        RegionError::Argument(_) => 1,
        RegionError::Refused { .. } => 2,
        RegionError::Cancelled { .. } => 3,
        RegionError::Limit { limit, .. } => match limit {
            Limit::AddressSpace => 10,
            Limit::Data => 11,
            Limit::FileSize => 12,
            Limit::LockedMemory => 13,
            Limit::Commit => 14,
            Limit::CgroupV1 | Limit::CgroupV2 => 15,
            Limit::HugePagePool { .. } => 16,
            Limit::Memory => 17,
        },
    }
}

fn errno(error: &RegionError) -> c_int {
    match error {
        RegionError::Argument(_) => EINVAL,
        RegionError::Refused { errno, .. } => errno.0,
        RegionError::Cancelled { .. } => ECANCELED,
        RegionError::Limit { .. } => ENOMEM,
    }
}

/// Tells an error to the caller; returns its code.
///
/// # Safety
/// `report` is null or may be written.
unsafe fn report_error(error: &RegionError, report: *mut ErrorReport) -> c_int {
    let (needed_bytes, available_bytes) = match *error {
        RegionError::Limit { needed_bytes, available_bytes, .. } => (needed_bytes, available_bytes),
        RegionError::Cancelled { done_bytes, total_bytes } => (total_bytes, done_bytes),
        RegionError::Refused { bytes, .. } => (bytes, 0),
        RegionError::Argument(_) => (0, 0),
    };
    if !report.is_null() {
        let mut message = [0; MESSAGE_BYTES];
        // A `Message` never fails: it cuts.
        let _ = write!(Message { bytes: &mut message, used: 0 }, "{error}");
        let filled = ErrorReport {
            code: code(error),
            errno_value: errno(error),
            needed_bytes,
            available_bytes,
            message,
        };
        // SAFETY: the caller says that it may be written.
        unsafe { report.write(filled) };
    }
    set_errno(errno(error));
    code(error)
}

/// # Safety
/// As [`report_error`].
unsafe fn outcome(result: Result<(), RegionError>, report: *mut ErrorReport) -> c_int {
    match result {
        Ok(()) => 0,
        // SAFETY: the caller's contract is the same.
        Err(error) => unsafe { report_error(&error, report) },
    }
}

/// # Safety
/// As [`report_error`].
unsafe fn handed_out(raw: Result<*mut c_void, RegionError>, report: *mut ErrorReport) -> *mut Handle {
    match raw {
        Ok(raw) => raw.cast(),
        Err(error) => {
            // SAFETY: the caller's contract is the same.
            unsafe { report_error(&error, report) };
            null_mut()
        }
    }
}

/// The region of a handle, which stays the caller's.
///
/// # Safety
/// A live handle, not null.
unsafe fn borrowed(handle: *const Handle) -> ManuallyDrop<Region> {
    // SAFETY: the caller says that it is no null and came from `into_raw`; it is not dropped here.
    ManuallyDrop::new(unsafe { Region::from_raw(NonNull::new_unchecked(handle.cast_mut().cast())) })
}

/// A C callback as a Rust one.
///
/// # Safety
/// The function may be called with the context while the result lives.
unsafe fn teller(
    function: Option<ProgressFunction>,
    context: *mut c_void,
) -> impl FnMut(Progress) -> ControlFlow<()> {
    move |progress| match function {
        // SAFETY: the caller says so.
        Some(function) if unsafe { function(context, progress.done_bytes, progress.total_bytes) } != 0 => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    }
}

fn when(populate: c_int) -> Result<Populate, RegionError> {
    match populate {
        0 => Ok(Populate::Now),
        1 => Ok(Populate::InBackground),
        2 => Ok(Populate::ByUse),
        _ => Err(RegionError::Argument("populate is FL_POPULATE_NOW, _IN_BACKGROUND or _BY_USE")),
    }
}

/// # Safety
/// The options' name is null or a C string, and their function may be called.
unsafe fn map(options: &Options) -> Result<*mut c_void, RegionError> {
    let pages = match options.pages {
        0 => PageWish::HugeWanted,
        1 => PageWish::Small,
        2 => PageWish::HugeRequired,
        _ => {
            let advice = "pages is FL_PAGES_HUGE_WANTED, FL_PAGES_SMALL or FL_PAGES_HUGE_REQUIRED";
            return Err(RegionError::Argument(advice));
        }
    };
    if options.reserved != [0; 4] {
        let advice = "the reserved fields must be zero: begin with fl_region_options options = {0}";
        return Err(RegionError::Argument(advice));
    }
    // SAFETY: the caller's contract.
    let mut teller = unsafe { teller(options.progress, options.context) };
    let mut request = RegionOptions::new(options.bytes)
        .sharing(if options.shared != 0 { Sharing::Shared } else { Sharing::Private })
        .pages(pages)
        .populate(when(options.populate)?)
        .threads(options.threads as usize)
        .locked(options.locked != 0)
        .checked(options.unchecked == 0);
    if !options.name.is_null() {
        // SAFETY: the caller's contract.
        request = request.name(unsafe { CStr::from_ptr(options.name) });
    }
    if options.huge_page_bytes != 0 {
        request = request.huge_page_bytes(options.huge_page_bytes);
    }
    if options.progress.is_some() {
        request = request.on_progress(&mut teller);
    }
    request.map().map(Region::into_raw)
}

/// Makes a region. Null on failure, with `errno`.
///
/// # Safety
/// `options` as documented in the header; `error` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_map(options: *const Options, error: *mut ErrorReport) -> *mut Handle {
    // SAFETY: the caller's contract.
    unsafe { handed_out(map(&*options), error) }
}

/// Maps a file that another process shares, for reading. Null on failure, with `errno`.
///
/// # Safety
/// `path` is a C string; `error` is null or may be written; nobody makes the file shorter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_open(
    path: *const c_char,
    populate: c_int,
    error: *mut ErrorReport,
) -> *mut Handle {
    // SAFETY: the caller's contract.
    unsafe {
        let opened = when(populate).and_then(|when| region::open(CStr::from_ptr(path), when, None));
        handed_out(opened.map(region::ReadOnlyRegion::into_raw), error)
    }
}

/// As [`fl_region_open`], of a descriptor, which stays the caller's.
///
/// # Safety
/// As [`fl_region_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_open_descriptor(
    descriptor: c_int,
    populate: c_int,
    error: *mut ErrorReport,
) -> *mut Handle {
    // SAFETY: the caller's contract.
    unsafe {
        let opened = when(populate).and_then(|when| region::open_descriptor(descriptor, when, None));
        handed_out(opened.map(region::ReadOnlyRegion::into_raw), error)
    }
}

/// Unmaps a region; null does nothing.
///
/// # Safety
/// A live handle or null; nothing refers to the contents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_unmap(handle: *mut Handle) {
    if !handle.is_null() {
        // SAFETY: the caller gives the handle up.
        drop(ManuallyDrop::into_inner(unsafe { borrowed(handle) }));
    }
}

/// First byte of the contents.
///
/// # Safety
/// A live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_data(handle: *const Handle) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { borrowed(handle) }.as_ptr().cast_mut().cast()
}

/// Bytes of the contents, as asked for.
///
/// # Safety
/// A live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_bytes(handle: *const Handle) -> usize {
    // SAFETY: the caller's contract.
    unsafe { borrowed(handle) }.len()
}

/// Populates what is not yet, and returns when it is done; 0 or the error's code.
///
/// # Safety
/// A live handle that no other thread is changing; the function may be called; `error` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_populate(
    handle: *mut Handle,
    progress: Option<ProgressFunction>,
    context: *mut c_void,
    error: *mut ErrorReport,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { outcome(borrowed(handle).populate(&mut teller(progress, context)), error) }
}

/// Lets threads of its own populate what is not yet; 0 or the error's code.
///
/// # Safety
/// As [`fl_region_populate`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_populate_in_background(
    handle: *mut Handle,
    error: *mut ErrorReport,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { outcome(borrowed(handle).populate_in_background(), error) }
}

/// Waits for the end of populating in the background; 0 or the error's code.
///
/// # Safety
/// As [`fl_region_populate`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_wait(
    handle: *mut Handle,
    progress: Option<ProgressFunction>,
    context: *mut c_void,
    error: *mut ErrorReport,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { outcome(borrowed(handle).wait(&mut teller(progress, context)), error) }
}

/// How far populating has come.
///
/// # Safety
/// A live handle; both pointers may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_populated(
    handle: *const Handle,
    done_bytes: *mut usize,
    total_bytes: *mut usize,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let progress = borrowed(handle).progress();
        (*done_bytes, *total_bytes) = (progress.done_bytes, progress.total_bytes);
    }
}

/// Lets populating in the background end soon. From any thread.
///
/// # Safety
/// A live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_cancel(handle: *const Handle) {
    // SAFETY: the caller's contract.
    unsafe { borrowed(handle) }.cancel();
}

/// Grows or shrinks the region, which may move; 0 or the error's code.
///
/// # Safety
/// As [`fl_region_populate`]; nothing refers to the contents by address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_resize(
    handle: *mut Handle,
    bytes: usize,
    progress: Option<ProgressFunction>,
    context: *mut c_void,
    error: *mut ErrorReport,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { outcome(borrowed(handle).resize(bytes, &mut teller(progress, context)), error) }
}

/// Makes the region read-only; 0 or the error's code.
///
/// # Safety
/// As [`fl_region_populate`]; nobody writes to the contents.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_freeze(handle: *mut Handle, error: *mut ErrorReport) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { outcome(borrowed(handle).set_access(Access::Read), error) }
}

/// Makes the region writable again; 0 or the error's code.
///
/// # Safety
/// As [`fl_region_populate`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_thaw(handle: *mut Handle, error: *mut ErrorReport) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { outcome(borrowed(handle).set_access(Access::ReadWrite), error) }
}

/// The descriptor of a shared region's file, which stays the region's; -1 for a private one.
///
/// # Safety
/// A live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_descriptor(handle: *const Handle) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { borrowed(handle) }.descriptor().unwrap_or(-1)
}

/// What pages the kernel gave; -1 where `/proc` cannot be read.
///
/// # Safety
/// A live handle; `report` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fl_region_look(handle: *const Handle, report: *mut PagesReport) -> c_int {
    // SAFETY: the caller's contract.
    let Some(pages) = (unsafe { borrowed(handle) }).pages() else { return -1 };
    let obstacle = match pages.obstacle {
        None => 0,
        Some(Obstacle::Never) => 1,
        Some(Obstacle::SharedNever) => 2,
        Some(Obstacle::Disabled) => 3,
        Some(Obstacle::Missing) => 4,
    };
    let filled = PagesReport {
        resident_bytes: pages.resident_bytes,
        huge_bytes: pages.huge_bytes,
        locked_bytes: pages.locked_bytes,
        page_bytes: pages.page_bytes,
        obstacle,
    };
    // SAFETY: the caller's contract.
    unsafe { report.write(filled) };
    0
}
