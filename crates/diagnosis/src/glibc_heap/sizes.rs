//! Blocks counted by size: exactly where they are small, by powers of two above.

/// Chunks up to this size are counted by their exact size.
const LAST_EXACT_BYTES: u64 = 1040;
const EXACT: usize = (LAST_EXACT_BYTES / 16) as usize + 1;
const POWERS: usize = 64;

/// Blocks and their bytes, headers included. Damaged memory may tell of more bytes than there are numbers for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many.
    pub blocks: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Amount {
    /// Counts one more.
    pub fn add(&mut self, bytes: u64) {
        self.merge(Self { blocks: 1, bytes });
    }

    /// Counts one less.
    pub fn take(&mut self, bytes: u64) {
        self.blocks = self.blocks.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Counts all of another.
    pub fn merge(&mut self, other: Self) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// One row of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Smallest chunk that counts here, in bytes.
    pub from_bytes: u64,
    /// Largest.
    pub to_bytes: u64,
    /// What there is of it.
    pub amount: Amount,
}

/// A histogram of chunk sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    exact: [Amount; EXACT],
    powers: [Amount; POWERS],
}

impl Default for Sizes {
    fn default() -> Self {
        Self { exact: [Amount::default(); EXACT], powers: [Amount::default(); POWERS] }
    }
}

impl Sizes {
    /// Counts a chunk.
    pub fn add(&mut self, bytes: u64) {
        self.place(bytes).add(bytes);
    }

    /// Takes a chunk back.
    pub fn take(&mut self, bytes: u64) {
        self.place(bytes).take(bytes);
    }

    /// Counts all of another.
    pub fn merge(&mut self, other: &Self) {
        let pairs = self.exact.iter_mut().zip(&other.exact);
        for (own, other) in pairs.chain(self.powers.iter_mut().zip(&other.powers)) {
            own.merge(*other);
        }
    }

    /// Rows that are not empty, by exact size up to 1,040 bytes.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let exact = (0..).zip(&self.exact).map(|(index, amount)| Row {
            from_bytes: index * 16,
            to_bytes: index * 16,
            amount: *amount,
        });
        let powers = (0..).zip(&self.powers).map(|(power, amount)| Row {
            from_bytes: (1_u64 << power).max(LAST_EXACT_BYTES + 16),
            to_bytes: ((1_u64 << power) - 1 + (1_u64 << power)) & !15,
            amount: *amount,
        });
        exact.chain(powers).filter(|row| row.amount.blocks > 0).collect()
    }

    /// Everything together.
    #[must_use]
    pub fn total(&self) -> Amount {
        let mut total = Amount::default();
        for amount in self.exact.iter().chain(&self.powers) {
            total.merge(*amount);
        }
        total
    }

    fn place(&mut self, bytes: u64) -> &mut Amount {
        if bytes <= LAST_EXACT_BYTES {
            &mut self.exact[(bytes / 16) as usize]
        } else {
            &mut self.powers[bytes.ilog2() as usize]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_damaged_memory_add_up_to_the_most_there_can_be() {
        let mut amount = Amount { blocks: u64::MAX, bytes: 16 };
        amount.add(u64::MAX);
        assert_eq!(amount, Amount { blocks: u64::MAX, bytes: u64::MAX });
    }

    #[test]
    fn every_size_lies_in_its_row() {
        for bytes in [16, 32, 48, 1040, 1056, 2032, 2048, 4096, 1 << 20, (1 << 40) + 16, !15] {
            let mut sizes = Sizes::default();
            sizes.add(bytes);
            let rows = sizes.rows();
            assert_eq!(rows.len(), 1);
            assert!(rows[0].from_bytes <= bytes && bytes <= rows[0].to_bytes, "{bytes} {rows:?}");
            assert_eq!(rows[0].amount, Amount { blocks: 1, bytes });
            sizes.take(bytes);
            assert!(sizes.rows().is_empty());
        }
    }
}
