//! What the dynamic loader and the C library of a program say about themselves.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use faultless_records::glibc;
use faultless_records::tunables::{self, Tunable};

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
    let library = mapped_files.iter().find(|file| {
        let name = file.rsplit('/').next().unwrap_or_default();
        name == "libc.so.6" || name.starts_with("libc-2.")
    })?;
    glibc::version(&fs::read(library).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_loader_knows_nothing() {
        assert!(tunables(Path::new("/no/such/loader")).is_empty());
        assert_eq!(glibc_version(&["/usr/bin/cat".into()]), None);
    }
}
