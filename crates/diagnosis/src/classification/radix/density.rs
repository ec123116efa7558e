//! Where in static data an array of leaves can be: it has an entry for each GiB or more in which there is memory, and nothing else.
//!
//! A program's own tables of pointers have many more. To follow each of theirs, as if it led to a leaf, took a minute for a table of
//! 2^17 pointers.

use faultless_records::contents::Extent;
use faultless_records::pagemap::PAGE_BYTES;

use super::super::Sight;
use super::super::reader::Reader;

/// Entries beyond those for memory that is mapped now: of memory that was given back.
const STALE_ENTRIES: u64 = 64;

/// Words that are not zero, up to each page of a piece of static data.
pub struct Density {
    first: u64,
    /// Of all pages before this one.
    before: Vec<u64>,
    /// Entries that an array has at most.
    most: u64,
}

impl Density {
    /// Counts them.
    pub fn of(sight: &Sight<'_>, reader: &Reader<'_>, data: Extent) -> Self {
        let first = data.start / PAGE_BYTES;
        let pages = (data.end.div_ceil(PAGE_BYTES) - first) as usize;
        let mut counts = vec![0; pages];
        reader.each_page(data, |page, words| {
            if let Some(count) = counts.get_mut((page / PAGE_BYTES).saturating_sub(first) as usize) {
                *count = words.iter().filter(|word| **word != 0).count() as u64;
            }
            false
        });
        let mut before = vec![0];
        let mut sum = 0;
        before.extend(counts.into_iter().map(|count| {
            sum += count;
            sum
        }));
        Self { first, before, most: gibibytes(sight) + STALE_ENTRIES }
    }

    /// Whether an array of so many bytes may have an entry in this page.
    pub fn may_hold_array(&self, page: u64, array_bytes: u64) -> bool {
        let pages = self.before.len() - 1;
        let page = (page / PAGE_BYTES).saturating_sub(self.first) as usize;
        // The pages that an array fills wholly; it may begin and end within one.
        let whole = (array_bytes / PAGE_BYTES).saturating_sub(1) as usize;
        (page.saturating_sub(whole)..=page + 1)
            .take_while(|start| start + whole <= pages)
            .any(|start| self.before[start + whole] - self.before[start] <= self.most)
    }
}

/// GiBs of addresses in which a process has memory of its own.
fn gibibytes(sight: &Sight<'_>) -> u64 {
    let (mut sum, mut next) = (0, 0);
    for mapping in sight.mappings.iter().filter(|mapping| mapping.inode == 0 && mapping.is_writable()) {
        let (first, end) = (next.max(mapping.start >> 30), (mapping.end >> 30) + 1);
        sum += end.saturating_sub(first);
        next = next.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    const DATA: u64 = 0x10_0000;
    const ARRAY: u64 = 64 * PAGE_BYTES;

    /// Pages of 192 that may hold an entry of the array.
    fn pages(table: &[u64]) -> Vec<u64> {
        let mut memory = MadeUp::default();
        for page in table {
            memory.put(DATA + page * PAGE_BYTES, &[8; 512]);
        }
        let mappings = [mapping(1 << 40, (1 << 40) + (2 << 30), b"rw-p", "")];
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        assert_eq!(gibibytes(&sight), 3);
        let density = Density::of(&sight, &Reader::new(&memory), Extent::new(DATA, 192 * PAGE_BYTES));
        (0..192).filter(|page| density.may_hold_array(DATA + page * PAGE_BYTES, ARRAY)).collect()
    }

    #[test]
    fn an_array_is_looked_for_everywhere_but_within_tables_that_are_full() {
        assert_eq!(pages(&[]).len(), 192);
        let table: Vec<u64> = (96..192).collect();
        assert_eq!(pages(&table), (0..=96).collect::<Vec<_>>(), "one page may be its end");
        let table: Vec<u64> = (80..100).collect();
        let free = |page: &u64| *page <= 80 || *page >= 99;
        assert_eq!(pages(&table), (0..192).filter(free).collect::<Vec<_>>());
        let tables: Vec<u64> = (0..192).step_by(30).collect();
        assert_eq!(pages(&tables), [], "no room between them");
    }
}
