//! Reads what preloaded recorders of malloc's calls write, while the processes run and after they ended.
//!
//! Each program has a file of its own in one directory. It is read and written, never mapped: a process that cuts its file
//! short does no harm to us.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use faultless_records::malloc_event::{
    self, MallocEvent, PAGE_BYTES, Parsed, RecorderHead, RingCounts, SPILL_PLACES, SPILL_TAIL_OFFSET,
    SPILLED_BYTES,
};
use faultless_records::measurement::Ending;
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::deadline::Deadline;
use crate::file_limit;
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

/// How long after the command's end files are read that found no descriptor before.
const REST: Duration = Duration::from_secs(1);

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
    // Each process that lives has a file.
    file_limit::raise();
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
        let is_tick = now >= next_tick || moment == Moment::AtExit;
        let events = if is_tick { files.take_stock(observer).0 } else { files.read(observer) };
        if is_tick {
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
        // Some may have waited for the descriptors of others; what the command left behind may start others without end.
        let until = Instant::now() + REST;
        while files.take_stock(observer).1 && Instant::now() < until {}
    }
    observer.unrecorded(files.unready);
    let end = deadline.passed().unwrap_or_else(Instant::now);
    Ok((is_own_end.then_some(measurement.ending), end.saturating_duration_since(began)))
}

struct Files<'directory> {
    directory: &'directory Path,
    seen: HashSet<OsString>,
    /// By program, numbered as they were met. Those of processes that have ended are gone: a command may start any number.
    files: BTreeMap<usize, RecorderFile>,
    /// Programs that were met.
    met: usize,
    /// Files that were there at the last look and could not be read.
    unready: usize,
}

impl<'directory> Files<'directory> {
    fn new(directory: &'directory Path) -> Self {
        Self { directory, seen: HashSet::new(), files: BTreeMap::new(), met: 0, unready: 0 }
    }

    /// Reads what has come, and returns how many events that were.
    fn read(&mut self, observer: &mut dyn Observer) -> usize {
        // Old files first, then each new one as soon as its code is known: a program that follows another in the same
        // process has other code at the same addresses.
        let already = self.met;
        let mut events = self.read_first(already, observer);
        self.open_new();
        if self.met > already {
            // What ended before the new ones began has written its last by now, and does not live beside them.
            observer.look();
            events += self.read_first(already, observer);
        }
        for (process, file) in self.files.range_mut(already..) {
            let maps = fs::read(&file.maps).unwrap_or_default();
            observer.began(*process, &file.head, file.number, &maps);
            events += file.take_all(*process, observer);
        }
        events
    }

    fn read_first(&mut self, files: usize, observer: &mut dyn Observer) -> usize {
        let first = self.files.range_mut(..files);
        let events = first.map(|(process, file)| file.take_all(*process, observer)).sum();
        observer.all_taken();
        events
    }

    /// Reads, counts, and lets go of what had ended before; how many events came, and whether anything had.
    fn take_stock(&mut self, observer: &mut dyn Observer) -> (usize, bool) {
        // What is read from here on is the last of these.
        let over = self.over();
        let events = self.read(observer);
        self.count(observer);
        self.let_go(&over);
        (events, !over.is_empty())
    }

    /// The programs whose processes have ended.
    fn over(&self) -> Vec<usize> {
        self.files.iter().filter(|(_, file)| file.is_over()).map(|(process, _)| *process).collect()
    }

    /// Gives back the memory and the descriptors of these, of which all has been read and counted.
    fn let_go(&mut self, over: &[usize]) {
        for file in over.iter().filter_map(|process| self.files.remove(process)) {
            let _ = fs::remove_file(file.maps.with_extension("rings"));
            let _ = fs::remove_file(file.maps);
        }
    }

    fn count(&mut self, observer: &mut dyn Observer) {
        for (process, file) in &mut self.files {
            file.count(*process, observer);
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
        let already = self.met;
        self.met += new.len();
        self.files.extend((already..).zip(new));
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

    /// Whether its process is known and has ended: nothing more is written. To ask takes no descriptor, which there may be none left of.
    fn is_over(&self) -> bool {
        self.number.is_some_and(|number| {
            // The numbers in `/proc` may be those of another PID namespace.
            kill(Pid::from_raw(number), None) == Err(Errno::ESRCH)
                && !Path::new("/proc").join(number.to_string()).exists()
        })
    }

    /// Takes all that was written, and returns how many events that were.
    fn take_all(&mut self, process: usize, observer: &mut dyn Observer) -> usize {
        self.refresh();
        let mut number = 0;
        for ring in 0..self.head.rings {
            for event in self.read_ring(ring).unwrap_or_default() {
                number += 1;
                observer.take(process, event);
            }
        }
        // After the rings: there is what came before.
        for event in self.read_spill().unwrap_or_default() {
            number += 1;
            observer.take(process, event);
        }
        if self.number.is_none() && self.head.has_ended {
            observer.ended(process);
        }
        number
    }

    fn count(&mut self, process: usize, observer: &mut dyn Observer) {
        self.refresh();
        let head = &self.head;
        let described = (0..head.rings).map(|ring| head.ring_offset(ring));
        let bare = (0..head.bare_rings).map(|ring| head.bare_ring_offset(ring));
        let counts = described.chain(bare).filter_map(|offset| self.counts_at(offset)).collect();
        observer.counted(process, &self.head, counts);
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
        let parsed = match used > self.head.ring_bytes {
            true => Parsed { is_damaged: true, ..Parsed::default() },
            false => self.parse(records, tail, used)?,
        };
        if parsed.is_damaged {
            *self.senseless.entry(ring).or_default() += 1;
        } else {
            self.senseless.remove(&ring);
        }
        if parsed.bytes > 0 {
            let tail = tail.wrapping_add(parsed.bytes as u64);
            self.file.write_all_at(&tail.to_ne_bytes(), start + TAIL_OFFSET)?;
        }
        Ok(parsed.events)
    }

    fn parse(&self, records: u64, tail: u64, used: u64) -> io::Result<Parsed> {
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

    fn counts_at(&self, offset: u64) -> Option<RingCounts> {
        let mut pages = vec![0; 2 * PAGE_BYTES as usize];
        self.file.read_exact_at(&mut pages, offset).ok()?;
        RingCounts::parse(&pages)
    }
}

fn read_head(file: &File) -> io::Result<Option<RecorderHead>> {
    let mut page = [0; 128];
    file.read_exact_at(&mut page, 0)?;
    Ok(RecorderHead::parse(&page))
}

#[cfg(test)]
mod tests;
