//! Clocks, read without libc.

use super::elf::Object;
use super::syscall::{number, syscall};
use super::thread::vdso;
use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicPtr, Ordering};

const CLOCK_MONOTONIC: c_int = 1;
const CLOCK_PROCESS_CPUTIME_ID: c_int = 2;
const CLOCK_THREAD_CPUTIME_ID: c_int = 3;
const CLOCK_MONOTONIC_COARSE: c_int = 6;

#[repr(C)]
pub(super) struct Timespec {
    pub(super) seconds: i64,
    pub(super) nanoseconds: i64,
}

/// Monotonic time in ns of the kernel's last tick, at most 10 ms ago: read in a quarter of the time, and exact enough for what is held.
#[inline]
pub fn now_ns() -> u64 {
    clock_ns(CLOCK_MONOTONIC_COARSE)
}

/// Monotonic time in ns, for what takes less than a tick.
pub fn exact_now_ns() -> u64 {
    clock_ns(CLOCK_MONOTONIC)
}

/// CPU time in ns that this thread has used.
pub fn thread_time_ns() -> u64 {
    clock_ns(CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time in ns that all threads of the process have used, those that ended among them.
pub fn process_time_ns() -> u64 {
    clock_ns(CLOCK_PROCESS_CPUTIME_ID)
}

#[inline]
fn clock_ns(clock: c_int) -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // ORDERING: Relaxed; an address of code that was there before it was written.
    // SAFETY: the pointer is always one of a `GetTime`, which writes to `time` only.
    unsafe { core::mem::transmute::<*mut (), GetTime>(GET_TIME.load(Ordering::Relaxed))(clock, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

type GetTime = unsafe extern "C" fn(c_int, *mut Timespec) -> c_int;

/// The kernel's function in the object that it maps into each process. Not libc's, which calls the same: a program or a library that
/// is preloaded, too, may replace that (libfaketime does), and allocate in it while we hold locks.
static GET_TIME: AtomicPtr<()> = AtomicPtr::new(first_time as *mut ());

unsafe extern "C" fn first_time(clock: c_int, time: *mut Timespec) -> c_int {
    const NAME: &CStr =
        if cfg!(target_arch = "x86_64") { c"__vdso_clock_gettime" } else { c"__kernel_clock_gettime" };
    let object = vdso();
    // SAFETY: the object stays as long as the process.
    let found = (object != 0)
        .then(|| unsafe { Object::at(core::ptr::with_exposed_provenance(object)) }.find(NAME))
        .flatten();
    let get_time = found.map_or(ask_for_time as *mut (), core::ptr::with_exposed_provenance_mut);
    // ORDERING: Relaxed, as in `clock_ns`; all who come here find the same.
    GET_TIME.store(get_time, Ordering::Relaxed);
    // SAFETY: the function of that name is a `GetTime`.
    unsafe { core::mem::transmute::<*mut (), GetTime>(get_time)(clock, time) }
}

unsafe extern "C" fn ask_for_time(clock: c_int, time: *mut Timespec) -> c_int {
    // SAFETY: the kernel writes to `time`.
    unsafe { syscall(number::CLOCK_GETTIME, [clock as usize, time as usize, 0, 0, 0, 0]) as c_int }
}
