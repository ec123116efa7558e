//! Finds the file of a command and the facts that decide whether a preload reaches it.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use faultless_records::elf::{self, ElfError};
use faultless_records::program::{Privilege, ProgramFile, ProgramKind};
use faultless_records::script;
use nix::libc;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access, getegid, geteuid};

use crate::mapped_file;

/// How many scripts may follow each other; the kernel stops at five. Source: execve(2).
const SCRIPTS_IN_A_ROW: usize = 5;

/// More than the kernel reads of a `#!` line. Source: execve(2).
const LINE_BYTES: u64 = 4096;

/// Where execvp(3) looks when `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Why a command has no file to start.
#[derive(Debug)]
pub enum LookupError {
    /// There is no such file.
    NotFound,
    /// There is one, but it cannot be executed.
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: &'static str,
    },
}

/// Finds the file that a shell would start for this name.
///
/// # Errors
/// [`LookupError`].
pub fn find(name: &OsStr) -> Result<PathBuf, LookupError> {
    find_in(name, std::env::var_os("PATH").as_deref())
}

fn find_in(name: &OsStr, path_variable: Option<&OsStr>) -> Result<PathBuf, LookupError> {
    if name.as_bytes().contains(&b'/') {
        return executable(Path::new(name)).map_err(|reason| match reason {
            None => LookupError::NotFound,
            Some(reason) => LookupError::NotExecutable { path: name.into(), reason },
        });
    }
    let mut refused = LookupError::NotFound;
    if name.is_empty() {
        return Err(refused);
    }
    for directory in std::env::split_paths(path_variable.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        let directory = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
        let path = directory.join(name);
        match executable(&path) {
            Ok(path) => return Ok(path),
            // What cannot be seen is not there: a closed directory in PATH hides no command of another.
            Err(Some(reason)) if matches!(refused, LookupError::NotFound) && fs::metadata(&path).is_ok() => {
                refused = LookupError::NotExecutable { path, reason };
            }
            Err(_) => {}
        }
    }
    Err(refused)
}

/// The path if it can be executed; else why not, or nothing when it does not exist.
fn executable(path: &Path) -> Result<PathBuf, Option<&'static str>> {
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => None,
        io::ErrorKind::PermissionDenied => Some("a directory on the way to it may not be entered"),
        _ => Some("its path cannot be followed"),
    })?;
    if metadata.is_dir() {
        return Err(Some("it is a directory"));
    }
    // Opened to be inspected, a pipe would be waited for.
    if !metadata.is_file() {
        return Err(Some("it is no regular file"));
    }
    if access(path, AccessFlags::X_OK).is_err() {
        return Err(Some("it may not be executed (chmod +x makes it so)"));
    }
    Ok(path.to_path_buf())
}

/// The file and, for a script, the interpreters it leads to; the last one is what really runs.
///
/// # Errors
/// When a file on the way cannot be inspected.
pub fn chain(path: &Path) -> io::Result<Vec<ProgramFile>> {
    let mut files = vec![inspect(path)?];
    while files.len() <= SCRIPTS_IN_A_ROW
        && let Some(ProgramFile { kind: ProgramKind::Script(interpreter), .. }) = files.last()
    {
        let by_env = interpreter.program_started_by_env().map(OsStr::new);
        let next = match by_env.map(find) {
            Some(Ok(path)) => path,
            // What env cannot find, env itself reports.
            _ => PathBuf::from(&interpreter.path),
        };
        files.push(inspect(&next)?);
    }
    Ok(files)
}

fn inspect(path: &Path) -> io::Result<ProgramFile> {
    let with_path = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let metadata = fs::metadata(path).map_err(with_path)?;
    let kind = match mapped_file::open_regular(path) {
        Ok(file) => kind(&file).map_err(with_path)?,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => ProgramKind::Unreadable,
        Err(error) => return Err(with_path(error)),
    };
    let is_script = matches!(kind, ProgramKind::Script(_));
    let gains_privilege = if is_script { None } else { privilege(path, &metadata) };
    Ok(ProgramFile { path: path.to_path_buf(), kind, gains_privilege })
}

fn kind(file: &File) -> io::Result<ProgramKind> {
    let mut head = Vec::new();
    file.take(LINE_BYTES).read_to_end(&mut head)?;
    if let Some(interpreter) = script::interpreter(&head) {
        return Ok(ProgramKind::Script(interpreter));
    }
    Ok(match elf::executable(&|offset, buffer| file.read_exact_at(buffer, offset).is_ok()) {
        Ok(executable) => ProgramKind::Elf(executable),
        Err(ElfError::Damaged) => ProgramKind::Damaged,
        Err(ElfError::NotElf) => ProgramKind::Unknown,
    })
}

/// Source: the kernel's `bprm_creds_from_file` and `cap_bprm_creds_from_file`; ld.so(8), "secure-execution mode".
fn privilege(path: &Path, metadata: &fs::Metadata) -> Option<Privilege> {
    let mode = metadata.mode();
    if statvfs(path).is_ok_and(|place| place.flags().contains(FsFlags::ST_NOSUID)) {
        return None;
    }
    if mode & libc::S_ISUID != 0 && metadata.uid() != geteuid().as_raw() {
        return Some(Privilege::User);
    }
    let sets_group = mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0;
    if sets_group && metadata.gid() != getegid().as_raw() {
        return Some(Privilege::Group);
    }
    (has_file_capabilities(path) && !geteuid().is_root()).then_some(Privilege::Capabilities)
}

fn has_file_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: both strings end with null; a null buffer of size 0 only asks for the length.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_in_the_path_and_paths_are_not() {
        let path = OsStr::new("/nowhere:/bin:/usr/bin");
        assert!(find_in(OsStr::new("sh"), Some(path)).unwrap().ends_with("sh"));
        assert!(matches!(find_in(OsStr::new("no-such-program"), Some(path)), Err(LookupError::NotFound)));
        assert!(matches!(find_in(OsStr::new("/no/such"), Some(path)), Err(LookupError::NotFound)));
        assert!(matches!(find_in(OsStr::new(""), Some(path)), Err(LookupError::NotFound)));
        assert!(matches!(find_in(OsStr::new("/tmp"), None), Err(LookupError::NotExecutable { .. })));
        assert!(matches!(find_in(OsStr::new("/etc/passwd"), None), Err(LookupError::NotExecutable { .. })));
    }

    #[test]
    fn a_path_that_cannot_be_followed_is_not_said_to_be_missing() {
        // A loop of links fails in the same place as a closed directory, and for root too.
        let path = std::env::temp_dir().join(format!("faultless-loop-{}", std::process::id()));
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let found = find_in(path.as_os_str(), None);
        let in_path = find_in(path.file_name().unwrap(), Some(std::env::temp_dir().as_os_str()));
        fs::remove_file(&path).unwrap();
        assert!(matches!(found, Err(LookupError::NotExecutable { .. })), "{found:?}");
        assert!(matches!(in_path, Err(LookupError::NotFound)), "a shell searches on: {in_path:?}");
        let below_a_file = find_in(OsStr::new("/etc/passwd/x"), None);
        assert!(matches!(below_a_file, Err(LookupError::NotFound)), "as a shell: {below_a_file:?}");
    }

    #[test]
    fn a_pipe_that_may_be_executed_is_no_program_and_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("faultless-pipe-program-{}", std::process::id()));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (found, as_interpreter) = (find_in(path.as_os_str(), None), chain(&path));
        fs::remove_file(&path).unwrap();
        assert!(matches!(found, Err(LookupError::NotExecutable { .. })), "{found:?}");
        assert!(as_interpreter.is_err(), "{as_interpreter:?}");
    }

    #[test]
    fn a_program_of_the_system_is_dynamic_and_gains_nothing() {
        let files = chain(Path::new("/bin/sh")).unwrap();
        assert_eq!(files.len(), 1);
        assert!(matches!(&files[0].kind, ProgramKind::Elf(elf) if elf.loader.is_some()));
        assert_eq!(files[0].gains_privilege, None);
    }

    #[test]
    fn a_program_whose_loader_is_named_at_its_end_is_an_elf_program_until_it_is_cut() {
        let path = std::env::temp_dir().join(format!("faultless-patched-{}", std::process::id()));
        let mut bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
        let number = |bytes: &[u8], place: usize, length: usize| {
            bytes[place..][..length].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
        };
        let (table, entries) = (number(&bytes, 32, 8), number(&bytes, 56, 2));
        let mut places = (0..entries).map(|entry| table + 56 * entry);
        let entry = places.find(|place| number(&bytes, *place, 4) == 3).unwrap();
        let (offset, length) = (number(&bytes, entry + 8, 8), number(&bytes, entry + 32, 8));
        // As patchelf leaves it.
        let end = bytes.len();
        bytes.extend_from_within(offset..offset + length);
        bytes[entry + 8..][..8].copy_from_slice(&(end as u64).to_le_bytes());
        let kinds = [end + length, end].map(|length| {
            fs::write(&path, &bytes[..length]).unwrap();
            chain(&path).unwrap().remove(0).kind
        });
        fs::remove_file(&path).unwrap();
        let [ProgramKind::Elf(whole), cut] = kinds else { panic!("{kinds:?}") };
        assert!(whole.loader.unwrap().contains("/ld-linux"));
        assert_eq!(cut, ProgramKind::Damaged);
    }

    #[test]
    fn a_script_leads_to_its_interpreter() {
        let path = std::env::temp_dir().join(format!("faultless-script-{}", std::process::id()));
        fs::write(&path, "#!/usr/bin/env sh\necho\n").unwrap();
        let files = chain(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(files.len(), 2);
        assert_eq!(files[1].path, find(OsStr::new("sh")).unwrap());
    }
}
