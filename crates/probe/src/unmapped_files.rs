//! Files in memory that a process has open and does not map: no RSS counts them, and nobody else may be able to free them.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use faultless_records::mappings::{DELETED, Mapping};
use faultless_records::unmapped_files::UnmappedFiles;
use nix::fcntl::readlinkat;
use nix::sys::stat::{major, minor};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use crate::process::{Process, ProcessError};

/// Descriptors looked at at most: some 2 µs each.
const MOST_DESCRIPTORS: usize = 1 << 14;

/// Those of a process with these mappings.
///
/// # Errors
/// [`ProcessError`] where its descriptors cannot be seen.
pub fn of(process: &Process, mappings: &[Mapping]) -> Result<UnmappedFiles, ProcessError> {
    let mut directory = process.open_directory("fd")?;
    let entries = directory.iter().filter_map(Result::ok).map(|entry| entry.file_name().to_owned());
    let descriptors: Vec<CString> = entries.take(MOST_DESCRIPTORS).collect();
    let mut known: HashSet<((u64, u64), u64)> = mappings
        .iter()
        .map(|mapping| ((u64::from(mapping.device.0), u64::from(mapping.device.1)), mapping.inode))
        .collect();
    let mut files = UnmappedFiles::default();
    let mut seen = HashSet::new();
    for descriptor in &descriptors {
        let link = readlinkat(&directory, descriptor.as_c_str()).unwrap_or_default();
        let is_pipe = link.as_bytes().starts_with(b"pipe:[");
        if is_pipe || link.as_bytes().starts_with(b"socket:[") {
            let is_new = u64::from(seen.insert(link));
            *(if is_pipe { &mut files.pipes } else { &mut files.sockets }) += is_new;
            continue;
        }
        if !link.as_bytes().ends_with(DELETED.as_bytes()) {
            continue;
        }
        let path = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), descriptor.to_string_lossy());
        let is_in_memory = || statfs(&*path).is_ok_and(|system| system.filesystem_type() == TMPFS_MAGIC);
        let Some(file) = fs::metadata(&path).ok().filter(|file| file.is_file() && is_in_memory()) else {
            continue;
        };
        if known.insert(((major(file.dev()), minor(file.dev())), file.ino())) {
            files.count += 1;
            files.bytes += file.blocks() * 512;
        }
    }
    Ok(files)
}
