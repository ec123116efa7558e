//! What is needed of an ELF file: where its parts are mapped, how its functions are unwound, who it is.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use object::read::{ReadCache, ReadRef};
use object::{Architecture, Object, ObjectSection, ObjectSegment};

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
                Segment { file: offset..offset.saturating_add(length), address: segment.address() }
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

    /// The address that the linker gave to a byte of the file; none outside loaded parts.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        let segment =
            self.segments.iter().find(|segment| segment.file.contains(&file_offset)).or_else(|| {
                // The kernel maps whole pages: what lies just before or after a part belongs to it, too.
                self.segments.iter().find(|segment| {
                    let (start, end) =
                        (segment.file.start & !0xffff, segment.file.end.saturating_add(0xffff));
                    (start..end).contains(&file_offset)
                })
            })?;
        Some(segment.address.wrapping_add(file_offset.wrapping_sub(segment.file.start)))
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
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
        let data = object.section_by_name(name)?.uncompressed_data().ok()?;
        (!data.is_empty()).then(|| Arc::<[u8]>::from(&*data))
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
        assert_eq!(module.address_of(0), Some(0), "the header is the first thing loaded");
        assert_eq!(module.address_of(u64::MAX), None);
    }

    #[test]
    fn what_is_no_elf_file_is_refused_in_words() {
        let error = Module::read(File::open("/etc/passwd").unwrap()).unwrap_err();
        assert!(error.starts_with("no usable ELF file"), "{error}");
    }
}
