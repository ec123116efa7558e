//! Which files are glibc's, what its malloc adds to a block, and its version, from the text that every `libc.so.6` carries.

use crate::mappings::DELETED;
use crate::pagemap::PAGE_BYTES;

/// The most that its malloc adds to a block that it maps: the header and the rest of the last page.
pub const MAPPED_OVERHEAD_BYTES: u64 = PAGE_BYTES;

/// Start of the text; the version follows further on: `… stable release version 2.36.`
const BANNER: &[u8] = b"GNU C Library ";
const BEFORE_VERSION: &str = "release version ";

/// How long the text can be.
const BANNER_BYTES: usize = 200;

/// Whether a file is glibc's, by its path, which the kernel may have marked as deleted.
#[must_use]
pub fn is_libc(path: &[u8]) -> bool {
    let path = path.strip_suffix(DELETED.as_bytes()).unwrap_or(path);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(b"libc.so.6") || (name.starts_with(b"libc-2.") && name.ends_with(b".so"))
}

/// Major and minor version in the bytes of a `libc.so.6`.
#[must_use]
pub fn version(library: &[u8]) -> Option<(u32, u32)> {
    let start = library.windows(BANNER.len()).position(|bytes| bytes == BANNER)?;
    let banner = &library[start..library.len().min(start + BANNER_BYTES)];
    let banner = String::from_utf8_lossy(banner);
    let (_, version) = banner.split_once(BEFORE_VERSION)?;
    let (major, rest) = version.split_once('.')?;
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    Some((major.parse().ok()?, rest[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_libc_is_known_by_its_name() {
        for path in ["/usr/lib/libc.so.6", "libc.so.6", "/lib/libc-2.31.so", "/lib/libc-2.31.so (deleted)"] {
            assert!(is_libc(path.as_bytes()), "{path}");
        }
        for path in ["/lib/libc.musl-x86_64.so.1", "/lib/libc-2.31.a", "/lib/libc.so.6/libm.so.6", ""] {
            assert!(!is_libc(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn the_version_is_found_inside_other_bytes() {
        let mut library = vec![0_u8; 1000];
        library.extend(b"GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\nCopyright");
        library.extend([0; 1000]);
        assert_eq!(version(&library), Some((2, 36)));
    }

    #[test]
    fn other_libraries_have_none() {
        assert_eq!(version(b""), None);
        assert_eq!(version(b"musl libc"), None);
        assert_eq!(version(b"GNU C Library without a version"), None);
    }
}
