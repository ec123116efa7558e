//! A program file as far as a preload is concerned.

use std::path::PathBuf;

use crate::elf::Executable;
use crate::glibc;
use crate::mappings::DELETED;
use crate::script::Interpreter;

/// One file that takes part in starting a command: the program, or a script and its interpreters in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile {
    /// Where it is.
    pub path: PathBuf,
    /// What its headers say.
    pub kind: ProgramKind,
    /// The kernel would change the user, the group or the capabilities, and the loader would drop every preload.
    pub gains_privilege: Option<Privilege>,
}

/// What kind of file it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramKind {
    /// An ELF program.
    Elf(Executable),
    /// A script with a `#!` line.
    Script(Interpreter),
    /// A file that begins as an ELF program does, with headers that end too early or contradict themselves.
    Damaged,
    /// Something the kernel does not start.
    Unknown,
    /// The file may be executed but not read.
    Unreadable,
}

/// Why the loader would run in secure mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// Set-user-ID of another user.
    User,
    /// Set-group-ID of another group.
    Group,
    /// File capabilities.
    Capabilities,
}

/// Whether a file is the dynamic loader, which each program has mapped that is not linked statically: `ld-linux-x86-64.so.2`,
/// `ld-musl-x86_64.so.1`, `ld-2.31.so`, `ld64.so.2`.
#[must_use]
pub fn is_loader(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    ["ld-", "ld64.so", "ld.so"].iter().any(|start| name.starts_with(start))
}

/// Whether a file is a C library: glibc's, or musl's, which is its loader, too.
#[must_use]
pub fn is_libc(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(DELETED).unwrap_or(name);
    glibc::is_libc(name.as_bytes()) || name.starts_with("ld-musl-") || name == "libc.so"
}

/// The program among the files that a process has mapped, which it is the first of; none where a loader was called by its name.
#[must_use]
pub fn program_of(mapped_files: &[String]) -> Option<&str> {
    mapped_files.first().map(String::as_str).filter(|file| !is_loader(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_and_c_libraries_are_known_by_their_names() {
        for path in
            ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1", "ld-2.31.so", "/lib64/ld64.so.2"]
        {
            assert!(is_loader(path), "{path}");
        }
        let libraries =
            ["/lib/libc.so.6", "libc-2.31.so", "/lib/ld-musl-x86_64.so.1 (deleted)", "/usr/lib/libc.so"];
        assert!(libraries.into_iter().all(is_libc));
        assert!(!is_libc("/lib64/ld-linux-x86-64.so.2") && !is_libc("/usr/lib/libc++.so.1"));
        assert!(!is_loader("/usr/lib/libld.so") && !is_loader("/lib/ld-linux/libc.so.6"));
    }
}
