//! Events of some threads, all they start later included, and the buffers of their records.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

use faultless_records::perf_record::{self, News, PerfRecord};
use nix::errno::Errno;
use nix::libc;
use perf_event_open_sys::{ioctls, perf_event_open};

use super::attribute::{self, Abilities, Attribute};
use super::cpus::online_cpus;
use super::events::{Plan, Sampling, What};
use super::moment::Moment;
use super::refusal::PerfError;
use super::ring::{Ring, SMALLEST_BYTES};
use crate::file_limit;
use crate::permissions::rights;

/// An event that was opened for one thread, on one CPU or all.
struct Opened {
    file: OwnedFd,
    /// Its place in the plan; none for the event that carries mappings, names, starts and ends.
    event: Option<usize>,
    /// Place of the buffer that it writes into.
    buffer: Option<usize>,
}

/// A buffer of one CPU and the event that owns it.
struct Buffer {
    cpu: u32,
    /// For samples; the other buffer of the CPU is for mappings, names, starts and ends, which no burst of samples may crowd out.
    is_for_samples: bool,
    ring: Ring,
    owner: OwnedFd,
    /// What the kernel has said so far that it had no room for.
    lost: u64,
}

/// Open files beside those of events and buffers: what is read on the way, such as symbols.
const FILES_BESIDE: usize = 24;

/// Buffers of each CPU at most; each takes a file.
const BUFFERS_A_CPU: usize = 2;

/// An observation that goes on.
pub struct Session {
    plan: Plan,
    opened: Vec<Opened>,
    buffers: Vec<Buffer>,
    /// Places in the plan by the numbers that the kernel gave the events.
    places: HashMap<u64, usize>,
    buffer_bytes: usize,
    record_buffer_bytes: usize,
    abilities: Abilities,
    /// Records read but younger than what all buffers have been read up to.
    held_back: Vec<PerfRecord>,
    is_crowded: bool,
    lost_samples: u64,
    lost_news: u64,
    scratch: Vec<u8>,
}

impl Session {
    /// Opens the events for these threads, disabled.
    ///
    /// # Errors
    /// [`PerfError`]; a thread that has ended meanwhile is none, unless it is the only one.
    pub fn open(plan: Plan, threads: &[i32]) -> Result<Self, PerfError> {
        Self::open_until(plan, threads, None)
    }

    /// The same, up to a moment at the latest: where the process is slowed already by what is opened first.
    ///
    /// # Errors
    /// [`PerfError::Late`], and as [`open`](Self::open).
    pub fn open_until(plan: Plan, threads: &[i32], latest: Option<Instant>) -> Result<Self, PerfError> {
        let cpus = online_cpus();
        let most = if plan.sampled() == 0 { usize::MAX } else { RECORD_BUFFER_BYTES };
        file_limit::raise();
        let of_threads = threads.len() * plan.files_a_thread(cpus.len());
        let of_buffers = BUFFERS_A_CPU * cpus.len();
        let needed = file_limit::descriptors().len() + of_threads + of_buffers + FILES_BESIDE;
        let buffer_bytes = buffer_bytes(plan.buffer_bytes, cpus.len());
        let mut session = Self {
            plan,
            opened: Vec::new(),
            buffers: Vec::new(),
            places: HashMap::new(),
            buffer_bytes,
            record_buffer_bytes: buffer_bytes.min(most),
            abilities: Abilities { has_build_ids: true, tells_lost: true },
            held_back: Vec::new(),
            is_crowded: false,
            lost_samples: 0,
            lost_news: 0,
            scratch: Vec::new(),
        };
        for thread in threads {
            let is_late = latest.is_some_and(|latest| Instant::now() > latest);
            match session.open_thread(*thread, &cpus) {
                _ if is_late => return Err(PerfError::Late),
                Err(PerfError::Ended(_)) if threads.len() > 1 => {}
                Err(PerfError::Files { .. }) => return Err(PerfError::Files { needed }),
                result => result?,
            }
        }
        Ok(session)
    }

    /// Opens the events for one more thread; started as the others are.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn follow(&mut self, thread: i32) -> Result<(), PerfError> {
        let (already, cpus) = (self.opened.len(), online_cpus());
        match self.open_thread(thread, &cpus) {
            Err(PerfError::Files { .. }) => {
                let of_thread = self.plan.files_a_thread(cpus.len());
                Err(PerfError::Files { needed: already + self.buffers.len() + of_thread + FILES_BESIDE })
            }
            result => result,
        }?;
        self.start_from(already)
    }

    fn open_thread(&mut self, thread: i32, cpus: &[u32]) -> Result<(), PerfError> {
        for cpu in cpus {
            self.open_on_cpu(thread, *cpu)?;
        }
        // Not one CPU is there where there are no events at all, as in gVisor.
        if self.buffers.is_empty() {
            return Err(PerfError::of_open(thread, Errno::ENODEV, &rights()));
        }
        for (place, event) in self.plan.events.iter().enumerate() {
            if event.sampling == Sampling::Count {
                let file = self.open_planned(place, thread, -1)?;
                self.opened.push(Opened { file, event: Some(place), buffer: None });
            }
        }
        Ok(())
    }

    /// The events that write records: two buffers for each CPU, shared by all threads and events there.
    fn open_on_cpu(&mut self, thread: i32, cpu: u32) -> Result<(), PerfError> {
        let records = match self.open_records(thread, cpu) {
            // A CPU that went offline meanwhile.
            Err(PerfError::System { error, .. }) if error.raw_os_error() == Some(libc::ENODEV) => {
                return Ok(());
            }
            result => result?,
        };
        self.join_buffer(records, None, cpu)?;
        for place in 0..self.plan.events.len() {
            if self.plan.events[place].sampling != Sampling::Count {
                let file = self.open_planned(place, thread, cpu as i32)?;
                let mut number = 0_u64;
                // SAFETY: the request writes one u64, and `number` is valid for that.
                check(unsafe { ioctls::ID(file.as_raw_fd(), &raw mut number) }, "the number of an event")?;
                self.places.insert(number, place);
                self.join_buffer(file, Some(place), cpu)?;
            }
        }
        Ok(())
    }

    fn open_records(&mut self, thread: i32, cpu: u32) -> Result<OwnedFd, PerfError> {
        loop {
            let attribute = attribute::of_records(&self.plan, self.abilities);
            match open_event(attribute, thread, cpu as i32) {
                Ok(file) => return Ok(file),
                Err(Errno::EINVAL | Errno::E2BIG) if self.abilities.tells_lost => {
                    self.abilities.tells_lost = false;
                }
                // Device and inode are told in any case.
                Err(Errno::EINVAL | Errno::E2BIG) if self.abilities.has_build_ids => {
                    self.abilities.has_build_ids = false;
                }
                Err(errno) => return Err(PerfError::of_open(thread, errno, &rights())),
            }
        }
    }

    fn open_planned(&self, place: usize, thread: i32, cpu: i32) -> Result<OwnedFd, PerfError> {
        let event = &self.plan.events[place];
        let system = |what: String, error: io::Error| PerfError::System { what, error };
        let attribute = attribute::of_event(event, &self.plan, self.abilities)?;
        let file = open_event(attribute, thread, cpu).map_err(|errno| match (&event.what, errno) {
            (What::Function { .. }, Errno::EACCES | Errno::EPERM) => PerfError::Probes,
            _ => PerfError::of_open(thread, errno, &rights()),
        })?;
        if let What::Tracepoint { filter, .. } = &event.what
            && !filter.is_empty()
        {
            let text = std::ffi::CString::new(filter.as_str())
                .map_err(|error| system(format!("the filter {filter}"), error.into()))?;
            // SAFETY: the request reads a string that ends with NUL, and `text` lives during the call.
            let answer = unsafe { ioctls::SET_FILTER(file.as_raw_fd(), text.as_ptr().cast_mut()) };
            check(answer, &format!("the filter {filter}"))?;
        }
        Ok(file)
    }

    /// Lets an event write into the buffer of its CPU; the first one there makes and owns it.
    fn join_buffer(&mut self, file: OwnedFd, event: Option<usize>, cpu: u32) -> Result<(), PerfError> {
        // A session that follows no processes has no records to protect.
        let is_for_samples = event.is_some() || !self.plan.follows_processes;
        let fits = |buffer: &Buffer| buffer.cpu == cpu && buffer.is_for_samples == is_for_samples;
        let place = match self.buffers.iter().position(fits) {
            Some(place) => {
                let owner = self.buffers[place].owner.as_raw_fd();
                // SAFETY: the request takes a descriptor by value.
                check(unsafe { ioctls::SET_OUTPUT(file.as_raw_fd(), owner) }, "a shared buffer")?;
                place
            }
            None => {
                let ring = self.map_ring(&file, is_for_samples)?;
                let owner = file.try_clone().map_err(|_| PerfError::Files { needed: 0 })?;
                self.buffers.push(Buffer { cpu, is_for_samples, ring, owner, lost: 0 });
                self.buffers.len() - 1
            }
        };
        self.opened.push(Opened { file, event, buffer: Some(place) });
        Ok(())
    }

    /// Maps a buffer, halving its size until the limit on locked memory allows it.
    fn map_ring(&mut self, file: &OwnedFd, is_for_samples: bool) -> Result<Ring, PerfError> {
        loop {
            let bytes = if is_for_samples { &mut self.buffer_bytes } else { &mut self.record_buffer_bytes };
            match Ring::map(file, *bytes) {
                Ok(ring) => return Ok(ring),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EPERM | libc::ENOMEM) if *bytes > SMALLEST_BYTES => *bytes /= 2,
                    Some(libc::EPERM | libc::ENOMEM) => {
                        let text = fs::read_to_string("/proc/sys/kernel/perf_event_mlock_kb").ok();
                        let limit_kib = text.and_then(|text| text.trim().parse().ok());
                        return Err(PerfError::LockedMemory { limit_kib });
                    }
                    _ => return Err(PerfError::System { what: "a buffer".into(), error }),
                },
            }
        }
    }

    /// Starts the events that start enabled, of a session that waits for no exec.
    ///
    /// # Errors
    /// [`PerfError::System`], which the kernel has no reason for.
    pub fn start(&self) -> Result<(), PerfError> {
        self.start_from(0)
    }

    fn start_from(&self, already: usize) -> Result<(), PerfError> {
        for opened in &self.opened[already..] {
            if opened.event.is_none_or(|place| self.plan.events[place].starts_enabled) {
                set_enabled(&opened.file, true)?;
            }
        }
        Ok(())
    }

    /// Begins an event of the plan, in all threads.
    ///
    /// # Errors
    /// [`PerfError::System`], which the kernel has no reason for.
    pub fn enable(&self, place: usize) -> Result<(), PerfError> {
        self.set_event_enabled(place, true)
    }

    /// Ends an event of the plan, in all threads.
    ///
    /// # Errors
    /// [`PerfError::System`], which the kernel has no reason for.
    pub fn disable(&self, place: usize) -> Result<(), PerfError> {
        self.set_event_enabled(place, false)
    }

    fn set_event_enabled(&self, place: usize, enabled: bool) -> Result<(), PerfError> {
        for opened in self.opened.iter().filter(|opened| opened.event == Some(place)) {
            set_enabled(&opened.file, enabled)?;
        }
        Ok(())
    }

    /// How often an event of the plan has happened so far, in all threads.
    ///
    /// # Errors
    /// [`PerfError::System`], which the kernel has no reason for.
    pub fn count(&self, place: usize) -> Result<u64, PerfError> {
        let mut total = 0;
        for opened in self.opened.iter().filter(|opened| opened.event == Some(place)) {
            total += read(&opened.file)?.0;
        }
        Ok(total)
    }

    /// Samples of these events of the plan that were lost, in all threads, where the kernel tells (Linux 6.0): [`News::Lost`] does
    /// not say of which event.
    #[must_use]
    pub fn lost_of(&self, places: Range<usize>) -> Option<u64> {
        let is_of_these = |opened: &&Opened| opened.event.is_some_and(|event| places.contains(&event));
        self.opened.iter().filter(is_of_these).map(|opened| read(&opened.file).ok()?.1).sum()
    }

    /// The place in the plan of the event with the kernel's number.
    #[must_use]
    pub fn place_of(&self, number: u64) -> Option<usize> {
        self.places.get(&number).copied()
    }

    /// The records that have arrived, oldest first; [`News::Lost`] stands where samples were lost, on its CPU. Records of the last moment may be held back until the next call, because
    /// another CPU could still write older ones.
    pub fn read(&mut self) -> Vec<PerfRecord> {
        self.read_until(Moment::settled())
    }

    /// All records, when no more can come.
    pub fn read_last(&mut self) -> Vec<PerfRecord> {
        self.read_until(Moment::END)
    }

    /// The records older than this moment, oldest first. Sessions whose records belong together are read until the same one:
    /// otherwise those read later tell of what those read first have not told yet.
    pub fn read_until(&mut self, moment: Moment) -> Vec<PerfRecord> {
        let mut records = std::mem::take(&mut self.held_back);
        let content = self.plan.content;
        self.is_crowded = false;
        for buffer in &mut self.buffers {
            self.is_crowded |= buffer.is_for_samples && buffer.ring.is_half_full();
            let (is_for_samples, head) = (buffer.is_for_samples, buffer.ring.head());
            let lost = if is_for_samples { &mut self.lost_samples } else { &mut self.lost_news };
            buffer.ring.drain(head, &mut self.scratch, |kind, misc, body| {
                let record = perf_record::parse(kind, misc, body, content);
                match record {
                    Some(PerfRecord { news: News::Lost(number), .. }) => {
                        *lost += number;
                        buffer.lost += number;
                    }
                    None => *lost += 1,
                    Some(_) => {}
                }
                let is_of_other = matches!(&record, Some(record) if matches!(record.news, News::Lost(_)))
                    && !is_for_samples;
                records.extend(record.filter(|_| !is_of_other));
            });
        }
        if moment.ns() == Moment::END.ns() {
            records.extend(self.lost_at_the_end());
        }
        records.sort_by_key(|record| record.time_ns);
        let complete = records.partition_point(|record| record.time_ns < moment.ns());
        self.held_back = records.split_off(complete);
        records
    }

    /// What was lost after the last record: the kernel tells of it with the next one, and there is none. Only the events know.
    fn lost_at_the_end(&mut self) -> Vec<PerfRecord> {
        let mut in_all = vec![0; self.buffers.len()];
        for opened in &self.opened {
            if let Some(buffer) = opened.buffer
                && let Ok((_, Some(lost))) = read(&opened.file)
            {
                in_all[buffer] += lost;
            }
        }
        let mut records = Vec::new();
        for (buffer, in_all) in self.buffers.iter_mut().zip(in_all) {
            let untold = in_all.saturating_sub(buffer.lost);
            buffer.lost += untold;
            if !buffer.is_for_samples {
                self.lost_news += untold;
            } else if untold > 0 {
                self.lost_samples += untold;
                let (time_ns, cpu, news) = (Moment::END.ns() - 1, buffer.cpu, News::Lost(untold));
                records.push(PerfRecord { time_ns, pid: 0, tid: 0, cpu, news });
            }
        }
        records
    }

    /// Whether samples took half of a buffer or more when they were last read: the next may find no room.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// Records of any kind that the buffers had no room for.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost_samples + self.lost_news
    }

    /// Samples that the buffers had no room for.
    #[must_use]
    pub fn lost_samples(&self) -> u64 {
        self.lost_samples
    }

    /// Records of mappings, names, starts and ends that the buffers had no room for.
    #[must_use]
    pub fn lost_news(&self) -> u64 {
        self.lost_news
    }

    /// Size of each CPU's buffer for samples in bytes, as the limit on locked memory allowed it.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }
}

/// The buffers of all CPUs together: kernel memory that nothing else can use meanwhile.
const BUFFERS_BYTES: usize = 64 << 20;

/// The size of a buffer where one of this size is wanted for each CPU.
fn buffer_bytes(wanted: usize, cpus: usize) -> usize {
    let share = BUFFERS_BYTES / cpus.max(1);
    match wanted.next_power_of_two() {
        wanted if wanted <= share => wanted,
        // The power of two below.
        _ => (share / 2 + 1).next_power_of_two(),
    }
    .max(SMALLEST_BYTES)
}

/// Room for about a thousand records of mappings, names, starts and ends.
const RECORD_BUFFER_BYTES: usize = 128 * 1024;

/// Opens an event for a thread (0: ourselves) on a CPU (-1: all).
pub(super) fn open_event(mut attribute: Attribute, thread: i32, cpu: i32) -> Result<OwnedFd, Errno> {
    const NO_GROUP: i32 = -1;
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    // SAFETY: the attribute is valid, says its own size, and the string it may point to lives with it.
    let file = unsafe { perf_event_open(&raw mut attribute.kernel, thread, cpu, NO_GROUP, CLOSE_ON_EXEC) };
    if file < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// How often an event has happened, and how many records of it were lost, where the kernel tells.
fn read(file: &OwnedFd) -> Result<(u64, Option<u64>), PerfError> {
    let mut words = [[0_u8; 8]; 2];
    let length = nix::unistd::read(file, words.as_flattened_mut())
        .map_err(|errno| PerfError::System { what: "to read an event".into(), error: errno.into() })?;
    let [happened, lost] = words.map(u64::from_ne_bytes);
    Ok((happened, (length == 16).then_some(lost)))
}

fn set_enabled(file: &OwnedFd, enabled: bool) -> Result<(), PerfError> {
    // SAFETY: both requests take a number and touch no memory of ours.
    let answer = unsafe {
        match enabled {
            true => ioctls::ENABLE(file.as_raw_fd(), 0),
            false => ioctls::DISABLE(file.as_raw_fd(), 0),
        }
    };
    check(answer, "to switch an event")
}

fn check(answer: libc::c_int, what: &str) -> Result<(), PerfError> {
    match answer {
        answer if answer >= 0 => Ok(()),
        _ => Err(PerfError::System { what: what.into(), error: io::Error::last_os_error() }),
    }
}

#[cfg(test)]
mod tests;
