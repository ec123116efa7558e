//! Which shared library the programs run under.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Names another library to test, or `none` for libc itself.
const VARIABLE: &str = "FAULTLESS_TESTS_LIBRARY";

/// The library to preload: the one the tool carries, unless `FAULTLESS_TESTS_LIBRARY` says otherwise; `None` for libc itself.
///
/// # Panics
/// When there is none: a test without it would prove nothing.
#[must_use]
pub fn preload() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(find).as_deref()
}

fn find() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(value) if value == "none" => None,
        Some(value) => {
            let path = PathBuf::from(&value);
            assert!(
                path.is_absolute() && path.is_file(),
                "{VARIABLE} is {value:?}: expected an absolute path or none"
            );
            Some(path)
        }
        None => match faultless_bundle::library_into(build_folder()) {
            Ok(path) => Some(path),
            Err(error) => panic!("no library to test: {error}"),
        },
    }
}

/// Where programs are compiled to and the library is written: a folder beside the test binaries, kept between runs.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn build_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let Ok(executable) = std::env::current_exe() else {
            panic!("the test binary does not know its path")
        };
        let profile = executable.ancestors().nth(2).unwrap_or(Path::new("."));
        let folder = profile.join("faultless-tests");
        if let Err(error) = fs::create_dir_all(&folder) {
            panic!("cannot make {}: {error}", folder.display());
        }
        folder
    })
}
