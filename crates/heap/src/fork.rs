//! `fork` in a process with threads: the child finds every structure whole.
//!
//! Before the fork all locks are taken, in their order; after it they are released in the parent and in the child. A thread
//! that holds stdio's list lock may wait for one of ours (`fclose` frees under it), and libc takes that lock for the
//! fork after our handler ran. So our handler, in `global`, takes it before any of ours (it is recursive), or both would wait for ever.
//! libc's name service database has a lock of the same kind that no program can take; a fork in the very moment in
//! which another thread reloads `nsswitch.conf` can still wait for it.
//!
//! A fork copies memory page by page while other threads run, so what their caches held is no consistent picture:
//! the child forgets it. The small blocks stay allocated there; large ones, which would be as much again and more, are taken back before.

use crate::heap::Heap;
use crate::lock;
use crate::thread_cache::ThreadCache;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Shards held by the fork that is under way, or was. Not 0 at first, for the same reason as in `lock`. Synchronization: the registry's
/// lock, held across the fork.
static SHARDS_HELD: AtomicUsize = AtomicUsize::new(1);

/// Makes the heap ready for a fork: nobody but this thread is in it until [`after_in_parent`] or [`after_in_child`].
/// `own` is the forking thread's cache.
pub fn before(heap: &Heap, own: Option<&ThreadCache>) {
    heap.caches.revoke_large(own, heap.home());
    heap.caches.hold_for_fork();
    let shards = heap.central.hold_for_fork();
    heap.spans.hold_for_fork();
    // ORDERING: Relaxed; this thread reads it again, here or in the child.
    SHARDS_HELD.store(shards, Ordering::Relaxed);
    // SAFETY: until `release` ends it this thread enters the heap only by what other handlers call. No path of the heap takes a lock
    // that it has, or keeps a guard; and `release` ends the fork before it releases anything.
    unsafe { lock::begin_fork() };
}

fn release(heap: &Heap) {
    lock::end_fork();
    heap.spans.release_after_fork();
    // ORDERING: Relaxed, as in `before`.
    heap.central.release_after_fork(SHARDS_HELD.load(Ordering::Relaxed));
    heap.caches.release_after_fork();
}

/// Lets the parent go on.
pub fn after_in_parent(heap: &Heap) {
    release(heap);
}

/// Makes the child's heap its own. `cache` is the forking thread's.
///
/// # Safety
/// This is a forked child that has made no other thread yet.
pub unsafe fn after_in_child(heap: &Heap, cache: Option<&ThreadCache>) {
    release(heap);
    // SAFETY: the caller says that there is one thread; `release` freed the registry's lock.
    unsafe { heap.caches.forget_others(cache) };
}

/// Lets the child's thread, which has this cache, leave what the parent has alone, if that is much. Also where it is in a slow path.
pub fn leave_to_parent(heap: &Heap, cache: &ThreadCache) {
    if let Some(first_shard) = heap.central.leave_to_parent() {
        heap.caches.keep_from(cache, first_shard);
    }
}
