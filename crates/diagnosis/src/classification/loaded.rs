//! Programs and libraries as they lie in memory: their code, their static data, their exported symbols, read from their own
//! headers. Source: elf(5); the loader's list of them: link.h.

use std::collections::BTreeMap;

use faultless_records::contents::Extent;
use faultless_records::mappings::Mapping;
use faultless_records::pagemap::PAGE_BYTES;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::reader::{Reader, extent_of, mapping_at};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const EXECUTABLE: u32 = 1;
const WRITABLE: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_DEBUG: u64 = 21;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// Bytes of an entry of a 64-bit symbol table.
const SYMBOL_BYTES: u64 = 24;

/// Largest mapping of which the loader's records prove anything.
const LOADER_MAPPING_BYTES: u64 = 1 << 20;
/// What the loader has in front of its records and behind them, at least as far as they prove it.
const LOADER_PAGES_BYTES: u64 = 16 << 10;
/// Of glibc's `struct link_map`, which is a little longer: the page that it ends in counts whole.
const RECORD_BYTES: u64 = 1024;

/// A program or library in memory.
#[derive(Debug, Clone, Default)]
pub struct Object {
    /// Its path.
    pub path: Vec<u8>,
    /// What is added to its own addresses.
    pub bias: u64,
    /// Its code.
    pub code: Vec<Extent>,
    /// What it can write to, up to its last byte, `.bss` included.
    pub data: Vec<Extent>,
    /// The part of `data` that no file backs, whole pages.
    pub unbacked: Vec<Extent>,
    pub(super) dynamic: Option<u64>,
    /// Behind the last byte of all its parts.
    pub(super) end: u64,
}

/// All programs and libraries of a process.
#[derive(Debug, Default)]
pub struct Loaded {
    /// By address.
    pub objects: Vec<Object>,
}

impl Loaded {
    /// The one whose code has this address.
    #[must_use]
    pub fn with_code_at(&self, address: u64) -> Option<&Object> {
        self.objects.iter().find(|object| object.code.iter().any(|code| code.contains(address)))
    }

    /// The first whose file's name begins so.
    #[must_use]
    pub fn named(&self, start: &str) -> Option<&Object> {
        self.objects.iter().find(|object| object.file_name().starts_with(start))
    }
}

impl Object {
    /// Name of its file without the folders.
    #[must_use]
    pub fn file_name(&self) -> String {
        let name = self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Address of an exported symbol, looked up by the hash table in its memory.
    #[must_use]
    pub fn symbol(&self, reader: &Reader<'_>, name: &str) -> Option<u64> {
        let table = self.dynamic(reader, DT_GNU_HASH)?;
        let (symbols, strings) = (self.dynamic(reader, DT_SYMTAB)?, self.dynamic(reader, DT_STRTAB)?);
        let half = |place: u64| reader.half(table.checked_add(place)?);
        let (buckets, first, bloom) = (half(0)?, half(4)?, half(8)?);
        let buckets_at = 16 + 8 * u64::from(bloom);
        let chain_at = buckets_at + 4 * u64::from(buckets);
        let hash = gnu_hash(name);
        let mut index = half(buckets_at + 4 * u64::from(hash.checked_rem(buckets)?))?;
        if index < first {
            return None;
        }
        // A chain has a few entries; no damaged one may keep us.
        for _ in 0..1000 {
            let entry = half(chain_at + 4 * u64::from(index - first))?;
            let symbol = symbols.checked_add(SYMBOL_BYTES * u64::from(index))?;
            if entry | 1 == hash | 1
                && reader.text(strings.checked_add(u64::from(reader.half(symbol)?))?)? == name
            {
                return self.bias.checked_add(reader.word(symbol.checked_add(8)?)?);
            }
            if entry & 1 != 0 {
                return None;
            }
            index = index.checked_add(1)?;
        }
        None
    }

    /// The value of a tag in the dynamic section; addresses there are relocated by some loaders and not by others.
    fn dynamic(&self, reader: &Reader<'_>, tag: u64) -> Option<u64> {
        let start = self.dynamic?;
        let value = (0..200).find_map(|place| {
            let entry = start.checked_add(16 * place)?;
            (reader.word(entry)? == tag).then(|| reader.word(entry + 8))?
        })?;
        Some(if value < self.bias { value.checked_add(self.bias)? } else { value })
    }
}

/// Source: the function of the GNU hash table, djb2.
fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

/// Finds them by the headers at the start of their files.
#[must_use]
pub fn objects(mappings: &[Mapping], reader: &Reader<'_>) -> Loaded {
    let starts = mappings.iter().filter(|mapping| {
        mapping.offset == 0 && mapping.path().is_some() && mapping.is_readable() && !mapping.is_shared()
    });
    let mut objects: Vec<Object> = Vec::new();
    for head in starts {
        // Where code or data of a small file shares the first page of it with the headers, that page is mapped again.
        let is_of_last =
            objects.last().is_some_and(|last| last.path == path_of(head) && head.start < last.end);
        if !is_of_last {
            objects.extend(object(mappings, head, reader));
        }
    }
    Loaded { objects }
}

fn path_of(mapping: &Mapping) -> &[u8] {
    mapping.path().unwrap_or_default()
}

fn object(mappings: &[Mapping], head: &Mapping, reader: &Reader<'_>) -> Option<Object> {
    let start = head.start;
    // Magic number, 64 bits, little-endian.
    if reader.word(start)? & 0xffff_ffff_ffff != 0x0102_464c_457f {
        return None;
    }
    let table = start.checked_add(reader.word(start + 32)?)?;
    let (entry_bytes, entries) = (reader.half(start + 54)? & 0xffff, reader.half(start + 56)? & 0xffff);
    let segments: Vec<Segment> = (0..u64::from(entries))
        .filter_map(|entry| Segment::read(reader, table.checked_add(entry * u64::from(entry_bytes))?))
        .collect();
    let first = segments.iter().find(|segment| segment.kind == PT_LOAD && segment.offset < PAGE_BYTES)?;
    let mut object = Object {
        path: path_of(head).to_vec(),
        bias: start.wrapping_sub(first.address & !4095),
        ..Object::default()
    };
    for segment in &segments {
        let from = object.bias.wrapping_add(segment.address);
        let extent = Extent::new(from, segment.memory_bytes);
        // A file that is merely mapped as data has headers, too, but not its segments where they say.
        let is_there = || mapping_at(mappings, from).is_some_and(|mapping| mapping.inode == head.inode);
        if segment.kind == PT_LOAD {
            object.end = object.end.max(extent.end);
        }
        match segment.kind {
            PT_DYNAMIC => object.dynamic = Some(from),
            PT_LOAD if segment.flags & EXECUTABLE != 0 && is_there() => object.code.push(extent),
            PT_LOAD if segment.flags & WRITABLE != 0 && is_there() => {
                object.data.push(extent);
                let unbacked =
                    from.saturating_add(segment.file_bytes).checked_next_multiple_of(PAGE_BYTES)?;
                let end = extent.end.checked_next_multiple_of(PAGE_BYTES)?;
                object.unbacked.push(Extent { start: unbacked, end: end.max(unbacked) });
            }
            _ => {}
        }
    }
    (!object.code.is_empty()).then_some(object)
}

struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

impl Segment {
    fn read(reader: &Reader<'_>, at: u64) -> Option<Self> {
        let mut words = [0; 6];
        for (place, word) in words.iter_mut().enumerate() {
            *word = reader.word(at.checked_add(8 * place as u64)?)?;
        }
        let [kind_and_flags, offset, address, _, file_bytes, memory_bytes] = words;
        let (kind, flags) = (kind_and_flags as u32, (kind_and_flags >> 32) as u32);
        Some(Self { kind, flags, offset, address, file_bytes, memory_bytes })
    }
}

/// Claims `.bss` of each, and the loader's records of them.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    for object in &loaded.objects {
        for extent in &object.unbacked {
            let detail = format!(".bss of {}", object.file_name());
            let evidence = Evidence::with(Strength::Contents, "program headers", detail);
            claims.add(*extent, Kind::StaticData, evidence);
        }
    }
    let Some(debug) = loaded
        .objects
        .iter()
        .find_map(|object| object.dynamic(reader, DT_DEBUG).filter(|address| *address > object.bias))
    else {
        return;
    };
    // First and last record in each mapping.
    let mut records: BTreeMap<u64, (&Mapping, Extent)> = BTreeMap::new();
    let mut next = reader.word(debug.saturating_add(8));
    for _ in 0..10_000 {
        let Some(record) = next.filter(|record| *record != 0) else { break };
        if let Some(mapping) = mapping_at(sight.mappings, record)
            && mapping.is_anonymous()
            && mapping.bytes() <= LOADER_MAPPING_BYTES
        {
            let (_, all) =
                records.entry(mapping.start).or_insert((mapping, Extent::new(record, RECORD_BYTES)));
            let end = record.saturating_add(RECORD_BYTES);
            *all = Extent { start: all.start.min(record), end: all.end.max(end) };
        }
        next = reader.word(record.saturating_add(24));
    }
    for (mapping, all) in records.into_values() {
        let evidence = Evidence::plain(Strength::Contents, "loader's list of libraries");
        for gap in claims.gaps(around_records(extent_of(mapping), all)) {
            claims.add(gap, Kind::StaticData, evidence.clone());
        }
    }
}

/// What is the loader's of a mapping in which its records take up `records`: to an end of the mapping, if that is near. The kernel joins
/// what the program maps itself with the loader's pages where the one lies beside the other.
fn around_records(mapping: Extent, records: Extent) -> Extent {
    let near = (records.end - records.start).max(LOADER_PAGES_BYTES);
    let start = records.start / PAGE_BYTES * PAGE_BYTES;
    let end =
        records.end.checked_next_multiple_of(PAGE_BYTES).map_or(mapping.end, |end| end.min(mapping.end));
    Extent {
        start: if start - mapping.start <= near { mapping.start } else { start },
        end: if mapping.end - end <= near { mapping.end } else { end },
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    /// A library with code at 0x1000 and data from 0x3000 to 0x6800, of which the file has 0x100 bytes.
    fn library(start: u64) -> (MadeUp, Vec<Mapping>) {
        let mut memory = MadeUp::default();
        memory.put(start, &[0x0001_0102_464c_457f]);
        memory.put(start + 32, &[64]);
        memory.put(start + 48, &[56 << 48, 2]);
        memory.put(start + 64, &[u64::from(PT_LOAD) | 5 << 32, 0, 0, 0, 0x2000, 0x2000, 0x1000]);
        memory.put(start + 120, &[u64::from(PT_LOAD) | 6 << 32, 0x2000, 0x3000, 0, 0x100, 0x3800, 0x1000]);
        let mappings = vec![
            mapping(start, start + 0x2000, b"r-xp", "/lib/a.so"),
            mapping(start + 0x3000, start + 0x4000, b"rw-p", "/lib/a.so"),
            mapping(start + 0x4000, start + 0x9000, b"rw-p", ""),
        ];
        (memory, mappings)
    }

    #[test]
    fn static_data_is_as_long_as_the_headers_say_and_no_longer() {
        let (memory, mappings) = library(0x7000_0000);
        let reader = Reader::new(&memory);
        let loaded = objects(&mappings, &reader);
        assert_eq!(loaded.objects.len(), 1);
        assert!(loaded.with_code_at(0x7000_0010).is_some() && loaded.named("a.so").is_some());
        let mut claims = Claims::default();
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        claim(&sight, &reader, &loaded, &mut claims);
        let end = claims.at(0x7000_4000).map(|claim| (claim.kind, claim.extent.end));
        assert_eq!(end, Some((Kind::StaticData, 0x7000_7000)));
        assert_eq!(claims.at(0x7000_7000), None);
    }

    #[test]
    fn what_a_program_maps_beside_the_loaders_records_is_not_the_loaders() {
        let around = |from: u64, to: u64| {
            let mapping = Extent { start: 0x10_0000, end: 0x20_0000 };
            let Extent { start, end } = around_records(mapping, Extent { start: from, end: to });
            (start, end)
        };
        assert_eq!(around(0x10_0010, 0x1f_f010), (0x10_0000, 0x20_0000), "all its own");
        assert_eq!(around(0x1f_f010, 0x1f_f4c0), (0x1f_f000, 0x20_0000), "the program's below");
        assert_eq!(around(0x10_3010, 0x10_4010), (0x10_0000, 0x10_5000), "the program's above");
        assert_eq!(around(0x16_0000, 0x1f_0000), (0x10_0000, 0x20_0000), "as much as the records again");
    }

    #[test]
    fn a_first_page_that_is_mapped_again_as_code_is_the_same_library() {
        let (mut memory, _) = library(0x7000_0000);
        let parts = |memory: &mut MadeUp, start: u64| {
            memory.put(start, &[0x0001_0102_464c_457f]);
            memory.put(start + 32, &[64]);
            memory.put(start + 48, &[56 << 48, 3]);
            memory.put(start + 64, &[u64::from(PT_LOAD) | 4 << 32, 0, 0, 0, 0x500, 0x500, 0x1000]);
            let code = [u64::from(PT_LOAD) | 5 << 32, 0x500, 0x1500, 0, 0x200, 0x200, 0x1000];
            memory.put(start + 120, &code);
            let data = [u64::from(PT_LOAD) | 6 << 32, 0x700, 0x2700, 0, 0x100, 0x100, 0x1000];
            memory.put(start + 176, &data);
        };
        let mut mappings = Vec::new();
        for (page, permissions) in [(0, b"r--p"), (1, b"r-xp"), (2, b"rw-p")] {
            let start = 0x7000_0000 + page * 0x1000;
            parts(&mut memory, start);
            mappings.push(mapping(start, start + 0x1000, permissions, "/lib/a.so"));
        }
        let loaded = objects(&mappings, &Reader::new(&memory));
        let [object] = &loaded.objects[..] else { panic!("{loaded:?}") };
        assert_eq!(object.bias, 0x7000_0000);
        assert_eq!((object.code[0].start, object.data[0].start), (0x7000_1500, 0x7000_2700));
    }

    #[test]
    fn a_file_merely_mapped_is_no_library() {
        let (memory, mut mappings) = library(0x7000_0000);
        mappings[0].permissions = *b"r--p";
        mappings.truncate(1);
        mappings[0].inode = 9;
        mappings[0].start = 0x7000_0000;
        mappings.push(mapping(0x7000_3000, 0x7000_4000, b"rw-p", ""));
        let mut moved = mappings.clone();
        moved[0].end = 0x7000_0000 + 0x1000;
        assert!(objects(&moved, &Reader::new(&memory)).objects.iter().all(|object| object.data.is_empty()));
    }
}
