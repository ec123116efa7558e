//! The bytes of a section of an ELF file, as the compiler wrote them.

use std::borrow::Cow;

use object::read::ReadRef;
use object::{Object, ObjectSection};

/// Compressed sections that claim to be so many times longer, and more than [`SMALL_BYTES`], are not believed: debug information is some
/// three to ten times longer, and one that is made to fill our memory a thousand times.
const LONGEST_PART: u64 = 64;
const SMALL_BYTES: u64 = 1 << 20;
/// The longest that are read. The debug information of the largest programs has sections of some GB.
const LONGEST_BYTES: u64 = 4 << 30;

/// None where there is no such section, or it cannot be read.
pub(crate) fn bytes<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
    name: &str,
) -> Option<Cow<'data, [u8]>> {
    let section = object.section_by_name(name)?;
    let range = section.compressed_file_range().ok()?;
    let most = range.compressed_size.saturating_mul(LONGEST_PART).clamp(SMALL_BYTES, LONGEST_BYTES);
    if range.uncompressed_size > most {
        return None;
    }
    section.uncompressed_data().ok()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::process::Command;

    use object::read::ReadCache;

    use super::*;
    use crate::module::parse;

    /// The length of a section of zeros so long, with random bytes before them, as it is read from a program that has it compressed.
    fn read_bytes(random_bytes: u64, zero_bytes: u64) -> Option<usize> {
        let name = format!("faultless-section-{}-{zero_bytes}", std::process::id());
        let place = std::env::temp_dir().join(name);
        fs::create_dir_all(&place).unwrap();
        let build = format!(
            "{{ head -c {random_bytes} /dev/urandom; head -c {zero_bytes} /dev/zero; }} > added \
             && printf '.section .debug_frame\\n.incbin \"added\"\\n' > a.s && cc -c -gz=zlib a.s"
        );
        assert!(Command::new("sh").args(["-c", &build]).current_dir(&place).status().unwrap().success());
        let cache = ReadCache::new(File::open(place.join("a.o")).unwrap());
        let length = bytes(&parse(&cache).unwrap(), ".debug_frame").map(|bytes| bytes.len());
        fs::remove_dir_all(&place).unwrap();
        length
    }

    #[test]
    fn sections_that_become_much_longer_than_they_are_in_the_file_are_not_read() {
        assert_eq!(read_bytes(1 << 20, 9 << 20), Some(10 << 20));
        assert_eq!(read_bytes(0, 900 << 10), Some(900 << 10), "short ones do no harm");
        assert_eq!(read_bytes(0, 16 << 20), None);
    }
}
