//! What the processes of one name use together, as a monitoring system wants it: sizes of those that live, and counts that
//! never fall, whoever ends.
//!
//! A process counts from where it was first seen: what it did before somebody looked is nobody's increase. One that began under our
//! eyes counts from its beginning.

pub mod heap;
mod left;

use std::collections::{BTreeMap, HashMap};

use faultless_records::recording::{GroupSample, Happening, Line, Process, Sample};

use heap::{GLIBC, Heap, UNKNOWN};
use left::Left;

/// Series with names of their own; what has other names after that is added up under [`OTHERS`].
const MOST_LABELS: usize = 10_000;

/// The name of all names that are too many.
const OTHERS: &str = "[others]";

/// Looks in turn at a heap whose figures do not agree, for which the last exact ones are shown.
const MOST_INEXACT_LOOKS: u32 = 10;

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
    /// What they used themselves.
    pub own: Use,
    /// What children used that ended and were waited for, whether these were seen or not.
    pub children: Use,
    /// Bytes that Faultless gave back to the kernel, where it publishes that.
    pub purged_bytes: Option<u64>,
}

/// What processes used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Use {
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Processor time in programs, in us.
    pub user_us: u64,
    /// Processor time in the kernel, in us.
    pub system_us: u64,
}

impl Use {
    /// Of a process, since it began.
    fn own(sample: &Sample) -> Self {
        Self {
            minor_faults: sample.minor_faults,
            major_faults: sample.major_faults,
            user_us: in_us(sample.user_s),
            system_us: in_us(sample.system_s),
        }
    }

    /// Of its children, since it began.
    fn of_children(sample: &Sample) -> Self {
        Self {
            minor_faults: sample.children_minor_faults,
            major_faults: sample.children_major_faults,
            user_us: in_us(sample.children_user_s),
            system_us: in_us(sample.children_system_s),
        }
    }

    fn add_increase(&mut self, now: Self, before: Self) {
        self.minor_faults += now.minor_faults.saturating_sub(before.minor_faults);
        self.major_faults += now.major_faults.saturating_sub(before.major_faults);
        self.user_us += now.user_us.saturating_sub(before.user_us);
        self.system_us += now.system_us.saturating_sub(before.system_us);
    }
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
    /// How often it has become another program.
    pub program: u32,
    /// What malloc holds of it, where somebody looked.
    pub heap: Option<Heap>,
    /// Resident bytes of its mappings by kind, where somebody looked.
    pub kinds: Vec<(&'static str, u64)>,
    /// The last look at it.
    latest: Option<Sample>,
    pss_bytes: Option<u64>,
    swap_bytes: Option<u64>,
    /// What Faultless gave back of it, as it was counted last.
    purged_bytes: Option<u64>,
    /// Looks in turn at its heap that were not exact.
    inexact_looks: u32,
    is_new: bool,
}

impl Member {
    /// What was seen of the memory of the program before is no more, and what this one gives back counts from its beginning.
    fn begin_program(&mut self) {
        self.program += 1;
        self.heap = None;
        self.kinds.clear();
        (self.pss_bytes, self.swap_bytes) = (None, None);
        (self.purged_bytes, self.inexact_looks) = (Some(0), 0);
    }
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
    left: Left,
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
            left: Left::default(),
        }
    }

    /// Takes in the next line of a watch.
    pub fn add(&mut self, line: Line) {
        match line {
            Line::Process(process) => match self.members.contains_key(&process.process) {
                true => self.rename(process.process, &process.name),
                false => self.meet(&process),
            },
            Line::Sample(sample) => self.add_sample(sample),
            Line::Event(event) => match event.what {
                Happening::Exit { .. } => self.remove(event.process, true),
                Happening::Left => self.remove(event.process, false),
                Happening::Exec { name } => {
                    if let Some(member) = self.members.get_mut(&event.process) {
                        member.begin_program();
                    }
                    // Of an exec that the next one overtook the name is not known.
                    if !name.is_empty() {
                        self.rename(event.process, &name);
                    }
                }
                Happening::Rename { name } => self.rename(event.process, &name),
                Happening::Fork { .. } => {}
            },
            Line::Group(group) => {
                self.groups.insert(group.group, ControlGroup { path: group.path, sample: None });
            }
            Line::GroupSample(sample) => {
                if let Some(group) = self.groups.get_mut(&sample.group) {
                    group.sample = Some(sample);
                }
            }
            Line::GroupLeft(left) => {
                self.groups.remove(&left.group);
            }
            Line::Begin(_) | Line::Note(_) | Line::End(_) => {}
        }
    }

    /// Who lives, by place in the watch.
    pub fn members(&self) -> impl Iterator<Item = (u32, &Member)> {
        self.members.iter().map(|(place, member)| (*place, member))
    }

    /// Whether this program still runs in one of them: what was seen of the one before is not its own.
    #[must_use]
    pub fn runs(&self, place: u32, program: u32) -> bool {
        self.members.get(&place).is_some_and(|member| member.program == program)
    }

    /// Puts down what malloc holds of one of them; false, and what was known stays, where a heap seems to have gone, which none does.
    pub fn set_heap(&mut self, place: u32, heap: Heap) -> bool {
        let Some(member) = self.members.get_mut(&place) else { return true };
        let is_lost = member.heap.as_ref().is_some_and(|known| match heap.allocator.as_str() {
            UNKNOWN => known.allocator == GLIBC,
            GLIBC => known.arenas.is_some() && heap.arenas.is_none(),
            _ => false,
        });
        if is_lost {
            self.keep_heap(place);
            return false;
        }
        member.inexact_looks = 0;
        if let Some(purged) = heap.purged_bytes {
            // Of a process that ran before us, the first figure is where its counting begins.
            let former = member.purged_bytes.unwrap_or(if member.is_new { 0 } else { purged });
            member.purged_bytes = Some(purged);
            let counts = self.counts.entry(member.label.clone()).or_default();
            *counts.purged_bytes.get_or_insert(0) += purged.saturating_sub(former);
        }
        member.heap = Some(heap);
        true
    }

    /// A look at glibc's heap of one of them showed figures that do not agree: the last exact ones stay for some looks.
    pub fn keep_heap(&mut self, place: u32) {
        if let Some(member) = self.members.get_mut(&place) {
            member.inexact_looks += 1;
            let has_figures = member.heap.as_ref().is_some_and(|heap| heap.arenas.is_some());
            if !has_figures || member.inexact_looks > MOST_INEXACT_LOOKS {
                member.heap = Some(Heap::of_another(GLIBC));
            }
        }
    }

    /// Nothing is known any more of what malloc holds of one of them.
    pub fn clear_heap(&mut self, place: u32) {
        if let Some(member) = self.members.get_mut(&place) {
            member.heap = None;
        }
    }

    /// Puts down what the mappings of one of them are, in resident bytes; nothing where that is not known.
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

    fn meet(&mut self, process: &Process) {
        let label = self.label(&process.name, process.pid);
        self.counts_of(&label).met += 1;
        // Who is back was counted before, unless its counts went with it.
        let is_back = label.pid.is_none() && self.left.take((process.pid, process.start_ticks));
        let member = Member {
            label,
            pid: process.pid,
            start_ticks: process.start_ticks,
            program: 0,
            heap: None,
            kinds: Vec::new(),
            latest: None,
            pss_bytes: None,
            swap_bytes: None,
            purged_bytes: None,
            inexact_looks: 0,
            is_new: process.start_ticks >= self.began_ticks && !is_back,
        };
        self.members.insert(process.process, member);
    }

    /// One of them ended, or goes on and is followed no longer.
    fn remove(&mut self, place: u32, has_ended: bool) {
        let Some(member) = self.members.remove(&place) else { return };
        self.counts_of(&member.label).ended += u64::from(has_ended);
        // The series of a process ends with it.
        if member.label.pid.is_some() {
            self.counts.remove(&member.label);
        } else if !has_ended {
            self.left.add((member.pid, member.start_ticks));
        }
    }

    /// One of them has this name now. The counts of a process go with it; those of a name stay.
    fn rename(&mut self, place: u32, name: &str) {
        let Some(member) = self.members.get(&place) else { return };
        let former = member.label.clone();
        let label = match (self.grouping, former.pid) {
            (Grouping::Process, None) => return,
            (Grouping::Process, pid) => Label { name: name.to_owned(), pid },
            (Grouping::Name, _) => self.label(name, member.pid),
        };
        if label == former {
            return;
        }
        if self.grouping == Grouping::Process {
            let counts = self.counts.remove(&former).unwrap_or_default();
            self.counts.insert(label.clone(), counts);
        } else {
            self.counts_of(&label).met += 1;
        }
        if let Some(member) = self.members.get_mut(&place) {
            member.label = label;
        }
    }

    fn add_sample(&mut self, sample: Sample) {
        let Some(member) = self.members.get_mut(&sample.process) else { return };
        let former = member.latest.unwrap_or(if member.is_new { Sample::default() } else { sample });
        member.pss_bytes = sample.pss_bytes.or(member.pss_bytes.filter(|_| !sample.lost_pss));
        member.swap_bytes = sample.swap_bytes.or(member.swap_bytes);
        member.latest = Some(sample);
        let counts = self.counts.entry(member.label.clone()).or_default();
        counts.own.add_increase(Use::own(&sample), Use::own(&former));
        counts.children.add_increase(Use::of_children(&sample), Use::of_children(&former));
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
}

/// Sums of whole microseconds have no digits that nobody measured.
fn in_us(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e6).round() as u64
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

#[cfg(test)]
mod tests;
