//! `setrlimit` and `prlimit`: before a program limits its own addresses (`RLIMIT_AS`), those that the heap has reserved and does not use
//! are given up. They would count, and it could not map anything more. Where it limits its data (`RLIMIT_DATA`) what is committed counts.

use crate::libc::returned;
use core::ffi::{c_int, c_uint};
use core::ptr::{null, null_mut};
use faultless_heap::global;
use faultless_heap::os::{self, LimitPair, ResourceLimit};

const RLIM_INFINITY: u64 = u64::MAX;

/// C `setrlimit`.
///
/// # Safety
/// As in C: `new` is null or may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_uint, new: *const LimitPair) -> c_int {
    // SAFETY: the caller's contract is the same.
    unsafe { set(0, resource, new, null_mut()) }
}

/// glibc's `setrlimit64`: limits have 64 bits in either.
///
/// # Safety
/// As for [`setrlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_uint, new: *const LimitPair) -> c_int {
    // SAFETY: the caller's contract is the same.
    unsafe { set(0, resource, new, null_mut()) }
}

/// Linux's `prlimit`.
///
/// # Safety
/// `new` is null or may be read, `old` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    pid: c_int,
    resource: c_uint,
    new: *const LimitPair,
    old: *mut LimitPair,
) -> c_int {
    // SAFETY: the caller's contract is the same.
    unsafe { set(pid, resource, new, old) }
}

/// As [`prlimit`], as [`setrlimit64`].
///
/// # Safety
/// As for [`prlimit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    pid: c_int,
    resource: c_uint,
    new: *const LimitPair,
    old: *mut LimitPair,
) -> c_int {
    // SAFETY: the caller's contract is the same.
    unsafe { set(pid, resource, new, old) }
}

/// # Safety
/// As for [`prlimit`].
unsafe fn set(pid: c_int, resource: c_uint, new: *const LimitPair, old: *mut LimitPair) -> c_int {
    let is_own = pid == 0 || pid.cast_unsigned() == os::process_id();
    let concerns_heap = [ResourceLimit::AddressSpace, ResourceLimit::Data].map(|limit| limit as c_uint);
    let wanted = if is_own && concerns_heap.contains(&resource) {
        // Of other limits nothing is read: an address that cannot be is the kernel's to refuse.
        // SAFETY: null or readable, as the caller says.
        unsafe { new.as_ref() }.copied()
    } else {
        None
    };
    // What is given up does not come back in one piece. Where the kernel may refuse, it is asked first, and other threads may not map for
    // that moment.
    let is_certain = wanted.is_some_and(|wanted| is_allowed_to_all(resource, wanted));
    let prepare = || {
        if let Some([soft, _]) = wanted.filter(|[soft, _]| *soft != RLIM_INFINITY) {
            prepare_heap(resource, soft);
        }
    };
    if is_certain {
        prepare();
    }
    // SAFETY: the caller's contract is the same.
    let answer = unsafe { os::change_limit(pid, resource, new, old) };
    if answer >= 0 && !is_certain {
        prepare();
    }
    returned(answer)
}

/// Whether anybody may set this limit of the own process so: no soft limit above its hard one, and no hard one that is raised.
fn is_allowed_to_all(resource: c_uint, [soft, hard]: LimitPair) -> bool {
    let mut present = [0; 2];
    // SAFETY: only the pair is written.
    let answer = unsafe { os::change_limit(0, resource, null(), &mut present) };
    answer == 0 && soft <= hard && hard <= present[1]
}

/// The heap is to be under this soft limit.
fn prepare_heap(resource: c_uint, soft: u64) {
    if resource == ResourceLimit::AddressSpace as c_uint {
        global::keep_within(usize::try_from(soft).unwrap_or(usize::MAX));
    } else {
        global::count_committed();
    }
}
