//! Looks at what malloc holds of followed processes, one after the other, beside the watch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use faultless_diagnosis::fleet::heap::Heap;
use faultless_probe::process::Process;
use faultless_records::allocator::Allocator;
use faultless_report::heap::HeapReport;

use crate::export_page::Page;
use crate::failure::Failure;
use crate::heap_process::{self, Manner};
use crate::say;

/// A heap rests for this many times as long as the look at it took.
const REST: u32 = 100;

/// How long a process must live before it is looked at: compilers and shells come and go.
const SETTLED: Duration = Duration::from_secs(5);

/// Time from one search for whose turn it is to the next.
const PAUSE: Duration = Duration::from_millis(500);

/// A process of a watch, and what distinguishes it from a later one of its number.
#[derive(Clone, Copy)]
struct Subject {
    place: u32,
    pid: i32,
    start_ticks: u64,
}

/// Goes on looking, each process every so often, in a thread of its own.
pub fn follow(page: Arc<Page>, every: Duration) {
    std::thread::spawn(move || {
        let mut due: HashMap<u32, Instant> = HashMap::new();
        let mut told = false;
        loop {
            let subjects = subjects(&page);
            due.retain(|place, _| subjects.iter().any(|subject| subject.place == *place));
            for subject in subjects {
                let at = *due.entry(subject.place).or_insert_with(|| Instant::now() + SETTLED.min(every));
                if Instant::now() < at {
                    continue;
                }
                let began = Instant::now();
                if let Err(reason) = look(&page, subject)
                    && !std::mem::replace(&mut told, true)
                {
                    say(&format!("a heap is not seen: {reason}"));
                }
                due.insert(subject.place, Instant::now() + every.max(began.elapsed() * REST));
            }
            std::thread::sleep(PAUSE);
        }
    });
}

/// Looks at each of them once.
pub fn look_at_all(page: &Page) {
    let reasons = subjects(page).into_iter().filter_map(|subject| look(page, subject).err());
    if let Some(reason) = reasons.last() {
        say(&format!("a heap is not seen: {reason}"));
    }
}

fn subjects(page: &Page) -> Vec<Subject> {
    let fleet = page.fleet();
    let members = fleet.members();
    members
        .map(|(place, member)| Subject { place, pid: member.pid, start_ticks: member.start_ticks })
        .collect()
}

/// Looks at one; the reason where it cannot be seen.
fn look(page: &Page, subject: Subject) -> Result<(), String> {
    let Ok(process) = Process::open(subject.pid) else { return Ok(()) };
    if process.start_ticks() != subject.start_ticks {
        return Ok(());
    }
    let began = Instant::now();
    let seen = heap_process::look(&process, Manner::Running);
    let has_failed = seen.is_err() && process.is_alive();
    page.count_walk(began.elapsed(), has_failed);
    match seen {
        Ok(report) => {
            page.fleet().set_heap(subject.place, heap(&report));
            Ok(())
        }
        Err(Failure::Failed(reason)) if has_failed => Err(reason),
        Err(_) => Ok(()),
    }
}

fn heap(report: &HeapReport) -> Heap {
    match (&report.faultless, &report.other) {
        (Some(faultless), _) => Heap::of_faultless(&faultless.page),
        (None, Some((name, _))) => Heap::of_another(&name.to_lowercase()),
        (None, None) if report.walks.is_empty() => Heap::of_another(&Allocator::Libc.name().to_lowercase()),
        (None, None) => Heap::of_glibc(&report.walks),
    }
}
