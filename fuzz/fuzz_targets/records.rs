//! Any bytes where a file of the kernel, an executable or a report is expected: an answer or none, never a panic.
//!
//! `cargo +nightly fuzz run records`
#![no_main]

use faultless_records::{core_file, elf, faultless_page, glibc, heap_report, malloc_event, malloc_info, mappings, maps, nmt, pagemap, perf_map, perf_record, pmap, script, status, tunables, workload_report};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = elf::executable(bytes);
    let _ = faultless_records::counters::Counters::parse(bytes);
    let _ = faultless_records::process_event::parse(bytes);
    let _ = glibc::version(bytes);
    let _ = core_file::Header::parse(bytes);
    let _ = core_file::segments(bytes);
    let _ = core_file::Notes::parse(bytes);
    let _ = faultless_page::FaultlessPage::parse(bytes, 0);
    let _ = pagemap::parse(bytes);
    let _ = script::interpreter(bytes);
    let _ = mappings::parse(bytes);
    let _ = pmap::parse(bytes);
    let _ = malloc_event::RecorderHead::parse(bytes);
    let _ = malloc_event::RingCounts::parse(bytes);
    let _ = malloc_event::parse(bytes);
    if let [kind, misc, flags, body @ ..] = bytes {
        let content = perf_record::Content {
            has_address: flags & 1 != 0,
            has_callchain: flags & 2 != 0,
            has_raw: flags & 4 != 0,
            stack_bytes: u32::from(flags & 8),
        };
        let _ = perf_record::parse(u32::from(*kind), u16::from(*misc) << 8, body, content);
    }
    let text = String::from_utf8_lossy(bytes);
    let _ = nmt::parse(&text);
    let _ = heap_report::parse(&text);
    let _ = malloc_info::MallocInfo::parse(&text);
    let _ = maps::mapped_files(&text);
    let _ = perf_map::PerfMap::parse(&text).function(0x7f00);
    let _ = status::bytes_of_field(&text, "VmRSS");
    let _ = status::number_of_field(&text, "Threads");
    let _ = status::resident_bytes_of_statm(&text, 4096);
    let _ = tunables::parse(&text);
    let _ = (workload_report::parse(&text), workload_report::marks(&text));
});
