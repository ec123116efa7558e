//! What is worth a word of a running process.

use faultless_diagnosis::churn::runtimes::RUNTIMES;
use faultless_diagnosis::churn::thrash;
use faultless_diagnosis::classification::kind::Kind;
use faultless_diagnosis::faults::weight::counted;
use faultless_diagnosis::glibc_heap::trap::is_in_use;
use faultless_diagnosis::glibc_heap::walk::HeapWalk;
use faultless_records::allocator::Allocator;
use faultless_records::churn_recording::Pattern;
use faultless_records::fault_recording::FaultRecording;
use faultless_records::mappings::Usage;
use faultless_records::quantity::{percent, seconds_of, several, size, whole};

use super::{Cause, ProcessConsultation, calls, copies, fault_time, memory_limit, settings};
use crate::faults::answer;
use crate::heap::remedy::{SHARED, remedy};
use crate::heap::{FaultlessHeap, HeapView};
use crate::map::foot;

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// Its control group has little left.
    MemoryLimit,
    /// It has nearly as many mappings as it may.
    MappingLimit,
    /// A part of it is in swap.
    Swap,
    /// Memory that is free inside malloc and stays resident.
    Trapped,
    /// Nearly all of malloc's memory is in use.
    InUse,
    /// Another allocator than glibc's serves it.
    Served,
    /// Most of its memory is not malloc's.
    Elsewhere,
    /// What is resident, or costs memory, for another reason.
    Residence,
    /// Its environment steers malloc, or means to.
    Settings,
    /// Memory that is given back only to be taken again.
    Thrash,
    /// Page faults at a rate that costs time.
    Faults,
    /// Threads that wait for each other in malloc.
    Locks,
    /// Processor time that malloc's calls take.
    Time,
    /// It grows.
    Growth,
}

impl Concern {
    /// Word for JSON.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::MemoryLimit => "memory_limit",
            Self::MappingLimit => "mapping_limit",
            Self::Swap => "swap",
            Self::Trapped => "trapped",
            Self::InUse => "in_use",
            Self::Served => "served",
            Self::Elsewhere => "elsewhere",
            Self::Residence => "residence",
            Self::Settings => "settings",
            Self::Thrash => "thrash",
            Self::Faults => "faults",
            Self::Locks => "locks",
            Self::Time => "time",
            Self::Growth => "growth",
        }
    }

    /// Commands that mostly tell more of it; the process's number stands for PID.
    fn instruments(self) -> &'static [&'static str] {
        match self {
            Self::MemoryLimit | Self::Swap | Self::Elsewhere | Self::Residence => &[MAP],
            Self::Trapped | Self::Served => &["faultless heap --pid PID"],
            Self::InUse | Self::Time => &[CHURN_MALLOC],
            Self::MappingLimit => &[MAP, CHURN],
            Self::Thrash => &[CHURN],
            Self::Faults => &[FAULTS],
            Self::Growth => &[WATCH, CHURN_MALLOC, CHURN],
            Self::Settings | Self::Locks => &[],
        }
    }
}

const MAP: &str = "faultless map --pid PID";
pub(super) const WATCH: &str = "faultless watch --pid PID --for 10m";
pub(super) const FAULTS: &str = "faultless faults --pid PID --for 10s --html flame.html";
const CHURN: &str = "faultless churn --pid PID --for 10s";
const CHURN_MALLOC: &str = "faultless churn --malloc --pid PID --for 10s";

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What it is about.
    pub concern: Concern,
    /// What was seen.
    pub sentence: String,
    /// What helps, where something does.
    pub advice: Option<String>,
    /// What the allocator wastes by it, in a few words; none where it does not.
    pub waste: Option<String>,
    /// Commands that tell more of it; the process's number stands for PID.
    pub instruments: &'static [&'static str],
}

impl Finding {
    pub(super) fn new(concern: Concern, sentence: String) -> Self {
        Self { concern, sentence, advice: None, waste: None, instruments: concern.instruments() }
    }

    /// By these, and no others.
    pub(super) fn told_by(self, instruments: &'static [&'static str]) -> Self {
        Self { instruments, ..self }
    }

    pub(super) fn advised(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

/// From so many bytes on trapped memory is worth a word, where it is a tenth of what is resident, too.
const LEAST_TRAPPED_BYTES: u64 = 4 << 20;
/// In a smaller process it does not matter whose the memory is.
const LEAST_RSS_BYTES: u64 = 16 << 20;
pub(super) const NOTABLE_PART: u64 = 10;
/// From this part of what is resident on what nothing is known of decides whose most of it is.
const MUCH_UNKNOWN: f64 = 0.5;
/// From so many a second on they are a quarter of a percent of a processor's time at least.
const LEAST_FAULTS_PER_SECOND: f64 = 10_000.0;
/// From so many on for each second of its own processor time they are half a percent of that at least, and up to 4 %,
const LEAST_FAULTS_PER_PROCESSOR_S: f64 = 20_000.0;
/// but of fewer a second than this no processor notices anything: a fifth of a percent at most.
const LEAST_OWN_FAULTS_PER_SECOND: f64 = 1000.0;

/// All that was found.
pub fn of(seen: &ProcessConsultation) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(memory_limit::of(seen));
    let near_limit = foot::near_most_mappings(&seen.map);
    findings.extend(near_limit.lines().map(|line| Finding::new(Concern::MappingLimit, line.to_owned())));
    findings.extend(swap(seen));
    let of_heap = heap(seen);
    // Where malloc has little, what of it is in use explains nothing.
    findings.extend(elsewhere(seen).or_else(|| unknown(seen)));
    findings.extend(of_heap);
    findings.extend(settings::of(seen));
    findings.extend(served(seen));
    findings.extend(beside(seen));
    if seen.map.is_measured() {
        let lines = foot::what_else_is_resident(&seen.map);
        findings.extend(lines.lines().map(|line| Finding::new(Concern::Residence, line.to_owned())));
    }
    let thrash: Vec<_> = seen.churn.iter().flat_map(thrash::findings).collect();
    let has_thrash = !thrash.is_empty();
    findings.extend(thrash.into_iter().map(|found| of_thrash(found, seen)));
    findings.extend(page_faults(seen, has_thrash));
    findings.extend(calls::of(seen));
    findings.extend(growth(seen));
    findings.extend(copies::of(&seen.activity));
    findings
}

fn swap(seen: &ProcessConsultation) -> Option<Finding> {
    let sum = seen.map.sum();
    let is_notable = sum.swap_bytes > 0 && sum.swap_bytes >= (sum.rss_bytes + sum.swap_bytes) / NOTABLE_PART;
    is_notable.then(|| {
        Finding::new(
            Concern::Swap,
            format!("{} of it is in swap: each page comes back by a major fault", size(sum.swap_bytes)),
        )
    })
}

fn elsewhere(seen: &ProcessConsultation) -> Option<Finding> {
    // It comes and goes between one look and the other.
    let by_walk = seen.heap.as_ref().and_then(HeapView::resident_bytes).unwrap_or(0);
    let (all, mallocs) = (seen.map.sum().rss_bytes, seen.malloc_bytes().max(by_walk));
    // What nothing is known of may be malloc's.
    let is_known = part_in_doubt(seen) < MUCH_UNKNOWN && !is_allocator_unseen(seen);
    (is_known && all >= LEAST_RSS_BYTES && mallocs < all / 2).then(|| {
        let part = percent(mallocs as f64 / all as f64);
        let sentence = format!(
            "malloc has {} of what is resident ({part}): no other allocator and no setting of malloc changes the rest",
            size(mallocs)
        );
        let mut found = Finding::new(Concern::Elsewhere, sentence);
        found.advice = instead_of_runtime(seen);
        found
    })
}

/// What makes malloc, and so another allocator, serve a runtime that has a notable part.
fn instead_of_runtime(seen: &ProcessConsultation) -> Option<String> {
    let notable = LEAST_RSS_BYTES.max(seen.map.sum().rss_bytes / NOTABLE_PART);
    let mut runtimes = RUNTIMES.iter().filter(|_| seen.obstacle.is_none());
    let runtime = runtimes.find(|runtime| seen.map.rss_bytes(runtime.memory) >= notable)?;
    Some(format!("{}: {}", runtime.memory.name(), runtime.remedy))
}

/// What may be malloc's of what is resident: what nothing is known of, and, where nobody knows who serves malloc, what a variable points
/// to, which may be the start of a block.
fn in_doubt_bytes(seen: &ProcessConsultation) -> u64 {
    let is_server_known = is_glibcs(seen) || seen.map.is_allocator_proven();
    let own = if is_server_known { 0 } else { seen.map.rss_bytes(Kind::OwnMapping) };
    seen.map.rss_bytes(Kind::Unknown) + own
}

/// Whether malloc has so much that what it wastes would matter.
pub(super) fn is_much_mallocs(seen: &ProcessConsultation) -> bool {
    let (all, mallocs) = (seen.map.sum().rss_bytes, seen.malloc_bytes());
    all >= LEAST_RSS_BYTES && mallocs >= all / 2
}

/// Whether glibc's malloc serves it.
pub(super) fn is_glibcs(seen: &ProcessConsultation) -> bool {
    seen.heap.as_ref().is_some_and(|heap| !heap.walks.is_empty() && heap.other.is_none())
}

fn part_in_doubt(seen: &ProcessConsultation) -> f64 {
    in_doubt_bytes(seen) as f64 / seen.map.sum().rss_bytes.max(1) as f64
}

/// Whether so much may be malloc's that nothing is said of the rest.
pub(super) fn is_much_in_doubt(seen: &ProcessConsultation) -> bool {
    seen.map.sum().rss_bytes >= LEAST_RSS_BYTES && part_in_doubt(seen) >= MUCH_UNKNOWN
}

/// Whether there is an allocator whose memory bears no mark: much of what is unknown may be that.
fn is_allocator_unseen(seen: &ProcessConsultation) -> bool {
    seen.map.unseen_allocator().is_some() || seen.map.is_own_malloc_unseen()
}

/// An allocator that is loaded, and whose memory bears no mark, is named by what is said of residence.
fn unknown(seen: &ProcessConsultation) -> Option<Finding> {
    (is_much_in_doubt(seen) && !is_allocator_unseen(seen)).then(|| {
        Finding::new(
            Concern::Residence,
            format!(
                "{} of what is resident ({}) is memory of which nothing proves whose it is: the program's own mappings, or those of an \
                 allocator that is linked into it",
                size(in_doubt_bytes(seen)),
                percent(part_in_doubt(seen))
            ),
        )
    })
}

fn heap(seen: &ProcessConsultation) -> Option<Finding> {
    let walks = &seen.heap.as_ref()?.walks;
    let sum = |of: fn(&HeapWalk) -> u64| walks.iter().map(of).sum::<u64>();
    let trapped = seen.trapped_bytes()?;
    let resident = sum(|walk| walk.total.holding.resident_bytes + walk.mapped.resident_bytes);
    let most_trapped = walks.iter().max_by_key(|walk| walk.total.trapped_bytes())?;
    let notable = LEAST_TRAPPED_BYTES.max(resident / NOTABLE_PART);
    // Of one that grows meanwhile malloc has more than was resident before.
    if trapped >= notable.max(seen.activity.rss_after_bytes / NOTABLE_PART) {
        let part = percent(trapped as f64 / resident.max(1) as f64);
        let arenas = several(walks.iter().map(|walk| walk.arenas.len() as u64).sum(), "arena");
        let mut found = Finding::new(
            Concern::Trapped,
            format!(
                "{} of the {} that glibc's malloc has resident are free inside it ({part}, in {arenas})",
                size(trapped),
                size(resident)
            ),
        );
        let kept = seen.trapped_before_bytes.map_or(trapped, |before| before.min(trapped));
        let is_passing = kept < trapped / 2;
        if is_passing {
            found.sentence += &format!("; {}", at_the_beginning(seen, kept));
        }
        if is_passing && kept < notable {
            return Some(found.advised("what is free at one moment and in use at another is not wasted"));
        }
        let wasted = if is_passing { kept } else { trapped };
        let mut waste = format!("{} of memory", size(wasted));
        let mut advice: Vec<String> = remedy(most_trapped, seen.obstacle.is_none()).into_iter().collect();
        let shared = shared_bytes(seen).min(wasted);
        if shared >= notable {
            let also = format!(", up to {} of it shared with other processes", size(shared));
            found.sentence += &format!("{also} since a fork: it is in the RSS of each, and in memory once");
            waste += &also;
            advice.push(SHARED.into());
        }
        let advice = (!advice.is_empty()).then(|| advice.join(" "));
        return Some(Finding { advice, waste: Some(waste), ..found });
    }
    let is_most = resident >= seen.activity.rss_after_bytes / 2;
    (is_most && walks.iter().any(is_in_use)).then(|| {
        let huge = glibcs_bytes(seen, |usage| usage.anonymous_huge_bytes).min(resident);
        let is_much_huge = is_much_huge(seen);
        let resident = size(resident);
        let mut sentence = match is_much_huge {
            true => format!(
                "nearly all of the {resident} that malloc has resident is in blocks of the program's, up to {} of it in huge pages",
                size(huge)
            ),
            false => format!("nearly all of the {resident} that malloc has resident is in use by the program"),
        };
        if let Some(before) = seen.trapped_before_bytes.filter(|before| *before >= notable) {
            sentence += &format!("; {}", at_the_beginning(seen, before));
        }
        if is_much_huge {
            return Finding::new(Concern::Residence, sentence).advised(WITHOUT_HUGE_PAGES).told_by(&[CHURN_MALLOC]);
        }
        Finding::new(Concern::InUse, sentence)
        .advised("no trim, no setting and no other allocator gives that back; churn --malloc names who asks for what is not freed")
    })
}

/// What is said of blocks whose pages need not all have been touched.
const WITHOUT_HUGE_PAGES: &str = "a huge page is resident whole, however little of it was touched: a run without them tells what the \
                                  program needs (GLIBC_TUNABLES=glibc.malloc.hugetlb=0 where it is set to more, or madvise in \
                                  /sys/kernel/mm/transparent_hugepage/enabled where always stands there); churn --malloc names who \
                                  asks for what is not freed";

/// Whether so much of what glibc's malloc has resident is in huge pages that what is in use need not have been touched.
pub(super) fn is_much_huge(seen: &ProcessConsultation) -> bool {
    let huge = glibcs_bytes(seen, |usage| usage.anonymous_huge_bytes);
    huge >= LEAST_TRAPPED_BYTES.max(glibcs_bytes(seen, |usage| usage.rss_bytes) / NOTABLE_PART)
}

/// Such bytes of all that is glibc's malloc's.
fn glibcs_bytes(seen: &ProcessConsultation, of: fn(&Usage) -> u64) -> u64 {
    seen.map.totals.iter().filter(|total| total.kind.is_glibcs()).map(|total| of(&total.usage)).sum()
}

/// What was free inside malloc at the first look.
fn at_the_beginning(seen: &ProcessConsultation, bytes: u64) -> String {
    format!("{} s before {} were free", seconds_of(seen.activity.seconds), size(bytes))
}

/// Resident bytes of glibc's malloc in pages that other processes have, too: who forks shares what neither writes to.
fn shared_bytes(seen: &ProcessConsultation) -> u64 {
    glibcs_bytes(seen, |usage| usage.shared_clean_bytes + usage.shared_dirty_bytes)
}

/// An allocator beside malloc's that has half of what is resident: one that is linked in under names of its own.
pub(super) fn beside_malloc(seen: &ProcessConsultation) -> Option<(&'static str, u64)> {
    let server = seen.heap.as_ref()?.other.as_ref().map(|(name, _)| name.as_str());
    let is_known = is_glibcs(seen) || server == Some(Allocator::Faultless.name());
    let much = seen.map.sum().rss_bytes.max(LEAST_RSS_BYTES).div_ceil(2);
    let mut totals = seen.map.totals.iter().filter(|total| is_known && total.usage.rss_bytes >= much);
    totals.find_map(|total| match total.kind {
        Kind::Allocator(allocator) if allocator != Allocator::Faultless => {
            Some((allocator.name(), total.usage.rss_bytes))
        }
        _ => None,
    })
}

fn beside(seen: &ProcessConsultation) -> Option<Finding> {
    let (name, bytes) = beside_malloc(seen)?;
    let sentence = format!(
        "{} of what is resident is of {name}, linked into the program or a library: what is free inside is not seen, nor need a preload reach it",
        size(bytes)
    );
    Some(Finding::new(Concern::Residence, sentence))
}

fn served(seen: &ProcessConsultation) -> Option<Finding> {
    let heap = seen.heap.as_ref()?;
    let (name, _) = heap.other.as_ref()?;
    Some(match &heap.faultless {
        Some(FaultlessHeap { page, .. }) => Finding::new(
            Concern::Served,
            format!(
                "{name} serves it: {} in use, {} in caches, {} free and not given back yet",
                size(page.used_bytes()),
                size(page.cached_bytes()),
                size(page.dirty_bytes)
            ),
        ),
        None => {
            let sentence = format!("{name} serves it: what is free inside is not seen from outside");
            let finding = Finding::new(Concern::Served, sentence).told_by(&[]);
            if name == Allocator::Faultless.name() {
                finding.advised("started with FAULTLESS=publish:on it says so itself")
            } else {
                finding
            }
        }
    })
}

/// What stops it where no preload reaches the program: settings in its environment do, where it is glibc's malloc, also linked statically.
const SETTINGS: &str = "MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_, both above what comes and goes at once, stop it: in its \
                        environment when it starts";

const PAD: &str = "MALLOC_TOP_PAD_=67108864 stops it: in its environment when it starts";

fn of_thrash(found: thrash::Finding, seen: &ProcessConsultation) -> Finding {
    let activity = &seen.activity;
    let is_tried = found.is_of_allocator() && found.pattern != Pattern::Purge;
    let advice = match &seen.obstacle {
        Some(_) if is_tried && !is_glibcs(seen) => None,
        Some(_) if found.pattern == Pattern::ArenaHeap => Some(PAD),
        Some(_) if is_tried => Some(SETTINGS),
        _ => Some(found.remedy),
    };
    let waste = found.is_of_allocator().then(|| {
        // What is given back need not have been touched: it costs no more faults than there are.
        let faults = found.pages_per_second.min(activity.minor_faults_per_second()).round() as u64;
        match faults {
            // It takes one call to give back and one to take again.
            0 => {
                format!("about {} a second", several((2.0 * found.per_second).round() as u64, "system call"))
            }
            faults => format!("up to {} a second", several(faults, "page fault")),
        }
    });
    Finding { waste, advice: advice.map(String::from), ..Finding::new(Concern::Thrash, found.sentence) }
}

fn page_faults(seen: &ProcessConsultation, has_thrash: bool) -> Option<Finding> {
    let activity = &seen.activity;
    let per_second = activity.minor_faults_per_second();
    let is_much_of_its_own = per_second >= LEAST_OWN_FAULTS_PER_SECOND
        && activity
            .processor_s()
            .is_some_and(|time| activity.minor_faults as f64 >= LEAST_FAULTS_PER_PROCESSOR_S * time);
    let is_many =
        per_second >= LEAST_FAULTS_PER_SECOND || is_much_of_its_own || activity.has_many_major_faults();
    if !is_many {
        return None;
    }
    let all_per_second = activity.per_second(activity.minor_faults + activity.major_faults);
    let is_told = |recording: &&FaultRecording| {
        counted(recording).all() as f64 * NOTABLE_PART as f64 >= all_per_second * recording.observed_s()
    };
    let told = seen.faults.as_ref().filter(is_told);
    let answer = told.map(answer::in_a_line).filter(|text| !text.is_empty());
    let sentence = answer.unwrap_or_else(|| {
        let few = match seen.faults {
            Some(_) => ", few of them while it was looked who takes them",
            None => "",
        };
        format!("{} page faults a second{few}", whole(all_per_second))
    });
    let mut found = Finding::new(Concern::Faults, sentence + &fault_time::of(activity));
    let is_of_forks = seen.cause_of_faults(has_thrash) == Cause::Forks;
    if let Some(churn) = seen.churn.as_ref().filter(|_| is_of_forks) {
        found.advice = Some(format!(
            "it started {} in {} s: after a fork each page that it writes is copied, by a fault, until the other process has ended or \
             has become another program; vfork and posix_spawn copy none",
            several(seen.started(), "process"),
            seconds_of(churn.observed_s())
        ));
    }
    Some(found)
}

fn growth(seen: &ProcessConsultation) -> Option<Finding> {
    let activity = &seen.activity;
    let grown = activity.growth_bytes();
    if !activity.is_much_growth(grown) {
        return None;
    }
    let mut sentence = format!("it grew by {} in these {} s", size(grown), seconds_of(activity.seconds));
    if activity.was_as_large() {
        sentence += ", to what it had been before";
    }
    if let Some(anonymous) = activity.anonymous_growth_bytes.filter(|bytes| *bytes < grown / 2) {
        sentence += &format!(", {} of it files and shared memory", size(grown - anonymous));
        return Some(
            Finding::new(Concern::Growth, sentence)
                .advised("who touches pages of these has them in its RSS, however many processes share them: the PSS of watch is its part")
                .told_by(&[WATCH, MAP]),
        );
    }
    let mallocs = seen.malloc_growth_bytes().map(|bytes| bytes.min(grown));
    if let Some(mallocs) = mallocs {
        sentence += &format!(", {} of it malloc's", size(mallocs));
    }
    let is_without_malloc =
        seen.heap.as_ref().is_some_and(|heap| heap.walks.is_empty() && heap.other.is_none());
    let found = Finding::new(Concern::Growth, sentence);
    Some(match mallocs {
        Some(mallocs) if mallocs >= grown / 2 => found
            .advised("watch tells whether that goes on; churn --malloc names who asks malloc for what is not freed")
            .told_by(&[WATCH, CHURN_MALLOC]),
        None if !is_without_malloc => found.advised(
            "watch tells whether that goes on; churn --malloc names who asks malloc for what is not freed, and churn who holds what \
             the program maps itself",
        ),
        _ => found
            .advised(
                "watch tells whether that goes on, map what kind of memory it is, and churn who holds what is mapped meanwhile",
            )
            .told_by(&[WATCH, MAP, CHURN]),
    })
}
