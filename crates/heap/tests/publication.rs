//! A Rust program that shows `faultless heap` what its heap holds.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: faultless_heap::Faultless = faultless_heap::Faultless;

const PAGE_BYTES: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"FLTLPAGE");

/// The words of each page in our writable mappings that knows its own place, as a reader outside finds it.
fn published() -> Vec<Vec<u64>> {
    let memory = File::open("/proc/self/mem").expect("our memory");
    let maps = fs::read_to_string("/proc/self/maps").expect("our mappings");
    let mut pages = Vec::new();
    // The reservation is no program's data.
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        let number = |text| u64::from_str_radix(text, 16).expect("an address");
        let (start, end) = (number(range.0), number(range.1));
        if end - start > 1 << 20 {
            continue;
        }
        for address in (start..end).step_by(PAGE_BYTES) {
            let mut bytes = [0; PAGE_BYTES];
            if memory.read_exact_at(&mut bytes, address).is_ok() {
                let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
                let words: Vec<u64> = bytes.chunks(8).map(word).collect();
                if words[0] == MAGIC && words[2] == address {
                    pages.push(words);
                }
            }
        }
    }
    pages
}

#[test]
fn a_program_that_asks_for_it_publishes_what_its_heap_holds() {
    assert!(published().is_empty(), "nothing is shown unasked");
    let block = vec![1_u8; 33 << 20];
    assert!(faultless_heap::publish() && faultless_heap::publish(), "a second call changes nothing");
    let start = Instant::now();
    let page = loop {
        match published().as_slice() {
            [page] if page[4] % 2 == 0 => break page.clone(),
            pages => assert!(pages.len() < 2 && start.elapsed() < Duration::from_secs(60), "{pages:?}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!((page[1], page[3]), (1, u64::from(std::process::id())));
    assert!(
        page[9] >= 1 && page[10] >= block.len() as u64,
        "large blocks: {} of {} bytes",
        page[9],
        page[10]
    );
}
