//! The statistics page that a Faultless process publishes under `FAULTLESS=publish:on`; its writer is
//! `crates/heap/src/publication.rs`.

/// Bytes of the page; it begins at a multiple of them.
pub const PAGE_BYTES: usize = 4096;

/// Its first word.
pub const MAGIC: u64 = u64::from_le_bytes(*b"FLTLPAGE");
const VERSION: u64 = 1;
const CLASSES_AT: usize = 32;
const CLASS_WORDS: usize = 6;
const MOST_CLASSES: u64 = ((PAGE_BYTES / 8 - CLASSES_AT) / CLASS_WORDS) as u64;

/// Blocks of one size class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Class {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Slabs.
    pub slabs: u64,
    /// Blocks in those slabs.
    pub blocks: u64,
    /// Blocks that the program has.
    pub used: u64,
    /// Free blocks in threads' caches.
    pub cached: u64,
    /// Free blocks on their way between threads.
    pub transit: u64,
}

impl Class {
    /// Bytes of free blocks in slabs.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let others = self.used.saturating_add(self.cached).saturating_add(self.transit);
        self.blocks.saturating_sub(others).saturating_mul(self.block_bytes)
    }
}

/// What the page says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultlessPage {
    /// The process that wrote it; a forked child has its parent's page.
    pub pid: u64,
    /// When, in ns of the clock that `CLOCK_MONOTONIC` shows.
    pub written_ns: u64,
    /// Threads with a cache now.
    pub threads: u64,
    /// The most there were.
    pub threads_peak: u64,
    /// Blocks with spans of their own.
    pub large_blocks: u64,
    /// Their bytes.
    pub large_bytes: u64,
    /// The most there were.
    pub large_peak_bytes: u64,
    /// Bytes of spans in slabs and large blocks.
    pub span_bytes: u64,
    /// The most there were.
    pub span_peak_bytes: u64,
    /// Bytes of free spans that may hold pages.
    pub dirty_bytes: u64,
    /// Bytes given back to the kernel so far.
    pub purged_bytes: u64,
    /// In so many calls.
    pub purges: u64,
    /// And so many that the kernel refused.
    pub purges_refused: u64,
    /// Size classes that have slabs.
    pub classes: Vec<Class>,
}

impl FaultlessPage {
    /// Reads the page at `address`; none where there is no page, or while it is being written.
    #[must_use]
    pub fn parse(bytes: &[u8], address: u64) -> Option<Self> {
        let word = |place: usize| {
            let bytes = bytes.get(place * 8..place * 8 + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let is_page = word(0)? == MAGIC && word(1)? == VERSION && word(2)? == address;
        let (sequence, classes) = (word(4)?, word(6)?);
        if !is_page || !sequence.is_multiple_of(2) || classes > MOST_CLASSES {
            return None;
        }
        let class = |class: usize| {
            let at = CLASSES_AT + class * CLASS_WORDS;
            Some(Class {
                block_bytes: word(at)?,
                slabs: word(at + 1)?,
                blocks: word(at + 2)?,
                used: word(at + 3)?,
                cached: word(at + 4)?,
                transit: word(at + 5)?,
            })
        };
        let classes: Option<Vec<Class>> = (0..usize::try_from(classes).ok()?).map(class).collect();
        Some(Self {
            pid: word(3)?,
            written_ns: word(5)?,
            threads: word(7)?,
            threads_peak: word(8)?,
            large_blocks: word(9)?,
            large_bytes: word(10)?,
            large_peak_bytes: word(11)?,
            span_bytes: word(12)?,
            span_peak_bytes: word(13)?,
            dirty_bytes: word(14)?,
            purged_bytes: word(15)?,
            purges: word(16)?,
            purges_refused: word(17)?,
            classes: classes?.into_iter().filter(|class| class.slabs > 0).collect(),
        })
    }

    /// Bytes of blocks that the program has.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.sum(|class| class.used).saturating_add(self.large_bytes)
    }

    /// Bytes of free blocks in threads' caches and on their way.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.sum(|class| class.cached.saturating_add(class.transit))
    }

    /// Bytes of free blocks in slabs.
    #[must_use]
    pub fn free_in_slabs_bytes(&self) -> u64 {
        self.classes.iter().fold(0, |sum: u64, class| sum.saturating_add(class.free_bytes()))
    }

    fn sum(&self, blocks: fn(&Class) -> u64) -> u64 {
        self.classes
            .iter()
            .fold(0, |sum: u64, class| sum.saturating_add(blocks(class).saturating_mul(class.block_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADDRESS: u64 = 0x7f00_0000_1000;

    fn page(words: &[(usize, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_BYTES];
        let head = [(0, MAGIC), (1, VERSION), (2, ADDRESS), (3, 42), (4, 8), (6, 2)];
        for (place, word) in head.iter().chain(words) {
            bytes[place * 8..place * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_page_is_read_where_it_says_that_it_is() {
        let bytes = page(&[(10, 5000), (38, 64), (39, 2), (40, 100), (41, 60), (42, 10), (43, 5)]);
        let read = FaultlessPage::parse(&bytes, ADDRESS).unwrap();
        let class = Class { block_bytes: 64, slabs: 2, blocks: 100, used: 60, cached: 10, transit: 5 };
        assert_eq!((read.pid, read.classes.as_slice()), (42, [class].as_slice()));
        assert_eq!(read.used_bytes(), 60 * 64 + 5000);
        assert_eq!((read.cached_bytes(), read.free_in_slabs_bytes()), (15 * 64, 25 * 64));
        assert_eq!(FaultlessPage::parse(&bytes, ADDRESS + 4096), None);
        assert_eq!(FaultlessPage::parse(&page(&[(4, 9)]), ADDRESS), None, "it is being written");
        assert_eq!(FaultlessPage::parse(&page(&[(0, 1)]), ADDRESS), None);
        assert_eq!(FaultlessPage::parse(&page(&[(1, VERSION + 1)]), ADDRESS), None);
        assert_eq!(FaultlessPage::parse(&page(&[(6, 1000)]), ADDRESS), None);
        assert_eq!(FaultlessPage::parse(&bytes[..300], ADDRESS), None);
    }

    #[test]
    fn each_word_of_the_page_is_what_its_writer_means() {
        let words: Vec<(usize, u64)> = (5..18).filter(|place| *place != 6).zip(100..).collect();
        let expected = FaultlessPage {
            pid: 42,
            written_ns: 100,
            threads: 101,
            threads_peak: 102,
            large_blocks: 103,
            large_bytes: 104,
            large_peak_bytes: 105,
            span_bytes: 106,
            span_peak_bytes: 107,
            dirty_bytes: 108,
            purged_bytes: 109,
            purges: 110,
            purges_refused: 111,
            classes: Vec::new(),
        };
        assert_eq!(FaultlessPage::parse(&page(&words), ADDRESS), Some(expected));
    }

    proptest! {
        #[test]
        fn no_words_make_it_panic(words in proptest::collection::vec((3..512_usize, any::<u64>()), 0..40)) {
            if let Some(read) = FaultlessPage::parse(&page(&words), ADDRESS) {
                let _ = (read.used_bytes(), read.cached_bytes(), read.free_in_slabs_bytes());
            }
        }
    }
}
