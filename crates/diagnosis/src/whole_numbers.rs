//! Estimates as whole numbers whose sum is theirs.

/// Rounds one number after the other. What rounding took from or gave to one goes to the next, so that the sum of many
/// small ones is right, too; numbers that are whole stay as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct WholeNumbers {
    owed: f64,
}

impl WholeNumbers {
    /// The next one.
    pub fn next(&mut self, number: f64) -> u64 {
        let wanted = number + self.owed;
        let given = wanted.round().max(0.0);
        self.owed = wanted - given;
        given as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(numbers: &[f64]) -> Vec<u64> {
        let mut rounding = WholeNumbers::default();
        numbers.iter().map(|number| rounding.next(*number)).collect()
    }

    #[test]
    fn many_small_numbers_keep_their_sum() {
        assert_eq!(whole(&[1.4; 1000]).iter().sum::<u64>(), 1400);
        assert_eq!(whole(&[0.25; 1000]).iter().sum::<u64>(), 250);
    }

    #[test]
    fn whole_numbers_stay_whatever_stands_before_them() {
        for before in [0.5, 1.5, 0.25, 0.75] {
            assert_eq!(whole(&[before, 0.0, 7.0, 1.0])[1..], [0, 7, 1], "{before}");
        }
    }
}
