//! The document that `malloc_info` would write in a process, byte for byte the same figures.
//!
//! Its sizes in regular bins carry the flags of the chunks in their lowest bits, as glibc writes them.

use std::fmt::Write as _;

use faultless_diagnosis::glibc_heap::bins::Listed;
use faultless_diagnosis::glibc_heap::sizes::Amount;
use faultless_diagnosis::glibc_heap::walk::{Arena, Heap, HeapWalk};

/// The document.
#[must_use]
pub fn text(walk: &HeapWalk) -> String {
    let mut text = "<malloc version=\"1\">\n".to_owned();
    let mut all = Figures::default();
    for (number, arena) in walk.arenas.iter().enumerate() {
        let _ = writeln!(text, "<heap nr=\"{number}\">\n<sizes>");
        let (unsorted, sorted) = arena.lists.bins.split_at(arena.lists.bins.len().min(1));
        arena.lists.fast.iter().chain(sorted).for_each(|list| write_list(&mut text, "size", list));
        unsorted.iter().for_each(|list| write_list(&mut text, "unsorted", list));
        let figures = Figures::of(arena, walk);
        let _ = writeln!(text, "</sizes>\n{}", figures.text(None));
        if !arena.is_main {
            let _ = writeln!(text, "<aspace type=\"subheaps\" size=\"{}\"/>", arena.heaps.len());
        }
        text.push_str("</heap>\n");
        all.add(&figures);
    }
    let mapped = Amount { blocks: walk.mapped.blocks, bytes: walk.mapped.bytes };
    text + &all.text(Some(mapped)) + "\n</malloc>\n"
}

/// A list of free chunks, if it is not empty.
fn write_list(text: &mut String, element: &str, list: &Listed) {
    let Listed { from, to, total, count } = list;
    if *count > 0 {
        let _ =
            writeln!(text, "  <{element} from=\"{from}\" to=\"{to}\" total=\"{total}\" count=\"{count}\"/>");
    }
}

/// What is told of an arena, and of all.
#[derive(Default)]
struct Figures {
    /// Chunks in fast bins; none since 2.43.
    fast: Option<Amount>,
    /// Chunks in other bins, and since 2.31 the top chunk.
    rest: Amount,
    system_bytes: u64,
    max_system_bytes: u64,
    /// Of its heaps, and what of them can be written.
    total_bytes: u64,
    accessible_bytes: u64,
}

impl Figures {
    fn of(arena: &Arena, walk: &HeapWalk) -> Self {
        let mut rest = sum(&arena.lists.bins);
        if walk.layout.info_counts_top {
            rest.add(arena.account.top_bytes);
        }
        let space = |bytes: fn(&Heap) -> u64| match arena.is_main {
            true => arena.system_bytes,
            false => arena.heaps.iter().map(bytes).sum(),
        };
        Self {
            fast: walk.layout.fast_bins.map(|_| sum(&arena.lists.fast)),
            rest,
            system_bytes: arena.system_bytes,
            max_system_bytes: arena.max_system_bytes,
            total_bytes: space(|heap| heap.bytes),
            accessible_bytes: space(|heap| heap.accessible_bytes),
        }
    }

    fn add(&mut self, other: &Self) {
        if let Some(fast) = other.fast {
            self.fast.get_or_insert_default().merge(fast);
        }
        self.rest.merge(other.rest);
        self.system_bytes += other.system_bytes;
        self.max_system_bytes += other.max_system_bytes;
        self.total_bytes += other.total_bytes;
        self.accessible_bytes += other.accessible_bytes;
    }

    fn text(&self, mapped: Option<Amount>) -> String {
        let totals = [("fast", self.fast), ("rest", Some(self.rest)), ("mmap", mapped)];
        let total = |(kind, amount): (_, Option<Amount>)| {
            let Amount { blocks, bytes } = amount?;
            Some(format!("<total type=\"{kind}\" count=\"{blocks}\" size=\"{bytes}\"/>"))
        };
        let sizes = [
            ("system", "current", self.system_bytes),
            ("system", "max", self.max_system_bytes),
            ("aspace", "total", self.total_bytes),
            ("aspace", "mprotect", self.accessible_bytes),
        ];
        let sizes =
            sizes.map(|(element, kind, bytes)| format!("<{element} type=\"{kind}\" size=\"{bytes}\"/>"));
        let lines: Vec<String> = totals.into_iter().filter_map(total).chain(sizes).collect();
        lines.join("\n")
    }
}

fn sum(lists: &[Listed]) -> Amount {
    lists.iter().fold(Amount::default(), |sum, list| Amount {
        blocks: sum.blocks.saturating_add(list.count),
        bytes: sum.bytes.saturating_add(list.total),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_diagnosis::glibc_heap::account::Account;
    use faultless_diagnosis::glibc_heap::bins::Lists;
    use faultless_diagnosis::glibc_heap::mapped::MappedBlocks;
    use faultless_records::glibc_heap::Layout;

    #[test]
    fn arenas_are_told_one_by_one_and_together() {
        let bins = [(161, 161, 161, 1), (4129, 8193, 12_322, 2), (0, 0, 0, 0)];
        let list = |(from, to, total, count)| Listed { from, to, total, count };
        let main = Arena {
            address: 0x7f00_0000,
            is_main: true,
            threads: 1,
            heaps: Vec::new(),
            system_bytes: 135_168,
            max_system_bytes: 135_168,
            lists: Lists {
                fast: vec![list((17, 32, 64, 2))],
                bins: bins.map(list).to_vec(),
                ..Lists::default()
            },
            account: Account { top_bytes: 7517, ..Account::default() },
            attempts: 1,
            flaw: None,
            same_looks: 0,
        };
        let heap = Heap { start: 0, bytes: 135_168, accessible_bytes: 139_264, reserved_bytes: 64 << 20 };
        let other = Arena {
            is_main: false,
            heaps: vec![heap],
            max_system_bytes: 139_264,
            lists: Lists::default(),
            account: Account { top_bytes: 130_000, ..Account::default() },
            ..main.clone()
        };
        let walk = HeapWalk {
            layout: Layout::of((2, 35)).unwrap(),
            parameters: None,
            arenas: vec![main, other],
            total: Account::default(),
            caches: 0,
            changed_caches: 0,
            mapped: MappedBlocks { blocks: 1, bytes: 1_052_672, ..MappedBlocks::default() },
            residency_is_known: true,
        };
        assert_eq!(
            text(&walk),
            r#"<malloc version="1">
<heap nr="0">
<sizes>
  <size from="17" to="32" total="64" count="2"/>
  <size from="4129" to="8193" total="12322" count="2"/>
  <unsorted from="161" to="161" total="161" count="1"/>
</sizes>
<total type="fast" count="2" size="64"/>
<total type="rest" count="4" size="20000"/>
<system type="current" size="135168"/>
<system type="max" size="135168"/>
<aspace type="total" size="135168"/>
<aspace type="mprotect" size="135168"/>
</heap>
<heap nr="1">
<sizes>
</sizes>
<total type="fast" count="0" size="0"/>
<total type="rest" count="1" size="130000"/>
<system type="current" size="135168"/>
<system type="max" size="139264"/>
<aspace type="total" size="135168"/>
<aspace type="mprotect" size="139264"/>
<aspace type="subheaps" size="1"/>
</heap>
<total type="fast" count="2" size="64"/>
<total type="rest" count="5" size="150000"/>
<total type="mmap" count="1" size="1052672"/>
<system type="current" size="270336"/>
<system type="max" size="274432"/>
<aspace type="total" size="270336"/>
<aspace type="mprotect" size="274432"/>
</malloc>
"#
        );
    }
}
