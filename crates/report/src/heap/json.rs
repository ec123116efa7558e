//! A process's heaps for programs.

use faultless_diagnosis::glibc_heap::account::Account;
use faultless_diagnosis::glibc_heap::sizes::{Amount, Sizes};
use faultless_diagnosis::glibc_heap::walk::{Arena, Flaw, HeapWalk};
use serde_json::{Value, json};

use super::remedy::remedy;
use crate::heap::{FaultlessHeap, HeapView, Source};

/// Version of the JSON form, documented in `docs/json.md`.
pub const FORMAT: &str = "faultless-heap/1";

/// The whole report.
#[must_use]
pub fn json(report: &HeapView) -> String {
    let (source, stop) = match &report.source {
        Source::Process(stop) => ("process", *stop),
        Source::AtExit => ("exit", None),
        Source::Core(_) => ("core", None),
    };
    let other = report.other.as_ref().map(|(name, regions)| {
        json!({
            "name": name,
            "mappings": regions.count,
            "reserved_bytes": regions.reserved_bytes,
            "accessible_bytes": regions.accessible_bytes,
            "resident_bytes": regions.resident_bytes,
        })
    });
    let value = json!({
        "format": FORMAT,
        "pid": report.pid,
        "name": report.name,
        "source": source,
        "stood_still_seconds": stop.map(|stop| stop.stood.as_secs_f64()),
        "moving_threads": stop.map_or(0, |stop| stop.moving_threads),
        "overdue_arenas": stop.map_or(0, |stop| stop.overdue_arenas),
        "walk_seconds": report.took.as_secs_f64(),
        "glibc": report.glibc.map(|(major, minor)| format!("{major}.{minor}")),
        "counted_rss_bytes": report.counted_rss_bytes,
        "walks": report.walks.iter().map(|of_libc| walk(of_libc, !report.is_static)).collect::<Vec<_>>(),
        "other_allocator": other,
        "faultless": report.faultless.as_ref().map(faultless),
        "remarks": report.remarks.iter().cloned().chain(report.on_walk()).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

fn faultless(heap: &FaultlessHeap) -> Value {
    let page = &heap.page;
    let classes = page.classes.iter().map(|class| {
        json!({
            "block_bytes": class.block_bytes,
            "slabs": class.slabs,
            "blocks": class.blocks,
            "used": class.used,
            "cached": class.cached,
            "transit": class.transit,
        })
    });
    json!({
        "age_seconds": heap.age.as_secs_f64(),
        "used_bytes": page.used_bytes(),
        "cached_bytes": page.cached_bytes(),
        "free_in_slabs_bytes": page.free_in_slabs_bytes(),
        "threads": page.threads,
        "threads_peak": page.threads_peak,
        "large_blocks": page.large_blocks,
        "large_bytes": page.large_bytes,
        "large_peak_bytes": page.large_peak_bytes,
        "span_bytes": page.span_bytes,
        "span_peak_bytes": page.span_peak_bytes,
        "dirty_bytes": page.dirty_bytes,
        "resident_bytes": heap.resident_bytes,
        "purged_bytes": page.purged_bytes,
        "purges": page.purges,
        "purges_refused": page.purges_refused,
        "classes": classes.collect::<Vec<_>>(),
    })
}

fn walk(walk: &HeapWalk, is_reached: bool) -> Value {
    json!({
        "layout_since": format!("2.{}", walk.layout.since),
        "is_exact": walk.is_exact(),
        "residency_is_known": walk.residency_is_known,
        "thread_caches": walk.caches,
        "changed_thread_caches": walk.changed_caches,
        "mmap_threshold_bytes": walk.parameters.map(|parameters| parameters.mmap_threshold_bytes),
        "trim_threshold_bytes": walk.parameters.map(|parameters| parameters.trim_threshold_bytes),
        "remedy": remedy(walk, is_reached),
        "total": account(&walk.total),
        "mapped_blocks": walk.parameters.map(|_| json!({
            "blocks": walk.mapped.blocks,
            "bytes": walk.mapped.bytes,
            "found_blocks": walk.mapped.found_blocks,
            "found_bytes": walk.mapped.found_bytes,
            "resident_bytes": walk.mapped.resident_bytes,
        })),
        "used_sizes": sizes(&walk.total.used),
        "free_sizes": sizes(&walk.total.free),
        "arenas": walk.arenas.iter().map(arena).collect::<Vec<_>>(),
    })
}

fn arena(arena: &Arena) -> Value {
    let heaps = arena.heaps.iter().map(|heap| {
        json!({
            "start": address(heap.start),
            "bytes": heap.bytes,
            "accessible_bytes": heap.accessible_bytes,
            "reserved_bytes": heap.reserved_bytes,
        })
    });
    let mut value = account(&arena.account);
    value["address"] = json!(address(arena.address));
    value["is_main"] = json!(arena.is_main);
    value["threads"] = json!(arena.threads);
    value["reserved_bytes"] = json!(arena.reserved_bytes());
    value["system_bytes"] = json!(arena.system_bytes);
    value["max_system_bytes"] = json!(arena.max_system_bytes);
    value["attempts"] = json!(arena.attempts);
    value["flaw"] = json!(arena.flaw.map(|flaw| flaw_text(&flaw)));
    value["heaps"] = heaps.collect();
    value
}

fn account(account: &Account) -> Value {
    let used = account.used.total();
    let holding = account.holding;
    json!({
        "used_blocks": used.blocks,
        "used_bytes": used.bytes,
        "free_bytes": account.free_bytes(),
        "binned": amount(account.binned),
        "fast": amount(account.fast),
        "cached": amount(account.cached),
        "top_bytes": account.top_bytes,
        "largest_free_bytes": account.largest_free_bytes,
        "overhead_bytes": account.overhead_bytes,
        "resident_bytes": holding.resident_bytes,
        "swapped_bytes": holding.swapped_bytes,
        "trapped_bytes": account.trapped_bytes(),
        "trapped": {
            "returnable_bytes": account.returnable_bytes,
            "kept_bytes": account.kept_bytes(),
            "pinned_bytes": holding.pinned_bytes,
            "cached_bytes": account.cached_resident_bytes,
        },
        "fragmentation": account.fragmentation(),
    })
}

fn amount(amount: Amount) -> Value {
    json!({ "blocks": amount.blocks, "bytes": amount.bytes })
}

fn sizes(sizes: &Sizes) -> Vec<Value> {
    let row = |row: &faultless_diagnosis::glibc_heap::sizes::Row| {
        json!({
            "from_bytes": row.from_bytes,
            "to_bytes": row.to_bytes,
            "blocks": row.amount.blocks,
            "bytes": row.amount.bytes,
        })
    };
    sizes.rows().iter().map(row).collect()
}

fn address(address: u64) -> String {
    format!("{address:#x}")
}

/// Why an arena's figures are not exact, as part of a sentence.
#[must_use]
pub fn flaw_text(flaw: &Flaw) -> String {
    match flaw {
        Flaw::Unreadable => "its state made no sense".into(),
        Flaw::Chunk(fault) => format!("the walk ended at {:#x}: {}", fault.address, fault.reason),
        Flaw::Lists => "its lists of free chunks were broken".into(),
        Flaw::Differs { listed, met } => {
            format!("its lists name {} free chunks and the walk met {}", listed.blocks, met.blocks)
        }
        Flaw::Size { walked_bytes } => format!("{walked_bytes} bytes were walked, which is not its size"),
        Flaw::Overdue => "it was not walked to its end".into(),
    }
}
