//! Recognises memory that is given back only to be taken again, and says it in words.

use std::collections::HashMap;

use faultless_records::churn_recording::{ChurnRecording, Cycle, Mechanism, Pattern};
use faultless_records::glibc::MAPPED_OVERHEAD_BYTES;
use faultless_records::memory_call::Operation;
use faultless_records::pagemap::PAGE_BYTES;
use faultless_records::quantity::{self, range, size, span};

use super::makers::{Foremost, Makers};
use super::runtimes::Runtime;
use crate::setting::DEFAULT_THRESHOLD_BYTES;

/// Fewer times than this are no thrash: programs map and unmap a few things when they start.
const LEAST_TIMES: u64 = 100;

/// Slower than this costs nothing worth a word, unless it is very large.
const LEAST_PER_SECOND: f64 = 20.0;

/// Fewer times than this are no thrash however large they are: programs have phases, too.
const LEAST_LARGE_TIMES: u64 = 10;

/// From so many pages in all on, pages are worth a word however few times they go, and from so many a second on however seldom. To bring
/// one in again takes 0.25 to 2 µs: that is 5 ms at least, and half a percent of a processor's time.
const LEAST_PAGES: f64 = 20_000.0;

/// Mappings of which this part is malloc's, or the program's own, are told as its alone.
const NEARLY_ALL: f64 = 0.95;

/// Of which less than this part is malloc's: its settings would leave four in five as they are, so they are no advice.
const LITTLE: f64 = 0.2;

/// What makes more than this part makes most.
const HALF: f64 = 0.5;

/// One pattern of thrash in an observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What happens again and again.
    pub pattern: Pattern,
    /// How often.
    pub times: u64,
    /// How often each second, between the first and the last time.
    pub per_second: f64,
    /// Pages given back each time, on average.
    pub pages_each: f64,
    /// Fewest and most bytes at a time.
    pub range_bytes: (u64, u64),
    /// Pages given back each second: each is a page fault to come, if it was touched.
    pub pages_per_second: f64,
    /// Average nanoseconds between making and giving back, or the other way round.
    pub gap_ns: f64,
    /// The function, not malloc's, that makes more of these calls than any other; none where nearly all are malloc's, or nobody is
    /// known.
    pub caller: Option<Foremost>,
    /// The part of these calls that malloc makes, from 0 to 1, where call chains tell.
    pub part_of_malloc: Option<f64>,
    /// The whole in words.
    pub sentence: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// All thrash in an observation, what costs most pages first; empty when it is quiet.
#[must_use]
pub fn findings(recording: &ChurnRecording) -> Vec<Finding> {
    // Records of new mappings do not tell of ends, whatever an older version took for them.
    if recording.mechanism == Mechanism::MmapRecords {
        return Vec::new();
    }
    use Pattern::*;
    let patterns = [Mapping, Resize, Shared, TopTrim, ArenaTrim, ArenaHeap, Purge, Stack, MallocTrim];
    let cycles = cycles_as_told(recording);
    let mut findings: Vec<Finding> = patterns
        .into_iter()
        .filter_map(|pattern| finding(recording, pattern, cycles.get(&pattern)?))
        .collect();
    // Of a stack little is touched, of the others most.
    findings.sort_by(|one, other| {
        let is_stack = |finding: &Finding| finding.pattern == Pattern::Stack;
        is_stack(one).cmp(&is_stack(other)).then(other.pages_per_second.total_cmp(&one.pages_per_second))
    });
    findings
}

fn finding(recording: &ChurnRecording, pattern: Pattern, cycles: &[&Cycle]) -> Option<Finding> {
    let count: u64 = cycles.iter().map(|cycle| cycle.amount.count).sum();
    let times = match pattern {
        Pattern::MallocTrim => calls_of_malloc_trim(cycles),
        _ => count,
    };
    let gap_sum: f64 = cycles.iter().map(|cycle| cycle.gap_sum_ns as f64).sum();
    let per_second = times as f64 / recording.observed_s().max(f64::MIN_POSITIVE);
    let bytes: f64 = cycles.iter().map(|cycle| cycle.amount.bytes as f64).sum();
    let pages_each = bytes / times.max(1) as f64 / PAGE_BYTES as f64;
    if !matters(pattern, times, per_second, pages_each) {
        return None;
    }
    let smallest = cycles.iter().map(|cycle| cycle.smallest_bytes).min()?;
    let largest = cycles.iter().map(|cycle| cycle.largest_bytes).max()?;
    let mut finding = Finding {
        pattern,
        times,
        per_second,
        pages_each,
        range_bytes: (smallest, largest),
        pages_per_second: pages_each * per_second,
        gap_ns: gap_sum / count.max(1) as f64,
        caller: None,
        part_of_malloc: None,
        sentence: String::new(),
        remedy: "",
    };
    let makers = match pattern {
        Pattern::Mapping | Pattern::Shared => {
            Makers::of_sizes(recording, operations(pattern), (smallest, largest))
        }
        _ => Makers::of(recording, operations(pattern)),
    };
    let part_of_malloc = makers.part_of_malloc();
    finding.part_of_malloc = part_of_malloc;
    let is_of_go = pattern == Pattern::Purge && makers.part_of_go() > HALF;
    let runtime = makers.runtime().filter(|_| {
        matches!(pattern, Pattern::Mapping | Pattern::Resize)
            && part_of_malloc.is_some_and(|part| part < LITTLE)
    });
    finding.caller = match pattern {
        Pattern::MallocTrim => makers.foremost_trimmer(),
        Pattern::Stack => None,
        _ if is_of_go || runtime.is_some() => None,
        _ => makers.foremost_other().filter(|_| part_of_malloc.is_some_and(|part| part < NEARLY_ALL)),
    };
    finding.sentence = sentence(&finding, part_of_malloc);
    finding.remedy = remedy(pattern, part_of_malloc);
    if is_of_go {
        (finding.sentence, finding.remedy) = (of_go(&finding), GO_REMEDY);
    }
    if let Some(runtime) = runtime {
        (finding.sentence, finding.remedy) = (of_runtime(runtime, &finding), runtime.remedy);
    }
    Some(finding)
}

/// How often the program called malloc_trim, which gives many pieces back at each call: between two times that it gives the same one
/// back lies one call.
fn calls_of_malloc_trim(cycles: &[&Cycle]) -> u64 {
    let calls = cycles.iter().map(|cycle| {
        let count = cycle.amount.count;
        let between_ns = cycle.gap_sum_ns / count.max(1);
        let seen_ns = cycle.seen_ns.1.saturating_sub(cycle.seen_ns.0);
        count.min(seen_ns / between_ns.max(1) + 1)
    });
    calls.max().unwrap_or(0)
}

impl Finding {
    /// Whether it is the allocator that gives back and takes again, by most of the calls, and not the program itself.
    #[must_use]
    pub fn is_of_allocator(&self) -> bool {
        use Pattern::*;
        match self.pattern {
            Mapping | Resize | TopTrim | ArenaTrim | ArenaHeap => {
                self.part_of_malloc.is_none_or(|part| part > HALF)
            }
            Purge => self.part_of_malloc.is_some_and(|part| part > HALF),
            Shared | Stack | MallocTrim => false,
        }
    }
}

/// The cycles by what they are told as.
fn cycles_as_told(recording: &ChurnRecording) -> HashMap<Pattern, Vec<&Cycle>> {
    let mut told: HashMap<Pattern, Option<Pattern>> = HashMap::new();
    let mut cycles: HashMap<Pattern, Vec<&Cycle>> = HashMap::new();
    for cycle in &recording.cycles {
        let told = told.entry(cycle.pattern).or_insert_with(|| told_as(recording, cycle.pattern));
        if let Some(told) = told {
            cycles.entry(*told).or_default().push(cycle);
        }
    }
    cycles
}

/// What cycles of a pattern are told as, if they are: the chains tell more than the calls.
fn told_as(recording: &ChurnRecording, pattern: Pattern) -> Option<Pattern> {
    use Pattern::{ArenaHeap, ArenaTrim, Purge, TopTrim};
    if !matches!(pattern, TopTrim | ArenaTrim | ArenaHeap | Purge) {
        return Some(pattern);
    }
    let makers = Makers::of(recording, operations(pattern));
    // What others reserve may be as large, and begin, as a heap of an arena does.
    let is_of_others = || makers.part_of_malloc().is_some_and(|part| part < HALF);
    match pattern {
        ArenaHeap => Some(ArenaHeap).filter(|_| !is_of_others()),
        _ if makers.part_of_trims() > HALF => Some(Pattern::MallocTrim),
        ArenaTrim if is_of_others() => Some(Purge),
        // Where a stack was mapped before the observation only the chains tell what it is.
        Purge if makers.part_of_thread_ends() >= NEARLY_ALL => Some(Pattern::Stack),
        other => Some(other),
    }
}

/// Whether something that happens so often costs enough to be named, by its calls or by its pages, and is no matter of a start.
fn matters(pattern: Pattern, times: u64, per_second: f64, pages_each: f64) -> bool {
    // How much of a stack was touched is not known, and mostly it is little.
    let has_pages = pattern != Pattern::Stack;
    let is_much = has_pages && times >= LEAST_LARGE_TIMES && pages_each * times as f64 >= LEAST_PAGES;
    let is_costly = per_second >= LEAST_PER_SECOND || (has_pages && pages_each * per_second >= LEAST_PAGES);
    (times >= LEAST_TIMES || is_much) && is_costly
}

/// The calls that give back what a pattern takes again, or in whose chains its maker stands.
fn operations(pattern: Pattern) -> &'static [Operation] {
    match pattern {
        Pattern::Mapping => &[Operation::MapAnonymous],
        Pattern::Resize => &[Operation::Remap],
        Pattern::TopTrim => &[Operation::BreakTrim],
        Pattern::Shared => &[Operation::MapShared],
        Pattern::ArenaTrim | Pattern::Purge => {
            &[Operation::MapPurge, Operation::AdviseDontneed, Operation::AdviseFree, Operation::AdviseRemove]
        }
        Pattern::MallocTrim => {
            &[Operation::BreakTrim, Operation::AdviseDontneed, Operation::AdviseFree, Operation::AdviseRemove]
        }
        Pattern::ArenaHeap => &[Operation::MapReserve],
        Pattern::Stack => &[Operation::MapStack],
    }
}

fn sentence(finding: &Finding, part_of_malloc: Option<f64>) -> String {
    let (smallest, largest) = finding.range_bytes;
    let pages = pages(finding.pages_each);
    let rate = rate(finding.per_second);
    let gap = span(finding.gap_ns);
    match finding.pattern {
        Pattern::Mapping => mapped_and_unmapped(finding, part_of_malloc),
        Pattern::Resize => {
            format!("mappings are made smaller and larger again {gap} later, {pages} each time; {rate}")
        }
        Pattern::Shared => format!(
            "shared memory of {} is mapped and unmapped {gap} later, {pages} each time; {rate}",
            range(smallest, largest)
        ),
        Pattern::TopTrim if part_of_malloc.is_some_and(|part| part < LITTLE) => format!(
            "the program itself gives the top of the heap back and takes it again {gap} later, {pages} each time; {rate}"
        ),
        Pattern::TopTrim => format!(
            "the top of the heap is given back and grown again {gap} later, {pages} each time (trim threshold); {rate}"
        ),
        Pattern::ArenaTrim => format!(
            "the top of a thread's arena is given back, {pages} each time, and again {gap} later (trim threshold); {rate}"
        ),
        Pattern::ArenaHeap => format!(
            "a thread's arena takes another heap of 64 MiB and gives it back {gap} later, up to {pages} of it used each time (top pad); {rate}"
        ),
        Pattern::Purge => {
            format!("the same pages are given back again and again, {pages} each time, every {gap}; {rate}")
        }
        Pattern::MallocTrim => format!(
            "the program itself calls malloc_trim, which gives back what malloc keeps for the next blocks, {pages} each time; {rate}"
        ),
        Pattern::Stack => {
            format!(
                "threads' stacks of {} are taken and given back {gap} later; {rate}",
                range(smallest, largest)
            )
        }
    }
}

/// The sentence for mappings that come and go: whose they are depends on how many of them malloc made.
fn mapped_and_unmapped(finding: &Finding, part_of_malloc: Option<f64>) -> String {
    let (smallest, largest) = finding.range_bytes;
    let pages = pages(finding.pages_each);
    let rate = rate(finding.per_second);
    let gap = span(finding.gap_ns);
    let blocks = size(smallest.saturating_sub(MAPPED_OVERHEAD_BYTES));
    let sizes = range(smallest, largest);
    let both = format!("mappings of {sizes} are made and given back {gap} later, {pages} each time; {rate}");
    match part_of_malloc {
        Some(part) if part >= NEARLY_ALL => {
            format!(
                "blocks of {blocks} and more go through mmap; each free gives {pages} back, {gap} later; {rate}"
            )
        }
        Some(part) if part <= 1.0 - NEARLY_ALL => {
            format!("the program itself maps {sizes} and unmaps it {gap} later, {pages} each time; {rate}")
        }
        Some(part) => {
            let percent = part * 100.0;
            format!("{both} ({percent:.0} % of the mappings are malloc's, the others the program's own)")
        }
        None if smallest < DEFAULT_THRESHOLD_BYTES => {
            format!("{both} (smaller ones than glibc's malloc maps, unless told to, are among them)")
        }
        None => format!("{both} (as malloc does with blocks of {blocks} and more)"),
    }
}

fn remedy(pattern: Pattern, part_of_malloc: Option<f64>) -> &'static str {
    match pattern {
        Pattern::Shared => "let the program keep the mapping and use it again",
        Pattern::Mapping | Pattern::Resize if part_of_malloc.is_some_and(|part| part < LITTLE) => {
            "no setting of malloc reaches it: let the program keep the mapping and use it again"
        }
        Pattern::TopTrim if part_of_malloc.is_some_and(|part| part < LITTLE) => {
            "no setting of malloc reaches it: let the program keep the memory and use it again"
        }
        Pattern::Purge if part_of_malloc.is_some_and(|part| part < NEARLY_ALL) => {
            "let it keep the pages longer (an allocator: by its decay or purge delay)"
        }
        Pattern::Mapping | Pattern::Resize | Pattern::TopTrim | Pattern::ArenaTrim => {
            "`faultless doctor -- CMD` tries the settings that stop it, and the allocator that does not need them"
        }
        Pattern::ArenaHeap => {
            "no trim threshold stops it, MALLOC_TOP_PAD_=67108864 in its environment does; `faultless doctor -- CMD` tries that, and the \
             allocator that does not need it"
        }
        Pattern::Purge => "let the allocator wait longer before it purges (its decay or purge delay)",
        Pattern::MallocTrim => {
            "call malloc_trim less often, after a large phase and not after each piece of work: no setting of malloc stops it"
        }
        Pattern::Stack => {
            "keep threads and give them work (a thread pool) instead of starting one for each piece of it"
        }
    }
}

/// The purges of Go's run time, which keeps what the next collection is expected to fill and a tenth more, and gives back the rest,
/// and what is beyond the memory limit. Source: runtime/mgcscavenge.go of Go 1.26.
fn of_go(finding: &Finding) -> String {
    format!(
        "Go's run time (its scavenger) gives the same pages back again and again, {} each time, every {}; {}",
        pages(finding.pages_each),
        span(finding.gap_ns),
        rate(finding.per_second)
    )
}

const GO_REMEDY: &str = "a larger GOGC lets it keep more; so does a GOMEMLIMIT, where one is set, that the program stays well below; debug.FreeOSMemory, where it is called, gives back all that is free";

/// What a run time's own memory manager maps and unmaps.
fn of_runtime(runtime: &Runtime, finding: &Finding) -> String {
    let what = match finding.pattern {
        Pattern::Resize => "makes mappings smaller and larger again".into(),
        _ => format!("maps {} and unmaps it", range(finding.range_bytes.0, finding.range_bytes.1)),
    };
    format!(
        "{}'s memory manager {what} {} later, {} each time; {}",
        runtime.language,
        span(finding.gap_ns),
        pages(finding.pages_each),
        rate(finding.per_second)
    )
}

fn pages(number: f64) -> String {
    match number {
        number if number < 1.05 => "1 page".into(),
        number if number < 10.0 && (number - number.round()).abs() >= 0.05 => format!("{number:.1} pages"),
        number => format!("{} pages", whole(number)),
    }
}

/// How often something happens: what is large and comes seldom is not told as never.
fn rate(per_second: f64) -> String {
    match per_second {
        seldom if seldom < 0.95 => format!("{seldom:.2} times a second"),
        few if few < 9.95 => format!("{few:.1} times a second"),
        many => format!("{} times a second", whole(many)),
    }
}

/// A whole number with its thousands apart, at most three digits of it exact when it is large.
fn whole(number: f64) -> String {
    let number = number.max(0.0);
    let unit = 10_f64.powf((number.max(1.0).log10().floor() - 2.0).max(0.0));
    let digits = format!("{:.0}", (number / unit).round() * unit);
    quantity::apart(&digits)
}

#[cfg(test)]
mod tests;
