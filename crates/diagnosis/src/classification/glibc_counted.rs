//! What malloc's own books lead to. The kernel joins malloc's memory and a program's where they touch, so that nothing begins or ends
//! there. Large blocks: malloc counts them; where some are still to be found, the head of one at the start of a page is no
//! coincidence. Pieces of the main arena where `brk` was refused: from the start of a page chunks lead to its top or its fenceposts.

use faultless_records::contents::{Contents, Extent};
use faultless_records::glibc::is_libc;
use faultless_records::glibc_heap::{ArenaState, LAYOUTS, Layout};

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::glibc::block_evidence;
use super::kind::Kind;
use super::loaded::Loaded;
use super::reader::Reader;
use crate::glibc_heap::arenas::{self, Data, Ring, Search};
use crate::glibc_heap::mapped::{self, MappedBlocks};
use crate::glibc_heap::pages::Pages;
use crate::glibc_heap::stretches;
use crate::glibc_heap::{self, Area, Memory, PAGE_BYTES, Page};

/// Every address that a process has.
const EVERYWHERE: Extent = Extent { start: 0, end: u64::MAX };

/// Pages at which a piece of the main arena is looked for at most.
const MOST_PAGES: u32 = 1 << 20;

/// Claims the pieces of the main arena, and the blocks that malloc counts and nobody found yet, for each libc; the program is
/// searched where there is none.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    let Some(contents) = sight.contents else { return };
    let memory = Present(contents);
    let areas = glibc_heap::areas(sight.mappings);
    let is_any_libc = loaded.objects.iter().any(|object| is_libc(&object.path));
    for object in &loaded.objects {
        if is_any_libc != is_libc(&object.path) {
            continue;
        }
        for ring in object.data.iter().filter_map(|data| ring(&memory, &areas, *data)) {
            for main in ring.arenas.iter().filter(|arena| arena.state.is_noncontiguous).take(1) {
                claim_pieces(sight, reader, &memory, &main.state, claims);
            }
            if let Some((_, parameters)) = ring.parameters {
                let counted = MappedBlocks::counted(&parameters);
                claim_missing(&memory, &areas, ring.layout, counted, claims);
            }
        }
    }
}

/// The arenas of malloc with this data.
fn ring(memory: &dyn Memory, areas: &[Area], data: Extent) -> Option<Ring> {
    let data = Data::read(memory, (data.start.next_multiple_of(8), data.end))?;
    LAYOUTS.iter().find_map(|layout| match arenas::search(memory, areas, &data, layout) {
        Search::Arenas(ring) => Some(*ring),
        Search::Unused | Search::Nothing => None,
    })
}

fn claim_pieces(
    sight: &Sight<'_>,
    reader: &Reader<'_>,
    memory: &dyn Memory,
    main: &ArenaState,
    claims: &mut Claims,
) {
    let mut pages_left = MOST_PAGES;
    for gap in sight.unclaimed(claims) {
        let mut at = gap.start;
        for run in reader.pages(gap) {
            at = at.max(run.extent.start);
            while at < run.extent.end.min(gap.end) && pages_left > 0 {
                pages_left -= 1;
                // Read page by page here, so that most are refused without another read.
                let piece = reader.word(at).filter(|before| *before == 0);
                match piece.and_then(|_| stretches::end_of_piece(memory, (at, gap.end), main.top)) {
                    Some(end) => {
                        let evidence = Evidence::plain(Strength::Contents, "unbroken row of malloc's chunks");
                        claims.add(Extent { start: at, end }, Kind::MainHeap, evidence);
                        at = end;
                    }
                    None => at += PAGE_BYTES,
                }
            }
        }
    }
}

fn claim_missing(
    memory: &dyn Memory,
    areas: &[Area],
    layout: &Layout,
    mut counted: MappedBlocks,
    claims: &mut Claims,
) {
    let all = claims.within(EVERYWHERE);
    // A block may be claimed in pieces, which have one number.
    let mut last = None;
    for block in all.iter().filter(|claim| claim.kind == Kind::GlibcLargeBlock) {
        counted.found_blocks += u64::from(last.replace(block.number) != Some(block.number));
        counted.found_bytes += block.extent.bytes();
    }
    let owned: Vec<(u64, u64)> = all.iter().map(|claim| (claim.extent.start, claim.extent.end)).collect();
    for (start, bytes) in mapped::search(memory, areas, &owned, (layout, counted), &mut Pages::new(memory)) {
        claims.add(Extent::new(start, bytes), Kind::GlibcLargeBlock, block_evidence());
    }
}

/// Bytes in which the next page is looked for at first; twice as many each time that there is none.
const FIRST_LOOK_BYTES: u64 = 1 << 20;

/// Memory in which what is not there is zero, as it is where nobody wrote; what is in swap stays there.
struct Present<'contents>(&'contents dyn Contents);

impl Memory for Present<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let mut at = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let bytes = rest.len().min((PAGE_BYTES - at % PAGE_BYTES) as usize);
            let (piece, after) = rest.split_at_mut(bytes);
            if !self.0.read(at, piece) {
                piece.fill(0);
            }
            let Some(next) = at.checked_add(bytes as u64) else { return false };
            (at, rest) = (next, after);
        }
        true
    }

    fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
        let whole = Extent::new(address, count as u64 * PAGE_BYTES);
        let mut pages = vec![Page::Absent; count];
        for run in self.0.pages(whole)? {
            let Some(common) = run.extent.overlap(&whole) else { continue };
            let first = ((common.start - address) / PAGE_BYTES) as usize;
            let end = (common.end - address).div_ceil(PAGE_BYTES) as usize;
            pages[first..end.min(count)].fill(if run.is_swapped { Page::Swapped } else { Page::Resident });
        }
        Some(pages)
    }

    fn next_present(&self, address: u64, end: u64) -> u64 {
        let (mut at, mut bytes) = (address, FIRST_LOOK_BYTES);
        while at < end {
            let look = Extent { start: at, end: end.min(at.saturating_add(bytes)) };
            match self.0.pages(look).as_deref() {
                Some([]) => (at, bytes) = (look.end, bytes.saturating_mul(2)),
                Some([first, ..]) => return first.extent.start.max(at),
                None => return at,
            }
        }
        end
    }
}
