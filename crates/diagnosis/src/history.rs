//! The lines of a recording put in order, with a bound on the memory that takes.
//!
//! Counters only grow, so leaving samples out costs resolution and no truth: rates stay those of the kernel's counts. When
//! there are too many samples, each track keeps of every stretch of time the one with the largest resident set.

mod passing;

use faultless_records::recording::{
    Begin, End, Event, FORMAT, Group, GroupSample, Happening, Line, Note, Process, Sample,
};
use faultless_records::saved_form;

use crate::programs::{Earlier, Program};
use passing::Passing;

/// Samples kept of all tracks together, about 64 MiB.
const MOST_SAMPLES: usize = 400_000;

/// Processes, control groups, events and notes kept each; more are counted and left out.
const MOST_ITEMS: usize = 100_000;

/// Times beyond this are no times, in s.
const LATEST_S: f64 = 1e10;

/// Everything known, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// What is watched.
    pub begin: Begin,
    /// One for each process.
    pub tracks: Vec<Track>,
    /// One for each control group.
    pub groups: Vec<GroupTrack>,
    /// What happened, in the order in which it was told.
    pub events: Vec<Event>,
    /// What the reader should know.
    pub notes: Vec<Note>,
    /// The last line, when it is there.
    pub end: Option<End>,
    /// Time of the latest line, in s.
    pub latest_s: f64,
    /// Samples that were added, kept or not.
    pub seen: usize,
    /// Lines that were too many to keep, with all of processes and control groups that were.
    pub left_out: usize,
    passing: Passing,
    /// Processes and control groups that were told of, kept or not.
    told_processes: usize,
    told_groups: usize,
    samples: usize,
    most_samples: usize,
    has_begun: bool,
}

/// A process and its samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Track {
    /// Who it is.
    pub process: Process,
    /// In the order of time.
    pub samples: Vec<Sample>,
    /// The largest resident set of any of its programs, in bytes.
    pub peak_rss_bytes: u64,
    /// What it is now, or was last.
    pub program: Program,
    /// The programs that it was before, of those that a sample saw.
    pub earlier: Vec<Earlier>,
    /// How and when it ended, or left.
    pub exit: Option<(f64, Happening)>,
    /// It came into view as the copy of its parent that a fork makes.
    is_copy: bool,
}

/// A control group and its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupTrack {
    /// Which one.
    pub group: Group,
    /// In the order of time.
    pub samples: Vec<GroupSample>,
}

impl Track {
    /// The latest sample.
    #[must_use]
    pub fn last(&self) -> Option<&Sample> {
        self.samples.last()
    }

    /// The latest sample with sizes, which the last of a process that has ended does not have.
    #[must_use]
    pub fn last_sized(&self) -> Option<&Sample> {
        self.samples.iter().rev().find(|sample| sample.rss_bytes.is_some())
    }

    /// An exec: what the process was until then is kept where there `has_room` for it. The copy that a fork makes, looked at once,
    /// has the figures of its parent, and is no program.
    fn end_program(&mut self, t: f64, has_room: bool) {
        let Some(program) = self.program.end(t, &self.samples) else { return };
        let is_copy = std::mem::take(&mut self.is_copy) && program.first == program.last;
        if has_room && !is_copy {
            self.earlier.push(Earlier { name: self.process.name.clone(), program });
        }
    }

    /// Its name and number.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{} {}", self.process.name, self.process.pid)
    }
}

impl History {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { most_samples: MOST_SAMPLES, ..Self::default() }
    }

    /// Puts the next line in its place.
    ///
    /// # Errors
    /// Why the line cannot follow those before it, in one line.
    pub fn add(&mut self, line: Line) -> Result<(), String> {
        let t = line.t();
        if !(0.0..LATEST_S).contains(&t) {
            return Err(format!("{t:?} is no time in seconds"));
        }
        match (self.has_begun, &line) {
            (true, Line::Begin(_)) => return Err("another recording begins there".into()),
            (false, Line::Begin(_)) | (true, _) => {}
            (false, _) => return Err("its beginning is missing".into()),
        }
        match line {
            Line::Begin(begin) => self.begin(begin)?,
            Line::Process(process) => self.add_process(process)?,
            Line::Sample(sample) => self.add_sample(sample)?,
            Line::Group(group) => self.add_group(group)?,
            Line::GroupSample(sample) => self.add_group_sample(sample)?,
            Line::GroupLeft(left) => self.check_group(left.group)?,
            Line::Event(event) => self.add_event(event)?,
            Line::Note(note) => keep(&mut self.notes, note, &mut self.left_out),
            Line::End(end) => self.end = Some(end),
        }
        self.latest_s = self.latest_s.max(t);
        if self.samples > self.most_samples {
            self.thin();
        }
        Ok(())
    }

    /// The process with this number in the lines, kept or passing by.
    #[must_use]
    pub fn process(&self, place: u32) -> Option<&Track> {
        self.tracks.get(place as usize).or_else(|| self.passing.get(place))
    }

    /// Samples kept.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.samples
    }

    fn begin(&mut self, begin: Begin) -> Result<(), String> {
        saved_form::check(&begin.format, FORMAT)?;
        self.begin = begin;
        self.has_begun = true;
        Ok(())
    }

    fn add_process(&mut self, process: Process) -> Result<(), String> {
        let place = process.process as usize;
        if place < self.told_processes {
            if let Some(track) = self.track(process.process)? {
                track.process = process;
            }
            return Ok(());
        }
        if place > self.told_processes {
            return Err(format!("process {place} comes out of turn"));
        }
        self.told_processes += 1;
        let number = process.process;
        let track = Track { is_copy: self.is_copy(&process), process, ..Track::default() };
        if self.tracks.len() < MOST_ITEMS {
            self.tracks.push(track);
            return Ok(());
        }
        self.left_out += 1;
        self.passing.add(number, track);
        Ok(())
    }

    /// Whether the latest event is its fork, and its name still that of its parent.
    fn is_copy(&self, process: &Process) -> bool {
        let Some(Event { process: parent, what: Happening::Fork { child }, .. }) = self.events.last() else {
            return false;
        };
        let parent = self.tracks.get(*parent as usize);
        *child == process.pid && parent.is_some_and(|parent| parent.process.name == process.name)
    }

    fn add_sample(&mut self, sample: Sample) -> Result<(), String> {
        let is_kept = self.is_kept(sample.process);
        let Some(track) = self.track(sample.process)? else { return Ok(()) };
        if track.last().is_some_and(|last| last.t > sample.t) {
            return Err(format!("a sample of process {} goes back in time", sample.process));
        }
        track.program.add(&sample);
        track.peak_rss_bytes = track.peak_rss_bytes.max(track.program.peak_rss_bytes);
        track.samples.push(sample);
        if !is_kept {
            Passing::shorten(track);
            return Ok(());
        }
        self.samples += 1;
        self.seen += 1;
        Ok(())
    }

    fn add_group(&mut self, group: Group) -> Result<(), String> {
        if group.group as usize != self.told_groups {
            return Err(format!("control group {} comes out of turn", group.group));
        }
        self.told_groups += 1;
        keep(&mut self.groups, GroupTrack { group, samples: Vec::new() }, &mut self.left_out);
        Ok(())
    }

    fn add_group_sample(&mut self, sample: GroupSample) -> Result<(), String> {
        self.check_group(sample.group)?;
        let Some(track) = self.groups.get_mut(sample.group as usize) else {
            self.left_out += 1;
            return Ok(());
        };
        if track.samples.last().is_some_and(|last| last.t > sample.t) {
            return Err(format!("a sample of control group {} goes back in time", sample.group));
        }
        track.samples.push(sample);
        self.samples += 1;
        self.seen += 1;
        Ok(())
    }

    fn check_group(&self, place: u32) -> Result<(), String> {
        match (place as usize) < self.told_groups {
            true => Ok(()),
            false => Err(format!("there is no control group {place}")),
        }
    }

    fn add_event(&mut self, event: Event) -> Result<(), String> {
        let is_kept = self.is_kept(event.process);
        let has_room = is_kept && self.events.len() < MOST_ITEMS;
        let Some(track) = self.track(event.process)? else { return Ok(()) };
        if matches!(event.what, Happening::Exec { .. }) {
            track.end_program(event.t, has_room);
        }
        match &event.what {
            // Of an exec that the next one overtook the name is not known.
            Happening::Exec { name } if name.is_empty() => {}
            Happening::Exec { name } | Happening::Rename { name } => track.process.name.clone_from(name),
            Happening::Exit { .. } | Happening::Left => track.exit = Some((event.t, event.what.clone())),
            Happening::Fork { .. } => {}
        }
        if is_kept {
            keep(&mut self.events, event, &mut self.left_out);
        } else if matches!(event.what, Happening::Exit { .. } | Happening::Left) {
            self.passing.end(event.process);
        }
        Ok(())
    }

    fn is_kept(&self, place: u32) -> bool {
        (place as usize) < self.tracks.len()
    }

    /// The track of a process; a line is left out where that was too many to keep.
    fn track(&mut self, place: u32) -> Result<Option<&mut Track>, String> {
        if place as usize >= self.told_processes {
            return Err(format!("there is no process {place}"));
        }
        if !self.is_kept(place) {
            self.left_out += 1;
            return Ok(self.passing.get_mut(place));
        }
        Ok(self.tracks.get_mut(place as usize))
    }

    /// Leaves about half of what may be kept.
    fn thin(&mut self) {
        let span = |first: Option<f64>, last: Option<f64>| last.unwrap_or(0.0) - first.unwrap_or(0.0);
        let of_tracks: f64 = self
            .tracks
            .iter()
            .map(|track| span(track.samples.first().map(|one| one.t), track.last().map(|one| one.t)))
            .sum();
        let of_groups: f64 = self
            .groups
            .iter()
            .map(|track| span(track.samples.first().map(|one| one.t), track.samples.last().map(|one| one.t)))
            .sum();
        let stretch_s = (of_tracks + of_groups) / (self.most_samples as f64 / 2.0);
        for track in &mut self.tracks {
            thin(&mut track.samples, stretch_s, |sample| (sample.t, sample.rss_bytes));
        }
        for track in &mut self.groups {
            thin(&mut track.samples, stretch_s, |sample| (sample.t, Some(sample.current_bytes)));
        }
        self.samples = self.tracks.iter().map(|track| track.samples.len()).sum::<usize>()
            + self.groups.iter().map(|track| track.samples.len()).sum::<usize>();
        // Many tracks of a few samples cannot be thinned: then there may be more.
        if self.samples * 4 > self.most_samples * 3 {
            self.most_samples *= 2;
        }
    }
}

/// Keeps one more, or counts it among what is left out.
fn keep<T>(kept: &mut Vec<T>, one: T, left_out: &mut usize) {
    if kept.len() < MOST_ITEMS {
        kept.push(one);
    } else {
        *left_out += 1;
    }
}

/// Of every stretch of time the largest one; the first and the last three stay.
fn thin<T: Copy>(samples: &mut Vec<T>, stretch_s: f64, look: impl Fn(&T) -> (f64, Option<u64>)) {
    if samples.len() < 8 || stretch_s <= 0.0 {
        return;
    }
    let end = samples.len() - 3;
    let mut kept: Vec<T> = vec![samples[0]];
    let mut stretch = -1.0;
    for sample in &samples[1..end] {
        let (t, size) = look(sample);
        let own = (t / stretch_s).floor();
        match kept.last_mut() {
            Some(last) if own == stretch => {
                if size >= look(last).1 {
                    *last = *sample;
                }
            }
            _ => {
                stretch = own;
                kept.push(*sample);
            }
        }
    }
    kept.extend_from_slice(&samples[end..]);
    *samples = kept;
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::recording::{GroupLeft, Source};

    fn begun() -> History {
        let mut history = History::new();
        history.add(Line::Begin(Begin { format: FORMAT.into(), ..Begin::default() })).unwrap();
        history
    }

    fn sample(process: u32, t: f64, rss: u64) -> Line {
        let minor_faults = (t * 10.0) as u64;
        Line::Sample(Sample { process, t, rss_bytes: Some(rss), minor_faults, ..Sample::default() })
    }

    #[test]
    fn lines_that_cannot_follow_are_refused_with_the_reason() {
        let mut history = History::new();
        assert!(history.add(sample(0, 0.0, 1)).unwrap_err().contains("begin"));
        let other = Begin { format: "faultless-watch/9".into(), ..Begin::default() };
        assert!(history.add(Line::Begin(other)).unwrap_err().contains("newer version"));
        let mut history = begun();
        assert!(history.add(sample(0, 0.0, 1)).unwrap_err().contains("no process 0"));
        assert!(history.add(Line::Process(Process { process: 7, ..Process::default() })).is_err());
        history.add(Line::Process(Process::default())).unwrap();
        history.add(sample(0, 2.0, 1)).unwrap();
        assert!(history.add(sample(0, 1.0, 1)).unwrap_err().contains("back in time"));
        for t in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert!(history.add(sample(0, t, 1)).is_err(), "{t}");
        }
        assert!(history.add(Line::Begin(Begin::default())).unwrap_err().contains("another recording begins"));
    }

    #[test]
    fn what_is_too_much_to_keep_is_counted_and_no_damage() {
        let mut history = begun();
        let most = u32::try_from(MOST_ITEMS).unwrap();
        for process in 0..=most {
            history.add(Line::Process(Process { process, ..Process::default() })).unwrap();
        }
        history.add(sample(most, 1.0, 1)).unwrap();
        history.add(sample(most - 1, 1.0, 1)).unwrap();
        let what = Happening::Exec { name: "sleep".into() };
        history.add(Line::Event(Event { t: 2.0, process: most, source: Source::Kernel, what })).unwrap();
        assert_eq!((history.tracks.len(), history.left_out, history.seen), (MOST_ITEMS, 3, 1));
        assert!(history.add(sample(most + 1, 3.0, 1)).unwrap_err().contains("no process"));
    }

    #[test]
    fn an_exec_gives_the_process_its_new_name() {
        let mut history = begun();
        history.add(Line::Process(Process { name: "sh".into(), pid: 5, ..Process::default() })).unwrap();
        let what = Happening::Exec { name: "sleep".into() };
        history.add(Line::Event(Event { t: 1.0, process: 0, source: Source::Kernel, what })).unwrap();
        assert_eq!(history.tracks[0].label(), "sleep 5");
        let what = Happening::Exec { name: String::new() };
        history.add(Line::Event(Event { t: 2.0, process: 0, source: Source::Kernel, what })).unwrap();
        assert_eq!(history.tracks[0].label(), "sleep 5", "a name that is not known takes no other's place");
    }

    #[test]
    fn an_exec_ends_a_program_but_not_the_copy_that_a_fork_made() {
        let mut history = begun();
        let exec = |process, t| {
            let what = Happening::Exec { name: "true".into() };
            Line::Event(Event { t, process, source: Source::Kernel, what })
        };
        let python = |process, pid| {
            Line::Process(Process { process, pid, name: "python".into(), ..Process::default() })
        };
        history.add(python(0, 5)).unwrap();
        history.add(sample(0, 1.0, 200)).unwrap();
        let what = Happening::Fork { child: 6 };
        history.add(Line::Event(Event { t: 1.5, process: 0, source: Source::Kernel, what })).unwrap();
        history.add(python(1, 6)).unwrap();
        history.add(sample(1, 1.5, 200)).unwrap();
        for process in 0..2 {
            history.add(exec(process, 2.0)).unwrap();
            history.add(sample(process, 3.0, 2)).unwrap();
        }
        let [parent, child] = &history.tracks[..] else { panic!("{:?}", history.tracks) };
        assert_eq!(
            (parent.earlier[0].name.as_str(), parent.earlier[0].program.peak_rss_bytes),
            ("python", 200)
        );
        assert_eq!((parent.program.peak_rss_bytes, parent.peak_rss_bytes), (2, 200));
        assert_eq!((child.earlier.len(), child.program.peak_rss_bytes), (0, 2));
    }

    #[test]
    fn who_left_and_what_group_is_gone_is_known() {
        let mut history = begun();
        history.add(Line::Process(Process::default())).unwrap();
        let what = Happening::Left;
        history.add(Line::Event(Event { t: 3.0, process: 0, source: Source::Sampling, what })).unwrap();
        assert_eq!(history.tracks[0].exit, Some((3.0, Happening::Left)));
        assert!(history.add(Line::GroupLeft(GroupLeft::default())).unwrap_err().contains("no control group"));
        history.add(Line::Group(Group::default())).unwrap();
        history.add(Line::GroupLeft(GroupLeft::default())).unwrap();
    }

    #[test]
    fn too_many_samples_are_thinned_and_keep_their_ends_and_peaks() {
        let mut history = begun();
        history.most_samples = 1000;
        history.add(Line::Process(Process::default())).unwrap();
        for number in 0..100_000_u32 {
            let rss = if number == 77_777 { 1 << 40 } else { 1 << 20 };
            history.add(sample(0, f64::from(number), rss)).unwrap();
        }
        let track = &history.tracks[0];
        assert!(track.samples.len() <= 1000 && track.samples.len() > 400, "{}", track.samples.len());
        assert_eq!((track.samples[0].t, track.last().unwrap().t), (0.0, 99_999.0));
        assert_eq!(track.peak_rss_bytes, 1 << 40);
        assert!(track.samples.iter().any(|sample| sample.rss_bytes == Some(1 << 40)));
        assert!(track.samples.windows(2).all(|pair| pair[0].t < pair[1].t));
        assert_eq!(history.seen, 100_000);
        // All of the time keeps its share of the samples.
        let early = track.samples.iter().filter(|sample| sample.t < 50_000.0).count();
        assert!((150..=500).contains(&early), "{early}");
    }

    #[test]
    fn the_peak_is_what_the_kernel_saw_or_a_sample() {
        let mut history = begun();
        history.add(Line::Process(Process::default())).unwrap();
        for (rss, peak, largest) in [(5, Some(3), 5), (4, Some(7), 7), (9, None, 9)] {
            let seen = Sample { rss_bytes: Some(rss), peak_rss_bytes: peak, ..Sample::default() };
            history.add(Line::Sample(seen)).unwrap();
            assert_eq!(history.tracks[0].peak_rss_bytes, largest);
        }
    }

    #[test]
    fn many_processes_of_one_sample_stay() {
        let mut history = begun();
        history.most_samples = 10;
        for process in 0..200 {
            history.add(Line::Process(Process { process, ..Process::default() })).unwrap();
            history.add(sample(process, 0.0, 1)).unwrap();
        }
        assert_eq!(history.samples(), 200);
    }
}
