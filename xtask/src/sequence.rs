//! Numbers that look random and are the same in every run.

/// A xorshift generator (Marsaglia 2003, "Xorshift RNGs", the 64-bit triple 13, 7, 17).
pub struct Sequence(u64);

impl Sequence {
    /// Starts the sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    /// A text of lowercase letters and digits.
    pub fn text(&mut self, length_bytes: usize) -> String {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz012345";
        let mut text = String::with_capacity(length_bytes);
        while text.len() < length_bytes {
            let mut bits = self.below(1 << 50);
            for _ in 0..10.min(length_bytes - text.len()) {
                text.push(LETTERS[(bits % 32) as usize] as char);
                bits /= 32;
            }
        }
        text
    }
}
