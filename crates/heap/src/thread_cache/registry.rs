//! All thread caches of a heap: made, handed out, taken back at thread exit, revoked.

use super::revocation::{self, GROUP, Group, Taking};
use super::{BINS, Budget, Home, ThreadCache};
use crate::lock::{self, Guard, Lock};
use crate::magazine::Magazine;
use crate::os;
use crate::page_map::Hint32;
use crate::spans::SHARDS;
use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// Bytes mapped at a time for new caches.
const MAPPED_BYTES: usize = 64 * 1024;
/// Pause in ns between two searches for idle caches.
const RELIEF_PAUSE_NS: u64 = 100_000_000;
/// Pause in ns of the purger between the caches of one barrier and the next.
const REVOKED_PAUSE_NS: u64 = 20_000;
/// Groups after which it does so in any case: those of threads that are parked hold nothing, look after look.
const EMPTY_GROUPS: u32 = 8;

/// All thread caches of a heap.
pub struct Caches {
    registry: Lock<Registry>,
    /// The newest of all caches ever made; they are never freed. Synchronization: written under the registry's lock.
    newest: AtomicPtr<ThreadCache>,
    /// What the caches may still grow by.
    pub budget: Budget,
    /// Whether the kernel offers the barrier that revocation needs.
    revocable: AtomicBool,
    /// When idle caches were last looked for because the budget was used up, ns.
    relieved_at: AtomicU64,
    /// This is the child of a fork, which began with one thread. Synchronization: written by that thread.
    is_forked: AtomicBool,
    /// Threads keep to shards from this one on: those before are the parent's. Synchronization: as `is_forked`.
    first_shard: Hint32,
    /// Memory for the first of all caches: a process of one thread needs no page for it alone. Synchronization: a cache's, once it is one.
    first: UnsafeCell<MaybeUninit<ThreadCache>>,
}

// SAFETY: `first` alone is not shared by itself: it is used once, under the registry's lock, for a cache, which is.
unsafe impl Sync for Caches {}

/// Shards of `central` for each CPU: enough that threads that run at the same time, or stop in the middle, seldom share one. More keep
/// more memory apart; of fewer, threads that free and allocate much in bulk make each other's memory cold. On two CPUs, with 2, 3, 4 here:
/// `sh8`, 8 threads, 25, 30, 35 MiB; `threadtest`, large, 8 threads, 0.51, 0.37, 0.33 s.
const SHARDS_PER_CPU: usize = 3;

/// What `ThreadCache::state` says.
const IN_USE: u32 = 0;
/// Without a thread, and empty.
const EMPTY: u32 = 1;
/// Without a thread, with what the last one left: the next thread goes on with it.
const LEFT: u32 = 2;

struct Registry {
    in_use: usize,
    in_use_peak: usize,
    /// Those that are [`LEFT`], no more than there are shards.
    left: usize,
    /// Caches ever made, and the shards they are spread over.
    made: usize,
    shards: usize,
    /// Memory for caches not made yet: address and bytes.
    unused: (usize, usize),
    /// Caches without a thread, linked by `next_idle`.
    idle: AtomicPtr<ThreadCache>,
}

impl Registry {
    // ORDERING: Relaxed; the registry's lock guards the list.

    fn take_idle<'a>(&mut self) -> Option<&'a ThreadCache> {
        // SAFETY: null or a cache, and caches live as long as the process.
        let cache = unsafe { self.idle.load(Ordering::Relaxed).as_ref() }?;
        self.idle.store(cache.next_idle.load(Ordering::Relaxed), Ordering::Relaxed);
        let state = cache.state.get();
        cache.state.set(IN_USE);
        if state == LEFT {
            self.left -= 1;
        } else {
            cache.prepare();
        }
        // It counts another thread's faults.
        cache.first_use.forget();
        Some(cache)
    }

    /// Zeroed memory for one of these, whose size is a multiple of its alignment, as those of all others are; `None`: there is none.
    fn place_for<T>(&mut self) -> Option<*mut T> {
        const { assert!(align_of::<T>() == align_of::<ThreadCache>()) };
        if self.unused.1 < size_of::<T>() {
            self.unused = (os::map_records(MAPPED_BYTES)?, MAPPED_BYTES);
        }
        let (place, left) = self.unused;
        self.unused = (place + size_of::<T>(), left - size_of::<T>());
        Some(place as *mut T)
    }

    fn retire(&mut self, cache: &ThreadCache, state: u32) {
        // ORDERING: as above.
        cache.state.set(state);
        cache.set_owner(0);
        self.left += usize::from(state == LEFT);
        cache.next_idle.store(self.idle.load(Ordering::Relaxed), Ordering::Relaxed);
        self.idle.store((&raw const *cache).cast_mut(), Ordering::Relaxed);
        self.in_use -= 1;
    }
}

impl Caches {
    /// No caches.
    pub const fn new() -> Self {
        Self {
            registry: Lock::new(Registry {
                in_use: 0,
                in_use_peak: 0,
                left: 0,
                made: 0,
                shards: 0,
                unused: (0, 0),
                idle: AtomicPtr::new(core::ptr::null_mut()),
            }),
            newest: AtomicPtr::new(core::ptr::null_mut()),
            budget: Budget::new(),
            revocable: AtomicBool::new(false),
            relieved_at: AtomicU64::new(0),
            is_forked: AtomicBool::new(false),
            first_shard: Hint32::new(0),
            first: UnsafeCell::new(MaybeUninit::zeroed()),
        }
    }

    /// A cache for a new thread; `None` when memory is exhausted.
    pub fn acquire(&self) -> Option<&ThreadCache> {
        let mut registry = self.registry.lock();
        let cache = match registry.take_idle() {
            Some(cache) => cache,
            None => self.make(&mut registry)?,
        };
        registry.in_use += 1;
        registry.in_use_peak = registry.in_use_peak.max(registry.in_use);
        self.budget.share_among(registry.in_use);
        let first_shard = self.first_shard.get() as usize;
        if cache.shard() < first_shard {
            let shards = registry.shards.min(SHARDS - first_shard);
            cache.set_shard(first_shard + cache.shard() % shards);
        }
        Some(cache)
    }

    fn make(&self, registry: &mut Registry) -> Option<&ThreadCache> {
        // ORDERING: Relaxed; under the registry's lock.
        let newest = self.newest.load(Ordering::Relaxed);
        if newest.is_null() {
            registry.unused = (self.first.get() as usize, size_of_val(&self.first));
            // While the process has one thread this costs microseconds, later milliseconds.
            self.revocable.store(os::register_barrier(), Ordering::Relaxed);
            // Now rather than with the second thread: by then a sandbox may kill who opens a file.
            let cpus = os::cpu_quota().unwrap_or(usize::MAX).min(os::cpus_allowed());
            self.budget.extend(cpus);
            registry.shards = (SHARDS_PER_CPU * cpus).clamp(1, SHARDS);
        }
        let place: *mut ThreadCache = registry.place_for()?;
        // SAFETY: zeroed memory that nothing else uses, aligned.
        let cache = unsafe {
            ThreadCache::make_gated(place, registry.made % registry.shards.max(1));
            &*place
        };
        cache.prepare();
        registry.made += 1;
        cache.next.store(newest, Ordering::Relaxed);
        // ORDERING: Release publishes the cache to the Acquire in `all`.
        self.newest.store(place, Ordering::Release);
        Some(cache)
    }

    /// A thread asked for a large block of so many bytes that the lists of its cache do not have. The second of a size makes the lists. By the
    /// owner.
    pub fn note_missed_large(&self, cache: &ThreadCache, bytes: usize) {
        // ORDERING: Relaxed; written before the first cache existed.
        let may_list = self.revocable.load(Ordering::Relaxed) || os::is_single_threaded();
        if may_list && cache.note_missed_large(bytes) {
            let place = self.registry.lock().place_for();
            cache.make_large_lists(place.unwrap_or(core::ptr::null_mut()));
        }
    }

    /// All caches, in use or not.
    pub fn all(&self) -> impl Iterator<Item = &ThreadCache> {
        // ORDERING: Acquire pairs with the Release in `make`. Links never change after.
        let mut at = self.newest.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: null or a cache, and caches live as long as the process.
            let cache = unsafe { at.as_ref() }?;
            at = cache.next.load(Ordering::Relaxed);
            Some(cache)
        })
    }

    /// Takes a cache back from a thread that exits. While there is a purger, a few keep what they hold for the next
    /// threads: who starts a thread a request need not send each block home and fetch it again.
    pub fn release(&self, cache: &ThreadCache, home: Home) {
        let mut registry = self.registry.lock();
        // Under the lock: the purger looks at all caches, also under it, after it has said that it leaves.
        let state = if registry.left < registry.shards && home.spans.keeps() { LEFT } else { EMPTY };
        if state == EMPTY {
            drop(registry);
            cache.empty(home, &self.budget, false);
            registry = self.registry.lock();
        }
        registry.retire(cache, state);
        self.budget.share_among(registry.in_use);
    }

    /// Whether more than one thread ever had a cache at a time.
    pub fn has_several(&self) -> bool {
        self.all().nth(1).is_some()
    }

    /// Whether one thread is left of several that had a cache, or none of any: libc's flag does not tell (glibc 2.36).
    pub fn is_alone_again(&self) -> bool {
        match self.budget.threads() {
            0 => true,
            1 => self.has_several(),
            _ => false,
        }
    }

    /// Whether this process was forked, and no other thread of it or its parent ever had a cache.
    pub fn is_alone_since_fork(&self) -> bool {
        // ORDERING: Relaxed; written while there was one thread.
        self.is_forked.load(Ordering::Relaxed) && self.budget.threads() <= 1 && !self.has_several()
    }

    /// Threads that have a cache now, and the most that ever had one at a time.
    pub fn counts(&self) -> (usize, usize) {
        let registry = self.registry.lock();
        (registry.in_use, registry.in_use_peak)
    }

    /// Whether the lock is not held for good that [counts](Self::counts) are made under.
    pub fn can_be_counted(&self) -> bool {
        self.registry.comes_free()
    }

    /// Empties every cache into `central`: `own` directly, others' by revocation. Returns the blocks taken from others.
    pub fn revoke_all(&self, own: Option<&ThreadCache>, home: Home) -> usize {
        if let Some(own) = own {
            own.empty(home, &self.budget, true);
        }
        // While this thread forks, the owners of other caches may be inside them, waiting for locks that it holds.
        if lock::is_forking() {
            return 0;
        }
        self.revoke_where(self.registry.lock(), own, home, Taking::All, |_| true)
    }

    /// Frees the large blocks that other threads keep.
    pub fn revoke_large(&self, own: Option<&ThreadCache>, home: Home) {
        self.revoke_where(self.registry.lock(), own, home, Taking::Large, ThreadCache::has_large);
    }

    /// Takes the caches of threads that do nothing, when the budget is used up: what parked threads hold is missing to those
    /// that work. A thread does nothing if its cache was never in the slow path since the last look. At most every 100 ms.
    #[cold]
    pub fn relieve(&self, own: Option<&ThreadCache>, home: Home) {
        let now = os::now_ns();
        // ORDERING: Relaxed; a pace, not exact. The registry's lock orders the looks themselves.
        if now.saturating_sub(self.relieved_at.load(Ordering::Relaxed)) < RELIEF_PAUSE_NS
            || lock::is_forking()
        {
            return;
        }
        let Some(registry) = self.registry.try_lock() else { return };
        self.relieved_at.store(now, Ordering::Relaxed);
        self.budget.begin_look();
        self.revoke_where(registry, own, home, Taking::All, ThreadCache::poll_idle);
    }

    /// Takes the caches of threads that were never in the slow path since the last look. Returns whether others are left, which a
    /// later call may find idle.
    pub fn revoke_idle(&self, home: Home) -> bool {
        let registry = self.registry.lock();
        // ORDERING: Relaxed; a pace, as in `relieve`, whose looks are not to come right after this one.
        self.relieved_at.store(os::now_ns(), Ordering::Relaxed);
        let is_left = Cell::new(false);
        self.revoke_where(registry, None, home, Taking::Idle, |cache| {
            let was_idle = cache.poll_idle();
            is_left.set(is_left.get() || !was_idle);
            was_idle
        });
        is_left.get()
    }

    /// Lets go of the registry for a while: threads that begin or end, and forks, come in between. Who is woken needs a while to be there.
    fn pause<'a>(&'a self, registry: Guard<'a, Registry>) -> Guard<'a, Registry> {
        drop(registry);
        os::sleep_ns(REVOKED_PAUSE_NS);
        self.registry.lock()
    }

    /// Lets every thread pass a barrier: what it wrote before is seen, and what it reads afterwards is no older. Nothing where the kernel
    /// has none.
    pub fn pass_barrier(&self) {
        // ORDERING: Relaxed; written before the first cache existed.
        if self.revocable.load(Ordering::Relaxed) {
            os::barrier_all_threads();
        }
    }

    /// Empties the chosen caches but `own`: those of threads by revocation. Returns the blocks.
    fn revoke_where<'a>(
        &'a self,
        mut registry: Guard<'a, Registry>,
        own: Option<&ThreadCache>,
        home: Home,
        taking: Taking,
        is_chosen: impl Fn(&ThreadCache) -> bool,
    ) -> usize {
        let (mut blocks, mut emptied) = (0, 0);
        // Nobody waits for it.
        let idle = taking == Taking::Idle;
        // What exited threads left: nobody is in there, so this needs no barrier.
        let left = self.all().filter(|cache| cache.state.get() == LEFT && taking != Taking::Large);
        for cache in left.filter(|cache| is_chosen(cache)) {
            cache.state.set(EMPTY);
            registry.left -= 1;
            blocks += cache.empty(home, &self.budget, true);
            emptied += 1;
            if idle && emptied % GROUP == 0 {
                registry = self.pause(registry);
            }
        }
        // ORDERING: Relaxed; written before the first cache existed.
        if !self.revocable.load(Ordering::Relaxed) {
            return blocks;
        }
        let is_own = |cache: &ThreadCache| own.is_some_and(|own| core::ptr::eq(own, cache));
        let in_use = self.all().filter(|cache| cache.state.get() == IN_USE && !is_own(cache));
        let mut chosen = in_use.filter(|cache| is_chosen(cache));
        for groups in 1.. {
            let group: Group = core::array::from_fn(|_| chosen.next());
            if group[0].is_none() {
                break;
            }
            let taken = revocation::revoke(&group, taking, &self.budget, home);
            blocks += taken;
            if idle && (taken > 0 || groups % EMPTY_GROUPS == 0) {
                registry = self.pause(registry);
            }
        }
        blocks
    }

    /// Takes the lock for the time of a fork.
    pub fn hold_for_fork(&self) {
        self.registry.hold_for_fork();
    }

    /// The other half of [`Caches::hold_for_fork`].
    pub fn release_after_fork(&self) {
        self.registry.release_after_fork();
    }

    /// In a forked child: threads keep to shards from this one on, also the one that it has, wherever that is.
    /// By that thread, whose cache `own` is.
    pub fn keep_from(&self, own: &ThreadCache, first_shard: usize) {
        self.first_shard.set(first_shard as u32);
        own.leave_shard_for(first_shard);
    }

    /// In a forked child: makes the caches of the threads that are gone ready for new threads. What they held is lost to the
    /// child: a fork copies no consistent picture of another thread's unlocked lists.
    ///
    /// # Safety
    /// No other thread exists; the registry's lock is free.
    pub unsafe fn forget_others(&self, own: Option<&ThreadCache>) {
        // ORDERING: Relaxed; this is the only thread.
        self.is_forked.store(true, Ordering::Relaxed);
        let mut registry = self.registry.lock();
        for cache in self.all() {
            if cache.state.get() != IN_USE || own.is_some_and(|own| core::ptr::eq(own, cache)) {
                continue;
            }
            // SAFETY: the owner is gone, and the cache is emptied here.
            unsafe { cache.lock.reset_in_child() };
            for bin in 1..BINS {
                let _lost = cache.take_spare(bin);
                cache.shrink(bin, &self.budget);
                cache.bins[bin].replace(Magazine::EMPTY);
            }
            cache.forget_large(&self.budget);
            registry.retire(cache, EMPTY);
        }
        self.budget.share_among(registry.in_use);
    }
}

impl Default for Caches {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;
    use crate::large::Pages;
    use crate::size_class;

    /// Lets a cache hold small blocks, in its list and its spare, and a large one.
    fn fill(heap: &Heap, cache: &ThreadCache, class: usize) {
        let blocks: Vec<usize> = (0..1000).map(|_| heap.allocate_small(Some(cache), class)).collect();
        blocks.into_iter().for_each(|block| heap.free(Some(cache), block));
        for _ in 0..4 {
            let block = heap.allocate_large(Some(cache), 1 << 18, 16, Pages::Any).address;
            heap.free(Some(cache), block);
        }
    }

    #[test]
    fn a_forked_child_forgets_what_other_threads_held_and_gives_their_caches_to_new_ones() {
        let heap = Heap::boxed();
        heap.spans.set_purger(true);
        let (own, other) = (heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap());
        let class = size_class::class_of(64).unwrap();
        [own, other].into_iter().for_each(|cache| fill(&heap, cache, class));
        let held = own.held(class);
        assert!(held > 0 && other.has_large() && other.spares[class].get() != 0);
        other.set_owner(1);
        // It was in its slow path.
        core::mem::forget(other.lock.lock());
        // SAFETY: no other thread uses this heap.
        unsafe { heap.caches.forget_others(Some(own)) };
        assert_eq!((own.held(class), own.has_large()), (held, true));
        assert_eq!((other.held(class), other.has_large(), other.is_owned_by(1)), (0, false, false));
        assert_eq!((heap.caches.counts().0, heap.caches.budget.threads()), (1, 1));
        assert_eq!((other.room.paid.get(), other.bins[class].list()), (0, Magazine::EMPTY));
        assert!(other.lock.try_lock().is_some());
        assert!(core::ptr::eq(heap.caches.acquire().unwrap(), other));
        fill(&heap, other, class);
        assert!(other.held(class) > 0);
    }

    #[test]
    fn a_forked_child_loses_no_large_blocks_that_other_threads_kept() {
        let heap = Heap::boxed();
        heap.spans.set_purger(true);
        let caches: Vec<_> = (0..=GROUP).map(|_| heap.caches.acquire().unwrap()).collect();
        let class = size_class::class_of(64).unwrap();
        caches.iter().for_each(|cache| fill(&heap, cache, class));
        if !os::barrier_all_threads() {
            return faultless_skipped::skipped("no membarrier here");
        }
        let held: Vec<u32> = caches.iter().map(|cache| cache.held(class)).collect();
        heap.caches.revoke_large(Some(caches[0]), heap.home());
        assert_eq!(caches.iter().filter(|cache| cache.has_large()).count(), 1, "its own stay");
        assert_eq!(
            caches.iter().map(|cache| cache.held(class)).collect::<Vec<_>>(),
            held,
            "small blocks stay"
        );
        let before = os::BARRIERS.get();
        heap.caches.revoke_large(Some(caches[0]), heap.home());
        assert_eq!(os::BARRIERS.get(), before, "there is nothing");
    }

    #[test]
    fn where_threads_cannot_be_revoked_they_keep_no_large_blocks() {
        let heap = Heap::boxed();
        heap.spans.set_purger(true);
        let cache = heap.caches.acquire().unwrap();
        heap.caches.revocable.store(false, Ordering::Relaxed);
        fill(&heap, cache, 1);
        assert!(!cache.has_large());
    }
}
