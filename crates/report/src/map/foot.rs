//! What stands below the table of a map: the control group, what makes memory resident that may not be in use, what no RSS counts, what
//! was not seen.

use std::collections::HashSet;
use std::fmt::Write;

use faultless_diagnosis::classification::kind::Kind;
use faultless_diagnosis::classification::stacks::OF_ENDED_THREAD;
use faultless_records::cgroup::{MemoryGroup, Version};
use faultless_records::mappings::Usage;
use faultless_records::quantity::{several, size, whole};

use super::view::MapView;
use crate::plain::plain;

/// A difference to the kernel's sum below this is not worth a warning in a process that runs.
const TEARING: f64 = 0.01;

/// Huge pages and what else may not be in use are named from so many bytes on, where they are a tenth of what is resident, too.
const NOTABLE_BYTES: u64 = 8 << 20;
const NOTABLE_PART: u64 = 10;

/// So many pipes and sockets may hold a notable amount.
const MANY_BUFFERS: u64 = 256;

/// Addresses of stacks that glibc keeps for the next threads. Source: `glibc.pthread.stack_cache_size`.
const KEPT_STACK_BYTES: u64 = 40 << 20;

/// Of fewer stacks than this nothing is said.
const MANY_STACKS: u64 = 64;

/// All of it, a line for each.
#[must_use]
pub fn text(view: &MapView) -> String {
    let mut text = String::new();
    if let Some(group) = &view.group {
        let _ = writeln!(text, "{}", group_line(group));
    }
    text += &near_most_mappings(view);
    text += &what_else_is_resident(view);
    if has_changed(view) {
        text.push_str(
            "Note: it changed while it was read; a process that stands still (kill -STOP) is read exactly\n",
        );
    }
    for remark in &view.remarks {
        let _ = writeln!(text, "Note: {}", plain(remark));
    }
    text
}

/// That it has nearly as many mappings as it may, if it has.
pub(crate) fn near_most_mappings(view: &MapView) -> String {
    let count = view.mappings.len() as u64;
    view.most_mappings.filter(|most| count >= most / 4 * 3).map_or_else(String::new, |most| {
        format!(
            "it has {} of {} mappings (vm.max_map_count): at the limit mmap and mprotect fail, and malloc and new threads with them, \
             however much memory is free\n",
            whole(count as f64),
            whole(most as f64)
        )
    })
}

/// What makes memory resident that may not be in use, or is no part of RSS, a line for each.
pub(crate) fn what_else_is_resident(view: &MapView) -> String {
    [
        why_resident(&view.sum()),
        unseen_inside(view),
        of_ended_threads(view),
        beside_rss(view),
        counted_again(view),
        unrecognised(view),
    ]
    .concat()
}

/// Stacks of threads that have ended, where libc does not keep them for others: these nobody has joined.
fn of_ended_threads(view: &MapView) -> String {
    let stacks = || view.parts.iter().filter(|part| part.evidence.proof == OF_ENDED_THREAD);
    let number = stacks().filter_map(|part| part.claim).collect::<HashSet<_>>().len() as u64;
    let reserved_bytes = stacks().map(|part| part.extent.bytes()).fold(0, u64::saturating_add);
    if number < MANY_STACKS || reserved_bytes <= 2 * KEPT_STACK_BYTES {
        return String::new();
    }
    let rss_bytes = stacks().filter_map(|part| part.usage).map(|usage| usage.rss_bytes).sum();
    format!(
        "{} of threads that have ended are still there ({} of addresses, {} resident): libc keeps {} for the next threads unless set \
         otherwise, the others wait until somebody joins (pthread_join) or detaches the thread\n",
        several(number, "stack"),
        size(reserved_bytes),
        size(rss_bytes),
        size(KEPT_STACK_BYTES)
    )
}

/// What the kernel keeps for the process and RSS does not have.
fn beside_rss(view: &MapView) -> String {
    let mut text = String::new();
    if let Some(files) = view.unmapped_files.filter(|files| is_notable(files.bytes, &view.sum())) {
        let _ = writeln!(
            text,
            "{} beside RSS in {} that it holds by descriptors and does not map (memfd, or deleted from a tmpfs)",
            size(files.bytes),
            several(files.count, "file")
        );
    }
    if let Some(bytes) = view.page_table_bytes.filter(|bytes| is_notable(*bytes, &view.sum())) {
        let _ = writeln!(
            text,
            "{} beside RSS in page tables, each of which takes 4 KiB for 2 MiB of addresses: what was touched lies far apart, or went and left \
             them",
            size(bytes)
        );
    }
    if let Some(files) = view.unmapped_files.filter(|files| files.pipes + files.sockets >= MANY_BUFFERS) {
        let _ = writeln!(
            text,
            "it has {} and {} open: what waits in them is the kernel's memory, in no RSS (up to 64 KiB in a pipe of the usual size)",
            several(files.pipes, "pipe"),
            several(files.sockets, "socket")
        );
    }
    text
}

/// Memory that RSS has more than once.
fn counted_again(view: &MapView) -> String {
    let again = view.mapped_again();
    if again.rss_bytes == 0 {
        return String::new();
    }
    format!(
        "{} of the resident memory is shared mappings that show the same pages at several addresses: RSS counts these at each, \
         PSS once ({})\n",
        size(again.rss_bytes),
        size(again.pss_bytes)
    )
}

/// An allocator that is there and whose memory is hardly found.
fn unrecognised(view: &MapView) -> String {
    let said = match view.unseen_allocator() {
        Some(allocator) => {
            let known = match view.rss_bytes(Kind::Allocator(allocator)) {
                0 => "none".into(),
                bytes => format!("only {}", size(bytes)),
            };
            format!("{allocator} is loaded and {known} of its memory is recognised")
        }
        None if view.is_own_malloc_unseen() => {
            "none of the memory of the program's own malloc is recognised".into()
        }
        None => return String::new(),
    };
    let [unknown, own] = [Kind::Unknown, Kind::OwnMapping].map(|kind| view.rss_bytes(kind));
    let in_doubt = match (unknown, own) {
        (_, own) if own < unknown / NOTABLE_PART => format!("unknown {}", size(unknown)),
        (unknown, _) if unknown < own / NOTABLE_PART => format!("{} of own mappings", size(own)),
        _ => format!("unknown {} and of the {} of own mappings", size(unknown), size(own)),
    };
    format!("{said}: much of the {in_doubt} may be what it serves\n")
}

/// Whether the sum of the mappings is so far from the kernel's that they must have changed while they were read.
fn has_changed(view: &MapView) -> bool {
    let sum_bytes = view.sum().rss_bytes.max(1);
    view.is_measured()
        && view
            .kernel
            .is_some_and(|kernel| kernel.rss_bytes.abs_diff(sum_bytes) as f64 / sum_bytes as f64 > TEARING)
}

fn is_notable(bytes: u64, sum: &Usage) -> bool {
    bytes >= NOTABLE_BYTES && bytes >= sum.rss_bytes / NOTABLE_PART
}

/// Who tells how much of a runtime's heap is in use: all of it stands in the table, garbage and what is kept free, too.
fn unseen_inside(view: &MapView) -> String {
    let mut text = String::new();
    for total in view.totals.iter().filter(|total| is_notable(total.usage.rss_bytes, &view.sum())) {
        if let Some(account) = total.kind.account() {
            let account = view.pid.map_or(account.into(), |pid| account.replace("PID", &pid.to_string()));
            let _ = writeln!(
                text,
                "{}: what of it is in use and what free is not seen from outside; {account} tells it",
                total.kind.name()
            );
        }
    }
    text
}

/// What makes memory resident, or keeps it so, that may not be in use.
fn why_resident(sum: &Usage) -> String {
    let mut text = String::new();
    if sum.lazy_free_bytes > 0 {
        let _ = writeln!(
            text,
            "{} of the resident memory is given up by MADV_FREE: the kernel takes it when it needs it",
            size(sum.lazy_free_bytes)
        );
    }
    if is_notable(sum.anonymous_huge_bytes, sum) {
        let _ = writeln!(
            text,
            "{} of the resident memory is transparent huge pages: each is resident whole, however little of it was touched",
            size(sum.anonymous_huge_bytes)
        );
    }
    if is_notable(sum.locked_bytes, sum) {
        let _ = writeln!(
            text,
            "{} of the resident memory is locked (mlock, mlockall): none of it goes to swap, and locking brings pages in that \
             were never touched",
            size(sum.locked_bytes)
        );
    }
    if sum.hugetlb_bytes > 0 {
        let _ = writeln!(text, "{} in hugetlbfs pages, which RSS does not count", size(sum.hugetlb_bytes));
    }
    text
}

/// Limit and usage of a control group in words.
fn group_line(group: &MemoryGroup) -> String {
    let version = match group.version {
        Version::One => "v1",
        Version::Two => "v2",
    };
    let limit = group.limit_bytes.map_or("no limit".into(), |bytes| format!("limit {}", size(bytes)));
    let mut text = format!(
        "control group {} ({version}): {limit}, in use {}",
        plain(&group.path),
        size(group.usage_bytes)
    );
    if let (Some(anonymous), Some(file)) = (group.anonymous_bytes, group.file_bytes) {
        let rest = group.usage_bytes.saturating_sub(anonymous).saturating_sub(file);
        let _ = write!(text, " (anonymous {}, files {}", size(anonymous), size(file));
        if rest >= NOTABLE_BYTES && rest >= group.usage_bytes / NOTABLE_PART {
            let _ = write!(
                text,
                ", the rest of {} is the kernel's: slabs, page tables, what waits in pipes and sockets",
                size(rest)
            );
        }
        text.push(')');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_diagnosis::classification::claim::{Evidence, Strength};
    use faultless_diagnosis::classification::{Sight, classify};
    use faultless_records::mappings;
    use faultless_records::unmapped_files::UnmappedFiles;

    const UNKNOWN: &str = "7f0009000000-7f0009100000 rw-p 00000000 00:00 0 \nRss: 1024 kB\nVmFlags: rd\n";

    #[test]
    fn memory_of_the_kernels_is_named_where_there_is_much_of_it() {
        let mappings = mappings::parse(
            b"7f0000000000-7f0010000000 rw-p 00000000 00:00 0 \nRss: 102400 kB\nVmFlags: rd\n",
        );
        let mut view = MapView::new("shop".into(), None, mappings.unwrap(), Vec::new());
        let of = |usage_bytes| MemoryGroup {
            version: Version::Two,
            path: "/shop".into(),
            limit_bytes: None,
            usage_bytes,
            anonymous_bytes: Some(100 << 20),
            file_bytes: Some(20 << 20),
            shared_bytes: None,
        };
        let files = |pipes, sockets| Some(UnmappedFiles { pipes, sockets, ..UnmappedFiles::default() });
        view.group = Some(of(125 << 20));
        (view.page_table_bytes, view.unmapped_files) = (Some(200 << 10), files(100, 100));
        assert_eq!(
            text(&view),
            "control group /shop (v2): no limit, in use 125 MiB (anonymous 100 MiB, files 20 MiB)\n"
        );
        view.group = Some(of(320 << 20));
        (view.page_table_bytes, view.unmapped_files) = (Some(40 << 20), files(1500, 1000));
        let text = text(&view);
        for said in [
            "files 20 MiB, the rest of 200 MiB is the kernel's: slabs",
            "40 MiB beside RSS in page tables, each of which takes 4 KiB for 2 MiB of addresses: what was touched lies far apart",
            "it has 1,500 pipes and 1,000 sockets open: what waits in them is",
        ] {
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn stacks_of_ended_threads_that_nobody_joins_are_told_from_those_that_libc_keeps() {
        let foot_of = |stacks: u64, bytes: u64| {
            let line = |at: u64| {
                let start = 0x7f00_0000_0000 + at * bytes;
                format!("{start:x}-{:x} rw-p 00000000 00:00 0 \nRss: 24 kB\nVmFlags: rd\n", start + bytes)
            };
            let mappings = mappings::parse((0..stacks).map(line).collect::<String>().as_bytes()).unwrap();
            let mut parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
            for (claim, part) in (0..).zip(&mut parts) {
                part.kind = Kind::ThreadStack;
                part.evidence = Evidence::plain(Strength::Contents, OF_ENDED_THREAD);
                part.claim = Some(claim);
            }
            super::text(&MapView::new("saved".into(), None, mappings, parts))
        };
        let left = foot_of(200, 1 << 20);
        assert!(
            left.starts_with("200 stacks of threads that have ended are still there (200 MiB of addresses, 4.7 MiB resident): libc keeps 40 MiB"),
            "{left}"
        );
        assert_eq!(foot_of(64, 1 << 20), "", "as many as libc may keep, and some that it is about to unmap");
        assert_eq!(foot_of(16, 8 << 20), "", "few");
    }

    #[test]
    fn mappings_are_counted_where_they_are_nearly_as_many_as_they_may_be() {
        let lines = (1..4).map(|page| format!("{page}000-{page}800 rw-p 00000000 00:00 0 \n"));
        let mappings = mappings::parse(lines.collect::<String>().as_bytes()).unwrap();
        let mut view = MapView::new("saved".into(), None, mappings, Vec::new());
        assert_eq!(near_most_mappings(&view), "", "of a file nobody knows");
        view.most_mappings = Some(4);
        assert!(text(&view).contains("it has 3 of 4 mappings (vm.max_map_count): at the limit mmap"));
        view.most_mappings = Some(8);
        assert_eq!(near_most_mappings(&view), "");
    }

    #[test]
    fn huge_and_locked_pages_are_named_where_they_are_a_notable_part() {
        let foot_of = |figures: &str| {
            let text = format!("7f0000000000-7f0010000000 rw-p 00000000 00:00 0 \n{figures}VmFlags: rd\n");
            let mappings = mappings::parse(text.as_bytes()).unwrap();
            let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
            super::text(&MapView::new("saved".into(), None, mappings, parts))
        };
        let notable = foot_of("Rss: 102400 kB\nAnonHugePages: 20480 kB\nLocked: 10240 kB\n");
        assert!(
            notable.contains("20 MiB of the resident memory is transparent huge pages: each is"),
            "{notable}"
        );
        assert!(
            notable.contains("10 MiB of the resident memory is locked (mlock, mlockall): none"),
            "{notable}"
        );
        for little in
            ["Rss: 204800 kB\nAnonHugePages: 10240 kB\nLocked: 10240 kB\n", "Rss: 4096 kB\nLocked: 4096 kB\n"]
        {
            assert_eq!(foot_of(little), "", "{little}");
        }
    }

    #[test]
    fn of_a_runtimes_heap_it_is_said_what_tells_used_from_free() {
        let foot_of = |kind: Kind| {
            let mappings =
                mappings::parse(b"10000-20000 rw-p 00000000 00:00 0 \nRss: 20480 kB\nVmFlags: rd\n").unwrap();
            let mut parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
            parts[0].kind = kind;
            super::text(&MapView::new("x".into(), Some(4711), mappings, parts))
        };
        let line = "Python objects: what of it is in use and what free is not seen from outside; sys._debugmallocstats() inside tells it\n";
        assert_eq!(foot_of(Kind::PythonObjects), line);
        assert!(foot_of(Kind::GoHeap).contains("StackInuse"), "{}", foot_of(Kind::GoHeap));
        assert!(foot_of(Kind::JavaHeap).contains("; jcmd 4711 GC.heap_info tells it"));
        assert_eq!(foot_of(Kind::GlibcHeap), "", "faultless heap sees it");
    }

    #[test]
    fn what_is_mapped_at_two_addresses_is_said_to_be_counted_twice() {
        let at = |start: u32| {
            let head = format!("{start:x}-{:x} rw-s 00000000 00:01 7 /memfd:heap", start + 0x10000);
            format!("{head} (deleted)\nRss: 64 kB\nPss: 32 kB\nVmFlags: rd\n")
        };
        let mappings = mappings::parse((at(0x10000) + &at(0x50000)).as_bytes()).unwrap();
        let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
        let text = super::text(&MapView::new("zgc".into(), None, mappings, parts));
        let line = "128 KiB of the resident memory is shared mappings that show the same pages at several addresses: \
                    RSS counts these at each, PSS once (64 KiB)";
        assert!(text.lines().any(|found| found == line), "{text}");
    }

    #[test]
    fn an_allocator_whose_memory_bears_no_mark_is_named_beside_what_is_unknown() {
        let library = |name: &str| {
            let head = format!("7f0009100000-7f0009200000 r-xp 00000000 08:01 7 /usr/lib/{name}\n");
            mappings::parse((UNKNOWN.to_owned() + &head + "Rss: 8 kB\nVmFlags: rd\n").as_bytes()).unwrap()
        };
        let foot_beside = |name: &str| {
            let mappings = library(name);
            let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
            super::text(&MapView::new("saved".into(), None, mappings, parts))
        };
        let line = "rpmalloc is loaded and none of its memory is recognised: much of the unknown 1 MiB may be what it serves";
        assert!(foot_beside("librpmalloc.so").contains(line), "{}", foot_beside("librpmalloc.so"));
        let mappings_beside = library("librpmalloc.so");
        let parts = classify(&Sight { mappings: &mappings_beside, contents: None, threads: &[] });
        let mut view = MapView::new("browser".into(), None, mappings_beside, parts);
        view.has_own_malloc = true;
        let line = "none of the memory of the program's own malloc is recognised: much of the unknown 1 MiB may be what it serves";
        let text = super::text(&view);
        assert!(text.contains(line) && !text.contains("rpmalloc is loaded"), "{text}");
        let own = "7f0009300000-7f0009400000 rw-p 00000000 00:00 0 \nRss: 1024 kB\nVmFlags: rd\n";
        let mut mappings = library("librpmalloc.so");
        mappings.extend(mappings::parse(own.as_bytes()).unwrap());
        let mut parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
        for (first, said) in
            [(2, "unknown 1 MiB and of the 1 MiB of own mappings"), (0, "2 MiB of own mappings")]
        {
            let anonymous = parts[first..].iter_mut().filter(|part| part.kind == Kind::Unknown);
            anonymous.for_each(|part| part.kind = Kind::OwnMapping);
            let text = super::text(&MapView::new("saved".into(), None, mappings.clone(), parts.clone()));
            assert!(text.contains(&format!("recognised: much of the {said} may be what")), "{text}");
        }
        assert!(!foot_beside("libc.so.6").contains("recognised"));
    }
}
