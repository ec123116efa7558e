//! Where a thread's blocks come from: what is in transit in its shard, slabs of its shard, what others have, new slabs.

use super::sharing::GIVEN_FROM;
use super::slabs::Slabs;
use super::{Central, Shard, regime};
use crate::colour::LINE_BYTES;
use crate::lock::Guard;
use crate::magazine::Magazine;
use crate::os;
use crate::size_class;
use crate::slab;
use crate::span_heap::Taken;
use crate::span_heap::huge_page::WORTH_BYTES;
use crate::spans::Spans;
use core::sync::atomic::Ordering;

/// How often magazines of excess go home before memory without pages is used.
const RECLAIMS: u32 = 4;

impl Central {
    /// A magazine of up to `want` blocks (a magazine in transit may hold more), of the shard `own` if that has any; `None` when
    /// memory is exhausted.
    pub fn fetch(&self, spans: &Spans, own: usize, class: usize, want: u32) -> Option<Magazine> {
        self.shard(own)
            .pop(spans, class)
            .or_else(|| self.take_from_slabs(spans, own, class, want))
            .or_else(|| self.take_elsewhere(spans, own, class, want))
    }

    /// As [`Central::fetch`], for who wants a block that reads as zero. `zero`: the first does, since it never left its slab since the
    /// memory came from the kernel. Not inlined: few ask for it.
    #[inline(never)]
    pub fn fetch_zeroed(
        &self,
        spans: &Spans,
        own: usize,
        class: usize,
        want: u32,
        zero: &mut bool,
    ) -> Option<Magazine> {
        let unused = self.take_unused(spans, own, class);
        *zero = unused.is_some();
        let used = unused
            .or_else(|| self.shard(own).pop(spans, class))
            .or_else(|| self.take_from_slabs(spans, own, class, want))
            .or_else(|| self.take_used_elsewhere(spans, own, class, want));
        if used.is_some() {
            return used;
        }
        let Some(span) = self.fresh_span_for_slab(spans, own, class) else {
            return self.take_last(spans, own, class, want);
        };
        *zero = span.zero;
        // The others stay where they are known to be zero.
        let want = if span.zero { 1 } else { want };
        Some(self.take_from_new_slab(spans, span, own, class, want))
    }

    /// From another shard's slab, or a new one. Not inlined: what has blocks should not save registers for this.
    #[inline(never)]
    fn take_elsewhere(&self, spans: &Spans, own: usize, class: usize, want: u32) -> Option<Magazine> {
        let take_new = |span| self.take_from_new_slab(spans, span, own, class, want);
        self.take_used_elsewhere(spans, own, class, want)
            .or_else(|| self.fresh_span_for_slab(spans, own, class).map(take_new))
            .or_else(|| self.take_last(spans, own, class, want))
    }

    /// From another shard's slab, or a new one of memory that may have pages.
    fn take_used_elsewhere(&self, spans: &Spans, own: usize, class: usize, want: u32) -> Option<Magazine> {
        let take_new = |first| self.take_from_new_slab(spans, Taken { first, zero: false }, own, class, want);
        self.take_from_others(spans, own, class, want, GIVEN_FROM * size_class::slab_blocks(class) as usize)
            .or_else(|| self.used_span_for_slab(spans, own, class).map(take_new))
            .or_else(|| self.take_part_from_others(spans, own, class, want))
            .or_else(|| self.take_transit_of_other(spans, own, class))
    }

    pub(super) fn take_from_slabs(
        &self,
        spans: &Spans,
        shard: usize,
        class: usize,
        want: u32,
    ) -> Option<Magazine> {
        let shard = &self.shards[shard];
        if shard.free_blocks[class].get() == 0 {
            return None;
        }
        shard.transit.note_wanted(regime(spans), class);
        let slabs = shard.slabs[class].lock();
        let first = slabs.fullest()?;
        Some(self.take_of(spans, shard, slabs, first, class, want))
    }

    /// A block that never left its slab since the memory came from the kernel, where the shard has no other.
    fn take_unused(&self, spans: &Spans, shard: usize, class: usize) -> Option<Magazine> {
        let shard = self.shard(shard);
        if shard.stacked[class].get() > 0 || shard.free_blocks[class].get() == 0 {
            return None;
        }
        let slabs = shard.slabs[class].lock();
        let first = slabs.fullest().filter(|&first| slab::gives_unused(&spans.map, first, class))?;
        Some(self.take_of(spans, shard, slabs, first, class, 1))
    }

    /// From a slab of this shard, whose lock is held.
    fn take_of(
        &self,
        spans: &Spans,
        shard: &Shard,
        mut slabs: Guard<'_, Slabs>,
        first: u32,
        class: usize,
        want: u32,
    ) -> Magazine {
        let magazine = slabs.take(spans, self.gone_if_any(), first, class, want);
        shard.free_blocks[class].set(slabs.free_blocks);
        drop(slabs);
        self.note_out(shard, (magazine.count as usize * size_class::size(class)) as isize);
        magazine
    }

    /// Not inlined: one copy serves both kinds of span.
    #[inline(never)]
    fn take_from_new_slab(
        &self,
        spans: &Spans,
        span: Taken,
        own: usize,
        class: usize,
        want: u32,
    ) -> Magazine {
        let shard = &self.shards[own];
        let mut slabs = shard.slabs[class].lock();
        slab::format(&spans.map, span, class, own);
        if !span.zero {
            self.changed.note(span.first);
        }
        if let Some(gone) = self.gone_if_any() {
            gone.note_wanted(class, slab::pages(class));
        }
        slabs.add(&spans.map, span.first, class);
        self.take_of(spans, shard, slabs, span.first, class, want)
    }

    /// A span with pages for a slab of the shard `own`; for it, what is in transit beyond the usual goes home.
    fn used_span_for_slab(&self, spans: &Spans, own: usize, class: usize) -> Option<u32> {
        let take = || spans.take_used_for(own, size_class::slab_granules(class));
        take().or_else(|| (0..RECLAIMS).take_while(|_| self.reclaim(spans, own)).find_map(|_| take()))
    }

    /// A span for a slab, with pages or without.
    fn fresh_span_for_slab(&self, spans: &Spans, own: usize, class: usize) -> Option<Taken> {
        self.look_for_spread(&self.shards[own], size_class::slab_granules(class));
        // ORDERING: Relaxed; a statistic that decides about speed only.
        let out_bytes = self.out_bytes.load(Ordering::Relaxed);
        // Of a page, and the line that its class is longer. In each page of a slab of larger blocks may be what nobody writes.
        let is_dense = size_class::size(class) <= os::page_bytes() + LINE_BYTES;
        // Of what is out most is a forked child's parent's, too.
        let is_worth = is_dense && out_bytes >= WORTH_BYTES as isize && !self.shares_with_parent();
        spans.take_for_slab(own, size_class::slab_granules(class), is_worth)
    }
}
