//! Which call must have made a mapping, as far as the kernel's record of it tells.

use std::collections::HashMap;

use faultless_records::counters::Counters;
use faultless_records::memory_call::{BREAK_GREW, CallKind, MemoryCall};
use faultless_records::pagemap::PAGE_BYTES;
use faultless_records::perf_record::{NewMapping, PerfRecord};

/// `MAP_PRIVATE` or `MAP_SHARED`, and `MAP_ANONYMOUS`, as the mmap of a record without a file must have had them.
const PRIVATE_MEMORY: u64 = 0x22;
const SHARED_MEMORY: u64 = 0x21;
const PRIVATE_FILE: u64 = 0x02;

/// What records call memory without a name.
const NAMELESS: &str = "//anon";

/// What is known of the processes whose mappings are told of.
#[derive(Default)]
pub struct MappingCalls {
    /// Where their heaps begin, as far as that was to be seen.
    heap_starts: HashMap<i32, u64>,
}

impl MappingCalls {
    /// A process begins, or another program in it, which has its heap elsewhere.
    pub fn forget(&mut self, pid: i32) {
        self.heap_starts.remove(&pid);
    }

    /// The call; none where the kernel made the mapping by itself.
    pub fn call(&mut self, record: &PerfRecord, new: &NewMapping) -> Option<MemoryCall> {
        let end = new.start.saturating_add(new.length_bytes);
        let grown = (CallKind::Brk, [end, BREAK_GREW, new.start, 0, 0], end);
        let mapped = |flags| {
            let arguments = [0, new.length_bytes, u64::from(new.protection), flags, 0];
            (CallKind::Mmap, arguments, new.start)
        };
        let (kind, arguments, result) = match new.name.as_str() {
            "[heap]" => grown,
            // It is called the heap from its second growth on.
            NAMELESS if self.begins_heap(record.pid, new.start) => grown,
            // The stack, which exec makes and page faults make longer, and the kernel's own pages.
            name if name.starts_with('[') => return None,
            // So the kernel calls the file behind shared memory without one.
            "/dev/zero (deleted)" => mapped(SHARED_MEMORY),
            name if name.starts_with('/') && !name.starts_with("//") => mapped(PRIVATE_FILE),
            _ => mapped(PRIVATE_MEMORY),
        };
        let (time_ns, pid, tid) = (record.time_ns, record.pid, record.tid);
        Some(MemoryCall { time_ns, pid, tid, kind, arguments, result: Ok(result), stack: None })
    }

    fn begins_heap(&mut self, pid: i32, start: u64) -> bool {
        let known = self.heap_starts.get(&pid).copied().or_else(|| heap_start(pid));
        known.is_some_and(|known| {
            self.heap_starts.insert(pid, known);
            known.next_multiple_of(PAGE_BYTES) == start
        })
    }
}

/// Where the heap of a process begins; none where it has ended, or may not be seen.
fn heap_start(pid: i32) -> Option<u64> {
    let bytes = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let start = Counters::parse(&bytes)?.heap_start;
    (start > 0 && start <= u64::MAX - PAGE_BYTES).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::perf_record::{FileIdentity, News};

    fn call(calls: &mut MappingCalls, pid: i32, start: u64, name: &str) -> Option<MemoryCall> {
        let record = PerfRecord { time_ns: 1, pid, tid: pid, cpu: 0, news: News::Other };
        let new = NewMapping {
            start,
            length_bytes: 0x2000,
            file_offset: 0,
            file: FileIdentity::BuildId(Vec::new()),
            protection: 3,
            flags: 2,
            name: name.to_owned(),
        };
        calls.call(&record, &new)
    }

    #[test]
    fn the_first_growth_of_a_heap_is_told_from_a_mapping_and_the_stack_from_both() {
        let own = std::process::id().cast_signed();
        let start = heap_start(own).unwrap();
        let mut calls = MappingCalls::default();
        let mut kind = |pid, start, name| call(&mut calls, pid, start, name).map(|call| call.kind);
        assert_eq!(kind(own, start.next_multiple_of(PAGE_BYTES), NAMELESS), Some(CallKind::Brk));
        assert_eq!(kind(own, start + (1 << 30), NAMELESS), Some(CallKind::Mmap));
        assert_eq!(kind(i32::MAX, 0x1000, NAMELESS), Some(CallKind::Mmap), "it is not there");
        assert_eq!(kind(own, 0x1000, "[stack]"), None);
        let grown = call(&mut MappingCalls::default(), own, 0x1000, "[heap]").unwrap();
        assert_eq!((grown.kind, grown.arguments), (CallKind::Brk, [0x3000, BREAK_GREW, 0x1000, 0, 0]));
    }
}
