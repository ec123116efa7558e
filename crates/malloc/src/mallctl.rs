//! The names of jemalloc's `mallctl` that programs use, with what is true here. What tunes jemalloc is taken and changes nothing; there
//! are no bins of its kind; arenas and thread caches that a program makes are numbers.
//!
//! Source of names, types and errors: jemalloc(3) of 5.3.

use crate::libc::{EINVAL, ENOENT, EPERM};
use crate::statistics::faultless_version;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use faultless_heap::global::{self, HEAP, MIN_ALIGN};
use faultless_heap::os;
use faultless_heap::stats::Snapshot;

/// `MALLCTL_ARENAS_ALL`; numbers from here on stand for all arenas.
const ALL_ARENAS: usize = 4096;

/// In a name, where a number stands.
const NUMBER: &[u8] = b"#";
/// Words of the longest name.
const DEPTH: usize = 5;

/// The names, and what each does. No pointers: the loader would write them in each process.
macro_rules! names {
    ($($name:literal: |$access:ident| $answer:expr,)*) => {
        const NAMES: &[u8] = concat!($($name, "\n"),*).as_bytes();

        /// What the name with this place among [`NAMES`] does.
        fn perform(place: usize, access: &Access) -> c_int {
            let mut names = 0..;
            $(
                if names.next() == Some(place) {
                    let $access = access;
                    return $answer;
                }
            )*
            ENOENT
        }
    };
}

// There is no `arena.#.reset`: blocks are not freed by their arena.
names! {
    "version": |access| access.read(faultless_version()),
    "epoch": |access| access.tune(1_u64),
    "background_thread": |access| access.tune(true),
    "max_background_threads": |access| access.tune(1_usize),
    "thread.arena": |access| access.tune(0_u32),
    "thread.tcache.enabled": |access| access.tune(true),
    "thread.tcache.flush": |access| access.act(|| ()),
    "thread.idle": |access| access.act(|| ()),
    "tcache.create": |access| access.read(next_number()),
    "tcache.flush": |access| access.give::<u32>(),
    "tcache.destroy": |access| access.give::<u32>(),
    "arena.#.initialized": |access| access.read(true),
    "arena.#.decay": |access| access.act(trim),
    "arena.#.purge": |access| access.act(trim),
    "arena.#.destroy": |access| access.act(|| ()),
    "arena.#.dss": |access| access.tune(c"disabled".as_ptr()),
    "arena.#.dirty_decay_ms": |access| access.tune(0_isize),
    "arena.#.muzzy_decay_ms": |access| access.tune(0_isize),
    "arenas.narenas": |access| access.read(made_numbers()),
    "arenas.dirty_decay_ms": |access| access.tune(0_isize),
    "arenas.muzzy_decay_ms": |access| access.tune(0_isize),
    "arenas.quantum": |access| access.read(MIN_ALIGN),
    "arenas.page": |access| access.read(os::page_bytes()),
    "arenas.tcache_max": |access| access.read(0_usize),
    "arenas.nbins": |access| access.read(0_u32),
    "arenas.nhbins": |access| access.read(0_u32),
    "arenas.nlextents": |access| access.read(0_u32),
    "arenas.create": |access| access.read(next_number()),
    "stats.allocated": |access| access.read(now(Snapshot::used_bytes)),
    "stats.active": |access| access.read(now(|heap| heap.span_bytes)),
    "stats.metadata": |access| access.read(0_usize),
    "stats.resident": |access| access.read(now(resident)),
    "stats.mapped": |access| access.read(now(resident)),
    "stats.retained": |access| access.read(0_usize),
    "stats.arenas.#.small.allocated": |access| access.read_of_all(Snapshot::small_used_bytes),
    "stats.arenas.#.large.allocated": |access| access.read_of_all(|heap| heap.large.live),
    "stats.arenas.#.resident": |access| access.read_of_all(resident),
    "stats.arenas.#.mapped": |access| access.read_of_all(resident),
    "stats.arenas.#.retained": |access| access.read(0_usize),
    "stats.arenas.#.pactive": |access| access.read_of_all(|heap| heap.span_bytes / os::page_bytes()),
    "stats.arenas.#.pdirty": |access| access.read_of_all(|heap| heap.dirty_bytes / os::page_bytes()),
    "stats.arenas.#.pmuzzy": |access| access.read(0_usize),
    "stats.arenas.#.nthreads": |access| {
        let threads = access.of_all(|heap| heap.threads);
        access.read(u32::try_from(threads).unwrap_or(u32::MAX))
    },
}

/// The number of the next arena or thread cache that a program makes; the first arena is there from the start.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(1);

// ORDERING: Relaxed, both: numbers that are nobody else's.
fn next_number() -> u32 {
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

fn made_numbers() -> u32 {
    NEXT_NUMBER.load(Ordering::Relaxed)
}

fn trim() {
    global::trim();
}

/// Not inlined: large, and of many names.
#[inline(never)]
fn now(figure: fn(&Snapshot) -> usize) -> usize {
    figure(&Snapshot::take(&HEAP))
}

/// The most that can be resident of spans.
fn resident(heap: &Snapshot) -> usize {
    heap.span_bytes + heap.dirty_bytes
}

/// What a call reads and writes.
pub struct Access {
    old: *mut c_void,
    old_bytes: *mut usize,
    new: *const c_void,
    new_bytes: usize,
    /// What stands for `#` in the name.
    number: usize,
}

impl Access {
    /// # Safety
    /// `old_bytes` is null or says how many bytes at `old` may be written, `new_bytes` how many at `new` may be read.
    pub unsafe fn new(old: *mut c_void, old_bytes: *mut usize, new: *const c_void, new_bytes: usize) -> Self {
        Self { old, old_bytes, new, new_bytes, number: 0 }
    }

    fn is_write(&self) -> bool {
        !self.new.is_null() || self.new_bytes != 0
    }

    /// The answer to who may only read.
    fn read<T: Copy>(&self, value: T) -> c_int {
        if self.is_write() { EPERM } else { self.answer(value) }
    }

    /// As [`Access::read`], of the first arena or all of them; the others are empty.
    fn read_of_all(&self, figure: fn(&Snapshot) -> usize) -> c_int {
        self.read(self.of_all(figure))
    }

    fn of_all(&self, figure: fn(&Snapshot) -> usize) -> usize {
        match self.number {
            1..ALL_ARENAS => 0,
            _ => now(figure),
        }
    }

    /// The answer to who may write, too, which changes nothing.
    fn tune<T: Copy>(&self, value: T) -> c_int {
        let is_wrong = !self.new.is_null() && self.new_bytes != size_of::<T>();
        if is_wrong { EINVAL } else { self.answer(value) }
    }

    /// As much of it as there is room for.
    fn answer<T: Copy>(&self, value: T) -> c_int {
        if self.old.is_null() || self.old_bytes.is_null() {
            return 0;
        }
        // SAFETY: whoever made this says that the length may be read and written, and as many bytes written.
        unsafe {
            let room = *self.old_bytes;
            let bytes = room.min(size_of::<T>());
            self.old.cast::<u8>().copy_from_nonoverlapping((&raw const value).cast(), bytes);
            *self.old_bytes = bytes;
            if room == size_of::<T>() { 0 } else { EINVAL }
        }
    }

    /// Takes a value, which changes nothing.
    fn give<T>(&self) -> c_int {
        match () {
            () if !self.old.is_null() || !self.old_bytes.is_null() => EPERM,
            () if self.new.is_null() || self.new_bytes != size_of::<T>() => EINVAL,
            () => 0,
        }
    }

    /// Does what takes and gives nothing.
    fn act(&self, action: fn()) -> c_int {
        if self.is_write() || !self.old.is_null() || !self.old_bytes.is_null() {
            return EPERM;
        }
        action();
        0
    }
}

/// Does what a name says.
///
/// # Safety
/// `name` is a C string.
pub unsafe fn by_name(name: *const c_char, access: &Access) -> c_int {
    let mut mib = [0; DEPTH];
    // SAFETY: the caller's contract is the same.
    match unsafe { translate(name, &mut mib) } {
        Some(depth) => by_words(&mib[..depth], access),
        None => ENOENT,
    }
}

/// Writes the numbers of a name, or as many as there is room for: those of its beginning.
///
/// # Safety
/// `name` is a C string; `length` says how many numbers at `mib` may be written.
pub unsafe fn numbers_of(name: *const c_char, mib: *mut usize, length: *mut usize) -> c_int {
    let mut numbers = [0; DEPTH];
    // SAFETY: as the caller says.
    unsafe {
        match translate(name, &mut numbers) {
            Some(depth) => {
                *length = depth.min(*length);
                mib.copy_from_nonoverlapping(numbers.as_ptr(), *length);
                0
            }
            None => ENOENT,
        }
    }
}

/// Does what the numbers of a name say.
///
/// # Safety
/// `length` numbers at `mib` may be read.
pub unsafe fn by_numbers(mib: *const usize, length: usize, access: &Access) -> c_int {
    if !(1..=DEPTH).contains(&length) {
        return ENOENT;
    }
    // SAFETY: as the caller says.
    by_words(unsafe { core::slice::from_raw_parts(mib, length) }, access)
}

/// The numbers of a name's words and how many they are: of a word the first of our names that begins so, of a number itself.
///
/// # Safety
/// `name` is a C string.
unsafe fn translate(name: *const c_char, mib: &mut [usize; DEPTH]) -> Option<usize> {
    // SAFETY: as the caller says.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let is_meant = |known: &&[u8]| {
        let mut known = words(known);
        let is_known = |word| known.next().is_some_and(|known| known == word || known == NUMBER);
        words(name).all(is_known)
    };
    let known = names().find(is_meant)?;
    let mut depth = 0;
    for (word, known_word) in words(name).zip(words(known)) {
        mib[depth] = if known_word == NUMBER { number(word)? } else { first_alike(known, depth + 1) };
        depth += 1;
    }
    Some(depth)
}

fn names() -> impl Iterator<Item = &'static [u8]> {
    NAMES.split(|byte| *byte == b'\n').filter(|name| !name.is_empty())
}

fn words(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.split(|byte| *byte == b'.')
}

fn number(word: &[u8]) -> Option<usize> {
    let add = |sum: usize, byte: &u8| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then_some(sum.checked_mul(10)?.checked_add(digit.into())?)
    };
    (!word.is_empty()).then_some(())?;
    word.iter().try_fold(0, add)
}

/// The first of our names with the same words up to there.
fn first_alike(name: &[u8], depth: usize) -> usize {
    names().take_while(|known| !words(known).take(depth).eq(words(name).take(depth))).count()
}

fn by_words(mib: &[usize], access: &Access) -> c_int {
    for (place, known) in names().enumerate() {
        let mut number = 0;
        let mut at = 0;
        let is_meant = words(known).all(|word| {
            let meant = mib.get(at).copied();
            at += 1;
            if word == NUMBER {
                number = meant.unwrap_or(0);
                return meant.is_some();
            }
            meant == Some(first_alike(known, at))
        });
        if is_meant && at == mib.len() {
            return perform(place, &Access { number, ..*access });
        }
    }
    ENOENT
}
