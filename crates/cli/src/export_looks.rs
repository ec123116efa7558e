//! Looks into followed processes, one after the other, beside the watch: at what malloc holds, and at what mappings are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use faultless_diagnosis::fleet::heap::Heap;
use faultless_probe::process::Process;
use faultless_records::allocator::Allocator;
use faultless_report::heap::HeapReport;
use faultless_report::prometheus_text::Look;

use crate::export_page::Page;
use crate::failure::Failure;
use crate::heap_process::{self, Manner};
use crate::{map, say};

/// A process rests for this many times as long as the look into it took.
const REST: u32 = 100;

/// How long a process must live before it is looked into: compilers and shells come and go.
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

/// Goes on looking, at each process every so often, in a thread of its own; `kinds` are the looks, with the time between two.
pub fn follow(page: Arc<Page>, kinds: Vec<(Look, Duration)>) {
    std::thread::spawn(move || {
        let mut due: HashMap<(u32, Look), Instant> = HashMap::new();
        let mut told = Vec::new();
        loop {
            let subjects = subjects(&page);
            due.retain(|(place, _), _| subjects.iter().any(|subject| subject.place == *place));
            for (subject, (kind, every)) in
                subjects.into_iter().flat_map(|subject| kinds.iter().map(move |kind| (subject, *kind)))
            {
                let key = (subject.place, kind);
                if Instant::now() < *due.entry(key).or_insert_with(|| Instant::now() + SETTLED.min(every)) {
                    continue;
                }
                let began = Instant::now();
                if let Err(reason) = look(&page, subject, kind)
                    && !told.contains(&kind)
                {
                    told.push(kind);
                    tell(kind, &reason);
                }
                due.insert(key, Instant::now() + every.max(began.elapsed() * REST));
            }
            std::thread::sleep(PAUSE);
        }
    });
}

/// Looks at each of them once.
pub fn look_at_all(page: &Page, kinds: &[(Look, Duration)]) {
    for (kind, _) in kinds {
        let reasons = subjects(page).into_iter().filter_map(|subject| look(page, subject, *kind).err());
        if let Some(reason) = reasons.last() {
            tell(*kind, &reason);
        }
    }
}

fn tell(kind: Look, reason: &str) {
    let what = match kind {
        Look::Heap => "a heap is",
        Look::Map => "mappings are",
    };
    say(&format!("{what} not seen: {reason}"));
}

fn subjects(page: &Page) -> Vec<Subject> {
    let fleet = page.fleet();
    let members = fleet.members();
    members
        .map(|(place, member)| Subject { place, pid: member.pid, start_ticks: member.start_ticks })
        .collect()
}

/// Looks into one; the reason where it cannot be seen.
fn look(page: &Page, subject: Subject, kind: Look) -> Result<(), String> {
    let Ok(process) = Process::open(subject.pid) else { return Ok(()) };
    if process.start_ticks() != subject.start_ticks {
        return Ok(());
    }
    let began = Instant::now();
    let seen = match kind {
        Look::Heap => heap_process::look(&process, Manner::Running).map(|report| {
            page.fleet().set_heap(subject.place, heap(&report));
        }),
        Look::Map => map::look(&process, map::Manner::default()).map(|view| {
            let kinds = view.totals.iter().map(|total| (total.kind.key(), total.usage.rss_bytes));
            page.fleet().set_kinds(subject.place, kinds.filter(|(_, bytes)| *bytes > 0).collect());
        }),
    };
    let has_failed = seen.is_err() && process.is_alive();
    page.count_look(kind, began.elapsed(), has_failed);
    match seen {
        Err(Failure::Failed(reason)) if has_failed => Err(reason),
        _ => Ok(()),
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
