//! Any bytes where a file of the kernel, an executable or a report is expected: an answer or none, never a panic.
//!
//! `cargo +nightly fuzz run records`
#![no_main]

use faultless_records::{
    allocator, call_tracepoint, cgroup, core_file, counters, demo, elf, faultless_page, glibc, glibc_heap,
    heap_report, malloc_event, mappings, nmt, pagemap, perf_map, perf_record, permission, pmap,
    process_event, script, status, thread, tunables, workload_report,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = elf::executable(&|offset, buffer| {
        let rest = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..));
        let wanted = rest.and_then(|rest| rest.get(..buffer.len()));
        wanted.map(|wanted| buffer.copy_from_slice(wanted)).is_some()
    });
    let _ = (counters::Counters::parse(bytes), counters::pages_of_statm(bytes));
    let _ = process_event::parse(bytes);
    let _ = glibc::version(bytes);
    let _ = core_file::Header::parse(bytes);
    let _ = core_file::segments(bytes);
    let _ = core_file::Notes::parse(bytes);
    let _ = faultless_page::FaultlessPage::parse(bytes, 0);
    let _ = pagemap::parse(bytes);
    let _ = script::interpreter(bytes);
    let _ = (mappings::parse(bytes), mappings::rollup(bytes));
    let _ = (pmap::is_pmap(bytes), pmap::command(bytes), pmap::parse(bytes));
    let _ = (call_tracepoint::arguments(bytes), call_tracepoint::answer(bytes));
    let _ = glibc_heap::HeapInfo::parse(bytes);
    if let [minor, list, state @ ..] = bytes
        && let Some(layout) = glibc_heap::Layout::of((2, u32::from(*minor)))
    {
        let _ = glibc_heap::ArenaState::parse(state, layout);
        let _ = glibc_heap::Parameters::parse(state, layout);
        let _ = layout.cache.list(state, usize::from(*list));
    }
    let _ = malloc_event::RecorderHead::parse(bytes);
    let _ = malloc_event::RingCounts::parse(bytes);
    let _ = malloc_event::parse(bytes);
    let _ = malloc_event::spilled(bytes, bytes.len() as u64);
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
    let _ = (allocator::Allocator::of_file(&text), demo::parse(&text));
    let _ = thread::Thread::parse(&text, Some(&text));
    let _ = permission::Rights::parse(0, &text, Some(&text), Some(&text));
    let _ = (cgroup::membership(&text), cgroup::processes(&text));
    for version in [cgroup::Version::One, cgroup::Version::Two] {
        let _ = (cgroup::mount(&text, version), cgroup::sample(version, &|_| Some(text.to_string())));
    }
    let _ = heap_report::parse(&text);
    let _ = mappings::mapped_files(bytes);
    let _ = perf_map::PerfMap::parse(&text).function(0x7f00);
    let _ = status::bytes_of_field(&text, "VmRSS");
    let _ = status::bits_of_field(&text, "CapEff");
    let _ = status::number_of_field::<u64>(&text, "Threads");
    let _ = status::resident_bytes_of_statm(&text, 4096);
    let _ = tunables::parse(&text);
    let _ = (workload_report::parse(&text), workload_report::marks(&text));
});
