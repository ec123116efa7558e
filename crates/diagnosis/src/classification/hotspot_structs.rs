//! HotSpot's own description of its structures: tables that `libjvm.so` exports for debuggers.
//!
//! Each entry names a type, a field, and where it is: an address for a static one, else an offset. How entries are laid out is
//! exported, too. Source: the JDK's `vmStructs.hpp`, the same in all versions from 8 to 25.

use std::collections::HashMap;

use super::loaded::Object;
use super::reader::Reader;

/// Entries read at most; JDK 25 has about 2,000.
const MOST_ENTRIES: u64 = 20_000;

/// Where fields are.
#[derive(Debug, Default)]
pub struct Structs {
    fields: HashMap<(String, String), Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    is_static: bool,
    offset: u64,
    address: u64,
}

impl Structs {
    /// Reads the table of fields of the types wanted.
    #[must_use]
    pub fn read(reader: &Reader<'_>, library: &Object, types: &[&str]) -> Option<Self> {
        let symbol = |name: &str| reader.word(library.symbol(reader, name)?);
        let offset =
            |name: &str| symbol(&format!("gHotSpotVMStructEntry{name}Offset")).filter(|offset| *offset < 256);
        let stride =
            symbol("gHotSpotVMStructEntryArrayStride").filter(|stride| (8..=256).contains(stride))?;
        let table = symbol("gHotSpotVMStructs")?;
        let (type_at, field_at) = (offset("TypeName")?, offset("FieldName")?);
        let (static_at, offset_at, address_at) = (offset("IsStatic")?, offset("Offset")?, offset("Address")?);
        let mut structs = Self::default();
        for number in 0..MOST_ENTRIES {
            let entry = table.checked_add(number * stride)?;
            let name = reader.word(entry.checked_add(type_at)?)?;
            if name == 0 {
                break;
            }
            let name = reader.text(name)?;
            if !types.contains(&name.as_str()) {
                continue;
            }
            let field = reader.text(reader.word(entry + field_at)?)?;
            let place = Place {
                is_static: reader.half(entry + static_at)? != 0,
                offset: reader.word(entry + offset_at)?,
                address: reader.word(entry + address_at)?,
            };
            structs.fields.insert((name, field), place);
        }
        Some(structs)
    }

    fn place(&self, kind: &str, field: &str) -> Option<Place> {
        self.fields.get(&(kind.to_owned(), field.to_owned())).copied()
    }

    /// The word in a static field.
    #[must_use]
    pub fn static_word(&self, reader: &Reader<'_>, kind: &str, field: &str) -> Option<u64> {
        let place = self.place(kind, field).filter(|place| place.is_static)?;
        reader.word(place.address)
    }

    /// Where a field begins in an object.
    #[must_use]
    pub fn offset(&self, kind: &str, field: &str) -> Option<u64> {
        self.place(kind, field).filter(|place| !place.is_static).map(|place| place.offset)
    }

    /// The word in a field of an object.
    #[must_use]
    pub fn word(&self, reader: &Reader<'_>, object: u64, kind: &str, field: &str) -> Option<u64> {
        reader.word(object.checked_add(self.offset(kind, field)?)?)
    }

    /// Whether none of the types was described.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}
