//! `dlopen`, so that libraries opened with `RTLD_DEEPBIND` (PHP opens its extensions so) allocate here, too, and who opens libc itself
//! and asks that for `free` or `malloc_trim` (Python's `ctypes.CDLL("libc.so.6")`) gets ours.
//!
//! They look into libc before they look into what the program started with, or nowhere else. They would call libc's `free` with our
//! blocks and hand libc's blocks to our `free`, and either ends the process. So before the first of them is opened, libc's own
//! table of symbols leads from the names of the `malloc` family to where they lead everybody else.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use faultless_heap::global;
use faultless_heap::lock::Lock;
use faultless_heap::os::elf::{Object, objects};

const RTLD_DEEPBIND: c_int = 8;

/// The functions of the `malloc` family. What a libc does not have, or this library, is passed over.
const NAMES: &[u8] = b"malloc\0free\0calloc\0realloc\0reallocarray\0aligned_alloc\0memalign\0posix_memalign\0valloc\0\
    pvalloc\0malloc_usable_size\0free_sized\0free_aligned_sized\0cfree\0mallopt\0malloc_trim\0mallinfo\0mallinfo2\0\
    malloc_stats\0malloc_info\0__libc_malloc\0__libc_free\0__libc_calloc\0__libc_realloc\0__libc_memalign\0\
    __libc_valloc\0__libc_pvalloc\0__libc_cfree\0__posix_memalign\0";
const COUNT: usize = {
    let (mut index, mut count) = (0, 0);
    while index < NAMES.len() {
        count += (NAMES[index] == 0) as usize;
        index += 1;
    }
    count
};

/// Whether libc's names lead there.
static IS_LED: AtomicBool = AtomicBool::new(false);
/// Held while they are led there. A child that was forked meanwhile cannot use `dlopen`, as with the loader's own lock, which each walk along
/// the loaded objects takes, too: so what a walk found is kept.
static LEADING: Lock<()> = Lock::new(());
/// The next `dlopen`; 0 before it was looked for.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The call that `dlopen` becomes, in the two registers that return it.
#[repr(C)]
struct Onward {
    dlopen: usize,
    mode: usize,
}

/// C `dlopen`. Goes on to the next one by a jump: that learns from its return address who asks (`$ORIGIN`, `RUNPATH`).
///
/// # Safety
/// As for glibc's: `path` is null or a C string.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen(path: *const c_char, mode: c_int) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call {prepare}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "mov esi, edx",
        "jmp rax",
        ".cfi_endproc",
        prepare = sym prepare,
    );
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x0, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_rel_offset x30, 8",
        "bl {prepare}",
        "mov x16, x0",
        "ldp x0, x30, [sp], #16",
        ".cfi_restore x30",
        ".cfi_adjust_cfa_offset -16",
        "br x16",
        ".cfi_endproc",
        prepare = sym prepare,
    );
}

/// # Safety
/// As for [`dlopen`].
unsafe extern "C" fn prepare(path: *const c_char, mode: c_int) -> Onward {
    let is_deep = mode & RTLD_DEEPBIND != 0;
    if is_deep {
        // It calls libc's `fork`, and registers handlers there that are not to be the first.
        global::handle_forks();
    }
    // ORDERING: Acquire pairs with the Release below: the next `dlopen` reads libc's table.
    let is_led = || IS_LED.load(Ordering::Acquire);
    // SAFETY: the caller's contract is the same.
    let leads = (is_deep || unsafe { is_libc(path) }) && !is_led();
    // ORDERING: Relaxed; all find the same, and read nothing by it.
    let known = NEXT.load(Ordering::Relaxed);
    if known != 0 && !leads {
        return Onward { dlopen: known, mode: mode as usize };
    }
    let _one_at_a_time = leads.then(|| LEADING.lock());
    let (mut view, mut is_done) = (View::default(), !leads || is_led());
    objects(|object| {
        view.note(&object);
        is_done = is_done || view.lead(&object, is_deep);
        view.dlopen.is_some() && is_done
    });
    if leads && is_done {
        // ORDERING: as above.
        IS_LED.store(true, Ordering::Release);
    }
    let next = view.dlopen.or(view.earlier).unwrap_or(0);
    // ORDERING: as above.
    NEXT.store(next, Ordering::Relaxed);
    Onward {
        dlopen: if next == 0 { nowhere as *const () as usize } else { next },
        // Where libc's table cannot be written, the library looks where all others do.
        mode: if is_done { mode } else { mode & !RTLD_DEEPBIND } as usize,
    }
}

/// # Safety
/// `path` is null or a C string.
unsafe fn is_libc(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: the caller's contract is the same.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    path.rsplit(|byte| *byte == b'/').next() == Some(b"libc.so.6")
}

/// Before glibc 2.34 a program without libdl has no `dlopen`.
extern "C" fn nowhere(_path: *const c_char, _mode: c_int) -> *mut c_void {
    null_mut()
}

/// The loaded objects, as far as they were visited.
#[derive(Default)]
struct View {
    is_behind_ours: bool,
    /// The next `dlopen` behind ours.
    dlopen: Option<usize>,
    /// libc's or libdl's before ours, where this library came later than they did.
    earlier: Option<usize>,
    /// By their places in `NAMES`, where everybody else's calls go: mostly to us, or to what was preloaded before us.
    first: [usize; COUNT],
    /// Whether another than us has one of them.
    is_taken: bool,
}

impl View {
    fn note(&mut self, object: &Object<'_>) {
        if self.is_behind_ours && self.dlopen.is_none() {
            self.dlopen = object.find(c"dlopen");
        } else if self.earlier.is_none() && object.find(c"dlinfo").is_some() {
            self.earlier = object.find(c"dlopen");
        }
        self.is_behind_ours |= object.contains(prepare as *const () as usize);
    }

    /// If the object, which was noted, is libc, its names lead from now on where everybody else's do: before us, they do. False for all
    /// others, and where that is refused. Who has functions of his own may ask libc for those behind them, and would call himself: but for a
    /// library that is opened deep libc's are left to him.
    fn lead(&mut self, object: &Object<'_>, is_deep: bool) -> bool {
        if object.find(c"gnu_get_libc_version").is_some() {
            if self.is_taken && !is_deep {
                return false;
            }
            let known = names().zip(self.first).filter(|(_, first)| *first != 0);
            return !self.is_behind_ours || object.lead(known);
        }
        for (name, first) in names().zip(&mut self.first).filter(|(_, first)| **first == 0) {
            *first = object.find(name).unwrap_or(0);
        }
        self.is_taken |= !self.is_behind_ours && self.first.iter().any(|first| *first != 0);
        false
    }
}

fn names() -> impl Iterator<Item = &'static CStr> + Clone {
    NAMES.split_inclusive(|byte| *byte == 0).filter_map(|name| CStr::from_bytes_with_nul(name).ok())
}
