//! What the recorder of malloc's calls writes into its file: its layout, and the records in its rings.
//!
//! Source: `crates/recorder/layout.h`, by which it is written. A file comes from a process under observation, so nothing
//! in it is believed: numbers out of range are refused, and what makes no sense is left out.

use serde::{Deserialize, Serialize};

use crate::perf_record::Registers;
use crate::saved_form::check_calls;

/// First word of a file that is ready to be read.
const MAGIC: u64 = 0x3143_4552_544c_4146;
const VERSION: u64 = 2;

/// Bytes of the head of the file, and of the parts of a ring before its records.
pub const PAGE_BYTES: u64 = 4096;

/// Most rings that a file has.
pub const MOST_RINGS: u64 = 1024;

/// Most rings without records, for the threads beyond.
pub const MOST_BARE_RINGS: u64 = 15 * 1024;

/// Most bytes of a ring's records.
const MOST_RING_BYTES: u64 = 1 << 24;

/// Places of a file for frees that found no room in a ring.
pub const SPILL_PLACES: u64 = 1 << 17;

/// Bytes of such a place.
pub const SPILLED_BYTES: u64 = 32;

/// Where in the head of the file its reader writes how many of these it has read.
pub const SPILL_TAIL_OFFSET: u64 = 128;

const CLASSES: usize = 64;

/// Which word of a ring it is, behind what is kept for each class.
const FREED_BY_REALLOC_PLACE: usize = 216;

/// A function that hands out memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MallocFunction {
    /// malloc(3), and `operator new`, which calls it.
    #[default]
    Malloc,
    /// calloc(3)
    Calloc,
    /// realloc(3), reallocarray(3)
    Realloc,
    /// posix_memalign(3), aligned_alloc(3) and their like.
    Aligned,
}

impl MallocFunction {
    /// All of them, by the numbers that the recorder gives them.
    pub const ALL: [Self; 4] = [Self::Malloc, Self::Calloc, Self::Realloc, Self::Aligned];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::Calloc => "calloc",
            Self::Realloc => "realloc",
            Self::Aligned => "aligned_alloc",
        }
    }
}

/// The head of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecorderHead {
    /// Bytes of each ring's records.
    pub ring_bytes: u64,
    /// The process, as it numbers itself.
    pub pid: i32,
    /// When it began, in ns of the clock that counts from the boot.
    pub start_ns: u64,
    /// Rings made so far.
    pub rings: u64,
    /// Threads that found no ring; their calls are not counted.
    pub unringed: u64,
    /// Rings without room for records that were made so far.
    pub bare_rings: u64,
    /// Threads that had one of these: their calls are counted and not described.
    pub bare_threads: u64,
    /// Picoseconds that counting a call takes.
    pub fast_ps: u64,
    /// The process has ended in the ordinary way.
    pub has_ended: bool,
    /// The PID namespace in which it numbers itself, by its inode; 0 where it could not tell.
    pub namespace: u64,
    /// Frees so far that found no room in a ring.
    pub spill_head: u64,
    /// It is a child of fork(2), which may free what its parent allocated.
    pub is_forked: bool,
    /// A call was not counted.
    pub has_missed: bool,
}

impl RecorderHead {
    /// Reads the first page of a file; none until it is ready, or when it is of another version.
    #[must_use]
    pub fn parse(page: &[u8]) -> Option<Self> {
        let word = |place: usize| word(page, place);
        let (version, ring_bytes) = (word(1)? & 0xffff_ffff, word(1)? >> 32);
        let is_sane = ring_bytes.is_power_of_two() && (PAGE_BYTES..=MOST_RING_BYTES).contains(&ring_bytes);
        if word(0)? != MAGIC || version != VERSION || !is_sane {
            return None;
        }
        Some(Self {
            ring_bytes,
            pid: i32::try_from(word(2)?).ok()?,
            start_ns: word(3)?,
            rings: word(4)?.min(MOST_RINGS),
            unringed: word(6)?,
            fast_ps: word(7)?,
            has_ended: word(8)? != 0,
            namespace: word(9)?,
            spill_head: word(10)?,
            is_forked: word(11)? != 0,
            has_missed: word(12)? != 0,
            bare_rings: word(13)?.min(MOST_BARE_RINGS),
            bare_threads: word(14)?,
        })
    }

    /// Where in the file a ring begins.
    #[must_use]
    pub fn ring_offset(&self, ring: u64) -> u64 {
        PAGE_BYTES + ring * (2 * PAGE_BYTES + self.ring_bytes)
    }

    /// Where in the file the frees lie that found no room in a ring: behind all rings.
    #[must_use]
    pub fn spill_offset(&self) -> u64 {
        self.ring_offset(MOST_RINGS)
    }

    /// Where in the file a ring without records begins: behind those frees.
    #[must_use]
    pub fn bare_ring_offset(&self, ring: u64) -> u64 {
        self.spill_offset() + SPILL_PLACES * SPILLED_BYTES + ring * 2 * PAGE_BYTES
    }
}

/// Calls of one function for blocks of one size class that got them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallCount {
    /// Which function.
    pub function: MallocFunction,
    /// The size class.
    pub class: u8,
    /// How many calls.
    pub calls: u64,
    /// What they asked for.
    pub bytes: u64,
}

/// What a ring counted, whoever's it was.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RingCounts {
    /// By function and size class; those that are not zero.
    pub calls: Vec<CallCount>,
    /// Calls of free with a block.
    pub frees: u64,
    /// Blocks that were given to realloc and are its new ones since.
    pub reallocated: u64,
    /// Blocks that realloc freed, because no bytes were asked for.
    pub freed_by_realloc: u64,
    /// Calls that got no memory.
    pub failed: u64,
    /// Descriptions that found no room.
    pub dropped: u64,
    /// Descriptions.
    pub described: u64,
    /// Time spent on them, in ns.
    pub describing_ns: u64,
}

impl RingCounts {
    /// Reads the two pages before a ring's records; none where the program wrote over them, and they tell of more than there can be.
    #[must_use]
    pub fn parse(pages: &[u8]) -> Option<Self> {
        let word = |place: usize| word(pages, place);
        let mut calls = Vec::new();
        for (number, function) in MallocFunction::ALL.into_iter().enumerate() {
            for class in 0..CLASSES {
                let place = 512 + (number * CLASSES + class) * 2;
                let (count, bytes) = (word(place)?, word(place + 1)?);
                if count > 0 {
                    calls.push(CallCount { function, class: class as u8, calls: count, bytes });
                }
            }
        }
        let counts = Self {
            calls,
            dropped: word(17)?,
            frees: word(18)?,
            failed: word(19)?,
            described: word(20)?,
            describing_ns: word(21)?,
            reallocated: word(23)?,
            freed_by_realloc: word(FREED_BY_REALLOC_PLACE)?,
        };
        let Self { dropped, frees, failed, described, describing_ns, .. } = counts;
        let others = [dropped, frees, failed, described, describing_ns];
        let of_realloc = [counts.reallocated, counts.freed_by_realloc];
        let allocations = counts.calls.iter().map(|count| count.calls);
        check_calls(allocations.chain(others).chain(of_realloc)).ok()?;
        Some(counts)
    }

    /// Calls that got a block.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.calls.iter().map(|count| count.calls).sum()
    }

    /// Calls that did something.
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        self.allocations() + self.frees + self.freed_by_realloc
    }

    /// Blocks that are there no more.
    #[must_use]
    pub fn blocks_back(&self) -> u64 {
        self.frees + self.reallocated + self.freed_by_realloc
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MallocEvent {
    /// A block was handed out.
    Allocated(Allocated),
    /// A described block came back.
    Freed {
        /// When, in ns.
        time_ns: u64,
        /// The block's number in its process.
        id: u64,
        /// The thread that gave it back.
        tid: i32,
        /// It was given to realloc, which may have moved it.
        by_realloc: bool,
    },
    /// A thread begins to use the ring.
    Thread {
        /// Its number.
        tid: i32,
        /// Its name then.
        name: String,
    },
}

/// A block that was described when it was handed out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocated {
    /// When, in ns.
    pub time_ns: u64,
    /// Its number in its process.
    pub id: u64,
    /// Bytes asked for.
    pub size_bytes: u64,
    /// How many calls it stands for.
    pub weight: u32,
    /// By which function.
    pub function: MallocFunction,
    /// Whether its end will be told.
    pub is_tracked: bool,
    /// The thread.
    pub tid: i32,
    /// Where the thread was.
    pub registers: Registers,
    /// Its stack, from the stack pointer up.
    pub stack: Vec<u8>,
}

/// Records that were read in a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parsed {
    /// What they tell.
    pub events: Vec<MallocEvent>,
    /// Bytes that they took; what follows is not whole yet, or damaged.
    pub bytes: usize,
    /// What follows contradicts the layout: the rest of this ring is lost.
    pub is_damaged: bool,
}

/// Reads records from the beginning.
#[must_use]
pub fn parse(bytes: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    while let Some(header) = word(&bytes[parsed.bytes..], 0) {
        let length = usize::try_from(header >> 32).unwrap_or(0);
        let is_possible = length >= 8 && length.is_multiple_of(8);
        let record = bytes[parsed.bytes..].get(..length);
        if is_possible && record.is_none() {
            break;
        }
        let body = record.filter(|_| is_possible).map(|record| &record[8..]);
        let Some(event) = body.and_then(|body| event(header & 0xffff_ffff, body)) else {
            parsed.is_damaged = true;
            break;
        };
        parsed.events.extend(event);
        parsed.bytes += length;
    }
    parsed
}

/// Frees that found no room in a ring, from the place with the number `first` on, up to one that is not written yet.
#[must_use]
pub fn spilled(bytes: &[u8], first: u64) -> Vec<MallocEvent> {
    let event = |(place, words): (u64, &[u8])| {
        let number = word(words, 3)?;
        (number >> 1 == first.wrapping_add(place).wrapping_add(1) & u64::MAX >> 1).then_some(())?;
        Some(MallocEvent::Freed {
            time_ns: word(words, 0)?,
            id: word(words, 1)?,
            tid: i32::try_from(word(words, 2)?).ok()?,
            by_realloc: number & 1 == 1,
        })
    };
    (0..).zip(bytes.chunks_exact(SPILLED_BYTES as usize)).map_while(event).collect()
}

/// None when it is damaged; an empty option inside for kinds that are not known.
fn event(kind: u64, body: &[u8]) -> Option<Option<MallocEvent>> {
    let word = |place: usize| word(body, place);
    let tid = |number: u64| i32::try_from(number).ok();
    Some(match kind {
        1 => {
            let flags = word(3)?;
            let function = *MallocFunction::ALL.get(usize::try_from(flags >> 32 & 0xff).ok()?)?;
            Some(MallocEvent::Allocated(Allocated {
                time_ns: word(0)?,
                id: word(1)?,
                size_bytes: word(2)?,
                weight: u32::try_from(flags & 0xffff_ffff).ok()?.max(1),
                function,
                is_tracked: flags >> 40 & 1 == 1,
                tid: tid(word(4)?)?,
                registers: Registers { ip: word(5)?, sp: word(6)?, fp: word(7)?, lr: word(8)? },
                stack: body.get(72..)?.to_vec(),
            }))
        }
        2 => Some(MallocEvent::Freed {
            time_ns: word(0)?,
            id: word(1)?,
            tid: tid(word(2)?)?,
            by_realloc: word(3)? != 0,
        }),
        3 => {
            let name = body.get(16..32)?.split(|byte| *byte == 0).next()?;
            Some(MallocEvent::Thread {
                tid: tid(word(1)?)?,
                name: String::from_utf8_lossy(name).into_owned(),
            })
        }
        _ => None,
    })
}

fn word(bytes: &[u8], place: usize) -> Option<u64> {
    let start = place.checked_mul(8)?;
    Some(u64::from_ne_bytes(bytes.get(start..start.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u64, words: &[u64]) -> Vec<u8> {
        let length = 8 + words.len() as u64 * 8;
        [kind | length << 32].iter().chain(words).flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn records_are_read_in_a_row_and_an_unfinished_one_is_left() {
        let mut bytes = record(3, &[5, 42, u64::from_ne_bytes(*b"worker\0\0"), 0]);
        bytes.extend(record(1, &[10, 1, 100, 4 | 1 << 32 | 1 << 40, 42, 0xa, 0xb, 0xc, 0, 0x11, 0x22]));
        bytes.extend(record(2, &[20, 1, 43, 1]));
        bytes.extend(record(1, &[25, 2, 50, 1, 42, 0xa, 0xb, 0xc, 0]));
        let whole = bytes.len();
        bytes.extend(&record(2, &[30, 2, 43, 0])[..16]);
        let Parsed { events, bytes, is_damaged } = parse(&bytes);
        assert_eq!((bytes, is_damaged), (whole, false));
        assert_eq!(events[0], MallocEvent::Thread { tid: 42, name: "worker".into() });
        let MallocEvent::Allocated(block) = &events[1] else { panic!("{events:?}") };
        assert_eq!((block.size_bytes, block.weight, block.function), (100, 4, MallocFunction::Calloc));
        assert!(block.is_tracked && block.stack.len() == 16 && block.registers.sp == 0xb);
        assert_eq!(events[2], MallocEvent::Freed { time_ns: 20, id: 1, tid: 43, by_realloc: true });
        let MallocEvent::Allocated(block) = &events[3] else { panic!("{events:?}") };
        assert!(!block.is_tracked && block.function == MallocFunction::Malloc);
    }

    #[test]
    fn a_damaged_record_takes_none_of_those_before_it_along() {
        let good = [record(2, &[20, 1, 43, 1]), record(2, &[30, 2, 43, 0])].concat();
        for damage in [record(2, &[40, 3, u64::MAX, 0]), vec![0; 16], (12_u64 << 32).to_ne_bytes().to_vec()] {
            let parsed = parse(&[good.clone(), damage].concat());
            assert_eq!((parsed.events.len(), parsed.bytes, parsed.is_damaged), (2, good.len(), true));
        }
    }

    #[test]
    fn a_file_that_is_not_ready_or_not_ours_is_refused() {
        let head = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|word| word.to_ne_bytes()).collect() };
        let ready = head(&[MAGIC, 2 | 1 << 18 << 32, 7, 8, 2, 0, 0, 900, 1, 4_026_531_836, 3, 1, 0, 5, 6]);
        let parsed = RecorderHead::parse(&ready).unwrap();
        assert_eq!((parsed.pid, parsed.rings, parsed.fast_ps, parsed.has_ended), (7, 2, 900, true));
        assert_eq!((parsed.namespace, parsed.spill_head), (4_026_531_836, 3));
        assert_eq!((parsed.is_forked, parsed.has_missed), (true, false));
        assert_eq!((parsed.bare_rings, parsed.bare_threads), (5, 6));
        assert_eq!(parsed.ring_offset(1), 4096 + 8192 + (1 << 18));
        for bad in [
            head(&[0, 2 | 1 << 18 << 32, 7, 8, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            head(&[MAGIC, 1 | 1 << 18 << 32, 7, 8, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            head(&[MAGIC, 2 | 3 << 32, 7, 8, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            head(&[MAGIC, 2 | 2048 << 32, 7, 8, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            head(&[MAGIC, 2 | 1 << 18 << 32, u64::MAX, 8, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            Vec::new(),
        ] {
            assert_eq!(RecorderHead::parse(&bad), None);
        }
    }

    #[test]
    fn frees_without_room_are_read_up_to_the_first_that_is_not_written() {
        let places = [[50, 7, 42, 11 << 1 | 1], [60, 8, 43, 12 << 1], [10, 1, 42, 2 << 1]];
        let bytes: Vec<u8> = places.iter().flatten().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        let freed = |time_ns, id, tid, by_realloc| MallocEvent::Freed { time_ns, id, tid, by_realloc };
        assert_eq!(spilled(&bytes, 10), [freed(50, 7, 42, true), freed(60, 8, 43, false)]);
        assert_eq!(spilled(&bytes, 9), []);
        assert_eq!(spilled(&bytes[..40], 10), [freed(50, 7, 42, true)]);
    }

    #[test]
    fn counters_are_read_by_function_and_class() {
        let mut pages = vec![0; 8192];
        let mut set =
            |place: usize, value: u64| pages[place * 8..][..8].copy_from_slice(&value.to_ne_bytes());
        set(512 + (2 * 64 + 5) * 2, 3);
        set(512 + (2 * 64 + 5) * 2 + 1, 120);
        set(18, 9);
        set(23, 2);
        set(216, 4);
        let counts = RingCounts::parse(&pages).unwrap();
        let realloc = CallCount { function: MallocFunction::Realloc, class: 5, calls: 3, bytes: 120 };
        assert_eq!((counts.calls.as_slice(), counts.allocations()), ([realloc].as_slice(), 3));
        assert_eq!((counts.frees, counts.reallocated, counts.freed_by_realloc), (9, 2, 4));
        assert_eq!((counts.all_calls(), counts.blocks_back()), (16, 15));
        assert_eq!(RingCounts::parse(&pages[..8000]), None);
    }

    #[test]
    fn counters_that_the_program_wrote_over_are_refused() {
        assert_eq!(RingCounts::parse(&[0xff; 8192]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..400), first in any::<u64>(),
        ) {
            let _ = RecorderHead::parse(&bytes);
            let _ = RingCounts::parse(&bytes);
            let _ = spilled(&bytes, first);
            prop_assert!(parse(&bytes).bytes <= bytes.len());
        }

        #[test]
        fn damaged_records_are_decoded_or_refused(
            kind in 0_u64..5, words in prop::collection::vec(any::<u64>(), 0..12), cut in 0_usize..40,
        ) {
            let bytes = record(kind, &words);
            let _ = parse(&bytes[..bytes.len().saturating_sub(cut)]);
        }
    }
}
