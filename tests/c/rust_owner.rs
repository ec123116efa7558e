//! A Rust library with Faultless as its allocator, for a C program that has libfaultless.a inside: two heaps in one process.

#[global_allocator]
static ALLOCATOR: faultless_heap::Faultless = faultless_heap::Faultless;

/// Bytes of the numbers below `count` in decimals, found by another thread.
#[no_mangle]
pub extern "C" fn digits_below(count: usize) -> usize {
    let numbers: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let digits = std::thread::spawn(move || numbers.iter().map(String::len).sum());
    digits.join().unwrap_or(0)
}
