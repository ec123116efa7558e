//! Memory that goes back when a Rust program asks for it; in a program of its own, as other tests fill caches meanwhile.

use faultless_heap::global;
use faultless_heap::stats::Snapshot;
use std::sync::{Arc, Barrier};

#[global_allocator]
static ALLOCATOR: faultless_heap::Faultless = faultless_heap::Faultless;

#[test]
fn trim_reaches_the_caches_of_threads_that_sleep() {
    let (parked, count) = (Arc::new(Barrier::new(9)), 20_000);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let parked = parked.clone();
            std::thread::spawn(move || {
                let blocks: Vec<Vec<u8>> = (0..count).map(|i| vec![1; 64 + i % 400]).collect();
                drop(blocks);
                parked.wait();
                parked.wait();
            })
        })
        .collect();
    parked.wait();
    global::trim();
    let cached = Snapshot::take(&global::HEAP).cached_bytes();
    parked.wait();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // The eight sleeping caches alone held far more.
    assert!(cached < 512 * 1024, "{cached} bytes are still cached");
}
