//! The report of `faultless doctor --pid`: what a running process holds and does, what of it is its allocator's, what to do.

mod calls;
mod cause;
mod copies;
mod fault_time;
mod finding;
mod json;
mod memory_limit;
mod settings;

use std::fmt::Write;

use faultless_diagnosis::malloc_time::MallocTime;
use faultless_records::allocator::Allocator;
use faultless_records::churn_recording::{ChurnRecording, Mechanism};
use faultless_records::fault_recording::FaultRecording;
use faultless_records::pagemap::PAGE_BYTES;
use faultless_records::quantity::{percent, seconds_of, several, size, whole};

pub use calls::ArenaWaits;
use calls::InVerdict;
use cause::Cause;
pub use finding::{Concern, Finding};
pub use json::json;

use super::under_heading;
use crate::heap::HeapView;
use crate::map::table;
use crate::map::view::MapView;
use crate::paste;
use crate::plain::{fitted, plain};

/// What a process used while it was observed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Activity {
    /// For how long, in seconds.
    pub seconds: f64,
    /// Resident bytes at the beginning.
    pub rss_before_bytes: u64,
    /// Resident bytes at the end.
    pub rss_after_bytes: u64,
    /// The most it ever had resident (`VmHWM`), where that is known.
    pub peak_rss_bytes: Option<u64>,
    /// The same at the beginning.
    pub peak_rss_before_bytes: Option<u64>,
    /// By how much its anonymous memory grew, in resident bytes; none where that is not known.
    pub anonymous_growth_bytes: Option<u64>,
    /// The same of shared memory without a file.
    pub shared_growth_bytes: Option<u64>,
    /// The same of written pages that no other process has.
    pub private_growth_bytes: Option<u64>,
    /// Threads at the end.
    pub threads: u32,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Processor time in the program, in seconds.
    pub user_s: f64,
    /// Processor time in the kernel, in seconds.
    pub system_s: f64,
    /// What a page fault that brings in fresh memory takes here, in seconds; none where it was not measured.
    pub fault_s: Option<f64>,
}

impl Activity {
    /// By how much it grew, in resident bytes.
    fn growth_bytes(&self) -> u64 {
        self.rss_after_bytes.saturating_sub(self.rss_before_bytes)
    }

    /// Whether so many bytes more are worth a word.
    fn is_much_growth(&self, bytes: u64) -> bool {
        bytes >= LEAST_GROWTH_BYTES && bytes >= self.rss_before_bytes / GROWTH_PART
    }

    /// Whether it grew, if it did, to what it had been before, or a hundredth more.
    fn was_as_large(&self) -> bool {
        let most = self.peak_rss_before_bytes.map(|peak| peak.saturating_add(peak / GROWTH_PART));
        most.is_some_and(|most| self.rss_after_bytes <= most)
    }

    /// Whether most of what its page faults brought in stays. Of files one fault may map many pages.
    fn faults_for_growth(&self) -> bool {
        let kinds = self.anonymous_growth_bytes.zip(self.shared_growth_bytes);
        let grown = self.growth_bytes();
        let kept = kinds.map_or(grown, |(anonymous, shared)| anonymous.saturating_add(shared).min(grown));
        let faults = self.minor_faults.saturating_add(self.major_faults);
        kept > 0 && kept as f64 >= MOST * faults as f64 * PAGE_BYTES as f64
    }

    /// Page faults without I/O, each second.
    #[must_use]
    pub fn minor_faults_per_second(&self) -> f64 {
        self.per_second(self.minor_faults)
    }

    /// Whether it waits for so much I/O that it matters.
    fn has_many_major_faults(&self) -> bool {
        self.per_second(self.major_faults) >= LEAST_MAJOR_FAULTS_PER_SECOND
    }

    /// So many of something, each second.
    fn per_second(&self, number: u64) -> f64 {
        if self.seconds > 0.0 { number as f64 / self.seconds } else { 0.0 }
    }

    /// Its processor time, in seconds; none where it used hardly any.
    fn processor_s(&self) -> Option<f64> {
        Some(self.user_s + self.system_s).filter(|all| *all >= LEAST_PROCESSOR_S)
    }

    /// Whether the program itself, with malloc in it, takes time that matters.
    fn is_busy(&self) -> bool {
        self.processor_s().is_some() && self.user_s >= self.seconds * BUSY_PART
    }

    /// The kernel's part of the processor time; none where it used hardly any.
    fn part_of_kernel(&self) -> Option<f64> {
        self.processor_s().map(|all| self.system_s / all)
    }
}

/// From this part of a processor on, in the program itself, the time that malloc's calls take may matter.
const BUSY_PART: f64 = 0.1;

/// From this part on something is most of a whole.
const MOST: f64 = 0.75;

/// A fault that needs I/O takes 0.1 to 10 ms.
const LEAST_MAJOR_FAULTS_PER_SECOND: f64 = 10.0;

/// What it grew by less, or by less than a hundredth, may be chance.
const LEAST_GROWTH_BYTES: u64 = 1 << 20;
const GROWTH_PART: u64 = 100;

/// Of less processor time no parts are told: it is counted in ticks of 10 ms.
const LEAST_PROCESSOR_S: f64 = 0.1;

/// Everything that was learnt of a running process.
#[derive(Debug)]
pub struct ProcessConsultation {
    /// Its number.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// The words of its command line, for the line to try remedies with; empty where it has none.
    pub command: Vec<String>,
    /// Where it is, if that is another directory than the one we are in.
    pub directory: Option<String>,
    /// What starts its program, where the first word of the command line does not.
    pub program: Option<String>,
    /// The file that it has as its standard input, or a word for it where no path leads to that.
    pub input: Option<String>,
    /// Variables of its environment that steer malloc, or mean to, with their values.
    pub environment: Vec<(String, String)>,
    /// Those of them that are otherwise in ours.
    pub settings: Vec<(String, String)>,
    /// Why no remedy can be tried on a new process of it, where one cannot.
    pub obstacle: Option<String>,
    /// Why no new process of it can be started from here, where none can.
    pub absence: Option<String>,
    /// Whether it was stopped, or held by a debugger.
    pub is_halted: bool,
    /// Whether another file stands in the place of its program's, as after an upgrade.
    pub is_replaced: bool,
    /// What it used.
    pub activity: Activity,
    /// Its memory.
    pub map: MapView,
    /// What its malloc holds; none where that could not be looked at.
    pub heap: Option<HeapView>,
    /// What was free inside glibc's malloc and resident in the beginning, as [`HeapView::trapped_bytes`].
    pub trapped_before_bytes: Option<u64>,
    /// What glibc's malloc had resident in the beginning, as [`HeapView::resident_bytes`].
    pub malloc_before_bytes: Option<u64>,
    /// How it takes memory from the kernel and gives it back; none where that could not be seen.
    pub churn: Option<ChurnRecording>,
    /// Page faults without I/O a second while that was looked at; none where it was not.
    pub faults_beside_calls: Option<f64>,
    /// Its page faults; none where they could not be seen.
    pub faults: Option<FaultRecording>,
    /// What malloc's calls take of its processor time; none where that could not be seen.
    pub malloc_time: Option<MallocTime>,
    /// How its threads wait for each other in glibc's malloc; none where that does not serve it, or it could not be seen.
    pub arena_waits: Option<ArenaWaits>,
    /// What was not seen, and what would show it.
    pub remarks: Vec<String>,
}

impl ProcessConsultation {
    /// What is worth a word, in the order of the report.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        finding::of(self)
    }

    /// Resident bytes of malloc's, whichever serves it.
    fn malloc_bytes(&self) -> u64 {
        let totals = self.map.totals.iter().filter(|total| total.kind.is_mallocs());
        totals.map(|total| total.usage.rss_bytes).sum()
    }

    /// What is free inside glibc's malloc and resident, in the end.
    fn trapped_bytes(&self) -> Option<u64> {
        self.heap.as_ref()?.trapped_bytes()
    }

    /// By how much glibc's malloc grew, in resident bytes; none where it was not seen.
    fn malloc_growth_bytes(&self) -> Option<u64> {
        let after = self.heap.as_ref()?.resident_bytes()?;
        Some(after.saturating_sub(self.malloc_before_bytes?))
    }

    /// The whole in one sentence, of what was [found](Self::findings).
    #[must_use]
    pub fn verdict(&self, findings: &[Finding]) -> String {
        let (verdict, grown) = (self.verdict_on_allocator(findings), self.activity.growth_bytes());
        let is_said = verdict.starts_with(Cause::Growth.verdict());
        if is_said || !self.activity.is_much_growth(grown) || self.activity.was_as_large() {
            return verdict;
        }
        format!("{verdict}; it grew by {} meanwhile", size(grown))
    }

    fn verdict_on_allocator(&self, findings: &[Finding]) -> String {
        let has = |concern| findings.iter().any(|finding| finding.concern == concern);
        let time = InVerdict::of(self);
        let wasted: Vec<&str> = findings.iter().filter_map(|finding| finding.waste.as_deref()).collect();
        if !wasted.is_empty() {
            let below = match (self.line_to_try(findings), self.obstacle.as_ref().or(self.absence.as_ref())) {
                (Some(_), _) => "; the lines below try what helps on a new process".to_owned(),
                (None, Some(reason)) => {
                    format!("; doctor cannot try what helps on a new process: {reason}")
                }
                (None, None) => String::new(),
            };
            // Of page faults and calls of the kernel it was seen what they take.
            let is_said = has(Concern::Thrash) || has(Concern::Locks);
            let time = if is_said { "" } else { time.text() };
            return format!("its allocator wastes {}{below}{time}", wasted.join(" and "));
        }
        if has(Concern::Faults) {
            let cause = self.cause_of_faults(has(Concern::Thrash)).verdict();
            let whose =
                if has(Concern::Thrash) { "; whose it is, and what stops it, is said above" } else { "" };
            return format!("{cause}{whose}{}", time.seen_text());
        }
        if has(Concern::Trapped) {
            return format!(
                "what is free in its malloc now was in use before: whether it is wanted again a longer look tells (--for 1m){}",
                time.seen_text()
            );
        }
        let unseen = if self.is_seen() { "" } else { ", as far as it could be seen" };
        if has(Concern::Elsewhere) {
            return format!(
                "leave malloc alone as to its memory{unseen}: most of that is not malloc's{}",
                time.seen_text()
            );
        }
        if has(Concern::InUse) {
            return format!(
                "leave its allocator alone as to its memory{unseen}: the program itself uses what malloc has{}",
                time.seen_text()
            );
        }
        let beside = finding::beside_malloc(self).map(|(name, _)| name);
        if let Some(name) = beside.or_else(|| self.closed_allocator()) {
            let below = match self.line_to_try(findings) {
                Some(_) => "; the line below compares it with others on a new process",
                None => "",
            };
            return format!(
                "nothing was found that its allocator wastes; what {name} has free inside was not seen{}{below}",
                time.seen_text()
            );
        }
        let (time, limit) =
            (time.text(), if time.is_open(self) { " as to memory and page faults" } else { "" });
        format!("leave its allocator alone{limit}{unseen}: nothing was found that it wastes{time}")
    }

    /// What was not seen, with what the figures themselves tell of that.
    fn all_remarks(&self) -> impl Iterator<Item = String> {
        self.remarks.iter().cloned().chain(calls::unseen(self))
    }

    /// Whether nothing that a verdict needs was kept from us.
    fn is_seen(&self) -> bool {
        let is_heap_seen = self.heap.as_ref().is_some_and(|heap| {
            let is_open = !heap.walks.is_empty() || heap.other.is_none() || heap.faultless.is_some();
            is_open && heap.changed_caches() == 0
        });
        let is_much_open = finding::is_much_in_doubt(self) || finding::is_much_huge(self);
        is_heap_seen && self.are_calls_seen() && !is_much_open && !self.is_halted
    }

    /// Whether it was seen what goes back to the kernel and is taken again.
    fn are_calls_seen(&self) -> bool {
        let is_whole =
            |churn: &ChurnRecording| !churn.is_blind_to_some && churn.mechanism != Mechanism::MmapRecords;
        self.churn.as_ref().is_some_and(is_whole)
    }

    /// The allocator that has, or may have, much of its memory, and of whose inside nothing is seen.
    fn closed_allocator(&self) -> Option<&str> {
        let heap = self.heap.as_ref()?;
        let (name, _) = heap.other.as_ref()?;
        let is_closed = heap.faultless.is_none() && name != Allocator::Faultless.name();
        let has_much = finding::is_much_mallocs(self) || finding::is_much_in_doubt(self);
        (is_closed && has_much).then_some(name.as_str())
    }

    /// Commands that tell more of what was found.
    #[must_use]
    pub fn lines_to_look_further(&self, findings: &[Finding]) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for finding in findings {
            for instrument in finding.instruments {
                let line = instrument.replace("PID", &self.pid.to_string());
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        lines
    }

    /// The command that tries remedies on a new process; none where there is nothing to try, nothing reaches it, or the process has no
    /// command line.
    #[must_use]
    pub fn line_to_try(&self, findings: &[Finding]) -> Option<String> {
        let has_thrash = findings.iter().any(|finding| finding.concern == Concern::Thrash);
        let may_help = |finding: &Finding| {
            let is_open = match finding.concern {
                Concern::Faults => self.cause_of_faults(has_thrash).is_open(),
                Concern::Served => self.closed_allocator().is_some(),
                Concern::Time => calls::much_time(self).is_some(),
                _ => false,
            };
            finding.waste.is_some() || is_open
        };
        let [name, behind @ ..] = self.command.as_slice() else { return None };
        let name = self.program.as_ref().unwrap_or(name);
        let words: Vec<String> = [name].into_iter().chain(behind).cloned().collect();
        let directory =
            self.directory.as_ref().map(|directory| format!("cd {} && ", paste::quoted(directory)));
        let is_startable = self.obstacle.is_none() && self.absence.is_none();
        (findings.iter().any(may_help) && is_startable).then(|| {
            let set = |(name, value): &(String, String)| format!("{name}={} ", paste::quoted(value));
            let settings: String = self.settings.iter().map(set).collect();
            let first = directory.unwrap_or_default() + &settings;
            let line = format!("{first}faultless doctor --for 60s -- {}", paste::line(&words));
            paste::with_input(line, self.input.as_deref())
        })
    }

    /// The whole report, made to fit a terminal of so many columns.
    #[must_use]
    pub fn text(&self, columns: Option<usize>) -> String {
        let findings = self.findings();
        let fit = |text| fitted(text, columns);
        let shown = |line: String| line.split('\n').map(plain).collect::<Vec<_>>().join("\n");
        let to_try = self.line_to_try(&findings).into_iter().map(shown);
        let heading_to_try = match self.is_replaced {
            true => "To try remedies on a new process of the program that has taken the place of its own",
            false => "To try remedies on a new process of it",
        };
        [
            fit(self.heading()),
            fit(found(&findings)),
            fit(self.limits()),
            fit(format!("Verdict: {}.\n", plain(&self.verdict(&findings)))),
            // The words are another's; an end of line in them stays one, so that a shell takes the line as it is.
            under_heading(heading_to_try, to_try.collect()),
            under_heading("To look further", self.lines_to_look_further(&findings)),
        ]
        .concat()
    }

    fn heading(&self) -> String {
        let activity = &self.activity;
        let mut text =
            format!("{} ({}): {} resident", plain(&self.name), self.pid, size(activity.rss_after_bytes));
        let peak = activity.peak_rss_bytes.filter(|peak| *peak > activity.rss_after_bytes).map(size);
        // It may be more by less than is written.
        if let Some(peak) = peak.filter(|peak| *peak != size(activity.rss_after_bytes)) {
            let _ = write!(text, ", {peak} at its peak");
        }
        let _ = write!(text, ", {}", several(activity.threads.into(), "thread"));
        if self.map.is_measured() {
            text += &table::largest_kinds(&self.map, self.map.sum().rss_bytes);
        }
        let _ = write!(text, "\nObserved for {} s: ", seconds_of(activity.seconds));
        let all = activity.minor_faults + activity.major_faults;
        text += &match all {
            0 => "no page fault".to_owned(),
            all => {
                format!("{} ({} a second)", several(all, "page fault"), whole(activity.per_second(all)))
            }
        };
        if activity.major_faults > 0 {
            let _ = write!(text, ", {} of them major", whole(activity.major_faults as f64));
        }
        let _ = write!(text, "; {} s of processor time", seconds_of(activity.user_s + activity.system_s));
        if let Some(part) = activity.part_of_kernel() {
            let _ = write!(text, ", {} of it in the kernel", percent(part));
        }
        text + "\n\n"
    }

    fn limits(&self) -> String {
        let lines: Vec<String> =
            self.all_remarks().map(|remark| format!("Not seen: {}\n", plain(&remark))).collect();
        if lines.is_empty() { String::new() } else { lines.concat() + "\n" }
    }
}

/// What was found, a line each, and under it what helps.
fn found(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let mut text = String::from("Found\n");
    for finding in findings {
        let _ = writeln!(text, "  {}", plain(&finding.sentence));
        if let Some(advice) = &finding.advice {
            let _ = writeln!(text, "    {}", plain(advice));
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests;
