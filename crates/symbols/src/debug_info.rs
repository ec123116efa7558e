//! Functions, lines and inlined frames from DWARF.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use addr2line::Context;
use gimli::{DwLang, EndianArcSlice, RunTimeEndian, UnitOffset};
use object::Object;
use object::read::{ReadCache, ReadRef};

use crate::module::parse;
use crate::scopes::Scopes;
use crate::section;
use crate::symbol_table::demangled_from;

pub(crate) type Reader = EndianArcSlice<RunTimeEndian>;

/// The debug information of one module.
pub struct DebugInfo {
    context: Context<Reader>,
    scopes: Scopes,
}

/// A function at an address, or one that was inlined there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Frame {
    /// As its language writes it; none when only the line is known.
    pub function: Option<String>,
    /// Source file, as the compiler was given it.
    pub file: Option<String>,
    /// Line in it, from 1.
    pub line: Option<u32>,
    /// It has no code of its own here: the next frame is the function that it was inlined into.
    pub is_inlined: bool,
}

impl DebugInfo {
    /// Reads it, together with the supplementary file it may refer to (`dwz`); none when there is none that is usable.
    pub(crate) fn read<'data, R: ReadRef<'data>>(
        object: &object::File<'data, R>,
        open_supplement: impl Fn(&Path) -> Option<File>,
    ) -> Option<Self> {
        object.section_by_name(".debug_info").or_else(|| object.section_by_name(".zdebug_info"))?;
        let mut dwarf = load(object)?;
        let link = object.gnu_debugaltlink().ok().flatten();
        if let Some((path, build_id)) = link
            && let Some(file) =
                std::str::from_utf8(path).ok().and_then(|path| open_supplement(Path::new(path)))
        {
            let cache = ReadCache::new(file);
            if let Ok(supplement) = parse(&cache)
                && supplement.build_id().ok().flatten() == Some(build_id)
                && let Some(supplement) = load(&supplement)
            {
                dwarf.set_sup(supplement);
            }
        }
        let dwarf = Arc::new(dwarf);
        let scopes = Scopes::new(Arc::clone(&dwarf));
        Some(Self { context: Context::from_arc_dwarf(dwarf).ok()?, scopes })
    }

    /// What stands at an address of the module, innermost first; empty when unknown.
    #[must_use]
    pub fn frames(&self, address: u64) -> Vec<Frame> {
        let Ok(mut found) = self.context.find_frames(address).skip_all_loads() else { return Vec::new() };
        let mut frames = Vec::new();
        while let Ok(Some(frame)) = found.next() {
            let function = frame.function.as_ref().and_then(|function| {
                let raw = function.raw_name().ok()?;
                let name = demangled_from(&raw, function.language);
                // What is no name for the linker, or one that cannot be read.
                let is_bare = name == raw && function.language.is_some_and(is_cpp);
                let scoped = || self.scoped_name(address, frame.dw_die_offset?);
                is_bare.then(scoped).flatten().or(Some(name))
            });
            let location = frame.location;
            frames.push(Frame {
                function,
                file: location.as_ref().and_then(|location| location.file).map(str::to_owned),
                line: location.as_ref().and_then(|location| location.line).filter(|line| *line > 0),
                is_inlined: true,
            });
        }
        if let Some(outermost) = frames.last_mut() {
            outermost.is_inlined = false;
        }
        frames
    }

    /// The name of a function that is described in the unit of this address.
    fn scoped_name(&self, address: u64, description: UnitOffset) -> Option<String> {
        let unit = self.context.find_dwarf_and_unit(address).skip_all_loads()?;
        self.scopes.name(description.to_debug_info_offset(&unit.header)?)
    }
}

fn is_cpp(language: DwLang) -> bool {
    matches!(
        language,
        gimli::DW_LANG_C_plus_plus
            | gimli::DW_LANG_C_plus_plus_03
            | gimli::DW_LANG_C_plus_plus_11
            | gimli::DW_LANG_C_plus_plus_14
            | gimli::DW_LANG_C_plus_plus_17
            | gimli::DW_LANG_C_plus_plus_20
    )
}

fn load<'data, R: ReadRef<'data>>(object: &object::File<'data, R>) -> Option<gimli::Dwarf<Reader>> {
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let read = |id: gimli::SectionId| -> Result<Reader, gimli::Error> {
        let data = section::bytes(object, id.name());
        Ok(EndianArcSlice::new(Arc::from(data.as_deref().unwrap_or_default()), endian))
    };
    gimli::Dwarf::load(read).ok()
}
