//! The fields of the kernel's tracepoints at the entry and exit of system calls, and the joining of the two.
//!
//! Source: `events/syscalls/*/format` of tracefs: a head of 8 bytes, the call's number, then arguments or answer as 64-bit words.

use std::collections::HashMap;

use crate::memory_call::{CallKind, MemoryCall};
use crate::perf_record::PerfRecord;

const FIRST_WORD: usize = 16;

/// The first five arguments of a call that begins; what it does not have is 0.
#[must_use]
pub fn arguments(raw: &[u8]) -> Option<[u64; 5]> {
    word(raw, 0)?;
    Some(std::array::from_fn(|place| word(raw, place).unwrap_or(0)))
}

/// The answer of a call that ends, as its register holds it.
#[must_use]
pub fn answer(raw: &[u8]) -> Option<i64> {
    Some(word(raw, 0)?.cast_signed())
}

fn word(raw: &[u8], place: usize) -> Option<u64> {
    let start = FIRST_WORD + place * 8;
    Some(u64::from_ne_bytes(raw.get(start..start + 8)?.try_into().ok()?))
}

/// Calls that have begun and not ended, by thread.
#[derive(Debug, Default)]
pub struct OpenCalls {
    entered: HashMap<i32, (CallKind, [u64; 5])>,
}

impl OpenCalls {
    /// A thread enters a call.
    pub fn enter(&mut self, tid: i32, kind: CallKind, arguments: [u64; 5]) {
        self.entered.insert(tid, (kind, arguments));
    }

    /// A thread leaves a call; none when its entry was not seen.
    pub fn leave(&mut self, record: &PerfRecord, kind: CallKind, answer: i64) -> Option<MemoryCall> {
        let (entered, arguments) = self.entered.remove(&record.tid)?;
        (entered == kind).then(|| MemoryCall {
            time_ns: record.time_ns,
            pid: record.pid,
            tid: record.tid,
            kind,
            arguments,
            result: MemoryCall::result_of_register(answer),
            stack: None,
        })
    }

    /// A thread has ended.
    pub fn forget(&mut self, tid: i32) {
        self.entered.remove(&tid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf_record::News;
    use proptest::prelude::*;

    fn raw(words: &[u64]) -> Vec<u8> {
        [0, 0].iter().chain(words).flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn entry_and_exit_of_one_thread_are_one_call() {
        let record = |tid| PerfRecord { time_ns: 9, pid: 1, tid, cpu: 0, news: News::Other };
        let mut open = OpenCalls::default();
        open.enter(1, CallKind::Mmap, arguments(&raw(&[0, 4096, 3, 34, u64::MAX, 0])).unwrap());
        open.enter(2, CallKind::Munmap, arguments(&raw(&[0x7000, 4096])).unwrap());
        let failed =
            open.leave(&record(2), CallKind::Munmap, answer(&raw(&[(-22_i64).cast_unsigned()])).unwrap());
        assert_eq!(failed.unwrap().result, Err(22));
        let mapped = open.leave(&record(1), CallKind::Mmap, 0x7f00_0000).unwrap();
        assert_eq!((mapped.arguments, mapped.result), ([0, 4096, 3, 34, u64::MAX], Ok(0x7f00_0000)));
        assert_eq!(open.leave(&record(1), CallKind::Mmap, 0), None, "it began before we looked");
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = arguments(&bytes);
            let _ = answer(&bytes);
        }
    }
}
