//! Core files: ELF files whose segments are the memory of a process that was, and whose notes say which process.
//!
//! Sources: elf(5), core(5), and fs/binfmt_elf.c of the kernel for the notes.

use std::fmt;

use crate::elf;

/// Bytes that [`Header::parse`] needs from the start of the file.
pub const HEADER_BYTES: usize = 64;
/// Most bytes of notes that are read: a process with very many mapped files.
pub const MOST_NOTE_BYTES: u64 = 256 << 20;

const SEGMENT_BYTES: u64 = 56;
const TYPE_CORE: u16 = 4;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_NOTE: u32 = 4;
const WRITABLE: u32 = 2;
/// Instead of a number of segments: section 0 has it.
const EXTENDED: u16 = 0xffff;
const NOTE_STATUS: u32 = 1;
const NOTE_PROCESS: u32 = 3;
const NOTE_FILES: u32 = 0x4649_4c45;

/// Why a file is no core file that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreError {
    /// It does not begin like an ELF file.
    NotElf,
    /// A program, a library or an object file.
    NotCore,
    /// Of a 32-bit or big-endian machine.
    Foreign,
    /// It ends in its headers, or they contradict themselves.
    Damaged,
}

impl fmt::Display for CoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NotElf => "it is no core file: it does not begin as ELF files do (compressed ones must be unpacked first)",
            Self::NotCore => "it is a program or a library, not a core file",
            Self::Foreign => "it is of a 32-bit or big-endian machine, and 64-bit little-endian ones are known only",
            Self::Damaged => "its headers are damaged or cut off",
        })
    }
}

impl std::error::Error for CoreError {}

/// Whether a file that begins so is a core file, of whatever machine.
#[must_use]
pub fn is_core(head: &[u8]) -> bool {
    let kind = head.get(16..18).and_then(|kind| kind.try_into().ok());
    let kind = match head.get(5) {
        Some(2) => kind.map(u16::from_be_bytes),
        _ => kind.map(u16::from_le_bytes),
    };
    head.starts_with(elf::MAGIC) && kind == Some(TYPE_CORE)
}

/// Where the table of segments is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Offset of the table in the file.
    pub table_offset: u64,
    /// Number of entries; none where there are so many that the section at `section_offset` has it.
    count: Option<u16>,
    section_offset: u64,
}

impl Header {
    /// Reads the first [`HEADER_BYTES`] of a file.
    ///
    /// # Errors
    /// [`CoreError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, CoreError> {
        if !bytes.starts_with(elf::MAGIC) {
            return Err(CoreError::NotElf);
        }
        if bytes.get(4..6) != Some(&[2, 1]) {
            return Err(CoreError::Foreign);
        }
        let fields = || {
            let count = short(bytes, 56)?;
            let entry_bytes = short(bytes, 54)?;
            let kind = short(bytes, 16)?;
            let header = Self {
                table_offset: word(bytes, 32)?,
                count: (count != EXTENDED).then_some(count),
                section_offset: word(bytes, 40)?,
            };
            Some((kind, entry_bytes, header))
        };
        let (kind, entry_bytes, header) = fields().ok_or(CoreError::Damaged)?;
        match kind {
            TYPE_CORE if u64::from(entry_bytes) == SEGMENT_BYTES => Ok(header),
            TYPE_CORE => Err(CoreError::Damaged),
            _ => Err(CoreError::NotCore),
        }
    }

    /// Offset of 4 bytes that must be read to know the number of segments, in files with very many.
    #[must_use]
    pub fn extension_offset(&self) -> Option<u64> {
        self.count.is_none().then(|| self.section_offset.checked_add(44)).flatten()
    }

    /// Bytes of the table; `extension` are the bytes at [`Header::extension_offset`].
    #[must_use]
    pub fn table_bytes(&self, extension: [u8; 4]) -> u64 {
        self.count.map_or(u64::from(u32::from_le_bytes(extension)), u64::from) * SEGMENT_BYTES
    }
}

/// A stretch of the process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Whether the process could write there.
    pub is_writable: bool,
    /// Where in the file its bytes are.
    pub offset: u64,
    /// How many of them the file has; the rest was not dumped, or is zero.
    pub file_bytes: u64,
}

/// Offset and bytes of the notes in the file.
pub type NotesPlace = Option<(u64, u64)>;

/// Stretches of memory in ascending order, and where the notes are.
///
/// # Errors
/// [`CoreError::Damaged`].
pub fn segments(table: &[u8]) -> Result<(Vec<Segment>, NotesPlace), CoreError> {
    let mut segments = Vec::new();
    let mut notes = None;
    for entry in table.chunks_exact(SEGMENT_BYTES as usize) {
        let fields = || {
            let (kind, flags) = (half(entry, 0)?, half(entry, 4)?);
            let (offset, start) = (word(entry, 8)?, word(entry, 16)?);
            let (file_bytes, memory_bytes) = (word(entry, 32)?, word(entry, 40)?);
            Some((kind, flags, offset, start, file_bytes, start.checked_add(memory_bytes)?))
        };
        let (kind, flags, offset, start, file_bytes, end) = fields().ok_or(CoreError::Damaged)?;
        match kind {
            SEGMENT_LOAD if start < end => {
                let is_writable = flags & WRITABLE != 0;
                segments.push(Segment {
                    start,
                    end,
                    is_writable,
                    offset,
                    file_bytes: file_bytes.min(end - start),
                });
            }
            SEGMENT_NOTE => notes = notes.or(Some((offset, file_bytes))),
            _ => {}
        }
    }
    segments.sort_by_key(|segment| segment.start);
    let overlaps = |pair: &[Segment]| pair[0].end > pair[1].start;
    if segments.is_empty() || segments.windows(2).any(overlaps) {
        return Err(CoreError::Damaged);
    }
    Ok((segments, notes))
}

/// A part of a file that the process had mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Path; not necessarily UTF-8.
    pub path: Vec<u8>,
}

/// What the notes say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Number and name of the process.
    pub process: Option<(i32, String)>,
    /// Number of threads.
    pub threads: usize,
    /// Files that it had mapped.
    pub files: Vec<MappedFile>,
}

impl Notes {
    /// Reads them, up to the first one that is damaged.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let mut notes = Self::default();
        let mut at = 0;
        while let Some((kind, body, next)) = note(bytes, at) {
            match kind {
                NOTE_STATUS => notes.threads += 1,
                NOTE_PROCESS => notes.process = notes.process.take().or_else(|| process(body)),
                NOTE_FILES => notes.files = files(body).unwrap_or_default(),
                _ => {}
            }
            at = next;
        }
        notes
    }
}

/// The note at an offset: its kind, its body, and where the next one begins.
fn note(bytes: &[u8], at: usize) -> Option<(u32, &[u8], usize)> {
    let name_bytes = usize::try_from(half(bytes, at)?).ok()?;
    let body_bytes = usize::try_from(half(bytes, at + 4)?).ok()?;
    let kind = half(bytes, at + 8)?;
    let start = at.checked_add(12)?.checked_add(name_bytes.checked_next_multiple_of(4)?)?;
    let end = start.checked_add(body_bytes)?;
    Some((kind, bytes.get(start..end)?, end.checked_next_multiple_of(4)?))
}

/// `struct elf_prpsinfo`: the number at 24, the name at 40.
fn process(body: &[u8]) -> Option<(i32, String)> {
    let number = i32::from_le_bytes(half(body, 24)?.to_le_bytes());
    let name = body.get(40..56)?.split(|byte| *byte == 0).next()?;
    Some((number, String::from_utf8_lossy(name).into_owned()))
}

/// A count and a unit; three words for each file; then the paths.
fn files(body: &[u8]) -> Option<Vec<MappedFile>> {
    let count = usize::try_from(word(body, 0)?).ok()?;
    let unit = word(body, 8)?;
    let paths_start = count.checked_mul(24)?.checked_add(16)?;
    let mut paths = body.get(paths_start..)?.split(|byte| *byte == 0);
    let mut files = Vec::new();
    for entry in 0..count {
        let at = 16 + entry * 24;
        files.push(MappedFile {
            start: word(body, at)?,
            end: word(body, at + 8)?,
            offset: word(body, at + 16)?.checked_mul(unit)?,
            path: paths.next()?.to_vec(),
        });
    }
    Some(files)
}

fn array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

fn short(bytes: &[u8], offset: usize) -> Option<u16> {
    array(bytes, offset).map(u16::from_le_bytes)
}

fn half(bytes: &[u8], offset: usize) -> Option<u32> {
    array(bytes, offset).map(u32::from_le_bytes)
}

fn word(bytes: &[u8], offset: usize) -> Option<u64> {
    array(bytes, offset).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(kind: u16, count: u16) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[16..18].copy_from_slice(&kind.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[40..48].copy_from_slice(&4096_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&count.to_le_bytes());
        bytes
    }

    fn entry(kind: u32, flags: u32, words: [u64; 6]) -> Vec<u8> {
        let mut bytes = [kind.to_le_bytes(), flags.to_le_bytes()].concat();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    #[test]
    fn headers_tell_core_files_from_others() {
        assert_eq!(Header::parse(&header(4, 3)).unwrap().table_bytes([0; 4]), 168);
        assert_eq!(Header::parse(&header(4, 3)).unwrap().extension_offset(), None);
        let many = Header::parse(&header(4, EXTENDED)).unwrap();
        assert_eq!(many.extension_offset(), Some(4096 + 44));
        assert_eq!(many.table_bytes(70_000_u32.to_le_bytes()), 70_000 * 56);
        assert_eq!(Header::parse(&header(3, 3)), Err(CoreError::NotCore));
        assert_eq!(Header::parse(b"#!/bin/sh"), Err(CoreError::NotElf));
        assert_eq!(Header::parse(b"\x7fELF\x01\x01"), Err(CoreError::Foreign));
        assert_eq!(Header::parse(&header(4, 3)[..50]), Err(CoreError::Damaged));
        let mut of_other_entries = header(4, 3);
        of_other_entries[54] = 32;
        assert_eq!(Header::parse(&of_other_entries), Err(CoreError::Damaged));
    }

    #[test]
    fn segments_are_sorted_and_must_not_overlap() {
        let notes = entry(4, 0, [1000, 0, 0, 200, 0, 0]);
        let high = entry(1, 6, [8192, 0x7000, 0, 0x1000, 0x2000, 0]);
        let low = entry(1, 4, [4096, 0x1000, 0, 0, 0x1000, 0]);
        let beside = entry(1, 4, [4096, 0x2000, 0, 0x3000, 0x1000, 0]);
        let nothing = entry(1, 4, [4096, 0x7800, 0, 0, 0, 0]);
        let (found, place) = segments(&[notes, high.clone(), low, beside, nothing].concat()).unwrap();
        assert_eq!(place, Some((1000, 200)));
        assert_eq!(found.iter().map(|segment| segment.start).collect::<Vec<_>>(), [0x1000, 0x2000, 0x7000]);
        assert!(found[2].is_writable && !found[0].is_writable);
        let file_bytes: Vec<u64> = found.iter().map(|segment| segment.file_bytes).collect();
        assert_eq!(file_bytes, [0, 0x1000, 0x1000], "no more than there is memory");
        assert_eq!(segments(&[high.clone(), high].concat()), Err(CoreError::Damaged));
        assert_eq!(segments(&entry(1, 6, [0, u64::MAX, 0, 1, 2, 0])), Err(CoreError::Damaged));
        assert_eq!(segments(b""), Err(CoreError::Damaged));
    }

    fn note(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = [5_u32.to_le_bytes(), (body.len() as u32).to_le_bytes(), kind.to_le_bytes()].concat();
        bytes.extend(b"CORE\0\0\0\0");
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn notes_name_the_process_its_threads_and_its_files() {
        let mut process = vec![0; 136];
        process[24..28].copy_from_slice(&1234_i32.to_le_bytes());
        process[40..44].copy_from_slice(b"java");
        let words = [2_u64, 4096, 0x1000, 0x2000, 0, 0x2000, 0x3000, 3];
        let mut files: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        files.extend(b"/bin/a b\0/lib/libc.so.6\0");
        let bytes =
            [note(1, &[0; 336]), note(3, &process), note(1, &[0; 336]), note(NOTE_FILES, &files)].concat();
        let notes = Notes::parse(&bytes);
        assert_eq!(notes.process, Some((1234, "java".to_owned())));
        assert_eq!(notes.threads, 2);
        let file = |start, end, offset, path: &str| MappedFile { start, end, offset, path: path.into() };
        let expected = [file(0x1000, 0x2000, 0, "/bin/a b"), file(0x2000, 0x3000, 12288, "/lib/libc.so.6")];
        assert_eq!(notes.files, expected);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Header::parse(&bytes);
            let _ = segments(&bytes);
            let _ = Notes::parse(&bytes);
            let _ = Notes::parse(&note(NOTE_FILES, &bytes));
        }
    }
}
