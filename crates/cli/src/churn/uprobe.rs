//! `faultless churn --malloc --pid`: calls of malloc in a process that runs already, by the kernel's probes.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use faultless_diagnosis::churn::circumstances::MallocCircumstances;
use faultless_diagnosis::churn::malloc_tally::MallocTally;
use faultless_probe::clock::{nanoseconds, own_processor_time, unix_s};
use faultless_probe::process::Process;
use faultless_probe::signals::Signals;
use faultless_probe::trap_cost;
use faultless_probe::uprobe::{self, Allocator, CallsElsewhere, FUNCTIONS, Looked, Observer, SHARE};
use faultless_records::malloc_event::MallocEvent;
use faultless_records::malloc_recording::{MallocCost, MallocMechanism, MallocRecording};
use faultless_records::mappings::Mapping;
use faultless_records::perf_record::{PerfRecord, Sample};
use faultless_records::program::{is_libc, is_loader};
use faultless_records::quantity::several;
use faultless_symbols::exported;
use faultless_trial::call_stacks::CallStacks;

use crate::arguments::ChurnArguments;
use crate::churn::no_callers;
use crate::failure::Failure;
use crate::observing_progress::{Elsewhere, ObservingProgress};
use crate::subject;

/// A tenth of the time is about that up to so many times as much.
const MUCH_LONGER: f64 = 1.5;

/// What a process maps has to be the same for so long, and is waited for no longer than that.
const PAUSE: Duration = Duration::from_millis(20);
const BEGINNING: Duration = Duration::from_secs(2);

/// Looks at a process that runs already.
///
/// # Errors
/// [`Failure`] when the kernel lets us set no probes in it, or it has no malloc that is exported.
pub fn look_at_process(
    pid: i32,
    arguments: &ChurnArguments,
    signals: &Signals,
) -> Result<MallocRecording, Failure> {
    let (process, mapped) = begun(pid)?;
    let name = format!("process {pid} ({})", process.name());
    if subject::is_32_bit(&process) {
        let reason = "is a 32-bit program: its calls cannot be followed by this 64-bit tool";
        return Err(Failure::Refused(format!("{name} {reason}")));
    }
    let allocator = allocator(&process, &mapped)?;
    let refused = |reason: String| Failure::Failed(format!("cannot set probes in {name}: {reason}"));
    // Entry and return of a call are two hits.
    let cost_per_hit_ns = trap_cost::of_probed_call().map_err(|error| refused(error.reason))? / 2.0;
    let mut sums = Sums {
        tally: MallocTally::default(),
        stacks: CallStacks::default(),
        progress: ObservingProgress::start("looking", arguments.limit, Elsewhere::Lines),
    };
    sums.stacks.adopt(&process);
    let unseen = subject::unseen(&process);
    let (started_unix_s, began) = (unix_s(), own_processor_time());
    let looked = uprobe::follow(&allocator, &process, signals, arguments.limit, cost_per_hit_ns, &mut sums)
        .map_err(refused)?;
    let remarks = remarks(&looked, unseen);
    sums.tally.set_counts(0, pid, vec![looked.counts]);
    let tool = own_processor_time().saturating_sub(began);
    Ok(sums.tally.finish(MallocCircumstances {
        subject: subject::names(&process),
        started_unix_s,
        ending: None,
        mechanism: MallocMechanism::Uprobes,
        observed_ns: nanoseconds(looked.observed),
        cost: MallocCost { counting_ns: looked.cost_ns, describing_ns: 0.0, tool_ns: tool.as_nanos() as f64 },
        stacks: sums.stacks.into_names(|_| false),
        remarks,
    }))
}

/// What is in no figure, and what the looking changed.
fn remarks(looked: &Looked, unseen: Vec<String>) -> Vec<String> {
    let mut remarks = vec![
        "blocks from before we looked: what is freed of them is counted, but has no size and no life".to_owned(),
        "posix_memalign, which answers elsewhere than in a register, jemalloc's own functions (mallocx), and calls inside the allocator's own library, but those by which glibc frees what the cache of an ending thread holds: they count as calls of free".to_owned(),
    ];
    if looked.elapsed > looked.observed + Duration::from_millis(100) {
        let elapsed_s = looked.elapsed.as_secs_f64();
        let cost = match looked.cost_ns / 1e9 / SHARE {
            needed_s if needed_s <= elapsed_s * MUCH_LONGER => {
                "so that they cost the program no more than about a tenth of the time".to_owned()
            }
            needed_s => format!(
                "so that they cost the program less, but to set them once costs more than a tenth of so short a time (--for {needed_s:.0}s would be long enough)"
            ),
        };
        remarks.push(format!(
            "{:.1} s of {elapsed_s:.1} s: the probes are taken out in between, {cost}; rates are those of the windows, in which the probes slow the program: without them it calls more often",
            (looked.elapsed - looked.observed).as_secs_f64(),
        ));
    }
    remarks.push(format!(
        "what it calls while the probes come and go. To set and to remove them took {:.2} s, in which they slow the program, too: what that costs is estimated from the windows",
        looked.changing.as_secs_f64()
    ));
    remarks.extend(
        looked.cut_short.as_ref().map(|reason| format!("what came behind the last window: {reason}")),
    );
    remarks.extend(calls_elsewhere(&looked.elsewhere));
    remarks.extend(unseen);
    remarks.extend(looked.chains_refused.as_deref().map(no_callers));
    remarks
}

/// That calls of children were left out, where there were any.
fn calls_elsewhere(elsewhere: &CallsElsewhere) -> Option<String> {
    let calls = several(elsewhere.calls, "call");
    let processes = several(elsewhere.processes.len() as u64, "process");
    (elsewhere.calls > 0).then(|| {
        format!(
            "{calls} of {processes} that it started meanwhile: what they free are copies of their own; --pid looks at one of them, churn --malloc -- CMD at all processes of a command"
        )
    })
}

/// The process and what it maps, as soon as that is its own program with all of its libraries: a child is a copy of its parent at first,
/// and its loader maps one file after the other.
fn begun(pid: i32) -> Result<(Process, Vec<Mapping>), Failure> {
    let (deadline, mut before) = (Instant::now() + BEGINNING, None);
    loop {
        let process = subject::process(pid)?;
        let mapped = process.mappings("maps").map_err(Failure::of_process)?.unwrap_or_default();
        let files: Vec<Vec<u8>> = programs(&mapped).map(|mapping| mapping.name.clone()).collect();
        let is_over = Instant::now() >= deadline;
        if is_over || (before.as_ref() == Some(&files) && !is_loading(&mapped)) {
            return Ok((process, mapped));
        }
        before = Some(files);
        thread::sleep(PAUSE);
    }
}

/// Executable parts of files.
fn programs(mapped: &[Mapping]) -> impl Iterator<Item = &Mapping> {
    mapped.iter().filter(|mapping| mapping.is_executable() && mapping.name.starts_with(b"/"))
}

/// Whether there is a loader, and no library of C yet.
fn is_loading(mapped: &[Mapping]) -> bool {
    let is_any =
        |is: fn(&str) -> bool| programs(mapped).any(|mapping| is(&String::from_utf8_lossy(&mapping.name)));
    is_any(is_loader) && !is_any(is_libc)
}

/// The file whose malloc the process uses: the program's own, else a library's, libc's last, as the loader looks.
fn allocator(process: &Process, mapped: &[Mapping]) -> Result<Allocator, Failure> {
    let program = process.link("exe").unwrap_or_default();
    let mut candidates: Vec<(u8, Allocator)> = Vec::new();
    for mapping in programs(mapped) {
        let path = String::from_utf8_lossy(&mapping.name).into_owned();
        let rank = match () {
            () if Path::new(&path) == program => 0,
            // Before loaders are left out: musl's is its libc.
            () if is_libc(&path) => 2,
            () if is_loader(&path) => continue,
            () => 1,
        };
        let file = process.open_mapped(mapping.start, mapping.end, &mapping.name, mapping.inode);
        let Ok(file) = file else { continue };
        let offsets = exported::offsets(&file, FUNCTIONS).unwrap_or_default();
        if offsets.first().copied().flatten().is_some() {
            candidates.push((rank, Allocator { file, offsets }));
        }
    }
    candidates.sort_by_key(|(rank, _)| *rank);
    candidates.into_iter().next().map(|(_, allocator)| allocator).ok_or_else(|| {
        let why = match is_loading(mapped) {
            true => "it has only begun, and its loader has not mapped libc; look again later",
            false => "it is linked statically or has an allocator of its own inside",
        };
        Failure::Failed(format!("no exported malloc in process {}: {why}", process.pid()))
    })
}

struct Sums {
    tally: MallocTally,
    stacks: CallStacks,
    progress: ObservingProgress,
}

impl Observer for Sums {
    fn take(&mut self, event: MallocEvent, chain: Option<u32>) {
        self.tally.take(0, &event, chain);
    }

    fn chain(&mut self, record: &PerfRecord, sample: &Sample) -> Option<u32> {
        self.stacks.index(record, sample)
    }

    fn lose_sight(&mut self) {
        self.tally.lose_sight();
    }

    fn tick(&mut self, calls: u64) {
        self.progress.show(&format!("{} of malloc and its family", several(calls, "call")));
    }

    fn removes_probes(&mut self, calls: u64) {
        let calls = several(calls, "call");
        self.progress.show(&format!("{calls} of malloc and its family; the kernel removes the probes"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_was_too_short_for_what_it_cost_or_ended_early_is_said_to_be() {
        let of = |cost_ns: f64| {
            let (observed, elapsed) = (Duration::from_millis(200), Duration::from_secs(3));
            remarks(&Looked { observed, elapsed, cost_ns, ..Looked::default() }, Vec::new()).join("\n")
        };
        let (cheap, dear) = (of(0.4e9), of(1.2e9));
        assert!(cheap.contains("no more than about a tenth of the time"), "{cheap}");
        let cut_short = Some("no more files may be open".to_owned());
        let remarks = remarks(&Looked { cut_short, ..Looked::default() }, Vec::new()).join("\n");
        assert!(remarks.contains("what came behind the last window: no more files"));
        assert!(dear.contains("(--for 12s would be long enough)") && !dear.contains("no more"), "{dear}");
    }
}
