//! Folded stacks: what flame graph tools read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use faultless_diagnosis::whole_numbers::WholeNumbers;

use crate::plain::plain;

/// A line for each chain: outermost call first, separated by `;`, then its number. Chains of the same names are one.
pub(crate) fn lines<'text>(chains: impl Iterator<Item = (impl Iterator<Item = &'text str>, f64)>) -> String {
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    for (names, number) in chains {
        let names: Vec<String> = names.map(|name| plain(name).replace(';', ":")).collect();
        *lines.entry(names.join(";")).or_default() += number;
    }
    let mut text = String::new();
    let mut rounding = WholeNumbers::default();
    for (line, number) in lines {
        let number = rounding.next(number);
        if number > 0 {
            let _ = writeln!(text, "{line} {number}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_of_many_chains_add_up_to_what_was_counted() {
        let names: Vec<String> = (0..10).map(|number| format!("chain{number}")).collect();
        let text = lines(names.iter().map(|name| (std::iter::once(name.as_str()), 1.4)));
        let numbers = text.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        assert_eq!(numbers.sum::<u64>(), 14, "{text}");
    }
}
