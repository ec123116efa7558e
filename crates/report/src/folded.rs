//! Folded stacks: what flame graph tools read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::plain::plain;

/// A line for each chain: outermost call first, separated by `;`, then its number. Chains of the same names are one.
pub(crate) fn lines<'text>(chains: impl Iterator<Item = (impl Iterator<Item = &'text str>, f64)>) -> String {
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    for (names, number) in chains {
        let names: Vec<String> = names.map(|name| plain(name).replace(';', ":")).collect();
        *lines.entry(names.join(";")).or_default() += number;
    }
    let mut text = String::new();
    for (line, number) in lines {
        let number = number.round() as u64;
        if number > 0 {
            let _ = writeln!(text, "{line} {number}");
        }
    }
    text
}
