//! Where a program or library has the functions that it exports.

use std::fs::File;

use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol};

use crate::module::parse;

/// Offsets in the file of these exported functions; none for what it does not define.
///
/// # Errors
/// One line that says what is wrong with the file.
pub fn offsets(file: &File, names: &[&str]) -> Result<Vec<Option<u64>>, String> {
    let cache = ReadCache::new(file);
    let object = parse(&cache)?;
    let offset_of = |address: u64| {
        object.segments().find_map(|segment| {
            let (offset, length) = segment.file_range();
            let inside = address.checked_sub(segment.address())?;
            (inside < length).then_some(offset.checked_add(inside)?)
        })
    };
    let mut offsets = vec![None; names.len()];
    for symbol in object.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
        let Ok(name) = symbol.name() else { continue };
        let name = name.split_once('@').map_or(name, |(name, _)| name);
        if let Some(place) = names.iter().position(|wanted| *wanted == name) {
            offsets[place] = offset_of(symbol.address());
        }
    }
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libc_has_malloc_and_this_program_has_not_what_nobody_defines() {
        let told = std::process::Command::new("cc").arg("-print-file-name=libc.so.6").output().unwrap();
        let libc = String::from_utf8(told.stdout).unwrap();
        let libc = File::open(libc.trim()).unwrap();
        let found = offsets(&libc, &["malloc", "free", "no_such_function"]).unwrap();
        assert!(found[0].is_some_and(|offset| offset > 0) && found[1].is_some() && found[0] != found[1]);
        assert_eq!(found[2], None);
        assert!(offsets(&File::open("/etc/passwd").unwrap(), &["malloc"]).is_err());
    }
}
