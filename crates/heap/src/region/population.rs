//! Bringing a region's pages in: by this thread, by several, in the background; with progress, and to be cancelled.
//!
//! The part to populate is cut into chunks that threads take one after the other. All of a [`Population`] is atomic or under
//! its lock, so that its threads and the region's owner share it by reference.

use super::error::{RegionError, Step};
use super::facts;
use super::limits::{self, Need};
use crate::lock::Lock;
use crate::os::{self, Access, Errno, Worker};
use core::ffi::c_void;
use core::hint::black_box;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};

/// Bytes of a chunk: a few ms of work, so that progress is smooth and cancelling quick.
const CHUNK_BYTES: usize = 16 << 20;
/// Between looks at what the machine has left; others take memory meanwhile.
const LOOK_BYTES: usize = 512 << 20;
/// Most threads beside the caller.
pub const MOST_WORKERS: usize = 63;
/// How often a waiting thread tells the progress.
const TELL_NS: u64 = 50_000_000;

/// How far populating has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes populated.
    pub done_bytes: usize,
    /// Bytes to populate.
    pub total_bytes: usize,
}

/// Called with the progress of populating, by the thread that asked for it; `Break` cancels.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// What to populate and how.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// First address.
    pub from: usize,
    /// Bytes from there on.
    pub bytes: usize,
    /// As what pages are brought in.
    pub access: Access,
    /// Bytes of the huge pages to make by collapsing, where they do not come by themselves.
    pub collapse_bytes: Option<usize>,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Bytes that are not there yet, to go on only while there is memory for them; 0: without looking.
    pub missing_bytes: usize,
    /// Whether pages that are to be written to may be touched: no reference into the region is in use until the workers are gone.
    pub is_alone: bool,
}

impl Plan {
    fn may_touch(&self) -> bool {
        self.is_alone || self.access == Access::Read
    }

    /// Where the chunks begin, the first of which may lie in front in part: no huge page that is to be made lies in two.
    fn chunks_from(&self) -> usize {
        self.from - self.collapse_bytes.map_or(0, |huge_bytes| self.from % huge_bytes)
    }

    /// The most that may be missing from an address on.
    fn missing_from(&self, at: usize) -> usize {
        self.missing_bytes.min(self.end() - at)
    }

    fn end(&self) -> usize {
        self.from + self.bytes
    }

    fn chunk_bytes(&self) -> usize {
        CHUNK_BYTES.max(self.page_bytes)
    }

    /// At least one: no region is empty.
    fn chunks(&self) -> usize {
        (self.end() - self.chunks_from()).div_ceil(self.chunk_bytes())
    }
}

/// A region's populating: under way, or how it ended.
pub struct Population {
    plan: Lock<Plan>,
    failure: Lock<Option<RegionError>>,
    /// Address of the first chunk that nobody has taken.
    next: AtomicUsize,
    done: AtomicUsize,
    total: AtomicUsize,
    /// Threads beside the owner's that are still at it; a futex.
    running: AtomicU32,
    is_cancelled: AtomicBool,
    /// Somebody failed, so that the others stop.
    has_failed: AtomicBool,
    /// This kernel has no call for populating, or a filter refuses it: pages are touched.
    must_touch: AtomicBool,
    /// This kernel does not collapse here.
    cannot_collapse: AtomicBool,
}

impl Population {
    // ORDERING: Relaxed throughout for counters and flags, which publish nothing: pages reach other threads through the
    // kernel; the plan and the failure have locks. `running` alone is Release and Acquire: its zero is seen after all work.

    /// Nothing to do.
    pub const fn new() -> Self {
        Self {
            plan: Lock::new(Plan {
                from: 0,
                bytes: 0,
                access: Access::Read,
                collapse_bytes: None,
                page_bytes: 4096,
                missing_bytes: 0,
                is_alone: false,
            }),
            failure: Lock::new(None),
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            total: AtomicUsize::new(0),
            running: AtomicU32::new(0),
            is_cancelled: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            must_touch: AtomicBool::new(false),
            cannot_collapse: AtomicBool::new(false),
        }
    }

    /// Begins anew; nobody may be at work.
    fn begin(&self, plan: Plan) {
        debug_assert_eq!(self.running.load(Ordering::Relaxed), 0);
        *self.plan.lock() = plan;
        *self.failure.lock() = None;
        self.next.store(plan.chunks_from(), Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.total.store(plan.bytes, Ordering::Relaxed);
        self.is_cancelled.store(false, Ordering::Relaxed);
        self.has_failed.store(false, Ordering::Relaxed);
    }

    /// Populates with this thread and as many `workers` as fit; they are joined before it returns.
    pub fn run(
        &self,
        plan: Plan,
        workers: &mut [Option<Worker>],
        tell: OnProgress<'_>,
    ) -> Result<(), RegionError> {
        self.begin(plan);
        // One is for this thread.
        self.start(workers, plan.chunks() - 1);
        while self.step(&plan) {
            self.tell(tell);
        }
        self.join(workers, tell)
    }

    /// Lets `workers` populate, and returns; without threads populates at once. So it does where pages must be touched that are to be
    /// written to: the owner may have a `&mut` to them as soon as this returns, and even an atomic that changes nothing would race.
    pub fn run_in_background(&self, mut plan: Plan, workers: &mut [Option<Worker>]) {
        plan.is_alone = !plan.may_touch() && self.must_touch(&plan);
        self.begin(plan);
        self.start(workers, plan.chunks());
        if plan.is_alone || workers.iter().all(Option::is_none) {
            while self.step(&plan) {}
        }
        if plan.is_alone {
            self.wait_for_workers(&mut |_| ControlFlow::Continue(()));
        }
    }

    /// Whether there is no call for populating; tried with the first page.
    fn must_touch(&self, plan: &Plan) -> bool {
        let first_bytes = plan.page_bytes.min(plan.bytes);
        // Whatever else is refused the workers will find, too.
        if os::populate_region(plan.from, first_bytes, plan.access).is_err_and(is_absent) {
            self.must_touch.store(true, Ordering::Relaxed);
        }
        self.must_touch.load(Ordering::Relaxed)
    }

    /// Starts no more workers than there are chunks for them.
    fn start(&self, workers: &mut [Option<Worker>], chunks: usize) {
        for worker in workers.iter_mut().take(chunks) {
            self.running.fetch_add(1, Ordering::Relaxed);
            // SAFETY: `work` takes a population, and its owner keeps it until it has joined the worker.
            *worker = unsafe { Worker::start(work, core::ptr::from_ref(self).cast_mut().cast()) };
            if worker.is_none() {
                self.running.fetch_sub(1, Ordering::Relaxed);
                break;
            }
        }
    }

    /// Waits for the workers' end and says how it went.
    pub fn join(&self, workers: &mut [Option<Worker>], tell: OnProgress<'_>) -> Result<(), RegionError> {
        self.wait_for_workers(tell);
        for worker in workers {
            if let Some(worker) = worker.take() {
                worker.join();
            }
        }
        self.tell(tell);
        self.outcome()
    }

    fn wait_for_workers(&self, tell: OnProgress<'_>) {
        loop {
            // ORDERING: Acquire pairs with the Release in `work`: what the workers wrote is seen.
            let running = self.running.load(Ordering::Acquire);
            if running == 0 {
                return;
            }
            self.tell(tell);
            os::futex_wait_for(&self.running, running, TELL_NS);
        }
    }

    /// How populating went so far: an error also while it has not come to its end.
    fn outcome(&self) -> Result<(), RegionError> {
        if let Some(error) = *self.failure.lock() {
            return Err(error);
        }
        let Progress { done_bytes, total_bytes } = self.progress();
        if done_bytes < total_bytes {
            return Err(RegionError::Cancelled { done_bytes, total_bytes });
        }
        Ok(())
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        Progress {
            done_bytes: self.done.load(Ordering::Relaxed),
            total_bytes: self.total.load(Ordering::Relaxed),
        }
    }

    /// Lets all threads stop after the chunk they are at.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// The workers are gone without an end, and may have held the locks.
    ///
    /// # Safety
    /// This is a forked child in which nobody has taken a lock of it yet, and the caller alone may.
    pub unsafe fn forget_workers(&self) {
        self.running.store(0, Ordering::Relaxed);
        // SAFETY: only workers and the owner take the locks: the workers are the parent's, the caller is the owner. The next
        // `begin` writes the plan before anybody reads it.
        unsafe { self.plan.reset_in_child() };
        if self.failure.try_lock().is_none() {
            // SAFETY: as above; what may be half written is replaced before it is read.
            unsafe { self.failure.reset_in_child() };
            *self.failure.lock() = None;
        }
    }

    /// Takes both locks for good, as a fork leaves them in the child while workers hold them.
    #[cfg(test)]
    pub fn keep_locks(&self) {
        core::mem::forget((self.plan.lock(), self.failure.lock()));
    }

    fn tell(&self, tell: OnProgress<'_>) {
        let progress = self.progress();
        // Of a region by use there is nothing to tell: whoever reckons in percent would divide by it.
        if progress.total_bytes > 0 && tell(progress).is_break() {
            self.cancel();
        }
    }

    /// Takes a chunk and populates it; false when there is nothing more to do.
    fn step(&self, plan: &Plan) -> bool {
        if self.is_cancelled.load(Ordering::Relaxed) || self.has_failed.load(Ordering::Relaxed) {
            return false;
        }
        let at = self.next.fetch_add(plan.chunk_bytes(), Ordering::Relaxed);
        if at >= plan.end() {
            return false;
        }
        let from = at.max(plan.from);
        let bytes = plan.end().min(at + plan.chunk_bytes()) - from;
        let filled = self.look(plan, at).and_then(|()| {
            let refused = |errno| RegionError::Refused { step: Step::Populate, errno, bytes: plan.bytes };
            self.fill(plan, from, bytes).map_err(refused)
        });
        match filled {
            Ok(()) => {
                self.done.fetch_add(bytes, Ordering::Relaxed);
                true
            }
            Err(error) => {
                self.failure.lock().get_or_insert(error);
                self.has_failed.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    /// Now and then, whether what is left still fits.
    fn look(&self, plan: &Plan, at: usize) -> Result<(), RegionError> {
        let is_time = at > plan.from && (at - plan.chunks_from()).is_multiple_of(LOOK_BYTES);
        if !is_time || plan.missing_bytes == 0 {
            return Ok(());
        }
        let need = Need { populated_bytes: plan.missing_from(at), ..Need::default() };
        limits::judge(&need, &facts::gather(&need))
    }

    fn fill(&self, plan: &Plan, from: usize, bytes: usize) -> Result<(), Errno> {
        if let Some(huge_bytes) = plan.collapse_bytes {
            self.collapse(plan, from, bytes, huge_bytes)?;
        }
        self.bring_in(plan, from, bytes)
    }

    /// Huge pages out of one small page each: collapsing then clears memory once and copies next to nothing.
    fn collapse(&self, plan: &Plan, from: usize, bytes: usize, huge_bytes: usize) -> Result<(), Errno> {
        let (start, end) = (from.next_multiple_of(huge_bytes), (from + bytes) & !(huge_bytes - 1));
        if start >= end || self.cannot_collapse.load(Ordering::Relaxed) {
            return Ok(());
        }
        for piece in (start..end).step_by(huge_bytes) {
            self.bring_in(plan, piece, plan.page_bytes)?;
        }
        // Where memory is too scattered for a huge page (ENOMEM, EAGAIN, EBUSY) small ones follow.
        if os::collapse_region(start, end - start) == Err(Errno::EINVAL) {
            self.cannot_collapse.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn bring_in(&self, plan: &Plan, from: usize, bytes: usize) -> Result<(), Errno> {
        while !self.must_touch.load(Ordering::Relaxed) {
            match os::populate_region(from, bytes, plan.access) {
                Err(errno) if is_absent(errno) && plan.may_touch() => {
                    self.must_touch.store(true, Ordering::Relaxed);
                }
                Err(Errno::EINTR | Errno::EAGAIN) if !self.is_cancelled.load(Ordering::Relaxed) => {}
                other => return other,
            }
        }
        for address in (from..from + bytes).step_by(plan.page_bytes) {
            let byte = core::ptr::with_exposed_provenance_mut::<u8>(address);
            match plan.access {
                // SAFETY: a byte of the mapped region, to which nobody in Rust has a reference: the plan says so, or this would not
                // be reached. Threads of C may write to it at the same time; an atomic that changes nothing loses none of that. Where
                // the compiler sees that it changes nothing it leaves it out.
                Access::ReadWrite => unsafe {
                    AtomicU8::from_ptr(byte).fetch_or(black_box(0), Ordering::Relaxed);
                },
                // SAFETY: a readable byte of the mapped region, which nobody writes to before the workers are gone.
                Access::Read => unsafe {
                    core::ptr::read_volatile(byte);
                },
            }
        }
        Ok(())
    }
}

impl Default for Population {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether there is no call for populating: the kernel is older than Linux 5.14, or a filter of system calls refuses it.
fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::EINVAL | Errno::EPERM | Errno::ENOSYS)
}

/// What a worker runs; its argument is the population, which outlives it because its owner joins it.
extern "C" fn work(population: *mut c_void) -> *mut c_void {
    os::name_thread(c"fl-populate");
    // SAFETY: `start` passes a population that its owner keeps until this thread is joined.
    let population = unsafe { &*population.cast::<Population>() };
    let plan = *population.plan.lock();
    while population.step(&plan) {}
    // ORDERING: Release publishes this thread's work to the Acquire in `join`.
    population.running.fetch_sub(1, Ordering::Release);
    os::futex_wake_all(&population.running);
    core::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_asked_of_the_machine_than_is_missing() {
        let plan = Plan { from: 4096, bytes: 100, missing_bytes: 30, ..*Population::new().plan.lock() };
        assert_eq!([0, 60, 70, 80, 100].map(|offset| plan.missing_from(4096 + offset)), [30, 30, 30, 20, 0]);
    }
}
