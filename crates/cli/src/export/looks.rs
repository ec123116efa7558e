//! Looks into followed processes, one after the other, beside the watch: at what malloc holds, and at what mappings are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use faultless_diagnosis::fleet::heap::{GLIBC, Heap, UNKNOWN};
use faultless_diagnosis::glibc_heap::walk::HeapWalk;
use faultless_probe::process::Process;
use faultless_report::heap::HeapView;
use faultless_report::map::view::MapView;
use faultless_report::prometheus_text::Look;

use super::page::MetricsPage;
use crate::failure::Failure;
use crate::heap;
use crate::heap::process::Manner;
use crate::map;
use crate::notes::Told;

/// A process rests for this many times as long as the look into it took.
const REST: u32 = 100;

/// How long a process must live before it is looked into: compilers and shells come and go.
const SETTLED: Duration = Duration::from_secs(5);

/// Time from one search for whose turn it is to the next.
const PAUSE: Duration = Duration::from_millis(500);

/// A heap that changed while it was read is read so often, at once.
const TRIES: usize = 4;

/// A process of a watch, and what distinguishes it from a later one of its number.
#[derive(Clone, Copy)]
struct Subject {
    place: u32,
    pid: i32,
    start_ticks: u64,
    /// How often it has become another program.
    program: u32,
}

/// Goes on looking, at each process every so often, in a thread of its own; `kinds` are the looks, with the time between two.
///
/// # Errors
/// [`Failure::Failed`] where there can be no thread.
pub fn follow(page: Arc<MetricsPage>, kinds: Vec<(Look, Duration)>) -> Result<(), Failure> {
    let go_on = move || {
        let mut due: HashMap<(u32, u32, Look), Instant> = HashMap::new();
        let mut told = Told::default();
        loop {
            let subjects = subjects(&page);
            let present: HashSet<(u32, u32)> =
                subjects.iter().map(|subject| (subject.place, subject.program)).collect();
            due.retain(|(place, program, _), _| present.contains(&(*place, *program)));
            for (subject, (kind, every)) in
                subjects.into_iter().flat_map(|subject| kinds.iter().map(move |kind| (subject, *kind)))
            {
                let key = (subject.place, subject.program, kind);
                if Instant::now() < *due.entry(key).or_insert_with(|| Instant::now() + SETTLED.min(every)) {
                    continue;
                }
                let began = Instant::now();
                if let Err(reason) = look(&page, subject, kind) {
                    told.tell(&reason);
                }
                due.insert(key, Instant::now() + every.max(began.elapsed() * REST));
            }
            std::thread::sleep(PAUSE);
        }
    };
    let started = std::thread::Builder::new().spawn(go_on);
    started
        .map(drop)
        .map_err(|error| Failure::Failed(format!("cannot start a thread that looks into processes: {error}")))
}

/// Looks at each of them once.
pub fn look_at_all(page: &MetricsPage, kinds: &[(Look, Duration)]) {
    let mut told = Told::default();
    for (kind, _) in kinds {
        for reason in subjects(page).into_iter().filter_map(|subject| look(page, subject, *kind).err()) {
            told.tell(&reason);
        }
    }
}

fn subjects(page: &MetricsPage) -> Vec<Subject> {
    let fleet = page.fleet();
    let members = fleet.members();
    members
        .map(|(place, member)| Subject {
            place,
            pid: member.pid,
            start_ticks: member.start_ticks,
            program: member.program,
        })
        .collect()
}

/// What a look showed.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Heap(Heap),
    /// A heap of glibc whose figures do not agree.
    InexactHeap,
    Kinds(Vec<(&'static str, u64)>),
}

/// Looks into one; the reason where it cannot be seen.
fn look(page: &MetricsPage, subject: Subject, kind: Look) -> Result<(), String> {
    let Ok(process) = Process::open(subject.pid) else { return Ok(()) };
    if process.start_ticks() != subject.start_ticks {
        return Ok(());
    }
    let began = Instant::now();
    let seen = match kind {
        Look::Heap => exact(|| heap::process::look(&process, Manner::Running).map(|report| of_heap(&report))),
        Look::Map => map::look(&process, map::Manner::default()).and_then(|view| of_mappings(&view)),
    };
    let took = began.elapsed();
    let is_alive = process.is_alive();
    let put_down = put_down(page, subject, kind, seen).or_else(|reason| match is_alive {
        true => Err(reason),
        false => Ok(()),
    });
    page.count_look(kind, took, put_down.is_err());
    put_down
}

/// What the first look showed whose figures agree; else the last of some.
fn exact(mut look: impl FnMut() -> Result<Seen, Failure>) -> Result<Seen, Failure> {
    let mut seen = look()?;
    for _ in 1..TRIES {
        if seen != Seen::InexactHeap {
            break;
        }
        seen = look()?;
    }
    Ok(seen)
}

/// Shows what was seen, and no longer what was seen before where a look failed.
fn put_down(
    page: &MetricsPage,
    subject: Subject,
    kind: Look,
    seen: Result<Seen, Failure>,
) -> Result<(), String> {
    let (pid, mut fleet) = (subject.pid, page.fleet());
    if !fleet.runs(subject.place, subject.program) {
        return Ok(());
    }
    match seen {
        Ok(Seen::Kinds(kinds)) => fleet.set_kinds(subject.place, kinds),
        Ok(Seen::Heap(heap)) => {
            if !fleet.set_heap(subject.place, heap) {
                return Err(format!(
                    "the heap of process {pid} was not found again; its last exact figures stay for a while"
                ));
            }
        }
        Ok(Seen::InexactHeap) => {
            fleet.keep_heap(subject.place);
            return Err(format!(
                "the heap of process {pid} changed each time it was read, or is damaged; the last exact figures, if there are any, stay for a while (faultless heap --stop --pid {pid} reads it at rest)"
            ));
        }
        Err(failure) => {
            let what = match kind {
                Look::Heap => {
                    fleet.clear_heap(subject.place);
                    "a heap is"
                }
                Look::Map => {
                    fleet.set_kinds(subject.place, Vec::new());
                    "mappings are"
                }
            };
            if let Failure::Failed(reason) = failure {
                return Err(format!("{what} not seen: {reason}"));
            }
        }
    }
    Ok(())
}

fn of_heap(report: &HeapView) -> Seen {
    match (&report.faultless, &report.other) {
        (Some(faultless), _) => Seen::Heap(Heap::of_faultless(&faultless.page, faultless.resident_bytes)),
        (None, Some((name, _))) => Seen::Heap(Heap::of_another(&name.to_lowercase())),
        // glibc's malloc may be there and never have been asked; a static program, or one of musl, may have any.
        (None, None) if report.walks.is_empty() => {
            Seen::Heap(Heap::of_another(if report.glibc.is_some() { GLIBC } else { UNKNOWN }))
        }
        (None, None) if report.walks.iter().all(HeapWalk::is_exact) => {
            Seen::Heap(Heap::of_glibc(&report.walks))
        }
        (None, None) => Seen::InexactHeap,
    }
}

/// Of a process that is too large to be measured only addresses are known, and zeros would be taken for sizes.
fn of_mappings(view: &MapView) -> Result<Seen, Failure> {
    if !view.is_measured() {
        return Err(Failure::Failed(format!(
            "{} is so large that measuring it may hold it up; faultless map --full does",
            view.subject
        )));
    }
    let kinds = view.totals.iter().map(|total| (total.kind.key(), total.usage.rss_bytes));
    Ok(Seen::Kinds(kinds.filter(|(_, bytes)| *bytes > 0).collect()))
}

#[cfg(test)]
mod tests {
    use faultless_diagnosis::fleet::{Fleet, Grouping};
    use faultless_records::mappings::{self, Usage};
    use faultless_records::recording::{Line, Process};
    use faultless_report::heap::Source;

    use super::*;

    fn report(glibc: Option<(u32, u32)>) -> HeapView {
        HeapView {
            pid: Some(7),
            name: "x".into(),
            source: Source::AtExit,
            took: Duration::ZERO,
            glibc,
            is_static: false,
            counted_rss_bytes: None,
            walks: Vec::new(),
            other: None,
            faultless: None,
            remarks: Vec::new(),
        }
    }

    #[test]
    fn a_program_of_glibc_is_one_without_a_heap_too_and_what_is_not_known_is_unknown() {
        assert_eq!(of_heap(&report(Some((2, 36)))), Seen::Heap(Heap::of_another("glibc")));
        assert_eq!(of_heap(&report(None)), Seen::Heap(Heap::of_another("unknown")));
    }

    #[test]
    fn a_heap_that_changes_meanwhile_is_read_again_and_not_for_ever() {
        let exact_after = |changes: usize| {
            let mut looks = 0;
            let seen = exact(|| {
                looks += 1;
                Ok(if looks > changes { Seen::Heap(Heap::of_another("glibc")) } else { Seen::InexactHeap })
            });
            (seen.unwrap() != Seen::InexactHeap, looks)
        };
        assert_eq!(exact_after(0), (true, 1));
        assert_eq!(exact_after(2), (true, 3));
        assert_eq!(exact_after(usize::MAX), (false, TRIES));
    }

    #[test]
    fn mappings_that_were_not_measured_are_a_failed_look_and_show_nothing() {
        let text = b"400000-401000 r-xp 00000000 00:00 0\n500000-501000 rw-p 00000000 00:00 0\n";
        let view = |usage| {
            let mut mappings = mappings::parse(text).unwrap();
            mappings[0].usage = usage;
            MapView::new("x (7)".into(), Some(7), mappings, Vec::new())
        };
        assert_eq!(of_mappings(&view(Some(Usage::default()))).unwrap(), Seen::Kinds(Vec::new()));
        let failed = of_mappings(&view(None));
        let page = MetricsPage::new(Fleet::new(Grouping::Name, 0), Duration::from_secs(5));
        page.fleet().add(Line::Process(Process { pid: 7, ..Process::default() }));
        page.fleet().set_kinds(0, vec![("stack", 5)]);
        let subject = Subject { place: 0, pid: 7, start_ticks: 0, program: 0 };
        let reason = put_down(&page, subject, Look::Map, failed).unwrap_err();
        assert!(reason.contains("faultless map --full"), "{reason}");
        assert!(page.fleet().kinds().is_empty());
    }
}
