//! Faultless as a Rust program's allocator: this test program runs on it, harness included.

use faultless_heap::global;
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: faultless_heap::Faultless = faultless_heap::Faultless;

/// What one step does to the live blocks.
#[derive(Clone, Debug)]
enum Step {
    Allocate { bytes: usize, align_log: u32, zeroed: bool },
    Resize { which: usize, bytes: usize },
    Free { which: usize },
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1usize..600, 3 => 600usize..40_000, 1 => 40_000usize..3_000_000]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (sizes(), 0u32..18, any::<bool>())
            .prop_map(|(bytes, align_log, zeroed)| Step::Allocate { bytes, align_log, zeroed }),
        2 => (any::<usize>(), sizes()).prop_map(|(which, bytes)| Step::Resize { which, bytes }),
        2 => any::<usize>().prop_map(|which| Step::Free { which }),
    ];
    prop::collection::vec(step, 1..120)
}

struct Live {
    pointer: *mut u8,
    layout: Layout,
    tag: u8,
}

impl Live {
    fn fill(&self) {
        // SAFETY: a live block of that size.
        unsafe { self.pointer.write_bytes(self.tag, self.layout.size()) };
    }

    fn holds(&self, bytes: usize) -> bool {
        // SAFETY: a live block of at least `bytes`.
        let content = unsafe { std::slice::from_raw_parts(self.pointer, bytes) };
        content.iter().all(|&byte| byte == self.tag)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn blocks_are_aligned_zeroed_distinct_and_keep_their_contents(steps in steps()) {
        let mut live: Vec<Live> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let tag = number as u8 | 1;
            match step {
                Step::Allocate { bytes, align_log, zeroed } => {
                    let layout = Layout::from_size_align(bytes, 1 << align_log).unwrap();
                    // SAFETY: the layout is not empty.
                    let pointer = unsafe {
                        if zeroed { ALLOCATOR.alloc_zeroed(layout) } else { ALLOCATOR.alloc(layout) }
                    };
                    prop_assert!(!pointer.is_null() && pointer.addr().is_multiple_of(layout.align()));
                    let block = Live { pointer, layout, tag: 0 };
                    prop_assert!(!zeroed || block.holds(bytes));
                    let block = Live { tag, ..block };
                    block.fill();
                    live.push(block);
                }
                Step::Resize { which, bytes } if !live.is_empty() => {
                    let index = which % live.len();
                    let old = &live[index];
                    let kept = old.layout.size().min(bytes);
                    // SAFETY: a live block of that layout.
                    let pointer = unsafe { ALLOCATOR.realloc(old.pointer, old.layout, bytes) };
                    let layout = Layout::from_size_align(bytes, old.layout.align()).unwrap();
                    prop_assert!(!pointer.is_null() && pointer.addr().is_multiple_of(layout.align()));
                    let block = Live { pointer, layout, tag: old.tag };
                    prop_assert!(block.holds(kept));
                    block.fill();
                    live[index] = block;
                }
                Step::Free { which } if !live.is_empty() => {
                    let block = live.swap_remove(which % live.len());
                    prop_assert!(block.holds(block.layout.size()));
                    // SAFETY: a live block of that layout.
                    unsafe { ALLOCATOR.dealloc(block.pointer, block.layout) };
                }
                _ => {}
            }
        }
        for block in live {
            prop_assert!(block.holds(block.layout.size()));
            // SAFETY: a live block of that layout.
            unsafe { ALLOCATOR.dealloc(block.pointer, block.layout) };
        }
    }
}

#[test]
fn blocks_freed_by_another_thread_come_back() {
    let (sender, receiver) = mpsc::channel::<Vec<String>>();
    let consumer = std::thread::spawn(move || receiver.into_iter().map(|batch| batch.len()).sum::<usize>());
    for round in 0..500 {
        sender.send((0..round % 97).map(|i| "x".repeat(i * 7)).collect()).unwrap();
    }
    drop(sender);
    assert_eq!(consumer.join().unwrap(), (0..500).map(|round| round % 97).sum());
}

#[test]
fn collections_survive_threads_that_come_and_go() {
    for round in 0..50 {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                std::thread::spawn(move || {
                    (0..500).map(|i| (i, format!("{round} {thread} {i}"))).collect::<HashMap<i32, String>>()
                })
            })
            .collect();
        for (thread, handle) in threads.into_iter().enumerate() {
            let map = handle.join().unwrap();
            assert_eq!(map[&499], format!("{round} {thread} 499"));
        }
    }
}

#[test]
fn a_block_that_shrinks_by_more_than_a_fourth_gives_the_rest_back() {
    for (bytes, less, moves) in [
        (1000, 900, false),
        (1024, 768, false),
        (1024, 767, true),
        (30_000, 100, true),
        (100_000, 100, true),
        (100_000, 30_000, true),
    ] {
        let block = global::allocate(bytes);
        // SAFETY: the test's own block, replaced by the result, which is freed once.
        unsafe {
            let shrunk = global::resize(block, less, global::MIN_ALIGN);
            assert_eq!(
                (shrunk != block, global::usable_bytes(shrunk) <= less / 3 * 4 + 16),
                (moves, true),
                "{bytes}"
            );
            global::free(shrunk);
        }
    }
}

#[test]
fn a_block_of_a_large_alignment_shrinks_where_it_is() {
    for (bytes, less, align) in [(8 << 20, 6 << 20, 64), (8 << 20, 6 << 20, 65536), (4000, 3500, 64)] {
        let layout = Layout::from_size_align(bytes, align).unwrap();
        // SAFETY: the layout has bytes; the block is resized and given back as it is then.
        unsafe {
            let block = ALLOCATOR.alloc(layout);
            let shrunk = ALLOCATOR.realloc(block, layout, less);
            assert_eq!(shrunk, block, "{bytes} bytes at a multiple of {align}");
            ALLOCATOR.dealloc(shrunk, Layout::from_size_align(less, align).unwrap());
        }
    }
}

unsafe extern "C" {
    fn fork() -> i32;
    fn alarm(seconds: u32) -> u32;
    fn waitpid(child: i32, status: &mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
    fn getuid() -> u32;
    fn setuid(user: u32) -> i32;
}

#[test]
fn children_forked_beside_threads_that_allocate_use_the_heap() {
    let fill = |round: usize| (0..100).map(|i| vec![round as u8; 1 << (i % 16)]).collect::<Vec<_>>();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for round in 0..4 {
            scope.spawn({
                let is_over = &is_over;
                // Relaxed: the flag alone is read.
                move || {
                    while !is_over.load(Ordering::Relaxed) {
                        drop(fill(round))
                    }
                }
            });
        }
        let endings = (0..20).map(|round| {
            // SAFETY: the child uses the heap, which is ready for it, and its own memory.
            let child = unsafe { fork() };
            if child == 0 {
                // SAFETY: ends a child that waits for ever.
                unsafe { alarm(20) };
                let blocks = fill(round);
                let is_whole = blocks.iter().flatten().all(|&byte| byte == round as u8);
                drop(blocks);
                // SAFETY: ends the child.
                unsafe { _exit(i32::from(!is_whole)) };
            }
            let mut status = -1;
            // SAFETY: the child is ours.
            (unsafe { waitpid(child, &mut status, 0) } == child, status)
        });
        let endings: Vec<_> = endings.collect();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(endings, [(true, 0); 20]);
    });
}

#[test]
fn who_changes_its_user_does_not_wait_for_a_thread_of_ours() {
    const NAME: &str = "who_changes_its_user_does_not_wait_for_a_thread_of_ours";
    const INSIDE: &str = "FAULTLESS_TEST_CHANGES_USER";
    if std::env::var_os(INSIDE).is_some() {
        let is_ours = |task: std::fs::DirEntry| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "faultless\n")
        };
        let has_purger = || std::fs::read_dir("/proc/self/task").unwrap().flatten().any(is_ours);
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        while !has_purger() {
            blocks.truncate(50);
            blocks.push(vec![1; 100_000]);
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: the process stays who it is. libc makes every thread say so, by a signal.
        assert_eq!(unsafe { setuid(getuid()) }, 0);
        return;
    }
    // Where one thread is not reached the whole process stands still: it takes another to tell.
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(INSIDE, "1")
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            None if begun.elapsed() < Duration::from_secs(20) => std::thread::sleep(Duration::from_millis(2)),
            status => break status,
        }
    };
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}
