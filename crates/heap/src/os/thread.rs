//! Threads and CPUs.

use super::clock::Timespec;
use super::errno::Errno;
use super::sandbox::optional_call;
use super::syscall::{number, syscall};
use core::arch::asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, Ordering};

const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;
const MEMBARRIER_PRIVATE_EXPEDITED: usize = 8;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: usize = 16;
const RUSAGE_THREAD: usize = 1;
const RUSAGE_SELF: usize = 0;
/// Words of a `rusage`, and which of them are the faults without I/O and with it, and how often a CPU was left, by the thread's will and against it.
/// Source: getrusage(2), the layout that 64-bit systems have.
const RUSAGE_WORDS: usize = 18;
const RUSAGE_MINOR_FAULTS: usize = 8;
const RUSAGE_MAJOR_FAULTS: usize = 9;
const RUSAGE_SWITCHES: [usize; 2] = [16, 17];

#[link(name = "c")]
unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn getauxval(kind: core::ffi::c_ulong) -> core::ffi::c_ulong;
    #[cfg(not(target_env = "musl"))]
    fn __register_atfork(
        prepare: unsafe extern "C" fn(),
        parent: unsafe extern "C" fn(),
        child: unsafe extern "C" fn(),
        dso: *const c_void,
    ) -> c_int;
    #[cfg(target_env = "musl")]
    fn pthread_atfork(
        prepare: unsafe extern "C" fn(),
        parent: unsafe extern "C" fn(),
        child: unsafe extern "C" fn(),
    ) -> c_int;
}

/// Page faults of this thread that needed no I/O; 0 where the kernel does not say.
pub fn thread_faults() -> u64 {
    usage(RUSAGE_THREAD)[RUSAGE_MINOR_FAULTS]
}

/// Page faults of this thread that waited for a disk or for swap; 0 where the kernel does not say.
pub fn thread_faults_with_io() -> u64 {
    usage(RUSAGE_THREAD)[RUSAGE_MAJOR_FAULTS]
}

/// Whether another thread of this process than this one, also one that ended, has left a CPU; false where the kernel does not say.
pub fn others_left_a_cpu() -> bool {
    let switches = |whose| {
        let usage = usage(whose);
        RUSAGE_SWITCHES.iter().map(|word| usage[*word]).sum::<u64>()
    };
    // In this order: where this thread leaves one in between that is no other's.
    let all = switches(RUSAGE_SELF);
    all > switches(RUSAGE_THREAD)
}

fn usage(whose: usize) -> [u64; RUSAGE_WORDS] {
    let mut usage = [0; RUSAGE_WORDS];
    // SAFETY: the kernel writes a `rusage` there, which has so many words.
    unsafe { optional_call(number::GETRUSAGE, [whose, (&raw mut usage).expose_provenance(), 0, 0, 0, 0]) };
    usage
}

/// Where the vDSO is, the object of the kernel; 0 where there is none (valgrind, qemu before 8.2).
pub(super) fn vdso() -> usize {
    const AT_SYSINFO_EHDR: core::ffi::c_ulong = 33;
    // SAFETY: reads what the kernel passed at start.
    keeping_errno(|| unsafe { getauxval(AT_SYSINFO_EHDR) } as usize)
}

/// Whether qemu runs this program without a kernel of its own, in a version that may keep a record of every page that is mapped, also of
/// those that are reserved alone.
pub fn is_emulated() -> bool {
    vdso() == 0 && is_translated()
}

/// Whether the processor is qemu's translator. Source: target/i386/cpu.c of qemu, leaf 0x40000000.
#[cfg(target_arch = "x86_64")]
fn is_translated() -> bool {
    let signature = core::arch::x86_64::__cpuid(0x4000_0000);
    [signature.ebx, signature.ecx, signature.edx].map(u32::to_le_bytes) == [*b"TCGT", *b"CGTC", *b"GTCG"]
}

#[cfg(not(target_arch = "x86_64"))]
fn is_translated() -> bool {
    true
}

/// CPUs this process may run on, by its affinity; at least 1.
pub fn cpus_allowed() -> usize {
    // Not cleared, which would be a call of libc's `memset` (docs/choices.md, "The small process").
    let mut mask = MaybeUninit::<[u64; 128]>::uninit();
    let bytes = size_of_val(&mask);
    // SAFETY: the kernel writes at most `bytes` to `mask`.
    let answer =
        unsafe { syscall(number::SCHED_GETAFFINITY, [0, bytes, mask.as_mut_ptr() as usize, 0, 0, 0]) };
    let words = usize::try_from(answer).unwrap_or(0) / size_of::<u64>();
    // SAFETY: the answer is how many bytes the kernel wrote.
    let mask = unsafe { core::slice::from_raw_parts(mask.as_ptr().cast::<u64>(), words) };
    mask.iter().map(|word| word.count_ones() as usize).sum::<usize>().max(1)
}

/// Bytes of a page. A constant where there is one size, so that nobody divides by it.
#[inline]
pub fn page_bytes() -> usize {
    if cfg!(target_arch = "x86_64") {
        return 4096;
    }
    const AT_PAGESZ: core::ffi::c_ulong = 6;
    // SAFETY: reads what the kernel passed at start.
    unsafe { getauxval(AT_PAGESZ) as usize }
}

/// Sleeps while `word` is `expected`; may return at any time.
pub fn futex_wait(word: &AtomicU32, expected: u32) {
    let address = word.as_ptr() as usize;
    // SAFETY: the kernel only reads the word.
    unsafe { syscall(number::FUTEX, [address, FUTEX_WAIT_PRIVATE, expected as usize, 0, 0, 0]) };
}

/// Sleeps while `word` is `expected`, for `duration_ns` at most; may return at any time.
pub fn futex_wait_for(word: &AtomicU32, expected: u32, duration_ns: u64) {
    let address = word.as_ptr() as usize;
    let limit = Timespec {
        seconds: (duration_ns / 1_000_000_000) as i64,
        nanoseconds: (duration_ns % 1_000_000_000) as i64,
    };
    let arguments = [address, FUTEX_WAIT_PRIVATE, expected as usize, &raw const limit as usize, 0, 0];
    // SAFETY: the kernel only reads the word and the limit.
    unsafe { syscall(number::FUTEX, arguments) };
}

/// Wakes one thread that sleeps on `word`.
pub fn futex_wake_one(word: &AtomicU32) {
    let address = word.as_ptr() as usize;
    // SAFETY: the kernel does not touch the word.
    unsafe { syscall(number::FUTEX, [address, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0]) };
}

/// Wakes every thread that sleeps on `word`.
pub fn futex_wake_all(word: &AtomicU32) {
    let address = word.as_ptr() as usize;
    // SAFETY: the kernel does not touch the word.
    unsafe { syscall(number::FUTEX, [address, FUTEX_WAKE_PRIVATE, i32::MAX as usize, 0, 0, 0]) };
}

/// Lets another thread run.
pub fn yield_now() {
    const INSTEAD_NS: u64 = 1_000;
    // SAFETY: no argument, no effect on memory.
    if unsafe { optional_call(number::SCHED_YIELD, [0; 6]) } != 0 {
        sleep_ns(INSTEAD_NS);
    }
}

/// Announces use of [`barrier_all_threads`]; cheap while the process has one thread. False: not available.
pub fn register_barrier() -> bool {
    // SAFETY: no effect on memory.
    unsafe { syscall(number::MEMBARRIER, [MEMBARRIER_REGISTER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0]) == 0 }
}

#[cfg(test)]
std::thread_local! {
    /// Barriers that this thread made all threads pass.
    pub static BARRIERS: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

/// A full memory barrier on every thread of this process that runs now. False: not available.
pub fn barrier_all_threads() -> bool {
    #[cfg(test)]
    BARRIERS.set(BARRIERS.get() + 1);
    // SAFETY: no effect on memory contents.
    unsafe { optional_call(number::MEMBARRIER, [MEMBARRIER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0]) == 0 }
}

/// A number that tells living threads apart and that a forked child keeps.
#[inline]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads the thread pointer, which the ABI keeps in place for the thread's life.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("mov {}, qword ptr fs:0", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
    }
    pointer
}

// Not in every libc, or not in libc itself: before glibc 2.34 `dlsym` and the keys are in libdl and libpthread, which a
// program need not have loaded. The shared library refers to those weakly, too (`faultless-malloc`, feature `old-glibc`).

/// The function of this name and type that the linker found, if any; with `weak`, that need not be there.
macro_rules! found {
    (weak $name:literal as $kind:ty) => {
        // Beside the reference: it holds for the object file that it stands in.
        found!($name as $kind, concat!(".weak ", $name))
    };
    ($name:literal as $kind:ty $(, $weak:expr)?) => {{
        let address: usize;
        // SAFETY: loads the address that the linker found, null if none, which is `None` for a function pointer; the type is
        // that of the function's documentation.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!($($weak,)? concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"), out(reg) address,
                options(pure, readonly, nostack, preserves_flags));
            #[cfg(target_arch = "aarch64")]
            asm!($($weak,)? concat!("adrp {0}, :got:", $name), concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) address, options(pure, readonly, nostack, preserves_flags));
            core::mem::transmute::<usize, Option<$kind>>(address)
        }
    }};
}
pub(super) use found;

type DlSym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type KeyCreate = unsafe extern "C" fn(*mut u32, unsafe extern "C" fn(*mut c_void)) -> c_int;
type SetSpecific = unsafe extern "C" fn(u32, *const c_void) -> c_int;
type GetSpecific = unsafe extern "C" fn(u32) -> *mut c_void;

/// Where a loaded library defines a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// In the program or any library, the first that has it.
    Default,
    /// In the libraries behind this one.
    Next,
}

/// The address of a symbol, null if no library has it or this process has no `dlsym`. May call `malloc`.
pub fn find_symbol(search: Search, name: &CStr) -> *mut c_void {
    let handle = match search {
        Search::Default => core::ptr::null_mut(),
        Search::Next => core::ptr::without_provenance_mut(usize::MAX),
    };
    match found!("dlsym" as DlSym) {
        // SAFETY: the handle is one of the two special ones, and the name a C string.
        Some(dlsym) => unsafe { dlsym(handle, name.as_ptr()) },
        None => core::ptr::null_mut(),
    }
}

/// A key whose destructor runs at the exit of each thread that set it.
#[derive(Clone, Copy, Debug)]
pub struct ExitKey(u32);

impl ExitKey {
    /// Creates a key; `None` when the process has used them all, or has no threads library yet.
    pub fn new(destructor: unsafe extern "C" fn(*mut c_void)) -> Option<Self> {
        let create = found!("pthread_key_create" as KeyCreate)?;
        let mut key = 0;
        // SAFETY: writes to `key` only; the destructor is a function of ours that lives as long as the process.
        (unsafe { create(&mut key, destructor) } == 0).then_some(Self(key))
    }

    /// The key as a plain number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The key whose number is `number`.
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Arms the destructor for this thread; it gets `value`, which must not be 0. May call `malloc`.
    pub fn arm(self, value: usize) {
        if let Some(set) = found!("pthread_setspecific" as SetSpecific) {
            // SAFETY: the key exists for ever; a failure means only that the destructor does not run.
            unsafe { set(self.0, value as *const c_void) };
        }
    }

    /// What the key holds in this thread; none where that is nothing.
    pub fn value(self) -> Option<usize> {
        let get = found!("pthread_getspecific" as GetSpecific)?;
        // SAFETY: the key exists for ever.
        Some(unsafe { get(self.0) }.addr()).filter(|value| *value != 0)
    }
}

/// Calls what may set `errno` and leaves it as it was: `free` preserves it, and so does what succeeds here.
pub(super) fn keeping_errno<R>(act: impl FnOnce() -> R) -> R {
    // SAFETY: this thread's own variable, which lives as long as the thread and is of no reference here.
    unsafe {
        let errno = __errno_location();
        let before = errno.read();
        let result = act();
        errno.write(before);
        result
    }
}

/// What a function of libc says that answers 0, or sets `errno`, which is left as it was.
pub(super) fn failing(act: impl FnOnce() -> c_int) -> Result<usize, Errno> {
    keeping_errno(|| match act() {
        0 => Ok(0),
        // SAFETY: as in `keeping_errno`.
        _ => Err(Errno(unsafe { __errno_location().read() })),
    })
}

/// Blocks signals besides those that are blocked.
pub(super) const SIG_BLOCK: usize = 0;
/// Blocks these signals and no others.
pub(super) const SIG_SETMASK: usize = 2;

/// Changes which signals are blocked in this thread, and tells which were.
///
/// # Safety
/// `new` is null or may be read; what `old` names, if the kernel can write it, may be written.
pub(super) unsafe fn change_signals(how: usize, new: *const u64, old: *mut u64) -> Result<usize, Errno> {
    let arguments = [how, new.expose_provenance(), old.expose_provenance(), size_of::<u64>(), 0, 0];
    // SAFETY: the kernel reads and writes a mask each, as the caller allows.
    Errno::check(unsafe { syscall(number::RT_SIGPROCMASK, arguments) })
}

/// Blocks signals of this thread. Returns which were before; `None`: refused.
pub(super) fn set_signals(how: usize, mask: u64) -> Option<u64> {
    let mut before = 0;
    // SAFETY: masks of ours.
    let answer = unsafe { change_signals(how, &raw const mask, &raw mut before) };
    answer.is_ok().then_some(before)
}

/// Calls `write` so that a file beyond the limit of its size (SIGXFSZ, `ulimit -f`) and a pipe that nobody reads (SIGPIPE) only refuse
/// it: neither what we write for an observer nor a region's file is a reason to end the program.
pub fn without_ending_by_writes<T>(write: impl FnOnce() -> T) -> T {
    const SIGPIPE_SIGXFSZ: u64 = 1 << 12 | 1 << 24;
    let before = set_signals(SIG_BLOCK, SIGPIPE_SIGXFSZ);
    let result = write();
    if let Some(before) = before {
        let (ours, now) = (SIGPIPE_SIGXFSZ & !before, Timespec { seconds: 0, nanoseconds: 0 });
        let arguments = [(&raw const ours) as usize, 0, (&raw const now) as usize, 8, 0, 0];
        // Each that came is taken.
        // SAFETY: the kernel reads the set and the time.
        while unsafe { syscall(number::RT_SIGTIMEDWAIT, arguments) } > 0 {}
        set_signals(SIG_SETMASK, before);
    }
    result
}

/// Names this thread, for people who look at it.
pub fn name_thread(name: &CStr) {
    const PR_SET_NAME: usize = 15;
    // SAFETY: the kernel reads a C string.
    unsafe { optional_call(number::PRCTL, [PR_SET_NAME, name.as_ptr() as usize, 0, 0, 0, 0]) };
}

/// Sleeps for about so long. By the call that locks need in any case: a sandbox may refuse `nanosleep`, which libc does not use any more.
pub fn sleep_ns(duration_ns: u64) {
    futex_wait_for(&AtomicU32::new(0), 0, duration_ns);
}

/// Registers fork handlers for the life of the process. May call `malloc`.
pub fn at_fork(
    prepare: unsafe extern "C" fn(),
    parent: unsafe extern "C" fn(),
    child: unsafe extern "C" fn(),
) -> bool {
    // glibc has `pthread_atfork` only in a static part, which a shared library must not pass on.
    #[cfg(not(target_env = "musl"))]
    // SAFETY: the handlers are functions of ours; a null DSO handle keeps them for the life of the process.
    let status = unsafe { __register_atfork(prepare, parent, child, core::ptr::null()) };
    #[cfg(target_env = "musl")]
    // SAFETY: the handlers are functions of ours.
    let status = unsafe { pthread_atfork(prepare, parent, child) };
    status == 0
}

/// What stands for libc's flag before it is looked for, and where there is none.
static UNKNOWN: AtomicU8 = AtomicU8::new(0);

/// libc's flag, or [`UNKNOWN`].
static SINGLE_THREADED: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const UNKNOWN).cast_mut());

/// Looks for libc's flag that tells whether the process has one thread (glibc 2.32 and later). May call `malloc`. By name at run
/// time: a reference would keep the library from loading where it is missing.
pub fn find_single_threaded_flag() {
    let flag: *mut AtomicU8 = find_symbol(Search::Default, c"__libc_single_threaded").cast();
    if !flag.is_null() {
        // ORDERING: Relaxed; the flag itself was initialised by the loader.
        SINGLE_THREADED.store(flag, Ordering::Relaxed);
    }
}

/// Whether this process certainly has one thread; false where libc does not tell.
#[inline]
pub fn is_single_threaded() -> bool {
    // ORDERING: Relaxed; libc clears the flag in the only thread, before the second one starts.
    // SAFETY: a byte of libc or of ours, which lives as long as the process.
    unsafe { (*SINGLE_THREADED.load(Ordering::Relaxed)).load(Ordering::Relaxed) != 0 }
}

/// Whether this process has threads, as far as libc tells.
pub fn has_threads() -> Option<bool> {
    // ORDERING: Relaxed; as in `find_single_threaded_flag`.
    let is_known = !core::ptr::eq(SINGLE_THREADED.load(Ordering::Relaxed), &raw const UNKNOWN);
    is_known.then(|| !is_single_threaded())
}

/// Takes libc's lock around its list of streams: glibc's, which may be taken again by who has it.
pub fn lock_stdio_list() {
    if let Some(function) = found!(weak "_IO_list_lock" as unsafe extern "C" fn()) {
        // SAFETY: glibc's own function for this, which takes no argument.
        unsafe { function() };
    }
}

/// Releases what [`lock_stdio_list`] took.
pub fn unlock_stdio_list() {
    if let Some(function) = found!(weak "_IO_list_unlock" as unsafe extern "C" fn()) {
        // SAFETY: glibc's own function for this, which takes no argument.
        unsafe { function() };
    }
}

/// Makes libc's lock around its list of streams free, in a forked child.
pub fn reset_stdio_list_lock() {
    if let Some(function) = found!(weak "_IO_list_resetlock" as unsafe extern "C" fn()) {
        // SAFETY: glibc's own function for this, which takes no argument.
        unsafe { function() };
    }
}

/// Whether the process runs with more rights than its caller (setuid, file capabilities).
pub fn is_privileged() -> bool {
    const AT_SECURE: core::ffi::c_ulong = 23;
    // SAFETY: reads what the kernel passed at start.
    unsafe { getauxval(AT_SECURE) != 0 }
}
