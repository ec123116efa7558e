//! Output of `jcmd PID VM.native_memory` (native memory tracking, NMT), summary or detail, JDK 11 to 25.

use crate::contents::Extent;

/// What the virtual machine says it uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NativeMemory {
    /// The number of the process, in its own PID namespace or that of whoever asked; none where that line is missing.
    pub pid: Option<i32>,
    /// Addresses reserved, and what may be used of it, both with what came from malloc.
    pub reserved_bytes: u64,
    /// See `reserved_bytes`.
    pub committed_bytes: u64,
    /// By category, in the order of the text.
    pub categories: Vec<Category>,
    /// Ranges of addresses; only detailed tracking has them.
    pub regions: Vec<Region>,
}

/// A category such as `Java Heap`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Category {
    /// Its name.
    pub name: String,
    /// All of it, malloc included.
    pub reserved_bytes: u64,
    /// All of it, malloc included.
    pub committed_bytes: u64,
    /// From malloc, arenas included, without what malloc itself adds.
    pub malloc_bytes: u64,
}

/// A reserved range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Where.
    pub extent: Extent,
    /// For what category.
    pub category: String,
}

/// Why there are no figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NmtError {
    /// The process was started without tracking.
    Off,
    /// Detailed tracking was asked for where there is only a summary.
    NoDetail,
    /// The text ends before the last category, or in the map of addresses.
    CutOff,
    /// The text is something else.
    Foreign,
}

/// Sums are rounded to the unit of the text, and categories below one are left out: by at most so many units the
/// total may be larger than its categories.
const MOST_ROUNDED_UNITS: u64 = 40;

/// Reads the text.
///
/// # Errors
/// [`NmtError`].
pub fn parse(text: &str) -> Result<NativeMemory, NmtError> {
    if text.contains("Native memory tracking is not enabled") {
        return Err(NmtError::Off);
    }
    if text.contains("Detail tracking is not enabled") {
        return Err(NmtError::NoDetail);
    }
    let mut memory = NativeMemory::default();
    let first = text.lines().find(|line| !line.trim().is_empty());
    memory.pid = first.and_then(|line| line.trim().strip_suffix(':')?.parse().ok());
    let mut unit_bytes = None;
    for line in text.lines() {
        let words = line.trim();
        if let Some(rest) = words.strip_prefix("Total:") {
            (memory.reserved_bytes, memory.committed_bytes) = sizes(rest).ok_or(NmtError::Foreign)?;
            unit_bytes = number(rest, "committed=").map(|(_, unit_bytes)| unit_bytes);
        } else if let Some(category) = line.trim_start().strip_prefix('-').and_then(category) {
            memory.categories.push(category);
        } else if words.starts_with('[') && words.contains(" for ") {
            memory.regions.extend(region(words));
        } else if let Some(last) = memory.categories.last_mut() {
            // Malloc of a category, and arenas, which come from malloc, too.
            let bytes = amount(words, "(malloc=").or_else(|| amount(words, "(arena="));
            if memory.regions.is_empty() {
                last.malloc_bytes = last.malloc_bytes.saturating_add(bytes.unwrap_or(0));
            }
        }
    }
    memory.regions.sort_by_key(|region| region.extent);
    let unit_bytes = unit_bytes.ok_or(NmtError::Foreign)?;
    if memory.categories.is_empty() {
        return Err(NmtError::Foreign);
    }
    let sum = |bytes: fn(&Category) -> u64| memory.categories.iter().map(bytes).fold(0, u64::saturating_add);
    let lacks = |total: u64, sum: u64| total.saturating_sub(sum) > MOST_ROUNDED_UNITS * unit_bytes;
    let is_short = lacks(memory.reserved_bytes, sum(|category| category.reserved_bytes))
        || lacks(memory.committed_bytes, sum(|category| category.committed_bytes));
    // The map of addresses ends where the call sites begin.
    let has_part_of_map = text.contains("\nVirtual memory map:") && !text.contains("\nDetails:");
    if is_short || has_part_of_map { Err(NmtError::CutOff) } else { Ok(memory) }
}

/// `                 Java Heap (reserved=6172672KB, committed=387072KB)`
fn category(text: &str) -> Option<Category> {
    let (name, rest) = text.split_once(" (reserved=")?;
    let (reserved_bytes, committed_bytes) = sizes(&format!("reserved={rest}"))?;
    Some(Category { name: name.trim().to_owned(), reserved_bytes, committed_bytes, malloc_bytes: 0 })
}

/// `[0x0000000700000000 - 0x0000000800000000] reserved 4194304KB for Java Heap from`; also `reserved and committed`.
fn region(words: &str) -> Option<Region> {
    let (range, rest) = words.strip_prefix('[')?.split_once(']')?;
    let (start, end) = range.split_once(" - ")?;
    let address = |text: &str| u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
    let extent = Extent { start: address(start)?, end: address(end)? };
    let rest = rest.trim_start();
    if !rest.starts_with("reserved") || extent.start >= extent.end {
        return None;
    }
    let (_, category) = rest.split_once(" for ")?;
    let category = category.strip_suffix(" from").unwrap_or(category).trim();
    Some(Region { extent, category: category.to_owned() })
}

fn sizes(text: &str) -> Option<(u64, u64)> {
    Some((amount(text, "reserved=")?, amount(text, "committed=")?))
}

/// The bytes after `name`.
fn amount(text: &str, name: &str) -> Option<u64> {
    let (number, unit_bytes) = number(text, name)?;
    number.checked_mul(unit_bytes)
}

/// The number after `name`, and the bytes of its unit: `KB`, `MB`, `GB`, `B` or none.
fn number(text: &str, name: &str) -> Option<(u64, u64)> {
    let rest = &text[text.find(name)? + name.len()..];
    let digits = rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let number: u64 = rest.get(..digits)?.parse().ok()?;
    let unit = rest[digits..].chars().take_while(char::is_ascii_alphabetic).collect::<String>();
    let shift = match unit.as_str() {
        "KB" => 10,
        "MB" => 20,
        "GB" => 30,
        _ => 0,
    };
    Some((number, 1 << shift))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DETAIL: &str = "\
123:

Native Memory Tracking:

(Omitting categories weighting less than 1KB)

Total: reserved=6172994KB, committed=387173KB
       malloc: 41347KB #181352
       mmap:   reserved=9927524KB, committed=599500KB

-                 Java Heap (reserved=6172672KB, committed=387072KB)
                            (mmap: reserved=6172672KB, committed=387072KB) 
 
-                    Thread (reserved=321KB, committed=100KB)
                            (thread #319)
                            (stack: reserved=300KB, committed=90KB)
                            (malloc=15KB #1900) 
                            (arena=6KB #630)
 
Virtual memory map:
 
[0x0000000700000000 - 0x0000000800000000] reserved 4194304KB for Java Heap from
    [0x00007f1] ReservedHeapSpace::x+0x1
\t[0x0000000700000000 - 0x0000000710000000] committed 262144KB from
            [0x00007f2] y
[0x00007f0000000000 - 0x00007f0000100000] reserved and committed 1024KB for Thread Stack from
            (malloc=99KB)

Details:

[0x00007f3] z
                             (malloc=15KB type=Thread #1900)
";

    #[test]
    fn categories_and_regions_are_read() {
        let memory = parse(DETAIL).unwrap();
        assert_eq!((memory.reserved_bytes, memory.committed_bytes), (6_172_994 << 10, 387_173 << 10));
        assert_eq!(memory.pid, Some(123));
        let [heap, thread] = memory.categories.as_slice() else { panic!("{memory:?}") };
        assert_eq!(
            (heap.name.as_str(), heap.committed_bytes, heap.malloc_bytes),
            ("Java Heap", 387_072 << 10, 0)
        );
        assert_eq!(thread.malloc_bytes, 21 << 10);
        let regions: Vec<(u64, &str)> =
            memory.regions.iter().map(|region| (region.extent.bytes(), region.category.as_str())).collect();
        assert_eq!(regions, [(4 << 30, "Java Heap"), (1 << 20, "Thread Stack")]);
    }

    #[test]
    fn text_that_was_cut_off_is_refused_unless_categories_and_map_are_whole() {
        let thread = DETAIL.find("\n-                    Thread").unwrap();
        let map = DETAIL.find("\nVirtual memory map:").unwrap();
        let details = DETAIL.find("\nDetails:").unwrap();
        for (cut, expected) in [
            (thread, Some(NmtError::CutOff)),
            (map, None),
            (map + 40, Some(NmtError::CutOff)),
            (details, Some(NmtError::CutOff)),
            (details + 20, None),
        ] {
            assert_eq!(parse(&DETAIL[..cut]).err(), expected, "{}", &DETAIL[..cut]);
        }
    }

    #[test]
    fn sums_rounded_to_large_units_are_not_said_to_be_cut_off() {
        let text =
            "7:\nTotal: reserved=1674MB, committed=329MB\n\n- Java Heap (reserved=1670MB, committed=320MB)\n";
        assert_eq!(parse(text).map(|memory| memory.committed_bytes), Ok(329 << 20));
        let in_gib = parse(&text.replace("MB", "GB"));
        assert_eq!(in_gib.map(|memory| memory.categories[0].reserved_bytes), Ok(1670 << 30));
        assert_eq!(parse(&text.replace("1674MB", "1711MB")), Err(NmtError::CutOff));
    }

    #[test]
    fn what_is_switched_off_is_said() {
        assert_eq!(parse("5:\nNative memory tracking is not enabled\n"), Err(NmtError::Off));
        assert_eq!(parse("5:\nDetail tracking is not enabled\n"), Err(NmtError::NoDetail));
        assert_eq!(parse("hello"), Err(NmtError::Foreign));
        assert_eq!(parse("Total: reserved=1KB, committed=1KB\n"), Err(NmtError::Foreign));
    }

    proptest! {
        #[test]
        fn no_damage_makes_it_panic(at in 0..DETAIL.len(), byte in any::<u8>(), cut in 0..DETAIL.len()) {
            let mut bytes = DETAIL.as_bytes().to_vec();
            bytes[at] = byte;
            bytes.truncate(cut);
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
