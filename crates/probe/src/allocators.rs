//! Which allocator libraries are installed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use faultless_records::allocator::Allocator;

/// Where distributions and `make install` put libraries, besides what the loader's cache says.
const DIRECTORIES: &[&str] = &[
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

/// Another allocator and the file to preload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Which one.
    pub allocator: Allocator,
    /// Its library, without symbolic links: the path that the process's mappings will show.
    pub library: PathBuf,
}

/// The installed allocators, one library of each, in the order of their names.
#[must_use]
pub fn installed() -> Vec<Installed> {
    installed_in(DIRECTORIES.iter().map(Path::new))
}

fn installed_in<'path>(directories: impl IntoIterator<Item = &'path Path>) -> Vec<Installed> {
    let mut found: BTreeMap<&'static str, Installed> = BTreeMap::new();
    for directory in directories {
        let files = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
        let mut paths: Vec<PathBuf> = files.map(|file| file.path()).collect();
        paths.sort();
        for path in paths {
            let Some(allocator) = path.to_str().and_then(replacing) else { continue };
            let Ok(library) = fs::canonicalize(&path) else { continue };
            found.entry(allocator.name()).or_insert(Installed { allocator, library });
        }
    }
    found.into_values().collect()
}

/// The allocator that a file of this name puts in the place of libc's when preloaded.
fn replacing(path: &str) -> Option<Allocator> {
    let name = path.rsplit('/').next()?;
    let is_shared = name.ends_with(".so") || name.contains(".so.");
    let allocator = Allocator::of_file(path).filter(|_| is_shared)?;
    let replaces = match allocator {
        Allocator::Libc | Allocator::LibcDebug | Allocator::Faultless => false,
        // The library itself has its own names only; the proxy has malloc's.
        Allocator::Tbbmalloc => name.starts_with("libtbbmalloc_proxy.so"),
        // The debugging variants are for finding mistakes.
        Allocator::Tcmalloc => !name.contains("debug") && !name.contains("profiler"),
        Allocator::Mimalloc => !name.contains("debug") && !name.contains("secure"),
        _ => true,
    };
    replaces.then_some(allocator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_libraries_that_replace_malloc_are_taken() {
        assert_eq!(replacing("/usr/lib/libjemalloc.so.2"), Some(Allocator::Jemalloc));
        assert_eq!(replacing("/usr/lib/libjemalloc.a"), None);
        assert_eq!(replacing("/usr/lib/libtbbmalloc.so.2"), None);
        assert_eq!(replacing("/usr/lib/libtbbmalloc_proxy.so.2"), Some(Allocator::Tbbmalloc));
        assert_eq!(replacing("/usr/lib/libtcmalloc_minimal_debug.so.4"), None);
        assert_eq!(replacing("/usr/lib/libc_malloc_debug.so.0"), None);
    }

    #[test]
    fn one_library_of_each_is_taken_and_links_are_followed() {
        let directory = std::env::temp_dir().join(format!("faultless-installed-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("libmimalloc.so.2.0"), b"").unwrap();
        std::os::unix::fs::symlink("libmimalloc.so.2.0", directory.join("libmimalloc.so")).unwrap();
        let found = installed_in([directory.as_path()]);
        assert_eq!(found.len(), 1);
        assert!(found[0].library.ends_with("libmimalloc.so.2.0"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
