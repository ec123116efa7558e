//! Reads what preloaded recorders of malloc's calls write, while the processes run and after they ended.
//!
//! Each program has a file of its own in one directory. It is read and written, never mapped: a process that cuts its file
//! short does no harm to us.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use faultless_records::malloc_event::{
    self, MallocEvent, PAGE_BYTES, RecorderHead, RingCounts, SPILL_PLACES, SPILL_TAIL_OFFSET, SPILLED_BYTES,
};
use faultless_records::measurement::Ending;
use nix::libc;

use crate::deadline::Deadline;
use crate::launch::Launched;
use crate::recorded_process;
use crate::signals::Signals;
use crate::watch::{Moment, WatchError, watch_beside};

/// Names the directory to the recorder.
pub const DIRECTORY_VARIABLE: &str = "FAULTLESS_RECORDER";

/// Between two looks when nothing comes, and when much does.
const IDLE: Duration = Duration::from_millis(4);
const BUSY: Duration = Duration::from_millis(1);

/// So many looks in a row that find nonsense in a ring are damage and no head that is just being written.
const DAMAGED: u32 = 2;

/// How often the observer hears that time passes.
const TICK: Duration = Duration::from_millis(250);

/// Who is told what happens.
pub trait Observer {
    /// A program has begun in the process that has this number in `/proc`, if it was found there; `maps` is what it had
    /// mapped then.
    fn began(&mut self, process: usize, head: &RecorderHead, number: Option<i32>, maps: &[u8]);
    /// The next event of it.
    fn take(&mut self, process: usize, event: MallocEvent);
    /// Its process was not found in `/proc`; by its own word it is over, and what it wrote before is taken.
    fn ended(&mut self, process: usize);
    /// It is time to look who has ended.
    fn look(&mut self);
    /// All is taken that was written before the last look.
    fn all_taken(&mut self);
    /// What it has counted up to now.
    fn counted(&mut self, process: usize, head: &RecorderHead, counts: Vec<RingCounts>);
    /// So many programs began a file and found no room for their records.
    fn unrecorded(&mut self, programs: usize);
    /// Time passes, or the command stands still on its way out: what the processes have mapped can be read now.
    fn tick(&mut self);
}

/// Follows a command whose processes have the recorder, to its end or for so long; it is ended then. Returns how it ended,
/// if not because its time was over, and how long was looked.
///
/// # Errors
/// [`WatchError`].
pub fn follow(
    launched: &Launched,
    signals: &Signals,
    limit: Option<Duration>,
    directory: &Path,
    observer: &mut dyn Observer,
) -> Result<(Option<Ending>, Duration), WatchError> {
    let began = Instant::now();
    let mut files = Files::new(directory);
    let mut next_tick = began;
    let mut deadline = Deadline::new(limit.map(|limit| began + limit));
    let measurement = watch_beside(launched, signals, None, &mut |moment| {
        let now = Instant::now();
        let was_over = deadline.passed().is_some();
        let due = deadline.due(now);
        if was_over {
            due.into_iter().for_each(|signal| launched.send(signal as i32));
            return Some(IDLE);
        }
        let events = files.read(observer);
        if now >= next_tick || moment == Moment::AtExit {
            files.count(observer);
            observer.tick();
            next_tick = now + TICK;
        }
        if let Some(signal) = due {
            files.count(observer);
            launched.send(signal as i32);
        }
        Some(if events > 0 { BUSY } else { IDLE })
    })?;
    let is_own_end = deadline.passed().is_none();
    if is_own_end {
        files.read(observer);
        files.count(observer);
    }
    observer.unrecorded(files.unready);
    let end = deadline.passed().unwrap_or_else(Instant::now);
    Ok((is_own_end.then_some(measurement.ending), end.saturating_duration_since(began)))
}

struct Files<'directory> {
    directory: &'directory Path,
    seen: HashSet<OsString>,
    files: Vec<RecorderFile>,
    /// Files that were there at the last look and could not be read.
    unready: usize,
}

impl<'directory> Files<'directory> {
    fn new(directory: &'directory Path) -> Self {
        Self { directory, seen: HashSet::new(), files: Vec::new(), unready: 0 }
    }

    /// Reads what has come, and returns how many events that were.
    fn read(&mut self, observer: &mut dyn Observer) -> usize {
        // Old files first, then each new one as soon as its code is known: a program that follows another in the same
        // process has other code at the same addresses.
        let already = self.files.len();
        let mut events = self.read_first(already, observer);
        self.open_new();
        if self.files.len() > already {
            // What ended before the new ones began has written its last by now, and does not live beside them.
            observer.look();
            events += self.read_first(already, observer);
        }
        for process in already..self.files.len() {
            let file = &self.files[process];
            let maps = fs::read(&file.maps).unwrap_or_default();
            observer.began(process, &file.head, file.number, &maps);
            events += self.read_one(process, observer);
        }
        events
    }

    fn read_first(&mut self, files: usize, observer: &mut dyn Observer) -> usize {
        let events = (0..files).map(|process| self.read_one(process, observer)).sum();
        observer.all_taken();
        events
    }

    fn read_one(&mut self, process: usize, observer: &mut dyn Observer) -> usize {
        let file = &mut self.files[process];
        file.refresh();
        let mut number = 0;
        for ring in 0..file.head.rings {
            for event in file.read_ring(ring).unwrap_or_default() {
                number += 1;
                observer.take(process, event);
            }
        }
        // After the rings: there is what came before.
        for event in file.read_spill().unwrap_or_default() {
            number += 1;
            observer.take(process, event);
        }
        if file.number.is_none() && file.head.has_ended {
            observer.ended(process);
        }
        number
    }

    fn count(&mut self, observer: &mut dyn Observer) {
        for (process, file) in self.files.iter_mut().enumerate() {
            file.refresh();
            let counts = (0..file.head.rings).filter_map(|ring| file.ring_counts(ring)).collect();
            observer.counted(process, &file.head, counts);
        }
    }

    fn open_new(&mut self) {
        let Ok(entries) = fs::read_dir(self.directory) else { return };
        let mut new = Vec::new();
        self.unready = 0;
        for entry in entries.flatten() {
            let path = entry.path();
            let is_file_of_rings = path.extension().is_some_and(|extension| extension == "rings");
            if is_file_of_rings && !self.seen.contains(&entry.file_name()) {
                // One that is not ready yet is looked at again.
                if let Some(file) = RecorderFile::open(&path) {
                    self.seen.insert(entry.file_name());
                    new.push(file);
                } else {
                    self.unready += 1;
                }
            }
        }
        new.sort_by_key(|file| file.head.start_ns);
        self.files.extend(new);
    }
}

struct RecorderFile {
    file: File,
    /// Where the same program wrote what it has mapped.
    maps: PathBuf,
    head: RecorderHead,
    /// Its process in `/proc`.
    number: Option<i32>,
    /// How many looks in a row found nonsense in a ring; at [`DAMAGED`] it is left alone.
    senseless: HashMap<u64, u32>,
    /// Frees without room in a ring that were read.
    spill_tail: u64,
}

impl RecorderFile {
    fn open(path: &Path) -> Option<Self> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).ok()?;
        let head = read_head(&file).ok()??;
        let maps = path.with_extension("maps");
        let number = recorded_process::number(&head, path);
        Some(Self { file, maps, head, number, senseless: HashMap::new(), spill_tail: 0 })
    }

    fn refresh(&mut self) {
        if let Ok(Some(head)) = read_head(&self.file) {
            // The layout stays as it was found.
            self.head = RecorderHead { ring_bytes: self.head.ring_bytes, pid: self.head.pid, ..head };
        }
    }

    fn word(&self, offset: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Takes the whole records that are in a ring, so that there is room for others.
    fn read_ring(&mut self, ring: u64) -> io::Result<Vec<MallocEvent>> {
        /// Where the reader's place stands in a ring.
        const TAIL_OFFSET: u64 = 64;
        let start = self.head.ring_offset(ring);
        let (head, tail) = (self.word(start)?, self.word(start + TAIL_OFFSET)?);
        // ORDERING: Acquire; the records are read after the `head` by whose Release they were published. The kernel reads
        // both for us: the processor's order is all that this keeps. It copies 8 aligned bytes at once wherever we know how
        // it does; that is promised nowhere, so a head that makes no sense is looked at again.
        fence(Ordering::Acquire);
        let used = head.wrapping_sub(tail);
        if self.senseless.get(&ring) == Some(&DAMAGED) {
            return Ok(Vec::new());
        }
        if used == 0 {
            self.senseless.remove(&ring);
            return Ok(Vec::new());
        }
        let records = start + 2 * PAGE_BYTES;
        let taken = if used > self.head.ring_bytes { None } else { self.parse(records, tail, used)? };
        let Some((events, bytes)) = taken else {
            *self.senseless.entry(ring).or_default() += 1;
            return Ok(Vec::new());
        };
        self.senseless.remove(&ring);
        self.file.write_all_at(&tail.wrapping_add(bytes as u64).to_ne_bytes(), start + TAIL_OFFSET)?;
        Ok(events)
    }

    fn parse(&self, records: u64, tail: u64, used: u64) -> io::Result<Option<(Vec<MallocEvent>, usize)>> {
        let place = tail & (self.head.ring_bytes - 1);
        let first = used.min(self.head.ring_bytes - place);
        let mut bytes = vec![0; usize::try_from(used).unwrap_or(0)];
        let (before, behind) = bytes.split_at_mut(usize::try_from(first).unwrap_or(0));
        self.file.read_exact_at(before, records + place)?;
        self.file.read_exact_at(behind, records)?;
        Ok(malloc_event::parse(&bytes))
    }

    /// Takes the frees that found no room in a ring, so that there is room for others.
    fn read_spill(&mut self) -> io::Result<Vec<MallocEvent>> {
        let used = self.head.spill_head.wrapping_sub(self.spill_tail);
        if used == 0 || used > SPILL_PLACES {
            return Ok(Vec::new());
        }
        // ORDERING: Acquire; the second reading sees what was written before the places that the first found written.
        let written = self.spilled(used)?.len() as u64;
        fence(Ordering::Acquire);
        let events = self.spilled(written)?;
        self.spill_tail = self.spill_tail.wrapping_add(events.len() as u64);
        self.file.write_all_at(&self.spill_tail.to_ne_bytes(), SPILL_TAIL_OFFSET)?;
        Ok(events)
    }

    fn spilled(&self, places: u64) -> io::Result<Vec<MallocEvent>> {
        let place = self.spill_tail % SPILL_PLACES;
        let first = places.min(SPILL_PLACES - place);
        let mut bytes = vec![0; usize::try_from(places * SPILLED_BYTES).unwrap_or(0)];
        let (before, behind) = bytes.split_at_mut(usize::try_from(first * SPILLED_BYTES).unwrap_or(0));
        self.file.read_exact_at(before, self.head.spill_offset() + place * SPILLED_BYTES)?;
        self.file.read_exact_at(behind, self.head.spill_offset())?;
        Ok(malloc_event::spilled(&bytes, self.spill_tail))
    }

    fn ring_counts(&self, ring: u64) -> Option<RingCounts> {
        let mut pages = vec![0; 2 * PAGE_BYTES as usize];
        self.file.read_exact_at(&mut pages, self.head.ring_offset(ring)).ok()?;
        RingCounts::parse(&pages)
    }
}

fn read_head(file: &File) -> io::Result<Option<RecorderHead>> {
    let mut page = [0; 128];
    file.read_exact_at(&mut page, 0)?;
    Ok(RecorderHead::parse(&page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen {
        events: Vec<MallocEvent>,
        /// Programs that ended by their own word, and how many events came before.
        ended: Vec<(usize, usize)>,
    }

    impl Observer for Seen {
        fn began(&mut self, _process: usize, _head: &RecorderHead, _number: Option<i32>, _maps: &[u8]) {}
        fn ended(&mut self, process: usize) {
            self.ended.push((process, self.events.len()));
        }
        fn look(&mut self) {}
        fn all_taken(&mut self) {}
        fn take(&mut self, _process: usize, event: MallocEvent) {
            self.events.push(event);
        }
        fn counted(&mut self, _process: usize, _head: &RecorderHead, _counts: Vec<RingCounts>) {}
        fn unrecorded(&mut self, _programs: usize) {}
        fn tick(&mut self) {}
    }

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("faultless-rings-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    const RING_BYTES: u64 = 4096;
    const RING: u64 = 4096;
    const RECORDS: u64 = RING + 8192;

    fn file_with_one_ring(path: &Path, head: u64, tail: u64) -> File {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap();
        file.set_len(RECORDS + RING_BYTES).unwrap();
        let magic = u64::from_ne_bytes(*b"FALTREC1");
        file.write_all_at(&words(&[magic, 2 | RING_BYTES << 32, 7, 0, 1, 0, 0, 0, 0]), 0).unwrap();
        file.write_all_at(&words(&[head]), RING).unwrap();
        file.write_all_at(&words(&[tail]), RING + 64).unwrap();
        file
    }

    #[test]
    fn a_record_over_the_end_of_a_ring_is_read_once_and_makes_room() {
        let place = directory("wrap");
        let tail = RING_BYTES * 3 - 16;
        let file = file_with_one_ring(&place.join("7-0.rings"), tail + 40, tail);
        file.write_all_at(&words(&[2 | 40 << 32, 5]), RECORDS + RING_BYTES - 16).unwrap();
        file.write_all_at(&words(&[9, 3, 0]), RECORDS).unwrap();
        let (mut files, mut seen) = (Files::new(&place), Seen::default());
        assert_eq!(files.read(&mut seen), 1);
        assert_eq!(seen.events, [MallocEvent::Freed { time_ns: 5, id: 9, tid: 3, by_realloc: false }]);
        assert_eq!(files.read(&mut seen), 0);
        assert_eq!(files.files[0].word(RING + 64).unwrap(), tail + 40);
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn frees_without_room_in_a_ring_are_read_once_over_the_end_of_their_places_and_make_room() {
        let place = directory("spill");
        let file = file_with_one_ring(&place.join("7-0.rings"), 0, 0);
        let start = RING + 1024 * (8192 + RING_BYTES);
        let before = SPILL_PLACES - 1;
        file.set_len(start + SPILL_PLACES * SPILLED_BYTES).unwrap();
        file.write_all_at(&words(&[5, 9, 3, SPILL_PLACES << 1]), start + before * SPILLED_BYTES).unwrap();
        file.write_all_at(&words(&[6, 8, 3, (SPILL_PLACES + 1) << 1 | 1]), start).unwrap();
        // The third is not written yet.
        file.write_all_at(&words(&[before + 3]), 80).unwrap();
        let (mut files, mut seen) = (Files::new(&place), Seen::default());
        files.open_new();
        files.files[0].spill_tail = before;
        assert_eq!(files.read(&mut seen), 2);
        let freed = |time_ns, id, by_realloc| MallocEvent::Freed { time_ns, id, tid: 3, by_realloc };
        assert_eq!(seen.events, [freed(5, 9, false), freed(6, 8, true)]);
        assert_eq!(files.read(&mut seen), 0);
        assert_eq!(files.files[0].word(SPILL_TAIL_OFFSET).unwrap(), before + 2);
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_program_that_is_not_to_be_seen_ends_by_its_own_word_when_all_is_taken() {
        let place = directory("word");
        let file = file_with_one_ring(&place.join("7-0.rings"), 40, 0);
        file.write_all_at(&words(&[2 | 40 << 32, 5, 9, 3, 0]), RECORDS).unwrap();
        let (mut files, mut seen) = (Files::new(&place), Seen::default());
        assert_eq!((files.read(&mut seen), files.files[0].number), (1, None));
        assert_eq!(seen.ended, []);
        file.write_all_at(&words(&[2 | 40 << 32, 6, 8, 3, 0]), RECORDS + 40).unwrap();
        file.write_all_at(&words(&[80]), RING).unwrap();
        file.write_all_at(&words(&[1]), 64).unwrap();
        files.read(&mut seen);
        assert_eq!(seen.ended, [(0, 2)]);
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn a_head_that_was_half_written_once_condemns_no_ring_and_nonsense_twice_does() {
        let place = directory("torn");
        let file = file_with_one_ring(&place.join("7-0.rings"), u64::MAX / 2, 0);
        let record = [2 | 40 << 32, 5, 9, 3, 0];
        file.write_all_at(&words(&[record; 3].concat()), RECORDS).unwrap();
        let (mut files, mut seen) = (Files::new(&place), Seen::default());
        let nonsense = u64::MAX / 2;
        let events = [nonsense, 40, nonsense, 40, nonsense, 80, nonsense, nonsense, 120].map(|head| {
            file.write_all_at(&words(&[head]), RING).unwrap();
            files.read(&mut seen)
        });
        assert_eq!(events, [0, 1, 0, 0, 0, 1, 0, 0, 0]);
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn rings_that_make_no_sense_are_left_alone_and_files_cut_short_do_no_harm() {
        let place = directory("damaged");
        let file = file_with_one_ring(&place.join("7-0.rings"), u64::MAX / 2, 5);
        fs::write(place.join("8-0.rings"), b"short").unwrap();
        let (mut files, mut seen) = (Files::new(&place), Seen::default());
        assert_eq!((files.read(&mut seen), files.files.len(), files.unready), (0, 1, 1));
        file.set_len(100).unwrap();
        assert_eq!(files.read(&mut seen), 0);
        files.count(&mut seen);
        fs::remove_dir_all(&place).unwrap();
    }
}
