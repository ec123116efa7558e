//! The statistics page of a process that runs under Faultless, found in the library's data and read from outside.

use std::time::Duration;

use faultless_probe::clock::monotonic_ns;
use faultless_probe::process::{Memory, Process};
use faultless_records::allocator::Allocator;
use faultless_records::faultless_page::{FaultlessPage, PAGE_BYTES};
use faultless_records::mappings::Mapping;
use faultless_report::heap::FaultlessHeap;

/// How often a page is read that is being written.
const MOST_READS: u32 = 50;

/// What the process publishes, or a remark on why there is nothing.
pub fn look(process: &Process, memory: &Memory, mappings: &[Mapping]) -> Result<FaultlessHeap, String> {
    let page = places(mappings).find_map(|address| read(memory, address));
    let Some(page) = page else {
        return Err("It publishes nothing of its inside: start it with FAULTLESS=publish:on to see its classes, spans and caches.".into());
    };
    // In a PID namespace the process knows itself by another number: the last one here.
    let status = process.text("status").unwrap_or_default();
    let own = status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_ascii_whitespace().last());
    if own.is_some_and(|own| own != page.pid.to_string()) {
        return Err("It was forked, and the page that it has is its parent's.".into());
    }
    let age = Duration::from_nanos(monotonic_ns().saturating_sub(page.written_ns));
    Ok(FaultlessHeap { page, age })
}

/// Where the page may be: whole pages of the library's data, and of what lies behind without a file.
fn places(mappings: &[Mapping]) -> impl Iterator<Item = u64> {
    let is_ours = |mapping: &Mapping| {
        let path = mapping.path().map(String::from_utf8_lossy);
        path.is_some_and(|path| Allocator::of_file(&path) == Some(Allocator::Faultless))
    };
    let places =
        mappings.iter().enumerate().filter(move |(_, mapping)| mapping.is_writable() && is_ours(mapping));
    places.flat_map(|(place, mapping)| {
        let behind = mappings.get(place + 1).filter(|next| next.start == mapping.end && next.is_anonymous());
        (mapping.start..behind.map_or(mapping.end, |next| next.end)).step_by(PAGE_BYTES)
    })
}

fn read(memory: &Memory, address: u64) -> Option<FaultlessPage> {
    for _ in 0..MOST_READS {
        let (mut bytes, mut again) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
        memory.read_at(address, &mut bytes).ok()?;
        if bytes[..8] != *b"FLTLPAGE" {
            return None;
        }
        // What was read while it was written differs, or has an odd sequence number.
        memory.read_at(address, &mut again).ok()?;
        if bytes == again
            && let Some(page) = FaultlessPage::parse(&bytes, address)
        {
            return Some(page);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}
