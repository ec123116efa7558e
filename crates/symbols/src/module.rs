//! What is needed of an ELF file: where its parts are mapped, how its functions are unwound, who it is.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use object::read::{ReadCache, ReadRef};
use object::{Architecture, Object, ObjectSection, ObjectSegment, SegmentFlags};

use crate::section;

/// A program or library, opened. Its symbols are read later and only when asked for.
#[derive(Debug)]
pub struct Module {
    /// Contents' identity, from the linker; empty when it gave none.
    pub build_id: Vec<u8>,
    /// File and name of the separate debug file, with its checksum.
    pub debug_link: Option<(Vec<u8>, u32)>,
    /// Program of a 32-bit architecture, or of another than this machine's.
    pub is_foreign: bool,
    segments: Vec<Segment>,
    pub(crate) unwinding: UnwindSections,
    file: File,
}

/// A loaded part of the file: file offsets and the addresses the linker gave them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    file: Range<u64>,
    address: u64,
    is_code: bool,
}

/// Unwinding tables and where the linker placed them.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnwindSections {
    pub text: Option<Range<u64>>,
    pub got: Option<Range<u64>>,
    pub eh_frame: Option<(Range<u64>, Arc<[u8]>)>,
    pub eh_frame_hdr: Option<(Range<u64>, Arc<[u8]>)>,
    pub debug_frame: Option<Arc<[u8]>>,
}

/// Machine that this tool was built for, whose programs can be unwound.
const NATIVE: Architecture =
    if cfg!(target_arch = "aarch64") { Architecture::Aarch64 } else { Architecture::X86_64 };

/// Bit of a loaded part that may be executed. Source: elf(5).
const PF_X: u32 = 1;

/// Those of the kernels for x86-64 and aarch64, the smallest first.
const PAGE_SIZES_BYTES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];

impl Module {
    /// Reads the headers and unwinding tables.
    ///
    /// # Errors
    /// One line that says what is wrong with the file.
    pub fn read(file: File) -> Result<Self, String> {
        let copy = file.try_clone().map_err(|error| error.to_string())?;
        let cache = ReadCache::new(copy);
        let object = parse(&cache)?;
        let segments = object
            .segments()
            .map(|segment| {
                let (offset, length) = segment.file_range();
                let is_code =
                    matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & PF_X != 0);
                Segment { file: offset..offset.saturating_add(length), address: segment.address(), is_code }
            })
            .collect();
        let link = object.gnu_debuglink().ok().flatten();
        Ok(Self {
            build_id: object.build_id().ok().flatten().unwrap_or_default().to_vec(),
            debug_link: link.map(|(name, checksum)| (name.to_vec(), checksum)),
            is_foreign: object.architecture() != NATIVE,
            segments,
            unwinding: unwind_sections(&object),
            file,
        })
    }

    /// The address that the linker gave to a byte of the file that is mapped as code, or that a mapping of code begins with; none
    /// outside loaded parts.
    #[must_use]
    pub fn code_address(&self, file_offset: u64) -> Option<u64> {
        code_address(&self.segments, file_offset)
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

/// The kernel maps whole pages, and lld and mold let parts of different permissions share one in the file: which of them a mapping is
/// of is told by its being code, not by what stands at its first byte.
fn code_address(segments: &[Segment], file_offset: u64) -> Option<u64> {
    let holds = |segment: &&Segment, page_bytes: u64| {
        let end = segment.file.end.checked_next_multiple_of(page_bytes).unwrap_or(u64::MAX);
        (segment.file.start & !(page_bytes - 1)..end).contains(&file_offset)
    };
    let of_kind = |is_code: bool, page_bytes: u64| {
        let held = segments.iter().filter(|segment| segment.is_code == is_code && holds(segment, page_bytes));
        // A page that two of them share is mapped as the beginning of the second.
        held.max_by_key(|segment| segment.file.start)
    };
    // What another part became code by mprotect is looked for last.
    let segment = [true, false].into_iter().find_map(|is_code| {
        PAGE_SIZES_BYTES.into_iter().find_map(|page_bytes| of_kind(is_code, page_bytes))
    })?;
    Some(segment.address.wrapping_add(file_offset.wrapping_sub(segment.file.start)))
}

/// The object in a cached file.
pub(crate) fn parse<'data, R: ReadRef<'data>>(data: R) -> Result<object::File<'data, R>, String> {
    object::File::parse(data).map_err(|error| format!("no usable ELF file: {error}"))
}

fn unwind_sections<'data, R: ReadRef<'data>>(object: &object::File<'data, R>) -> UnwindSections {
    let range = |name: &str| {
        let section = object.section_by_name(name)?;
        Some(section.address()..section.address().saturating_add(section.size()))
    };
    let bytes = |name: &str| {
        section::bytes(object, name).filter(|data| !data.is_empty()).map(|data| Arc::<[u8]>::from(&*data))
    };
    UnwindSections {
        text: range(".text"),
        got: range(".got"),
        eh_frame: range(".eh_frame").zip(bytes(".eh_frame")),
        eh_frame_hdr: range(".eh_frame_hdr").zip(bytes(".eh_frame_hdr")),
        debug_frame: bytes(".debug_frame"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Module {
        Module::read(File::open(std::env::current_exe().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn this_test_program_has_unwinding_tables_and_loaded_parts() {
        let module = own();
        assert!(!module.is_foreign && module.unwinding.eh_frame.is_some());
        let code = module.segments.iter().find(|segment| segment.is_code).unwrap();
        assert_eq!(module.code_address(code.file.start), Some(code.address));
        assert_eq!(module.code_address(u64::MAX), None);
    }

    #[test]
    fn a_page_of_the_file_that_code_shares_with_data_is_mapped_at_the_codes_address() {
        let segment = |file: Range<u64>, address, is_code| Segment { file, address, is_code };
        // As lld lays a program out: each part begins where the one before ended in the file, and a page further in memory.
        let segments = [
            segment(0..0x12e48, 0, false),
            segment(0x12e50..0x60000, 0x13e50, true),
            segment(0x60000..0x62000, 0x62000, false),
        ];
        assert_eq!(code_address(&segments, 0x12000), Some(0x13000), "where the mapping begins");
        assert_eq!(code_address(&segments, 0x12e50), Some(0x13e50));
        assert_eq!(code_address(&segments, 0x30000), Some(0x31000));
        assert_eq!(code_address(&segments, 0x1000), Some(0x1000), "data that became code");
        let two = [segment(0x1000..0x2800, 0x1000, true), segment(0x2800..0x4000, 0x3800, true)];
        assert_eq!(code_address(&two, 0x2000), Some(0x3000), "the second begins with the page they share");
        assert_eq!(code_address(&two, 0x1ff0), Some(0x1ff0));
    }

    #[test]
    fn what_is_no_elf_file_is_refused_in_words() {
        let error = Module::read(File::open("/etc/passwd").unwrap()).unwrap_err();
        assert!(error.starts_with("no usable ELF file"), "{error}");
    }
}
