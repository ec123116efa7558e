//! `races THREADS TURNS SEED`: threads hand blocks of all sizes to each other, and each fills what it gets, as `cargo xtask races` builds it
//! with ThreadSanitizer: whoever has a block next must have seen all that was done with it before.
//!
//! Caches are not taken from their owners here: that rests on `membarrier`, of which ThreadSanitizer knows nothing
//! (`crates/heap/tests/revocation_model.rs` checks it). So the process refuses itself that call.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_ulong};
use std::sync::atomic::{AtomicPtr, Ordering};

use faultless_heap::Faultless;

/// Blocks on their way, each with its length in its first word.
static SLOTS: [AtomicPtr<u8>; 256] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 256];
/// Threads come and go so often.
const GENERATIONS: usize = 4;
const ALIGN: usize = 16;

/// Numbers from a seed (Marsaglia's xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % bound
    }

    /// 16 bytes to half a MiB, each doubling as often as any other.
    fn bytes(&mut self) -> usize {
        let shortest = 16 << self.below(15);
        shortest + self.below(shortest)
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("a length below half of the address space")
}

/// Takes a block and fills it.
fn take(random: &mut Random) -> *mut u8 {
    let bytes = random.bytes();
    // SAFETY: the layout is not empty, and the block is this thread's alone.
    unsafe {
        let block = if random.below(4) == 0 {
            let block = Faultless.alloc_zeroed(layout(bytes));
            assert!(std::slice::from_raw_parts(block, bytes).iter().all(|&byte| byte == 0));
            block
        } else {
            Faultless.alloc(layout(bytes))
        };
        assert!(!block.is_null());
        block.write_bytes(bytes as u8, bytes);
        block.cast::<usize>().write(bytes);
        block
    }
}

/// Fills a block that some thread took, at times makes it another length, and frees it.
fn give(random: &mut Random, block: *mut u8) {
    // SAFETY: the block came out of a slot, which it is in no more; its first word is the length by which it was taken.
    unsafe {
        let bytes = block.cast::<usize>().read();
        block.write_bytes(!bytes as u8, bytes);
        if random.below(4) > 0 {
            return Faultless.dealloc(block, layout(bytes));
        }
        let other_bytes = random.bytes();
        let moved = Faultless.realloc(block, layout(bytes), other_bytes);
        let kept = std::slice::from_raw_parts(moved, bytes.min(other_bytes));
        assert!(kept.iter().all(|&byte| byte == !bytes as u8));
        moved.write_bytes(0, other_bytes);
        Faultless.dealloc(moved, layout(other_bytes));
    }
}

fn work(turns: usize, seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..turns {
        let block = take(&mut random);
        // ORDERING: Release, for who takes the block out; Acquire, of what was done with the one that comes out.
        let other = SLOTS[random.below(SLOTS.len())].swap(block, Ordering::AcqRel);
        if !other.is_null() {
            give(&mut random, other);
        }
    }
}

unsafe extern "C" {
    fn prctl(option: c_int, ...) -> c_int;
}

/// `struct sock_filter` and `struct sock_fprog`.
#[repr(C)]
struct Instruction(u16, u8, u8, u32);
#[repr(C)]
struct Filter(u16, *const Instruction);

/// Makes `membarrier` fail with EPERM from now on, in all threads to come.
fn refuse_membarrier() {
    const NO_NEW_PRIVILEGES: c_int = 38;
    const SET_SECCOMP: c_int = 22;
    const MODE_FILTER: c_ulong = 2;
    const MEMBARRIER: u32 = if cfg!(target_arch = "aarch64") { 283 } else { 324 };
    const REFUSED: u32 = 0x0005_0001;
    const ALLOWED: u32 = 0x7fff_0000;
    let (load_number, compare, answer) = (0x20, 0x15, 0x06);
    let instructions = [
        Instruction(load_number, 0, 0, 0),
        Instruction(compare, 0, 1, MEMBARRIER),
        Instruction(answer, 0, 0, REFUSED),
        Instruction(answer, 0, 0, ALLOWED),
    ];
    let filter = Filter(instructions.len() as u16, instructions.as_ptr());
    let yes: c_ulong = 1;
    let none: c_ulong = 0;
    // SAFETY: the kernel reads the filter during the call.
    let is_set = unsafe {
        prctl(NO_NEW_PRIVILEGES, yes, none, none, none) == 0
            && prctl(SET_SECCOMP, MODE_FILTER, &raw const filter, none, none) == 0
    };
    assert!(is_set, "seccomp: {}", std::io::Error::last_os_error());
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let &[threads, turns, seed] = numbers.as_slice() else { panic!("races THREADS TURNS SEED") };
    refuse_membarrier();
    let turns = turns / GENERATIONS;
    for generation in 0..GENERATIONS {
        let seed_of = move |thread| (seed + generation * threads + thread) as u64;
        let workers: Vec<_> =
            (0..threads).map(|thread| std::thread::spawn(move || work(turns, seed_of(thread)))).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("a thread ends"));
    }
    println!("{} blocks handed on", threads * turns * GENERATIONS);
}
