//! The version of glibc, from the text that every `libc.so.6` carries.

/// Start of the text; the version follows further on: `… stable release version 2.36.`
const BANNER: &[u8] = b"GNU C Library ";
const BEFORE_VERSION: &str = "release version ";

/// How long the text can be.
const BANNER_BYTES: usize = 200;

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
