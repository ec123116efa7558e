//! What the layout of the mappings alone suggests, for saved files and processes whose memory we may not read.
//!
//! Weaker than contents, and said to be: another program may lay out its memory the same way.

use std::collections::HashMap;

use faultless_records::contents::Extent;
use faultless_records::mappings::Mapping;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::glibc::HEAP_BYTES;
use super::kind::Kind;
use super::parts;
use super::reader::extent_of;

/// Compressed pointers reach 32 GiB: the Java virtual machine puts its heap below, when it fits.
const COMPRESSED_BYTES: u64 = 32 << 30;

/// Where Go on 64-bit machines begins its heap.
const GO_HEAP: u64 = 0xc0_0000_0000;

/// Usual sizes of stacks: Java's threads, its compilers and collectors, and what `ulimit -s` says by default.
const STACK_BYTES: &[u64] = &[1 << 20, 2 << 20, 8 << 20];

/// A stack may have its guard beyond its size, and the virtual machine's own guards inside.
const MOST_GUARD_BYTES: u64 = 128 << 10;

/// Addresses that Faultless reserves.
const RESERVATION_BYTES: u64 = 1 << 40;

/// Claims what looks like something, where the contents cannot say.
pub fn claim(sight: &Sight<'_>, claims: &mut Claims) {
    if sight.contents.is_some() {
        return;
    }
    let mappings = sight.mappings;
    let has = |part: &str| mappings.iter().any(|mapping| mapping.name_text().contains(part));
    let is_java = has("libjvm.so");
    for run in runs(mappings) {
        if is_java {
            claim_java(run, claims);
        }
        claim_heaps(run, claims);
        claim_whole(run, has("libfaultless"), claims);
    }
    claim_static_data(mappings, claims);
    claim_stacks(mappings, is_java, claims);
}

fn pattern(proof: &'static str) -> Evidence {
    Evidence::plain(Strength::Pattern, proof)
}

/// Anonymous mappings without a hole between them.
fn runs(mappings: &[Mapping]) -> impl Iterator<Item = &[Mapping]> {
    mappings
        .chunk_by(|left, right| left.is_anonymous() && right.is_anonymous() && left.end == right.start)
        .filter(|run| run[0].is_anonymous())
}

/// 64 MiB at a multiple of 64 MiB: first accessible, then reserved. Fully grown ones join with the next.
fn claim_heaps(run: &[Mapping], claims: &mut Claims) {
    for (place, mapping) in run.iter().enumerate().filter(|(_, mapping)| mapping.is_writable()) {
        let start = mapping.start.next_multiple_of(HEAP_BYTES);
        let end = match run.get(place + 1) {
            Some(next) if next.is_inaccessible() => next.end.min(mapping.end.next_multiple_of(HEAP_BYTES)),
            _ => mapping.end,
        };
        // A mapping that goes on to the left of the multiple is no heap from its start on.
        if start == mapping.start && end > start && end.is_multiple_of(HEAP_BYTES) {
            let proof = "64 MiB at a multiple of 64 MiB, accessible part first";
            claims.add(Extent { start, end }, Kind::GlibcHeap, pattern(proof));
        }
    }
}

fn claim_java(run: &[Mapping], claims: &mut Claims) {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
    let extent = Extent { start: first.start, end: last.end };
    let has_code = run.iter().any(|mapping| mapping.is_executable() && mapping.is_writable());
    if has_code {
        claims.add(extent, Kind::JavaCode, pattern("writable code in a Java process"));
    } else if extent.end <= COMPRESSED_BYTES && extent.bytes() >= 8 << 20 {
        claims.add(extent, Kind::JavaHeap, pattern("below 32 GiB in a Java process"));
    }
}

fn claim_whole(run: &[Mapping], has_faultless: bool, claims: &mut Claims) {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return };
    let extent = Extent { start: first.start, end: last.end };
    if first.start == GO_HEAP && extent.bytes().is_multiple_of(4 << 20) {
        claims.add(extent, Kind::GoHeap, pattern("the address where Go begins its heap"));
    }
    if has_faultless && extent.bytes() >= RESERVATION_BYTES && first.is_writable() {
        let kind = Kind::Allocator(faultless_records::allocator::Allocator::Faultless);
        // What the kernel joined to its end is not told apart.
        let extent = Extent::new(extent.start, RESERVATION_BYTES);
        claims.add(extent, kind, pattern("1 TiB reserved in a process with libfaultless"));
    }
}

/// Memory that begins where the writable part of a library's file ends. Files of data are mapped so, too.
fn claim_static_data(mappings: &[Mapping], claims: &mut Claims) {
    let programs = parts::programs(mappings);
    for pair in mappings.windows(2) {
        let [file, data] = pair else { continue };
        let is_data = file.is_writable() && !file.is_shared();
        let joins = file.end == data.start && is_data && programs.contains(&(file.device, file.inode));
        if joins && data.is_anonymous() && data.is_writable() {
            claims.add(extent_of(data), Kind::StaticData, pattern("follows a library's writable data"));
        }
    }
}

/// A guard, then a writable mapping; together of a size that stacks usually have, or that several have.
fn claim_stacks(mappings: &[Mapping], is_java: bool, claims: &mut Claims) {
    let pairs: Vec<(Extent, u64)> = mappings
        .windows(2)
        .filter_map(|pair| {
            let [guard, stack] = pair else { return None };
            let fits = guard.end == stack.start
                && guard.is_anonymous()
                && guard.is_inaccessible()
                && guard.bytes() <= MOST_GUARD_BYTES
                && stack.is_anonymous()
                && stack.is_writable()
                && !stack.is_executable();
            fits.then_some((Extent { start: guard.start, end: stack.end }, stack.end - guard.start))
        })
        .collect();
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for (_, bytes) in &pairs {
        *counts.entry(*bytes).or_default() += 1;
    }
    for (extent, bytes) in pairs {
        let usual = STACK_BYTES.iter().find(|usual| (**usual..=**usual + MOST_GUARD_BYTES).contains(&bytes));
        // Java's threads have 1 MiB unless -Xss says otherwise.
        let is_of_java = is_java && usual == Some(&STACK_BYTES[0]);
        let kind = if is_of_java { Kind::JavaThreadStack } else { Kind::ThreadStack };
        if usual.is_some() {
            claims.add(extent, kind, pattern("guard below, size of a usual stack"));
        } else if counts.get(&bytes).is_some_and(|count| *count >= 4) {
            claims.add(extent, Kind::ThreadStack, pattern("guard below, same size as several others"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::classify;
    use super::super::reader::made_up::mapping;
    use super::*;

    const MIB: u64 = 1 << 20;
    const BASE: u64 = 0x7f00_0000_0000;

    fn kinds(mappings: &[Mapping]) -> Vec<Kind> {
        let sight = Sight { mappings, contents: None, threads: &[] };
        classify(&sight).into_iter().map(|part| part.kind).collect()
    }

    #[test]
    fn heaps_in_a_saved_file_are_known_by_their_layout_also_fully_grown() {
        let mappings = [
            mapping(BASE, BASE + 3 * MIB, b"rw-p", ""),
            mapping(BASE + 3 * MIB, BASE + 64 * MIB, b"---p", ""),
            mapping(BASE + 128 * MIB, BASE + 256 * MIB, b"rw-p", ""),
            mapping(BASE + 256 * MIB, BASE + 320 * MIB, b"---p", ""),
            mapping(BASE + 321 * MIB, BASE + 521 * MIB, b"rw-p", ""),
        ];
        let heap = Kind::GlibcHeap;
        assert_eq!(kinds(&mappings), [heap, heap, heap, Kind::Inaccessible, Kind::Unknown]);
    }

    #[test]
    fn a_java_process_has_its_stacks_code_and_heap() {
        let mappings = [
            mapping(0x7_0000_0000, 0x7_1000_0000, b"rw-p", ""),
            mapping(0x7_1000_0000, 0x8_0000_0000, b"---p", ""),
            mapping(BASE, BASE + MIB, b"rwxp", ""),
            mapping(BASE + MIB, BASE + 48 * MIB, b"---p", ""),
            mapping(BASE + 64 * MIB, BASE + 64 * MIB + 0x4000, b"---p", ""),
            mapping(BASE + 64 * MIB + 0x4000, BASE + 65 * MIB, b"rw-p", ""),
            mapping(BASE + 80 * MIB, BASE + 81 * MIB, b"r-xp", "/x/libjvm.so"),
            mapping(BASE + 81 * MIB, BASE + 82 * MIB, b"rw-p", "/x/libjvm.so"),
            mapping(BASE + 82 * MIB, BASE + 83 * MIB, b"rw-p", ""),
        ];
        let (heap, code, stack) = (Kind::JavaHeap, Kind::JavaCode, Kind::JavaThreadStack);
        let program = Kind::Program;
        let expected = [heap, heap, code, code, stack, stack, program, program, Kind::StaticData];
        assert_eq!(kinds(&mappings), expected);
    }

    #[test]
    fn memory_behind_a_file_that_is_no_program_is_no_static_data() {
        let data = Mapping { inode: 2, ..mapping(BASE, BASE + MIB, b"rw-p", "/x/index") };
        let mappings = [
            data,
            mapping(BASE + MIB, BASE + 301 * MIB, b"rw-p", ""),
            mapping(BASE + 400 * MIB, BASE + 401 * MIB, b"r-xp", "/x/libc.so.6"),
            mapping(BASE + 401 * MIB, BASE + 402 * MIB, b"rw-p", "/x/libc.so.6"),
            mapping(BASE + 402 * MIB, BASE + 403 * MIB, b"rw-p", ""),
        ];
        let (file, program) = (Kind::MappedFile, Kind::Program);
        assert_eq!(kinds(&mappings), [file, Kind::Unknown, program, program, Kind::StaticData]);
    }

    #[test]
    fn a_programs_own_mapping_stays_unknown() {
        let own = mapping(BASE + MIB, BASE + 201 * MIB, b"rw-p", "");
        assert_eq!(kinds(&[own]), [Kind::Unknown]);
    }
}
