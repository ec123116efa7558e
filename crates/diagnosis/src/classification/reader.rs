//! Words of a process's memory, each page read once.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use faultless_records::contents::{Contents, Extent, PageRun};
use faultless_records::mappings::Mapping;
use faultless_records::pagemap::PAGE_BYTES;

/// Pages kept, 128 MiB of them; when there are more, all are dropped.
const KEPT_PAGES: usize = 32 * 1024;

/// Pages read in all, 4 GiB of them: no damaged structure may keep us for ever.
const READ_PAGES: usize = 1024 * 1024;

/// Addresses whose pages are asked for at once, so that a search which ends early does not look at all of a large mapping.
const WINDOW_BYTES: u64 = 4 << 30;

/// Places without a header, one after the other, after which only one in `SPARSE` is looked at, and after which none.
const DENSE_MISSES: usize = 256;
const MOST_MISSES: usize = 16 * 1024;
/// Headers come in groups: an arena of CPython's has 16 pools and more.
const SPARSE: u64 = 16;

type Page = Option<Box<[u8; PAGE_BYTES as usize]>>;

/// Reads memory by words and remembers pages.
pub struct Reader<'contents> {
    contents: &'contents dyn Contents,
    pages: RefCell<HashMap<u64, Page>>,
    left: Cell<usize>,
}

impl<'contents> Reader<'contents> {
    /// Nothing read yet.
    #[must_use]
    pub fn new(contents: &'contents dyn Contents) -> Self {
        Self { contents, pages: RefCell::default(), left: Cell::new(READ_PAGES) }
    }

    /// Fills the buffer; false where something of it cannot be read.
    pub fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let mut address = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let offset = address % PAGE_BYTES;
            let bytes = rest.len().min((PAGE_BYTES - offset) as usize);
            let (piece, after) = rest.split_at_mut(bytes);
            let copied = self.with_page(address - offset, |page| {
                let from = offset as usize;
                page.get(from..from + bytes).map(|source| piece.copy_from_slice(source))
            });
            let next = address.checked_add(bytes as u64);
            let (Some(()), Some(next)) = (copied.flatten(), next) else { return false };
            (address, rest) = (next, after);
        }
        true
    }

    /// The word at a multiple of 8.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (address.is_multiple_of(8) && self.read(address, &mut bytes)).then_some(u64::from_ne_bytes(bytes))
    }

    /// Some words from a multiple of 8 on; as many as can be read.
    #[must_use]
    pub fn words(&self, address: u64, count: usize) -> Vec<u64> {
        (0..count).map_while(|place| self.word(address.checked_add(8 * place as u64)?)).collect()
    }

    /// A half word.
    #[must_use]
    pub fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes).then_some(u32::from_ne_bytes(bytes))
    }

    /// The text that ends at a zero byte, at most 200 bytes of it.
    #[must_use]
    pub fn text(&self, address: u64) -> Option<String> {
        let mut text = Vec::new();
        for place in 0..200 {
            let mut byte = [0];
            if !self.read(address.checked_add(place)?, &mut byte) {
                return None;
            }
            if byte[0] == 0 {
                break;
            }
            text.push(byte[0]);
        }
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Pages in memory or in swap; empty where that is not known.
    #[must_use]
    pub fn pages(&self, extent: Extent) -> Vec<PageRun> {
        self.contents.pages(extent).unwrap_or_default()
    }

    /// Calls `look` with the address and the words of each page of a range that is in memory, until it returns true.
    pub fn each_page(&self, extent: Extent, mut look: impl FnMut(u64, &[u64]) -> bool) {
        self.each_run(extent, |run| {
            let mut pages = (run.start..run.end).step_by(PAGE_BYTES as usize);
            pages.any(|address| self.page_words(address).is_some_and(|words| look(address, &words)))
        });
    }

    /// What begins with a header at multiples of `stride` bytes, as `look` knows by the header's address and page. In something else
    /// only one in `SPARSE` is looked at, and when that is a header, those before it, too.
    pub fn headed(
        &self,
        extent: Extent,
        stride: u64,
        mut look: impl FnMut(u64, &[u64]) -> Option<Extent>,
    ) -> Vec<Extent> {
        let mut found: Vec<Extent> = Vec::new();
        let mut misses = 0;
        let mut header_at = |address| self.page_words(address).and_then(|words| look(address, &words));
        self.each_run(extent, |run| {
            let mut address = run.start.next_multiple_of(stride);
            while address < run.end && misses < MOST_MISSES {
                let last_end = found.last().map_or(0, |last| last.end);
                let is_sparse = misses >= DENSE_MISSES;
                if address < last_end {
                    address = last_end.next_multiple_of(stride);
                    continue;
                }
                if let Some(header) = header_at(address) {
                    if is_sparse {
                        let first =
                            address.saturating_sub((SPARSE - 1) * stride).max(run.start.max(last_end));
                        let before = (first.next_multiple_of(stride)..address).step_by(stride as usize);
                        found.extend(before.filter_map(&mut header_at).filter(|it| it.end <= address));
                    }
                    found.push(header);
                    misses = 0;
                } else {
                    misses += 1;
                }
                address =
                    address.saturating_add(if misses < DENSE_MISSES { stride } else { SPARSE * stride });
            }
            misses >= MOST_MISSES
        });
        found
    }

    /// Calls `look` with each multiple of `stride` whose page is in memory; where it returns an end, the next one lies behind that. Memory
    /// that is mapped and was never touched may be without measure, and nothing is read for it.
    pub fn each_multiple(&self, extent: Extent, stride: u64, mut look: impl FnMut(u64) -> Option<u64>) {
        let Some(mut next) = extent.start.checked_next_multiple_of(stride) else { return };
        self.each_run(Extent { start: next, end: extent.end }, |run| {
            next = next.max(run.start).next_multiple_of(stride);
            while next < run.end.min(extent.end) {
                next = look(next).unwrap_or(next + 1).next_multiple_of(stride);
            }
            false
        });
    }

    /// Calls `look` with each run of pages in memory, until it returns true.
    fn each_run(&self, extent: Extent, mut look: impl FnMut(Extent) -> bool) {
        let mut start = extent.start;
        while start < extent.end {
            let window = Extent { start, end: extent.end.min(start.saturating_add(WINDOW_BYTES)) };
            let runs = self.pages(window).into_iter().filter(|run| !run.is_swapped);
            if runs.into_iter().any(|run| look(run.extent)) {
                return;
            }
            start = window.end;
        }
    }

    fn page_words(&self, address: u64) -> Option<[u64; PAGE_BYTES as usize / 8]> {
        self.with_page(address, |page| {
            let mut words = [0; PAGE_BYTES as usize / 8];
            for (word, bytes) in words.iter_mut().zip(page.as_chunks().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            words
        })
    }

    fn with_page<T>(&self, address: u64, act: impl FnOnce(&[u8; PAGE_BYTES as usize]) -> T) -> Option<T> {
        let mut pages = self.pages.borrow_mut();
        if pages.len() >= KEPT_PAGES {
            pages.clear();
        }
        let page = pages.entry(address).or_insert_with(|| {
            self.left.set(self.left.get().checked_sub(1)?);
            let mut page = Box::new([0; PAGE_BYTES as usize]);
            self.contents.read(address, page.as_mut_slice()).then_some(page)
        });
        page.as_deref().map(act)
    }
}

/// The mapping that has this address.
#[must_use]
pub fn mapping_at(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    mappings[..after].last().filter(|mapping| address < mapping.end)
}

/// The mapping's range.
#[must_use]
pub fn extent_of(mapping: &Mapping) -> Extent {
    Extent { start: mapping.start, end: mapping.end }
}

/// Memory made up for tests.
#[cfg(test)]
pub(crate) mod made_up {
    use super::*;
    use std::collections::BTreeMap;

    /// Words at addresses; every page with one of them is in memory, its other words are zero.
    #[derive(Default)]
    pub struct MadeUp {
        words: BTreeMap<u64, u64>,
    }

    impl MadeUp {
        /// Writes words from an address on.
        pub fn put(&mut self, address: u64, words: &[u64]) {
            for (place, word) in words.iter().enumerate() {
                self.words.insert(address + 8 * place as u64, *word);
            }
        }
    }

    impl Contents for MadeUp {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            let page = address / PAGE_BYTES * PAGE_BYTES;
            if self.words.range(page..page + PAGE_BYTES).next().is_none() {
                return false;
            }
            for (place, byte) in buffer.iter_mut().enumerate() {
                let at = address + place as u64;
                let word = self.words.get(&(at / 8 * 8)).copied().unwrap_or(0);
                *byte = word.to_ne_bytes()[(at % 8) as usize];
            }
            true
        }

        fn pages(&self, extent: Extent) -> Option<Vec<PageRun>> {
            let mut pages: Vec<u64> =
                self.words.range(extent.start..extent.end).map(|(at, _)| at / PAGE_BYTES).collect();
            pages.dedup();
            let run =
                |page| PageRun { extent: Extent::new(page * PAGE_BYTES, PAGE_BYTES), is_swapped: false };
            Some(pages.into_iter().map(run).collect())
        }
    }

    /// A mapping for tests.
    pub fn mapping(start: u64, end: u64, permissions: &[u8; 4], name: &str) -> Mapping {
        let inode = u64::from(name.starts_with('/'));
        let name = name.as_bytes().to_vec();
        Mapping { start, end, permissions: *permissions, inode, name, ..Mapping::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::made_up::MadeUp;
    use super::*;

    #[test]
    fn words_are_read_across_pages_and_not_where_nothing_is() {
        let mut memory = MadeUp::default();
        memory.put(0x1ff8, &[1, 2]);
        let reader = Reader::new(&memory);
        assert_eq!(reader.words(0x1ff8, 3), [1, 2, 0]);
        assert_eq!((reader.word(0x3000), reader.word(0x1ff9)), (None, None));
        let mut seen = Vec::new();
        reader.each_page(Extent { start: 0, end: 0x10000 }, |address, words| {
            seen.push((address, words.iter().sum::<u64>()));
            false
        });
        assert_eq!(seen, [(0x1000, 1), (0x2000, 2)]);
    }

    #[test]
    fn headers_behind_much_of_something_else_are_found() {
        let mut memory = MadeUp::default();
        let stride = 16 << 10;
        (0..2000).for_each(|place| memory.put(place * stride, &[1]));
        (2000..2064).for_each(|place| memory.put(place * stride, &[7]));
        let reader = Reader::new(&memory);
        let whole = Extent { start: 0, end: 4000 * stride };
        let found = reader
            .headed(whole, stride, |address, words| (words[0] == 7).then(|| Extent::new(address, stride)));
        let expected: Vec<Extent> = (2000..2064).map(|place| Extent::new(place * stride, stride)).collect();
        assert_eq!(found, expected);
    }
}
