//! What is looked at for as long as the instruments look, beside them: for which locks the process's threads wait, and what they do.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use faultless_diagnosis::glibc_heap::walk::HeapWalk;
use faultless_probe::clock;
use faultless_probe::lock_waits::LockWaits;
use faultless_probe::perf::PerfError;
use faultless_probe::process::Process;
use faultless_records::processor_samples::ProcessorSamples;
use faultless_report::doctor::process::ArenaWaits;
use faultless_trial::processor_time::ProcessorTime;

/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// A look at the threads is not repeated before this many times the processor time that it took has passed: there may be thousands.
const REST: u32 = 50;

/// Looks that go on.
pub struct Beside {
    thread: JoinHandle<Seen>,
    /// Ends them when it is dropped.
    until: Sender<()>,
}

/// What was seen.
pub struct Seen {
    /// None where it may not be seen what threads wait for.
    pub waits: Option<LockWaits>,
    /// Where the processor time goes.
    pub time: Result<ProcessorSamples, PerfError>,
}

impl Beside {
    /// Begins; none where there can be no thread for it.
    pub fn begin(process: &Process) -> Option<Self> {
        let process = Process::open(process.pid()).ok()?;
        let (until, end) = channel();
        let look = move || look(&process, &end);
        let thread = std::thread::Builder::new().name("beside".into()).spawn(look).ok()?;
        Some(Self { thread, until })
    }

    /// Ends; none where the looks failed for a reason of ours.
    pub fn end(self) -> Option<Seen> {
        drop(self.until);
        self.thread.join().ok()
    }
}

fn look(process: &Process, end: &Receiver<()>) -> Seen {
    let mut time = ProcessorTime::attach(process);
    let mut waits = Some(LockWaits::default());
    let mut next_look = Instant::now();
    while end.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
        if let Ok(time) = &mut time {
            time.turn();
        }
        if Instant::now() >= next_look {
            let before = clock::thread_processor_time();
            // One that has ended, or may not be seen, stays so.
            waits = waits.and_then(|mut waits| waits.look(process).is_ok().then_some(waits));
            let took = clock::thread_processor_time()
                .zip(before)
                .map(|(after, before)| after.saturating_sub(before));
            next_look = Instant::now() + took.unwrap_or_default() * REST;
        }
    }
    Seen { waits, time: time.map(|time| time.finish(process)) }
}

/// How often threads waited for the locks of these heaps' arenas; none where there are no such heaps.
pub fn at_arenas(waits: &LockWaits, walks: &[HeapWalk]) -> Option<ArenaWaits> {
    // An arena begins with its lock.
    let arenas = || walks.iter().flat_map(|walk| &walk.arenas);
    (!walks.is_empty() && waits.looks() > 0).then(|| ArenaWaits {
        looks: waits.looks(),
        waits: arenas().map(|arena| waits.at(arena.address)).sum(),
        arenas: arenas().count() as u64,
    })
}
