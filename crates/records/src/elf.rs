//! The part of an ELF executable that decides whether a preload can reach it.

/// What the headers of an ELF file say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executable {
    /// 64-bit file (`ELFCLASS64`); a 32-bit program cannot load a 64-bit library.
    pub is_64_bit: bool,
    /// `e_machine`, such as 62 for x86-64 and 183 for aarch64.
    pub machine: u16,
    /// The dynamic loader (`PT_INTERP`); none in a static program, which loads no library at all.
    pub loader: Option<String>,
    /// Whether Go built it: its run time has a heap of its own.
    pub is_go: bool,
}

/// Why the headers could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElfError {
    /// The file does not begin with the ELF magic number.
    NotElf,
    /// It does, and then ends too early or contradicts itself.
    Damaged,
}

/// Reads bytes of a file from an offset on; whether all of them are there.
pub type ReadAt<'file> = &'file dyn Fn(u64, &mut [u8]) -> bool;

/// How every ELF file begins.
pub const MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const HEADER_BYTES: usize = 64;
/// Most bytes of program headers that the kernel reads. Source: `load_elf_phdrs` in its fs/binfmt_elf.c.
const MOST_TABLE_BYTES: usize = 64 * 1024;
/// Most bytes of a loader's path with its null: `PATH_MAX`.
const MOST_LOADER_BYTES: u64 = 4096;
/// Where a note's name begins, behind three lengths and kinds. Source: elf(5).
const NOTE_HEADER_BYTES: u64 = 12;
/// The name of the note with the identity that Go gives each program. Source: Go's cmd/internal/buildid.
const GO_NOTE: &[u8] = b"Go\0\0";

/// Reads the headers and the loader's path, which patchelf moves to the end of the file. Source: elf(5).
///
/// # Errors
/// [`ElfError`] when it is no ELF file or is cut off.
pub fn executable(read_at: ReadAt<'_>) -> Result<Executable, ElfError> {
    let mut magic = [0; MAGIC.len()];
    if !read_at(0, &mut magic) || magic != MAGIC {
        return Err(ElfError::NotElf);
    }
    read(read_at).ok_or(ElfError::Damaged)
}

fn read(read_at: ReadAt<'_>) -> Option<Executable> {
    let head = read_bytes(read_at, 0, HEADER_BYTES)?;
    let is_64_bit = *head.get(4)? == CLASS_64;
    let is_little_endian = *head.get(5)? == LITTLE_ENDIAN;
    let head = Bytes { bytes: &head, is_little_endian };
    let machine = head.u16(18)?;
    let (offset, entry_bytes, entries) = if is_64_bit {
        (head.u64(32)?, head.u16(54)?, head.u16(56)?)
    } else {
        (u64::from(head.u32(28)?), head.u16(42)?, head.u16(44)?)
    };
    let table_bytes = usize::from(entry_bytes) * usize::from(entries);
    if table_bytes > MOST_TABLE_BYTES {
        return None;
    }
    let table = read_bytes(read_at, offset, table_bytes)?;
    let table = Bytes { bytes: &table, is_little_endian };
    let is_go = places(table, PT_NOTE, entry_bytes, is_64_bit)?.into_iter().any(|(offset, _)| {
        let name = offset.checked_add(NOTE_HEADER_BYTES);
        name.and_then(|name| read_bytes(read_at, name, GO_NOTE.len())).is_some_and(|name| name == GO_NOTE)
    });
    let loader = match places(table, PT_INTERP, entry_bytes, is_64_bit)?.first().copied() {
        Some((offset, length)) if length <= MOST_LOADER_BYTES => {
            let text = read_bytes(read_at, offset, usize::try_from(length).ok()?)?;
            let text = text.split(|byte| *byte == 0).next()?;
            Some(String::from_utf8_lossy(text).into_owned())
        }
        Some(_) => return None,
        None => None,
    };
    Some(Executable { is_64_bit, machine, loader, is_go })
}

/// Offsets and lengths of the segments of one kind; none when the table is damaged.
fn places(table: Bytes<'_>, kind: u32, entry_bytes: u16, is_64_bit: bool) -> Option<Vec<(u64, u64)>> {
    let mut places = Vec::new();
    for start in (0..table.bytes.len()).step_by(usize::from(entry_bytes).max(1)) {
        if table.u32(start)? == kind {
            places.push(if is_64_bit {
                (table.u64(start + 8)?, table.u64(start + 32)?)
            } else {
                (u64::from(table.u32(start + 4)?), u64::from(table.u32(start + 16)?))
            });
        }
    }
    Some(places)
}

fn read_bytes(read_at: ReadAt<'_>, offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    (length == 0 || read_at(offset, &mut bytes)).then_some(bytes)
}

#[derive(Clone, Copy)]
struct Bytes<'file> {
    bytes: &'file [u8],
    is_little_endian: bool,
}

impl Bytes<'_> {
    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let mut bytes: [u8; N] = self.bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()?;
        if !self.is_little_endian {
            bytes.reverse();
        }
        Some(bytes)
    }

    fn u16(&self, offset: usize) -> Option<u16> {
        self.array(offset).map(u16::from_le_bytes)
    }

    fn u32(&self, offset: usize) -> Option<u32> {
        self.array(offset).map(u32::from_le_bytes)
    }

    fn u64(&self, offset: usize) -> Option<u64> {
        self.array(offset).map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_bytes(bytes: &[u8]) -> Result<Executable, ElfError> {
        executable(&|offset, buffer| {
            let wanted = bytes.get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
            wanted.map(|wanted| buffer.copy_from_slice(wanted)).is_some()
        })
    }

    #[test]
    fn this_test_program_is_dynamic_and_of_this_machine() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = of_bytes(&bytes).unwrap();
        assert!(found.is_64_bit);
        assert!(found.loader.unwrap().contains("/ld-linux"));
    }

    #[test]
    fn a_file_cut_anywhere_is_refused_and_never_panics() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in 0..1024 {
            let _ = of_bytes(&bytes[..length]);
        }
        assert_eq!(of_bytes(b"#!/bin/sh"), Err(ElfError::NotElf));
        assert_eq!(of_bytes(b"\x7fELF\x02\x01"), Err(ElfError::Damaged));
    }

    /// A header of 64 bits with a table of `entries` behind it.
    fn header(entries: u16, table: u64) -> Vec<u8> {
        let mut bytes = vec![0_u8; 128];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32..40].copy_from_slice(&table.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&entries.to_le_bytes());
        bytes
    }

    #[test]
    fn hostile_offsets_are_refused() {
        assert_eq!(of_bytes(&header(u16::MAX, 64)), Err(ElfError::Damaged));
        assert_eq!(of_bytes(&header(1, u64::MAX)), Err(ElfError::Damaged));
        assert_eq!(of_bytes(&header(1, 64)).map(|found| found.loader), Ok(None));
        for (offset, length) in [(u64::MAX, 8), (0, u64::MAX), (120, 9)] {
            let mut bytes = header(1, 64);
            bytes[64..68].copy_from_slice(&PT_INTERP.to_le_bytes());
            bytes[72..80].copy_from_slice(&offset.to_le_bytes());
            bytes[96..104].copy_from_slice(&length.to_le_bytes());
            assert_eq!(of_bytes(&bytes), Err(ElfError::Damaged), "{offset} {length}");
        }
    }

    #[test]
    fn gos_programs_are_known_by_their_note() {
        for (name, is_go) in [(*b"Go\0\0", true), (*b"GNU\0", false)] {
            let mut bytes = header(1, 64);
            bytes[64..68].copy_from_slice(&PT_NOTE.to_le_bytes());
            bytes[72..80].copy_from_slice(&128_u64.to_le_bytes());
            bytes.extend([4, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0]);
            bytes.extend(name);
            assert_eq!(of_bytes(&bytes).map(|found| found.is_go), Ok(is_go));
        }
        let mut bytes = header(1, 64);
        bytes[64..68].copy_from_slice(&PT_NOTE.to_le_bytes());
        bytes[72..80].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(of_bytes(&bytes).map(|found| found.is_go), Ok(false), "a note that is nowhere");
    }

    #[test]
    fn a_loader_may_be_named_at_the_end_of_a_large_file() {
        let mut bytes = header(1, 64);
        bytes.resize(1 << 20, 0);
        let offset = bytes.len() as u64;
        bytes.extend(b"/nix/store/ld-linux-x86-64.so.2\0");
        bytes[64..68].copy_from_slice(&PT_INTERP.to_le_bytes());
        bytes[72..80].copy_from_slice(&offset.to_le_bytes());
        bytes[96..104].copy_from_slice(&32_u64.to_le_bytes());
        assert_eq!(of_bytes(&bytes).unwrap().loader.as_deref(), Some("/nix/store/ld-linux-x86-64.so.2"));
    }
}
