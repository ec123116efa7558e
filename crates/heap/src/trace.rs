//! A record of what becomes of spans, for who judges policies of purging on the programs of today (`cargo xtask regret`).
//!
//! Off unless asked for (`FAULTLESS=trace:PREFIX`), and then written to `PREFIX.PID` in words of 8 bytes, little-endian: first
//! [`MAGIC`], then events. An event is, from the lowest bit: granules (24 bits), [`Event`] (4 bits), ns since the event before
//! (36 bits). The file is opened for each piece that is written, because programs close descriptors that they do not know;
//! a forked child begins a file of its own.
//!
//! SYNCHRONIZATION: under the lock of the span heap that it belongs to.

use crate::message::Line;
use crate::os;
use core::ffi::CStr;
use core::fmt::Write;

/// The first word of a trace.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FLSPANS1");

/// What happened to some granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// Nothing, but time went by.
    Wait = 0,
    /// The record begins with this much in use.
    Begin = 1,
    /// They were taken for slabs or a large block.
    Take = 2,
    /// They came back, maybe with pages.
    Give = 3,
    /// They came back without pages.
    GiveClean = 4,
    /// From now on a thread purges what is due.
    PurgerStarts = 5,
    /// From now on nobody does unless the program calls.
    PurgerEnds = 6,
    /// The process ends.
    End = 7,
}

const GRANULE_BITS: u32 = 24;
const EVENT_BITS: u32 = 4;
const TIME_MAX: u64 = (1 << (64 - GRANULE_BITS - EVENT_BITS)) - 1;

/// One word of a trace; `after_ns` and `granules` fit their bits.
const fn word(event: Event, granules: u32, after_ns: u64) -> u64 {
    let granules = granules as u64 & ((1 << GRANULE_BITS) - 1);
    granules | (event as u64) << GRANULE_BITS | after_ns << (GRANULE_BITS + EVENT_BITS)
}

/// Longest prefix of the file, in bytes.
pub const PREFIX_MAX: usize = 256;
const WORDS: usize = 512;

/// The record of one heap.
pub struct Trace {
    words: [u64; WORDS],
    count: usize,
    /// Time of the last event in ns.
    last_ns: u64,
    /// The process whose events these are.
    process: usize,
    prefix: [u8; PREFIX_MAX],
    prefix_bytes: usize,
}

impl Trace {
    /// Records nothing.
    pub const fn new() -> Self {
        Self { words: [0; WORDS], count: 0, last_ns: 0, process: 0, prefix: [0; PREFIX_MAX], prefix_bytes: 0 }
    }

    /// Records from now on to files whose names begin so. Nothing where the prefix is too long.
    pub fn start(&mut self, prefix: &[u8]) {
        if prefix.len() <= PREFIX_MAX {
            self.prefix[..prefix.len()].copy_from_slice(prefix);
            self.prefix_bytes = prefix.len();
        }
    }

    /// Whether events are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.prefix_bytes > 0
    }

    /// Records an event of `granules` at `now`, after which `used` granules are in use.
    #[inline]
    pub fn record(&mut self, event: Event, granules: u32, used: u32, now: u64) {
        if self.is_on() {
            self.append(event, granules, used, now);
        }
    }

    #[cold]
    fn append(&mut self, event: Event, granules: u32, used: u32, now: u64) {
        let process = os::process_id() as usize;
        if process != self.process {
            // The first event, or the first in a forked child, whose copy of the events before is its parent's.
            self.process = process;
            self.count = 0;
            self.last_ns = now;
            let before = match event {
                Event::Take => used - granules,
                Event::Give | Event::GiveClean => used + granules,
                _ => used,
            };
            self.push(MAGIC);
            self.push(word(Event::Begin, before, 0));
        }
        let mut after_ns = now.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now);
        while after_ns > TIME_MAX {
            self.push(word(Event::Wait, 0, TIME_MAX));
            after_ns -= TIME_MAX;
        }
        self.push(word(event, granules, after_ns));
        if event == Event::End {
            self.flush();
        }
    }

    fn push(&mut self, word: u64) {
        if self.count == WORDS {
            self.flush();
        }
        self.words[self.count] = word;
        self.count += 1;
    }

    /// Appends what is here to the file; what cannot be written ends the record.
    fn flush(&mut self) {
        let mut path = [0u8; PREFIX_MAX + 16];
        let mut suffix = Line::new();
        // A `Line` never fails: it cuts, and this is short.
        let _ = write!(suffix, ".{}", self.process);
        let suffix = suffix.as_bytes();
        path[..self.prefix_bytes].copy_from_slice(&self.prefix[..self.prefix_bytes]);
        path[self.prefix_bytes..self.prefix_bytes + suffix.len()].copy_from_slice(suffix);
        let mut bytes = [0u8; WORDS * 8];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&self.words[..self.count]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let begins = self.words[0] == MAGIC;
        let bytes = &bytes[..self.count * 8];
        self.count = 0;
        let is_written = os::without_ending_by_writes(|| {
            let file = CStr::from_bytes_until_nul(&path)
                .ok()
                .and_then(|path| if begins { os::File::create(path) } else { os::File::append(path) });
            file.is_some_and(|mut file| file.write_bytes(bytes))
        });
        if !is_written {
            self.prefix_bytes = 0;
        }
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that are not written yet, without the time of the first event.
    fn words(trace: &Trace) -> &[u64] {
        &trace.words[..trace.count]
    }

    #[test]
    fn nothing_is_recorded_unless_asked_for() {
        let mut trace = Trace::new();
        trace.record(Event::Take, 5, 5, 100);
        trace.start(&[b'x'; PREFIX_MAX + 1]);
        trace.record(Event::Take, 5, 5, 100);
        assert!(words(&trace).is_empty());
    }

    #[test]
    fn a_record_begins_with_what_was_in_use_and_holds_the_times_between() {
        let mut trace = Trace::new();
        trace.start(b"/nowhere/x");
        trace.record(Event::Take, 5, 12, 1000);
        trace.record(Event::Give, 5, 7, 1250);
        let expected = [MAGIC, word(Event::Begin, 7, 0), word(Event::Take, 5, 0), word(Event::Give, 5, 250)];
        assert_eq!(words(&trace), expected);
        assert_eq!(word(Event::Give, 5, 250), 5 | 3 << 24 | 250 << 28);
    }

    #[test]
    fn long_times_are_cut_into_waits_and_time_never_runs_backwards() {
        let mut trace = Trace::new();
        trace.start(b"/nowhere/x");
        trace.record(Event::Take, 1, 1, 0);
        trace.record(Event::Give, 1, 0, 2 * TIME_MAX + 7);
        trace.record(Event::Take, 1, 1, 3);
        let expected = [
            word(Event::Wait, 0, TIME_MAX),
            word(Event::Wait, 0, TIME_MAX),
            word(Event::Give, 1, 7),
            word(Event::Take, 1, 0),
        ];
        assert_eq!(words(&trace)[3..], expected);
    }

    #[test]
    fn a_file_that_cannot_be_written_ends_the_record() {
        let mut trace = Trace::new();
        trace.start(b"/nowhere/at/all");
        trace.record(Event::End, 0, 0, 0);
        assert!(!trace.is_on());
    }
}
