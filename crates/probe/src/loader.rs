//! What the dynamic loader and the C library of a program say about themselves.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use faultless_records::glibc;
use faultless_records::tunables::{self, Tunable};

use crate::mapped_file;

/// More than any libc has.
const MOST_LIBRARY_BYTES: u64 = 64 << 20;

/// The tunables that this loader knows; empty for loaders that cannot list them (glibc before 2.33).
#[must_use]
pub fn tunables(loader: &Path) -> Vec<Tunable> {
    let listing = Command::new(loader).arg("--list-tunables").env_clear().stdin(Stdio::null()).output();
    match listing {
        Ok(output) if output.status.success() => tunables::parse(&String::from_utf8_lossy(&output.stdout)),
        _ => Vec::new(),
    }
}

/// Version of the glibc among these files.
#[must_use]
pub fn glibc_version(mapped_files: &[String]) -> Option<(u32, u32)> {
    let library = mapped_files.iter().find(|file| glibc::is_libc(file.as_bytes()))?;
    version_of(&mapped_file::open_regular(Path::new(library)).ok()?)
}

/// The version that the file of a libc states.
#[must_use]
pub fn version_of(library: &File) -> Option<(u32, u32)> {
    if !library.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    library.take(MOST_LIBRARY_BYTES).read_to_end(&mut bytes).ok()?;
    glibc::version(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_loader_knows_nothing() {
        assert!(tunables(Path::new("/no/such/loader")).is_empty());
        assert_eq!(glibc_version(&["/usr/bin/cat".into()]), None);
    }

    #[test]
    fn what_is_no_file_has_no_version() {
        let place = std::env::temp_dir().join(format!("faultless-loader-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let pipe = place.join("libc.so.6");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let of_pipe = glibc_version(&[pipe.to_str().unwrap().to_owned()]);
        std::fs::remove_dir_all(&place).unwrap();
        assert_eq!(of_pipe, None);
        assert_eq!(version_of(&File::open("/dev/zero").unwrap()), None);
    }
}
