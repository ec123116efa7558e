//! The files in which just-in-time compilers (JVM, Node, CPython) name the code they wrote: `/tmp/perf-PID.map`.
//!
//! Source: the kernel's tools/perf/Documentation/jit-interface.txt.

/// Functions by their addresses in the process that wrote the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PerfMap {
    /// Sorted by address. Of code written over older code the last line counts.
    functions: Vec<JitFunction>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct JitFunction {
    start: u64,
    end: u64,
    name: String,
}

impl PerfMap {
    /// Reads lines of start, length (both hexadecimal) and name; others are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut functions: Vec<JitFunction> = text.lines().filter_map(function).collect();
        // Stable, so that of the same start the later line comes last, and is the one that is kept.
        functions.sort_by_key(|function| function.start);
        functions.reverse();
        functions.dedup_by_key(|function| function.start);
        functions.reverse();
        Self { functions }
    }

    /// The function that holds this address.
    #[must_use]
    pub fn function(&self, address: u64) -> Option<&str> {
        let place = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions.get(place.checked_sub(1)?)?;
        (address < function.end).then_some(function.name.as_str())
    }
}

fn function(line: &str) -> Option<JitFunction> {
    let (start, rest) = line.split_once(' ')?;
    let (length, name) = rest.split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
    let (start, length) = (number(start)?, number(length)?);
    Some(JitFunction { start, end: start.checked_add(length)?, name: name.trim().to_owned() })
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
