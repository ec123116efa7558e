//! Lists in environment variables in which paths stand: where they are split, and so which paths they cannot carry.
//!
//! Sources: glibc's elf/rtld.c splits `LD_PRELOAD` at colons and spaces and `/etc/ld.so.preload` at tabs and line ends, too; musl's
//! ldso/dynlink.c splits at colons and every white space. Options of `FAULTLESS` stand between commas.

/// Why a path cannot stand in `LD_PRELOAD`, under one loader or the other; none where it can.
#[must_use]
pub fn refusal_of_preload(path: &[u8]) -> Option<&'static str> {
    let is_split = path.iter().any(|byte| is_separator(char::from(*byte)));
    is_split.then_some("its path contains a colon or a blank, where loaders split LD_PRELOAD")
}

/// Why a path cannot stand in an option of `FAULTLESS`; none where it can.
#[must_use]
pub fn refusal_of_option(path: &[u8]) -> Option<&'static str> {
    path.contains(&b',').then_some("its path contains a comma, where the options in FAULTLESS are split")
}

/// The libraries that `LD_PRELOAD`, or a line of `/etc/ld.so.preload`, names.
pub fn entries(preload: &str) -> impl Iterator<Item = &str> {
    preload.split(is_separator).filter(|entry| !entry.is_empty())
}

fn is_separator(letter: char) -> bool {
    letter == ':' || letter.is_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_would_be_split_is_refused_and_no_other() {
        for path in ["/a:b", "/a b", "/a\tb", "/a\nb"] {
            assert!(refusal_of_preload(path.as_bytes()).is_some() && entries(path).count() == 2, "{path:?}");
        }
        assert_eq!(refusal_of_preload("/a,b;c=é".as_bytes()), None);
        assert_eq!((refusal_of_option(b"/a b:c"), refusal_of_option(b"/a,b").is_some()), (None, true));
    }

    #[test]
    fn entries_are_never_empty() {
        assert_eq!(entries(" a.so::/b.so\tc.so ").collect::<Vec<_>>(), ["a.so", "/b.so", "c.so"]);
    }
}
