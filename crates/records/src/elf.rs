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
}

/// Why the headers could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElfError {
    /// The file does not begin with the ELF magic number.
    NotElf,
    /// It does, and then ends too early or contradicts itself.
    Damaged,
}

/// How many bytes from the start of a file [`executable`] needs: headers and loader path stand at the front.
pub const HEAD_BYTES: usize = 64 * 1024;

const MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const PT_INTERP: u32 = 3;

/// Reads the headers from the first [`HEAD_BYTES`] of a file. Source: elf(5).
///
/// # Errors
/// [`ElfError`] when the bytes are no ELF file or are cut off.
pub fn executable(head: &[u8]) -> Result<Executable, ElfError> {
    if !head.starts_with(MAGIC) {
        return Err(ElfError::NotElf);
    }
    read(head).ok_or(ElfError::Damaged)
}

fn read(head: &[u8]) -> Option<Executable> {
    let is_64_bit = *head.get(4)? == CLASS_64;
    let bytes = Bytes { head, is_little_endian: *head.get(5)? == LITTLE_ENDIAN };
    let machine = bytes.u16(18)?;
    let (table, entry_bytes, entries) = if is_64_bit {
        (usize::try_from(bytes.u64(32)?).ok()?, bytes.u16(54)?, bytes.u16(56)?)
    } else {
        (usize::try_from(bytes.u32(28)?).ok()?, bytes.u16(42)?, bytes.u16(44)?)
    };
    let mut loader = None;
    for entry in 0..usize::from(entries) {
        let start = table.checked_add(entry.checked_mul(usize::from(entry_bytes))?)?;
        if bytes.u32(start)? != PT_INTERP {
            continue;
        }
        let (offset, length) = if is_64_bit {
            (bytes.u64(start.checked_add(8)?)?, bytes.u64(start.checked_add(32)?)?)
        } else {
            (u64::from(bytes.u32(start.checked_add(4)?)?), u64::from(bytes.u32(start.checked_add(16)?)?))
        };
        let offset = usize::try_from(offset).ok()?;
        let text = head.get(offset..offset.checked_add(usize::try_from(length).ok()?)?)?;
        let text = text.split(|byte| *byte == 0).next()?;
        loader = Some(String::from_utf8_lossy(text).into_owned());
    }
    Some(Executable { is_64_bit, machine, loader })
}

struct Bytes<'head> {
    head: &'head [u8],
    is_little_endian: bool,
}

impl Bytes<'_> {
    fn array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let mut bytes: [u8; N] = self.head.get(offset..offset.checked_add(N)?)?.try_into().ok()?;
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

    #[test]
    fn this_test_program_is_dynamic_and_of_this_machine() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = executable(&bytes[..HEAD_BYTES]).unwrap();
        assert!(found.is_64_bit);
        assert!(found.loader.unwrap().contains("/ld-linux"));
    }

    #[test]
    fn a_file_cut_anywhere_is_refused_and_never_panics() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in 0..1024 {
            let _ = executable(&bytes[..length]);
        }
        assert_eq!(executable(b"#!/bin/sh"), Err(ElfError::NotElf));
        assert_eq!(executable(b"\x7fELF\x02\x01"), Err(ElfError::Damaged));
    }

    #[test]
    fn hostile_offsets_are_refused() {
        let mut bytes = vec![0_u8; 128];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
        assert_eq!(executable(&bytes), Err(ElfError::Damaged));
    }
}
