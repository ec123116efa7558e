//! What the processes of one name use together, as a monitoring system wants it: sizes of those that live, and counts that
//! never fall, whoever ends.
//!
//! A process counts from where it was first seen: what it did before somebody looked is nobody's increase. One that began under our
//! eyes counts from its beginning.

pub mod heap;

use std::collections::{BTreeMap, HashMap};

use faultless_records::recording::{GroupSample, Happening, Line, Sample};

use heap::Heap;

/// Series with names of their own; what has other names after that is added up under [`OTHERS`].
const MOST_LABELS: usize = 10_000;

/// The name of all names that are too many.
const OTHERS: &str = "[others]";

/// What makes two processes one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Their name: series outlive processes.
    Name,
    /// Nothing: each is a series of its own as long as it lives.
    Process,
}

/// Whose figures they are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    /// Name of the processes, at most 15 bytes.
    pub name: String,
    /// The number of the only one, with [`Grouping::Process`].
    pub pid: Option<i32>,
}

/// Counts of a label, of all its processes that were seen; they only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Processes that were met, or became one of this label.
    pub met: u64,
    /// Processes that ended.
    pub ended: u64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Processor time in programs, in us.
    pub user_us: u64,
    /// Processor time in the kernel, in us.
    pub system_us: u64,
    /// Bytes that Faultless gave back to the kernel, where it publishes that.
    pub purged_bytes: u64,
}

/// Sizes of the living processes of a label, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Processes.
    pub processes: u64,
    /// Threads.
    pub threads: u64,
    /// Address space.
    pub vsize_bytes: u64,
    /// Resident sets; pages of several processes count several times.
    pub rss_bytes: u64,
    /// Shares of the resident sets, of the processes where they are known.
    pub pss_bytes: Option<u64>,
    /// Memory in swap, where it is known.
    pub swap_bytes: Option<u64>,
}

/// A control group.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlGroup {
    /// Its directory.
    pub path: String,
    /// What it said last.
    pub sample: Option<GroupSample>,
}

/// A process that lives.
#[derive(Debug, Clone)]
pub struct Member {
    /// Whose series it belongs to.
    pub label: Label,
    /// Its number.
    pub pid: i32,
    /// When it began, in clock ticks after boot: another one of its number has another.
    pub start_ticks: u64,
    /// What malloc holds of it, where somebody looked.
    pub heap: Option<Heap>,
    /// Resident bytes of its mappings by kind, where somebody looked.
    pub kinds: Vec<(&'static str, u64)>,
    /// The last look at it.
    latest: Option<Sample>,
    pss_bytes: Option<u64>,
    swap_bytes: Option<u64>,
    is_new: bool,
}

/// All that is followed.
#[derive(Debug)]
pub struct Fleet {
    grouping: Grouping,
    /// Who began at this time or later began under our eyes.
    began_ticks: u64,
    members: HashMap<u32, Member>,
    counts: BTreeMap<Label, Counts>,
    groups: BTreeMap<u32, ControlGroup>,
    latest_s: f64,
}

impl Fleet {
    /// Nobody yet; `began_ticks` is the time after boot at which the looking began, in clock ticks.
    #[must_use]
    pub fn new(grouping: Grouping, began_ticks: u64) -> Self {
        Self {
            grouping,
            began_ticks,
            members: HashMap::new(),
            counts: BTreeMap::new(),
            groups: BTreeMap::new(),
            latest_s: 0.0,
        }
    }

    /// Takes in the next line of a watch.
    pub fn add(&mut self, line: Line) {
        self.latest_s = self.latest_s.max(line.t());
        match line {
            Line::Process(process) => {
                let label = self.label(&process.name, process.pid);
                match self.members.get_mut(&process.process) {
                    Some(member) if member.label == label => {}
                    Some(member) => {
                        let former = std::mem::replace(&mut member.label, label.clone());
                        self.counts_of(&label).met += 1;
                        self.forget_unless_lasting(&former);
                    }
                    None => {
                        self.counts_of(&label).met += 1;
                        let member = Member {
                            label,
                            pid: process.pid,
                            start_ticks: process.start_ticks,
                            heap: None,
                            kinds: Vec::new(),
                            latest: None,
                            pss_bytes: None,
                            swap_bytes: None,
                            is_new: process.start_ticks >= self.began_ticks,
                        };
                        self.members.insert(process.process, member);
                    }
                }
            }
            Line::Sample(sample) => self.add_sample(sample),
            Line::Event(event) if matches!(event.what, Happening::Exit { .. }) => {
                if let Some(member) = self.members.remove(&event.process) {
                    self.counts_of(&member.label).ended += 1;
                    self.forget_unless_lasting(&member.label);
                }
            }
            Line::Group(group) => {
                self.groups.insert(group.group, ControlGroup { path: group.path, sample: None });
            }
            Line::GroupSample(sample) => {
                if let Some(group) = self.groups.get_mut(&sample.group) {
                    group.sample = Some(sample);
                }
            }
            Line::Begin(_) | Line::Event(_) | Line::Note(_) | Line::End(_) => {}
        }
    }

    /// Leaves out who was not looked at for so long, in s: it has left what is followed, and nobody tells when it ends.
    pub fn leave_out_unseen(&mut self, for_s: f64) {
        let since_s = self.latest_s - for_s;
        let is_unseen = |member: &Member| member.latest.is_none_or(|sample| sample.t < since_s);
        let unseen: Vec<u32> =
            self.members.iter().filter(|(_, member)| is_unseen(member)).map(|(place, _)| *place).collect();
        for place in unseen {
            if let Some(member) = self.members.remove(&place) {
                self.forget_unless_lasting(&member.label);
            }
        }
        self.groups.retain(|_, group| group.sample.is_none_or(|sample| sample.t >= since_s));
    }

    /// Who lives, by place in the watch.
    pub fn members(&self) -> impl Iterator<Item = (u32, &Member)> {
        self.members.iter().map(|(place, member)| (*place, member))
    }

    /// Puts down what malloc holds of one of them.
    pub fn set_heap(&mut self, place: u32, heap: Heap) {
        let Some(member) = self.members.get_mut(&place) else { return };
        let purged = |heap: &Heap| heap.purged_bytes.unwrap_or(0);
        // Of a process that ran before us, the first figure is where its counting begins.
        let former = member.heap.as_ref().map_or(if member.is_new { 0 } else { purged(&heap) }, purged);
        let more = purged(&heap).saturating_sub(former);
        member.heap = Some(heap);
        self.counts.entry(member.label.clone()).or_default().purged_bytes += more;
    }

    /// Puts down what the mappings of one of them are, in resident bytes.
    pub fn set_kinds(&mut self, place: u32, kinds: Vec<(&'static str, u64)>) {
        if let Some(member) = self.members.get_mut(&place) {
            member.kinds = kinds;
        }
    }

    /// Counts of each label.
    #[must_use]
    pub fn counts(&self) -> &BTreeMap<Label, Counts> {
        &self.counts
    }

    /// Sizes of each label, zero where nobody lives.
    #[must_use]
    pub fn sizes(&self) -> BTreeMap<&Label, Sizes> {
        let mut all: BTreeMap<&Label, Sizes> =
            self.counts.keys().map(|label| (label, Sizes::default())).collect();
        for member in self.members.values() {
            let sizes = all.entry(&member.label).or_default();
            let sample = member.latest.unwrap_or_default();
            sizes.processes += 1;
            sizes.threads += u64::from(sample.threads);
            sizes.vsize_bytes += sample.vsize_bytes.unwrap_or(0);
            sizes.rss_bytes += sample.rss_bytes.unwrap_or(0);
            add(&mut sizes.pss_bytes, member.pss_bytes);
            add(&mut sizes.swap_bytes, member.swap_bytes);
        }
        all
    }

    /// What malloc holds, by label and allocator.
    #[must_use]
    pub fn heaps(&self) -> BTreeMap<(&Label, &str), Heap> {
        let mut all: BTreeMap<(&Label, &str), Heap> = BTreeMap::new();
        for member in self.members.values() {
            if let Some(heap) = &member.heap {
                all.entry((&member.label, &heap.allocator))
                    .and_modify(|sum| sum.merge(heap))
                    .or_insert_with(|| heap.clone());
            }
        }
        all
    }

    /// Resident bytes of mappings, by label and kind.
    #[must_use]
    pub fn kinds(&self) -> BTreeMap<(&Label, &'static str), u64> {
        let mut all = BTreeMap::new();
        for member in self.members.values() {
            for (kind, bytes) in &member.kinds {
                *all.entry((&member.label, *kind)).or_default() += bytes;
            }
        }
        all
    }

    /// The control groups.
    pub fn control_groups(&self) -> impl Iterator<Item = &ControlGroup> {
        self.groups.values()
    }

    fn add_sample(&mut self, sample: Sample) {
        let Some(member) = self.members.get_mut(&sample.process) else { return };
        let former = member.latest.unwrap_or(if member.is_new { Sample::default() } else { sample });
        member.pss_bytes = sample.pss_bytes.or(member.pss_bytes);
        member.swap_bytes = sample.swap_bytes.or(member.swap_bytes);
        member.latest = Some(sample);
        let counts = self.counts.entry(member.label.clone()).or_default();
        counts.minor_faults += sample.minor_faults.saturating_sub(former.minor_faults);
        counts.major_faults += sample.major_faults.saturating_sub(former.major_faults);
        counts.user_us += in_us(sample.user_s - former.user_s);
        counts.system_us += in_us(sample.system_s - former.system_s);
    }

    fn label(&self, name: &str, pid: i32) -> Label {
        let pid = (self.grouping == Grouping::Process).then_some(pid);
        let label = Label { name: name.to_owned(), pid };
        if self.counts.len() < MOST_LABELS || self.counts.contains_key(&label) {
            return label;
        }
        Label { name: OTHERS.to_owned(), pid: None }
    }

    fn counts_of(&mut self, label: &Label) -> &mut Counts {
        self.counts.entry(label.clone()).or_default()
    }

    /// The series of a process ends with it.
    fn forget_unless_lasting(&mut self, label: &Label) {
        if label.pid.is_some() {
            self.counts.remove(label);
        }
    }
}

/// Sums of whole microseconds have no digits that nobody measured.
fn in_us(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e6).round() as u64
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0) + more);
    }
}

#[cfg(test)]
mod tests {
    use faultless_records::recording::{Event, Process, Source};

    use super::*;

    fn fleet(grouping: Grouping) -> Fleet {
        Fleet::new(grouping, 1_000)
    }

    fn process(place: u32, name: &str, start_ticks: u64) -> Line {
        let (t, pid) = (0.0, place as i32 + 100);
        Line::Process(Process {
            t,
            process: place,
            pid,
            name: name.into(),
            start_ticks,
            ..Process::default()
        })
    }

    fn sample(place: u32, t: f64, minor_faults: u64) -> Line {
        let (rss_bytes, user_s) = (Some(4096 * minor_faults), minor_faults as f64 / 100.0);
        Line::Sample(Sample {
            t,
            process: place,
            rss_bytes,
            minor_faults,
            user_s,
            threads: 1,
            ..Sample::default()
        })
    }

    fn exit(place: u32) -> Line {
        let what = Happening::Exit { status: Some(0), signal: None };
        Line::Event(Event { t: 9.0, process: place, source: Source::Kernel, what })
    }

    fn faults(fleet: &Fleet, name: &str) -> u64 {
        fleet.counts()[&Label { name: name.into(), pid: None }].minor_faults
    }

    #[test]
    fn who_ran_before_counts_from_the_first_look_and_who_is_new_from_its_beginning() {
        let mut fleet = fleet(Grouping::Name);
        for line in
            [process(0, "old", 999), sample(0, 1.0, 5_000), process(1, "new", 1_000), sample(1, 1.0, 70)]
        {
            fleet.add(line);
        }
        assert_eq!((faults(&fleet, "old"), faults(&fleet, "new")), (0, 70));
        fleet.add(sample(0, 2.0, 5_003));
        fleet.add(sample(1, 2.0, 71));
        assert_eq!((faults(&fleet, "old"), faults(&fleet, "new")), (3, 71));
    }

    #[test]
    fn counts_outlive_processes_and_sizes_do_not() {
        let mut fleet = fleet(Grouping::Name);
        for place in 0..2 {
            fleet.add(process(place, "worker", 2_000));
            fleet.add(sample(place, 1.0, 10));
        }
        fleet.add(exit(0));
        let label = Label { name: "worker".into(), pid: None };
        let counts = fleet.counts()[&label];
        assert_eq!((counts.met, counts.ended, counts.minor_faults), (2, 1, 20));
        let sizes = fleet.sizes()[&label];
        assert_eq!((sizes.processes, sizes.threads, sizes.rss_bytes), (1, 1, 40_960));
        assert_eq!((sizes.pss_bytes, sizes.swap_bytes), (None, None));
        fleet.add(exit(1));
        assert_eq!(fleet.sizes()[&label].processes, 0);
        assert_eq!(faults(&fleet, "worker"), 20);
    }

    #[test]
    fn another_program_in_the_same_process_counts_for_its_own_name() {
        let mut fleet = fleet(Grouping::Name);
        for line in [process(0, "sh", 2_000), sample(0, 1.0, 10), process(0, "cc", 2_000), sample(0, 2.0, 15)]
        {
            fleet.add(line);
        }
        assert_eq!((faults(&fleet, "sh"), faults(&fleet, "cc")), (10, 5));
        assert_eq!(fleet.sizes().values().map(|sizes| sizes.processes).sum::<u64>(), 1);
    }

    #[test]
    fn a_series_of_one_process_ends_with_it() {
        let mut fleet = fleet(Grouping::Process);
        fleet.add(process(0, "worker", 2_000));
        assert_eq!(fleet.counts().keys().next().unwrap().pid, Some(100));
        fleet.add(exit(0));
        assert!(fleet.counts().is_empty());
    }

    #[test]
    fn who_is_looked_at_no_more_has_left() {
        let mut fleet = fleet(Grouping::Name);
        for line in [process(0, "gone", 0), process(1, "here", 0), sample(0, 1.0, 1), sample(1, 1.0, 1)] {
            fleet.add(line);
        }
        fleet.add(sample(1, 8.0, 1));
        fleet.leave_out_unseen(5.0);
        assert_eq!(fleet.members().map(|(place, _)| place).collect::<Vec<_>>(), [1]);
        assert_eq!(fleet.sizes().len(), 2, "its counts stay");
    }

    #[test]
    fn kinds_of_memory_are_added_up_over_processes() {
        let mut fleet = fleet(Grouping::Name);
        for place in 0..2 {
            fleet.add(process(place, "java", 2_000));
            fleet.set_kinds(place, vec![("java_heap", 70), ("unknown", u64::from(place))]);
        }
        assert_eq!(fleet.kinds().into_values().collect::<Vec<_>>(), [140, 1]);
    }

    #[test]
    fn names_have_a_limit() {
        let mut fleet = fleet(Grouping::Name);
        for place in 0..MOST_LABELS as u32 + 5 {
            fleet.add(process(place, &format!("n{place}"), 2_000));
        }
        assert_eq!(fleet.counts().len(), MOST_LABELS + 1);
        assert_eq!(fleet.counts()[&Label { name: OTHERS.into(), pid: None }].met, 5);
    }

    #[test]
    fn what_faultless_gave_back_only_grows() {
        let mut fleet = fleet(Grouping::Name);
        let heap = |purged_bytes| Heap { purged_bytes: Some(purged_bytes), ..Heap::of_another("faultless") };
        fleet.add(process(0, "old", 10));
        for purged_bytes in [500, 600] {
            fleet.set_heap(0, heap(purged_bytes));
        }
        fleet.add(process(1, "old", 2_000));
        fleet.set_heap(1, heap(7));
        fleet.add(exit(0));
        assert_eq!(fleet.counts().values().next().unwrap().purged_bytes, 107);
        assert_eq!(fleet.heaps().len(), 1);
    }
}
