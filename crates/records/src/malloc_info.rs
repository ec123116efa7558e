//! The document that glibc's `malloc_info` writes, read and written.
//!
//! Its sizes in regular bins carry the flags of the chunks in their lowest bits, as glibc writes them.

use std::fmt;

/// A number of chunks and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One list of free chunks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Smallest.
    pub from: u64,
    /// Largest.
    pub to: u64,
    /// Sum.
    pub total: u64,
    /// How many.
    pub count: u64,
}

/// One arena, which the document calls a heap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heap {
    /// Lists that are not empty, but the unsorted one.
    pub sizes: Vec<Size>,
    /// The unsorted list, if it is not empty.
    pub unsorted: Option<Size>,
    /// Chunks in fast bins; none since 2.43.
    pub fast: Option<Total>,
    /// Chunks in other bins, and since 2.31 the top chunk.
    pub rest: Total,
    /// Bytes from the system.
    pub system_bytes: u64,
    /// The most there were.
    pub max_system_bytes: u64,
    /// Bytes of its heaps.
    pub total_bytes: u64,
    /// Bytes of them that can be written.
    pub accessible_bytes: u64,
    /// Number of heaps; none for the main arena.
    pub heaps: Option<u64>,
}

/// The whole document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MallocInfo {
    /// Its arenas.
    pub heaps: Vec<Heap>,
    /// Blocks with a mapping of their own.
    pub mapped: Total,
}

impl MallocInfo {
    /// Reads the document that stands somewhere in `text`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let start = text.find("<malloc version=\"1\">")?;
        let end = start + text[start..].find("</malloc>")?;
        let mut parts: Vec<&str> = text[start..end].split("</heap>").collect();
        let mut info = Self::default();
        let rest = parts.pop()?;
        for part in parts {
            info.heaps.push(Heap::parse(part)?);
        }
        info.mapped = total(rest, "mmap")?;
        Some(info)
    }

    /// Chunks in fast bins of all arenas.
    #[must_use]
    pub fn fast(&self) -> Option<Total> {
        self.heaps.iter().filter_map(|heap| heap.fast).reduce(sum)
    }

    /// Other free chunks of all arenas.
    #[must_use]
    pub fn rest(&self) -> Total {
        self.heaps.iter().map(|heap| heap.rest).fold(Total::default(), sum)
    }
}

impl fmt::Display for MallocInfo {
    /// The document as glibc writes it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "<malloc version=\"1\">")?;
        for (number, heap) in self.heaps.iter().enumerate() {
            writeln!(out, "<heap nr=\"{number}\">\n<sizes>")?;
            for size in &heap.sizes {
                writeln!(out, "  <size {}/>", attributes(*size))?;
            }
            if let Some(size) = heap.unsorted {
                writeln!(out, "  <unsorted {}/>", attributes(size))?;
            }
            writeln!(out, "</sizes>")?;
            totals(out, heap.fast, heap.rest)?;
            write_system(out, heap.system_bytes, heap.max_system_bytes)?;
            write_space(out, heap.total_bytes, heap.accessible_bytes)?;
            if let Some(heaps) = heap.heaps {
                writeln!(out, "<aspace type=\"subheaps\" size=\"{heaps}\"/>")?;
            }
            writeln!(out, "</heap>")?;
        }
        let all = |bytes: fn(&Heap) -> u64| self.heaps.iter().map(bytes).sum::<u64>();
        totals(out, self.fast(), self.rest())?;
        let Total { count, bytes } = self.mapped;
        writeln!(out, "<total type=\"mmap\" count=\"{count}\" size=\"{bytes}\"/>")?;
        write_system(out, all(|heap| heap.system_bytes), all(|heap| heap.max_system_bytes))?;
        write_space(out, all(|heap| heap.total_bytes), all(|heap| heap.accessible_bytes))?;
        writeln!(out, "</malloc>")
    }
}

impl Heap {
    fn parse(text: &str) -> Option<Self> {
        let mut heap = Self {
            fast: total(text, "fast"),
            rest: total(text, "rest")?,
            system_bytes: typed(text, "system", "current")?,
            max_system_bytes: typed(text, "system", "max")?,
            total_bytes: typed(text, "aspace", "total")?,
            accessible_bytes: typed(text, "aspace", "mprotect")?,
            heaps: typed(text, "aspace", "subheaps"),
            ..Self::default()
        };
        for element in text.split('<').skip(1) {
            let size = || {
                let number = |name| attribute(element, name);
                Some(Size {
                    from: number("from")?,
                    to: number("to")?,
                    total: number("total")?,
                    count: number("count")?,
                })
            };
            if element.starts_with("size ") {
                heap.sizes.push(size()?);
            } else if element.starts_with("unsorted ") {
                heap.unsorted = Some(size()?);
            }
        }
        Some(heap)
    }
}

fn sum(left: Total, right: Total) -> Total {
    Total { count: left.count.saturating_add(right.count), bytes: left.bytes.saturating_add(right.bytes) }
}

fn attributes(Size { from, to, total, count }: Size) -> String {
    format!("from=\"{from}\" to=\"{to}\" total=\"{total}\" count=\"{count}\"")
}

fn totals(out: &mut fmt::Formatter<'_>, fast: Option<Total>, rest: Total) -> fmt::Result {
    if let Some(Total { count, bytes }) = fast {
        writeln!(out, "<total type=\"fast\" count=\"{count}\" size=\"{bytes}\"/>")?;
    }
    writeln!(out, "<total type=\"rest\" count=\"{}\" size=\"{}\"/>", rest.count, rest.bytes)
}

fn write_system(out: &mut fmt::Formatter<'_>, current: u64, max: u64) -> fmt::Result {
    writeln!(out, "<system type=\"current\" size=\"{current}\"/>\n<system type=\"max\" size=\"{max}\"/>")
}

fn write_space(out: &mut fmt::Formatter<'_>, total: u64, accessible: u64) -> fmt::Result {
    writeln!(
        out,
        "<aspace type=\"total\" size=\"{total}\"/>\n<aspace type=\"mprotect\" size=\"{accessible}\"/>"
    )
}

/// The element `<NAME type="KIND" …>` in `text`, from its name on.
fn element<'text>(text: &'text str, name: &str, kind: &str) -> Option<&'text str> {
    let opening = format!("<{name} type=\"{kind}\"");
    let start = text.find(&opening)?;
    text[start..].split('>').next()
}

fn total(text: &str, kind: &str) -> Option<Total> {
    let element = element(text, "total", kind)?;
    Some(Total { count: attribute(element, "count")?, bytes: attribute(element, "size")? })
}

fn typed(text: &str, name: &str, kind: &str) -> Option<u64> {
    attribute(element(text, name, kind)?, "size")
}

fn attribute(element: &str, name: &str) -> Option<u64> {
    let (_, after) = element.split_once(&format!(" {name}=\""))?;
    after.split('"').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = r#"<malloc version="1">
<heap nr="0">
<sizes>
  <size from="17" to="32" total="64" count="2"/>
  <size from="4129" to="8193" total="12322" count="2"/>
  <unsorted from="161" to="161" total="161" count="1"/>
</sizes>
<total type="fast" count="2" size="64"/>
<total type="rest" count="4" size="20000"/>
<system type="current" size="135168"/>
<system type="max" size="135168"/>
<aspace type="total" size="135168"/>
<aspace type="mprotect" size="135168"/>
</heap>
<heap nr="1">
<sizes>
</sizes>
<total type="fast" count="0" size="0"/>
<total type="rest" count="1" size="130000"/>
<system type="current" size="135168"/>
<system type="max" size="139264"/>
<aspace type="total" size="135168"/>
<aspace type="mprotect" size="139264"/>
<aspace type="subheaps" size="1"/>
</heap>
<total type="fast" count="2" size="64"/>
<total type="rest" count="5" size="150000"/>
<total type="mmap" count="1" size="1052672"/>
<system type="current" size="270336"/>
<system type="max" size="274432"/>
<aspace type="total" size="270336"/>
<aspace type="mprotect" size="274432"/>
</malloc>
"#;

    #[test]
    fn what_is_read_is_written_the_same() {
        let info = MallocInfo::parse(TEXT).unwrap();
        assert_eq!(info.to_string(), TEXT);
        assert_eq!(info.heaps[0].sizes.len(), 2);
        assert_eq!(info.heaps[0].unsorted.unwrap().count, 1);
        assert_eq!((info.heaps[0].heaps, info.heaps[1].heaps), (None, Some(1)));
        assert_eq!(info.mapped, Total { count: 1, bytes: 1_052_672 });
    }

    #[test]
    fn a_document_cut_off_is_none() {
        for length in 0..TEXT.len() - 10 {
            assert_eq!(MallocInfo::parse(&TEXT[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[<>/a-z\" =0-9\n]{0,200}") {
            let _ = MallocInfo::parse(&format!("<malloc version=\"1\">{text}</heap></malloc>"));
        }
    }
}
