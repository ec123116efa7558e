//! The files in which just-in-time compilers (JVM, Node, CPython) name the code they wrote: `/tmp/perf-PID.map`.
//!
//! Source: the kernel's tools/perf/Documentation/jit-interface.txt.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Functions by their addresses in the process that wrote the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PerfMap {
    /// By their first addresses; they do not overlap.
    functions: BTreeMap<u64, JitFunction>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct JitFunction {
    end: u64,
    /// Shared by what newer code leaves of it.
    name: Arc<str>,
}

impl PerfMap {
    /// Reads lines of start, length (both hexadecimal) and name; others are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut map = Self::default();
        text.lines().filter_map(function).for_each(|(start, function)| map.write(start, function));
        map
    }

    /// Of code written over older code the last line counts, wherever the older began: no line tells of code that is gone.
    fn write(&mut self, start: u64, new: JitFunction) {
        let below_end = |functions: &BTreeMap<u64, JitFunction>| {
            let (old, function) = functions.range(..new.end).next_back()?;
            (function.end > start).then_some(*old)
        };
        while let Some((old, function)) =
            below_end(&self.functions).and_then(|old| self.functions.remove_entry(&old))
        {
            if function.end > new.end {
                self.functions.insert(new.end, function.clone());
            }
            if old < start {
                self.functions.insert(old, JitFunction { end: start, ..function });
            }
        }
        self.functions.insert(start, new);
    }

    /// The function that holds this address.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<&str> {
        let (_, function) = self.functions.range(..=address).next_back()?;
        (address < function.end).then_some(&*function.name)
    }
}

fn function(line: &str) -> Option<(u64, JitFunction)> {
    let (start, rest) = line.split_once(' ')?;
    let (length, name) = rest.split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
    let (start, length) = (number(start)?, number(length).filter(|length| *length > 0)?);
    Some((start, JitFunction { end: start.checked_add(length)?, name: name.trim().into() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn code_is_named_and_gaps_are_not() {
        let map = PerfMap::parse(
            "7f10 20 Interpreter\n7f40 10 LazyCompile:*work /srv/a b.js:3\nnonsense\n7f40 18 LazyCompile:~work\n",
        );
        assert_eq!(map.function(0x7f2f), Some("Interpreter"));
        assert_eq!(map.function(0x7f30), None);
        assert_eq!(map.function(0x7f57), Some("LazyCompile:~work"), "written over the older code");
        assert!(PerfMap::parse("x\n").functions.is_empty());
    }

    #[test]
    fn code_over_older_code_is_named_by_the_last_line_wherever_the_older_begins() {
        let map = PerfMap::parse("7f20 40 old\n7f80 8 inside\n7f10 20 new\n7f70 40 large\n7f55 0 nothing\n");
        let seen = [0x7f0f, 0x7f10, 0x7f25, 0x7f30, 0x7f5f, 0x7f60, 0x7f84, 0x7faf, 0x7fb0];
        let new = Some("new");
        let (old, large) = (Some("old"), Some("large"));
        assert_eq!(
            seen.map(|address| map.function(address)),
            [None, new, new, old, old, None, large, large, None]
        );
        let map = PerfMap::parse("7f00 100 all\n7f40 10 part\n");
        assert_eq!(
            [0x7f3f, 0x7f40, 0x7f50].map(|address| map.function(address).unwrap()),
            ["all", "part", "all"]
        );
        let map = PerfMap::parse("7f00 20 one\n7f20 10 next\n7f10 10 end\n");
        assert_eq!([0x7f1f, 0x7f20].map(|address| map.function(address).unwrap()), ["end", "next"]);
    }

    #[test]
    fn what_is_left_of_older_code_shares_its_name() {
        let map = PerfMap::parse("7f00 100 all\n7f40 10 part\n");
        assert!(Arc::ptr_eq(&map.functions[&0x7f00].name, &map.functions[&0x7f50].name));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text: String, address: u64) {
            let _ = PerfMap::parse(&text).function(address);
        }

        #[test]
        fn any_numbers_are_read(start: u64, length: u64, address: u64) {
            let map = PerfMap::parse(&format!("{start:x} {length:x} f"));
            let inside = length > 0 && address.checked_sub(start).is_some_and(|offset| offset < length);
            assert_eq!(map.function(address).is_some(), inside && start.checked_add(length).is_some());
        }
    }
}
