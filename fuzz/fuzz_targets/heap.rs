//! Any sequence of allocation calls: blocks are aligned, zero where promised, distinct, and keep their contents.
//!
//! `cargo +nightly fuzz run heap`. The heap under test is not the fuzzer's own allocator.
#![no_main]

use arbitrary::Arbitrary;
use faultless_heap::global::{self, MIN_ALIGN};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Step {
    Allocate { bytes: u32, large: bool },
    Zeroed { bytes: u32, large: bool },
    Aligned { bytes: u16, align_log: u8 },
    Resize { which: u8, bytes: u32, large: bool },
    Free { which: u8 },
    Trim,
}

struct Live {
    pointer: *mut u8,
    bytes: usize,
    align: usize,
    tag: u8,
}

/// Small sizes are the common ones; large ones up to 16 MiB.
fn size(bytes: u32, large: bool) -> usize {
    bytes as usize % if large { 16 << 20 } else { 40_000 }
}

impl Live {
    fn new(pointer: *mut u8, bytes: usize, align: usize, tag: u8) -> Self {
        assert!(!pointer.is_null() && pointer.addr().is_multiple_of(align.max(MIN_ALIGN)));
        assert!(global::usable_bytes(pointer) >= bytes);
        let live = Self { pointer, bytes, align, tag };
        // SAFETY: a new block of at least that size.
        unsafe { pointer.write_bytes(tag, bytes) };
        live
    }

    fn check(&self, bytes: usize) {
        // SAFETY: a live block of at least that size.
        let content = unsafe { std::slice::from_raw_parts(self.pointer, bytes) };
        assert!(content.iter().all(|&byte| byte == self.tag), "contents changed");
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let mut live: Vec<Live> = Vec::new();
    for (number, step) in steps.into_iter().take(400).enumerate() {
        let tag = number as u8 | 1;
        match step {
            Step::Allocate { bytes, large } => {
                let bytes = size(bytes, large);
                live.push(Live::new(global::allocate(bytes), bytes, MIN_ALIGN, tag));
            }
            Step::Zeroed { bytes, large } => {
                let bytes = size(bytes, large);
                let pointer = global::allocate_zeroed(bytes);
                Live { pointer, bytes, align: MIN_ALIGN, tag: 0 }.check(bytes);
                live.push(Live::new(pointer, bytes, MIN_ALIGN, tag));
            }
            Step::Aligned { bytes, align_log } => {
                let align = 1usize << (align_log % 24);
                let pointer = global::allocate_aligned(bytes.into(), align);
                live.push(Live::new(pointer, bytes.into(), align, tag));
            }
            Step::Resize { which, bytes, large } if !live.is_empty() => {
                let index = usize::from(which) % live.len();
                let (bytes, old) = (size(bytes, large), &live[index]);
                let align = old.align;
                // SAFETY: a live block, replaced by the result.
                let pointer = unsafe { global::resize(old.pointer, bytes, align) };
                let kept = Live { pointer, bytes, align, tag: old.tag };
                kept.check(bytes.min(old.bytes));
                live[index] = Live::new(pointer, bytes, align, tag);
            }
            Step::Free { which } if !live.is_empty() => {
                let block = live.swap_remove(usize::from(which) % live.len());
                block.check(block.bytes);
                // SAFETY: a live block, forgotten here.
                unsafe { global::free(block.pointer) };
            }
            Step::Trim => {
                global::trim();
            }
            _ => {}
        }
    }
    for block in live {
        block.check(block.bytes);
        // SAFETY: a live block, forgotten here.
        unsafe { global::free(block.pointer) };
    }
});
