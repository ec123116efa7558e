//! What the heap holds, counted when asked: the fast path counts nothing.

use crate::granule::bytes_of;
use crate::heap::Heap;
use crate::large::LargeTotals;
use crate::os::{self, HUGE_PAGE_BYTES};
use crate::size_class::{self, CLASSES};
use core::fmt::{self, Write};

const HUGE_PAGE_KIB: u64 = HUGE_PAGE_BYTES as u64 / 1024;

/// Blocks of one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Bytes of one block.
    pub block_bytes: usize,
    /// Slabs of the class.
    pub slabs: usize,
    /// Blocks in those slabs.
    pub blocks: usize,
    /// Blocks that the program has.
    pub used: usize,
    /// Free blocks in thread caches.
    pub cached: usize,
    /// Free blocks on their way between threads.
    pub transit: usize,
}

/// A picture of the heap. Exact while no other thread allocates; else each part is from its own moment.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// By size class, in the order of their sizes; index 0 is unused.
    pub classes: [ClassStats; CLASSES],
    /// Large blocks.
    pub large: LargeTotals,
    /// Bytes of spans in slabs and large blocks.
    pub span_bytes: usize,
    /// Most of these at once, with what shards kept then; where there are several span heaps, as exact as
    /// `UsedOfAll`.
    pub span_peak_bytes: usize,
    /// Most bytes of small blocks at once that were out of their slabs: in use, cached, or on their way between threads.
    pub small_peak_bytes: usize,
    /// Bytes of free spans that may hold pages.
    pub dirty_bytes: usize,
    /// Bytes purged since the start.
    pub purged_bytes: u64,
    /// Purge calls since the start.
    pub purges: u64,
    /// Purges that the kernel refused.
    pub purges_refused: u64,
    /// Huge pages brought in since the start.
    pub huge_pages: u64,
    /// Threads with a cache.
    pub threads: usize,
    /// Most threads with a cache at one time.
    pub threads_peak: usize,
}

impl Snapshot {
    /// Counts `heap`.
    pub fn take(heap: &Heap) -> Self {
        let mut classes = [ClassStats::default(); CLASSES];
        for (stats, class) in classes.iter_mut().zip(size_class::BY_SIZE).skip(1) {
            let counts = heap.central.counts(&heap.spans.map, class);
            let blocks = counts.slabs * size_class::slab_blocks(class) as usize;
            let cached = heap.caches.all().map(|cache| cache.held(class) as usize).sum::<usize>();
            let transit = counts.transit_blocks;
            let used = blocks.saturating_sub(counts.free_blocks + transit + cached);
            let block_bytes = size_class::size(class);
            *stats = ClassStats { block_bytes, slabs: counts.slabs, blocks, used, cached, transit };
        }
        let spans = heap.spans.counts();
        let (threads, threads_peak) = heap.caches.counts();
        let mut kept = 0;
        let caches = heap.caches.all();
        caches.for_each(|cache| cache.each_large(&heap.spans.map, |_, granules| kept += bytes_of(granules)));
        Self {
            classes,
            large: heap.large_totals(),
            span_bytes: bytes_of(spans.used).saturating_sub(kept),
            span_peak_bytes: bytes_of(spans.used_peak),
            small_peak_bytes: heap.central.out_bytes_peak(),
            dirty_bytes: bytes_of(spans.dirty) + kept,
            purged_bytes: spans.purges.bytes,
            purges: spans.purges.calls,
            purges_refused: spans.purges.refused,
            huge_pages: spans.huge_pages,
            threads,
            threads_peak,
        }
    }

    /// Bytes of small blocks that the program has.
    pub fn small_used_bytes(&self) -> usize {
        self.classes.iter().map(|class| class.used * class.block_bytes).sum()
    }

    /// Bytes of small blocks that are free: in slabs, caches and transit.
    pub fn small_free_bytes(&self) -> usize {
        self.classes.iter().map(|class| (class.blocks - class.used) * class.block_bytes).sum()
    }

    /// Bytes of free small blocks in thread caches.
    pub fn cached_bytes(&self) -> usize {
        self.classes.iter().map(|class| class.cached * class.block_bytes).sum()
    }

    /// Bytes that the program has.
    pub fn used_bytes(&self) -> usize {
        self.small_used_bytes() + self.large.live
    }

    /// Writes the picture for people.
    ///
    /// # Errors
    /// What `out` reports.
    pub fn write(&self, out: &mut impl Write) -> fmt::Result {
        let kib = |bytes: usize| bytes.div_ceil(1024);
        writeln!(out, "faultless statistics of process {} (KiB unless said otherwise)", os::process_id())?;
        writeln!(out, "  in use        {:>12}", kib(self.used_bytes()))?;
        writeln!(out, "    small       {:>12}", kib(self.small_used_bytes()))?;
        let blocks = self.large.blocks;
        writeln!(
            out,
            "    large       {:>12}  in {blocks} blocks, peak {}",
            kib(self.large.live),
            kib(self.large.live_peak)
        )?;
        writeln!(out, "  free in slabs {:>12}", kib(self.small_free_bytes()))?;
        writeln!(
            out,
            "    cached      {:>12}  by {} threads, most at once {}",
            kib(self.cached_bytes()),
            self.threads,
            self.threads_peak
        )?;
        writeln!(out, "  spans         {:>12}  peak {}", kib(self.span_bytes), kib(self.span_peak_bytes))?;
        writeln!(out, "  free, dirty   {:>12}", kib(self.dirty_bytes))?;
        writeln!(
            out,
            "  purged        {:>12}  in {} calls, {} refused",
            self.purged_bytes / 1024,
            self.purges,
            self.purges_refused
        )?;
        if self.huge_pages > 0 {
            writeln!(out, "  huge pages    {:>12}  brought in so far", self.huge_pages * HUGE_PAGE_KIB)?;
        }
        writeln!(out, "  size class      slabs     blocks       used     cached    transit")?;
        for class in self.classes.iter().filter(|class| class.slabs > 0) {
            writeln!(
                out,
                "  {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
                class.block_bytes, class.slabs, class.blocks, class.used, class.cached, class.transit
            )?;
        }
        Ok(())
    }
}

/// Writes what `faultless doctor` reads: one `key value` line each, bytes.
///
/// # Errors
/// What `out` reports.
pub fn write_report(heap: &Heap, out: &mut impl Write) -> fmt::Result {
    let snapshot = Snapshot::take(heap);
    writeln!(out, "faultless-report 1")?;
    let mut result = Ok(());
    heap.each_large_bin(|bin| {
        let line =
            writeln!(out, "large {} {} {} {}", bin.smallest, bin.largest, bin.allocations, bin.live_peak);
        result = result.and(line);
    });
    result?;
    writeln!(out, "large_live_peak_bytes {}", snapshot.large.live_peak)?;
    writeln!(out, "small_live_peak_bytes {}", snapshot.small_peak_bytes)?;
    writeln!(out, "heap_peak_bytes {}", snapshot.span_peak_bytes)?;
    writeln!(out, "purged_bytes {}", snapshot.purged_bytes)?;
    writeln!(out, "purges {}", snapshot.purges)?;
    writeln!(out, "threads_peak {}", snapshot.threads_peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An invented heap, of which each figure is another.
    fn snapshot() -> Snapshot {
        let mut classes = [ClassStats::default(); CLASSES];
        classes[1] =
            ClassStats { block_bytes: 16, slabs: 2, blocks: 8000, used: 6000, cached: 512, transit: 64 };
        classes[3] =
            ClassStats { block_bytes: 48, slabs: 1, blocks: 1000, used: 300, cached: 100, transit: 50 };
        Snapshot {
            classes,
            large: LargeTotals { blocks: 3, live: 400 << 10, live_peak: 500 << 10 },
            span_bytes: 600 << 10,
            span_peak_bytes: 700 << 10,
            small_peak_bytes: 128 << 10,
            dirty_bytes: 64 << 10,
            purged_bytes: 9 << 20,
            purges: 12,
            purges_refused: 2,
            huge_pages: 5,
            threads: 4,
            threads_peak: 6,
        }
    }

    #[test]
    fn sums_are_of_all_classes() {
        let snapshot = snapshot();
        assert_eq!(snapshot.small_used_bytes(), 6000 * 16 + 300 * 48);
        assert_eq!(snapshot.small_free_bytes(), 2000 * 16 + 700 * 48);
        assert_eq!(snapshot.cached_bytes(), 512 * 16 + 100 * 48);
        assert_eq!(snapshot.used_bytes(), snapshot.small_used_bytes() + (400 << 10));
    }

    #[test]
    fn people_read_kib_of_what_there_is() {
        let written = |snapshot: &Snapshot| {
            let mut text = String::new();
            snapshot.write(&mut text).unwrap();
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        let all = written(&snapshot());
        assert_eq!(
            all[1..],
            [
                "in use 508",
                "small 108",
                "large 400 in 3 blocks, peak 500",
                "free in slabs 65",
                "cached 13 by 4 threads, most at once 6",
                "spans 600 peak 700",
                "free, dirty 64",
                "purged 9216 in 12 calls, 2 refused",
                "huge pages 10240 brought in so far",
                "size class slabs blocks used cached transit",
                "16 2 8000 6000 512 64",
                "48 1 1000 300 100 50",
            ]
        );
        let without = written(&Snapshot { huge_pages: 0, ..snapshot() });
        assert!(!without.iter().any(|line| line.starts_with("huge pages")));
    }

    #[test]
    fn each_block_of_a_slab_is_used_or_cached_or_in_transit_or_free() {
        let (heap, class) = (Heap::boxed(), size_class::class_of(1024).unwrap());
        let cache = heap.caches.acquire().unwrap();
        heap.spans.set_purger(true);
        let most = size_class::magazine_max(class);
        let magazines = [0; 2].map(|_| heap.central.fetch(&heap.spans, 0, class, most).unwrap());
        let counted = || {
            let place = size_class::BY_SIZE.iter().position(|&other| other == class).unwrap();
            Snapshot::take(&heap).classes[place]
        };
        let fetched: usize = magazines.iter().map(|magazine| magazine.count as usize).sum();
        let blocks = counted().slabs * size_class::slab_blocks(class) as usize;
        let expected = ClassStats {
            block_bytes: size_class::size(class),
            slabs: blocks / size_class::slab_blocks(class) as usize,
            blocks,
            used: fetched,
            cached: 0,
            transit: 0,
        };
        assert_eq!(counted(), expected);
        let [first, _] = magazines;
        let in_transit = first.count as usize;
        heap.central.store(&heap.spans, 0, class, first);
        assert_eq!(counted(), ClassStats { used: fetched - in_transit, transit: in_transit, ..expected });
        let block = heap.allocate_small(Some(cache), class);
        let ClassStats { used, cached, transit, .. } = counted();
        assert_eq!((used, cached + transit), (fetched - in_transit + 1, in_transit - 1));
        heap.free(Some(cache), block);
        let ClassStats { used, cached, transit, .. } = counted();
        assert_eq!((used, cached + transit), (fetched - in_transit, in_transit));
        assert!(cached > 0);
    }

    #[test]
    fn the_report_names_each_figure_that_is_read_from_it() {
        let heap = Heap::boxed();
        heap.allocate_large(None, 1 << 20, 16, crate::large::Pages::Any);
        let mut text = String::new();
        write_report(&heap, &mut text).unwrap();
        let snapshot = Snapshot::take(&heap);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "faultless-report 1");
        assert!(lines[1].starts_with("large ") && lines[1].ends_with(" 1 1048576"), "{}", lines[1]);
        let figures = [
            ("large_live_peak_bytes", 1 << 20),
            ("small_live_peak_bytes", snapshot.small_peak_bytes as u64),
            ("heap_peak_bytes", snapshot.span_peak_bytes as u64),
            ("purged_bytes", snapshot.purged_bytes),
            ("purges", snapshot.purges),
            ("threads_peak", snapshot.threads_peak as u64),
        ];
        assert_eq!(lines[2..], figures.map(|(name, figure)| format!("{name} {figure}")));
    }
}
