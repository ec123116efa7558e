//! A program file as far as a preload is concerned.

use std::path::PathBuf;

use crate::elf::Executable;
use crate::script::Interpreter;

/// One file that takes part in starting a command: the program, or a script and its interpreters in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramFile {
    /// Where it is.
    pub path: PathBuf,
    /// What its first bytes say.
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
