//! The process: its number, its only thread, and its end.

use super::descriptor::Descriptor;
use super::sandbox::optional_call;
use super::syscall::{number, syscall};
use super::thread::{has_threads, thread_pointer};
use core::sync::atomic::{AtomicUsize, Ordering};

#[link(name = "c")]
unsafe extern "C" {
    fn abort() -> !;
}

/// Number of this process.
pub fn process_id() -> u32 {
    // SAFETY: no argument, no effect.
    unsafe { syscall(number::GETPID, [0; 6]) as u32 }
}

/// Number of this thread: that of its process if it is the first, or the program restricts its system calls.
pub fn thread_id() -> u32 {
    // SAFETY: no argument, no effect.
    let answer = unsafe { optional_call(number::GETTID, [0; 6]) };
    u32::try_from(answer).unwrap_or_else(|_| process_id())
}

/// `prctl`, as the program calls it. The kernel's answer.
///
/// # Safety
/// What the option does with the arguments is no harm to anybody.
pub unsafe fn control_process([option, second, third, fourth, fifth]: [usize; 5]) -> isize {
    // SAFETY: the caller's contract is the same.
    unsafe { syscall(number::PRCTL, [option, second, third, fourth, fifth, 0]) }
}

/// Whether libc's `fork` or `pthread_create` made this thread, or it is a program's first: the kernel is to clear a word of libc's at its
/// end then, and not at that of a child of `vfork`. `None` where the kernel does not say.
pub fn is_thread_of_libc() -> Option<bool> {
    const PR_GET_TID_ADDRESS: usize = 40;
    let mut address = 0_usize;
    // SAFETY: the kernel writes an address there.
    let answer = unsafe {
        optional_call(number::PRCTL, [PR_GET_TID_ADDRESS, (&raw mut address).expose_provenance(), 0, 0, 0, 0])
    };
    (answer == 0).then_some(address != 0)
}

/// Whether this process certainly has other memory than its parent, which made it by a raw `clone` then and not by `vfork`. False where the
/// kernel does not say.
pub fn differs_from_parent() -> bool {
    const KCMP_VM: usize = 1;
    // SAFETY: no effect.
    let answer = unsafe {
        let parent = optional_call(number::GETPPID, [0; 6]) as usize;
        optional_call(number::KCMP, [process_id() as usize, parent, KCMP_VM, 0, 0, 0])
    };
    // Equal is 0; an order is told of what is not.
    answer > 0
}

/// Whether this process certainly has one thread; libc's flag does not say so again when others have ended, and is not everywhere.
pub fn is_alone() -> bool {
    has_threads().map_or_else(has_one_thread, |has_threads| !has_threads)
}

/// Whether the kernel lists one: the directory has a name for each thread, and two more.
fn has_one_thread() -> bool {
    Descriptor::open(c"/proc/self/task").ok().and_then(|tasks| tasks.links()) == Some(3)
}

/// The thread pointers of the threads that end the process, or 0: a second one may find a mistake while the first is in a handler of
/// SIGABRT, and stop there until the first has described the crash, or the other way round. Of more the last are not known.
static DYING: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

/// Whether this thread ends the process, and is in a handler of SIGABRT.
pub fn is_dying() -> bool {
    // ORDERING: Relaxed; a thread can only read its own thread pointer here if it wrote it itself.
    DYING.iter().any(|dying| dying.load(Ordering::Relaxed) == thread_pointer())
}

/// Ends the process with SIGABRT.
pub fn die() -> ! {
    let is_noted = |dying: &AtomicUsize| {
        // ORDERING: Relaxed, as in `is_dying`.
        dying.compare_exchange(0, thread_pointer(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    let _ = is_dying() || DYING.iter().any(is_noted);
    // SAFETY: ends the process.
    unsafe { abort() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::c_int;

    #[test]
    fn the_only_thread_of_a_process_is_known_to_be_alone() {
        unsafe extern "C" {
            fn fork() -> c_int;
            fn waitpid(child: c_int, status: &mut c_int, options: c_int) -> c_int;
            fn _exit(status: c_int) -> !;
        }
        std::thread::spawn(|| assert!(!has_one_thread())).join().unwrap();
        // SAFETY: the child only makes system calls, and ends.
        let child = unsafe { fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { _exit(c_int::from(!has_one_thread())) }
        }
        let mut status = -1;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
