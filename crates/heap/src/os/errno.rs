//! The kernel's reason for a refusal.

use core::fmt;

/// An error number of the kernel, such as 12 for `ENOMEM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Operation not permitted.
    pub const EPERM: Self = Self(1);
    /// A signal came first.
    pub const EINTR: Self = Self(4);
    /// Try again.
    pub const EAGAIN: Self = Self(11);
    /// Not enough memory, or a limit on it.
    pub const ENOMEM: Self = Self(12);
    /// What an address names cannot be read or written.
    pub const EFAULT: Self = Self(14);
    /// Invalid argument; of `madvise` also advice that this kernel does not know.
    pub const EINVAL: Self = Self(22);
    /// This kernel has no such call.
    pub const ENOSYS: Self = Self(38);

    /// What a raw system call answered.
    pub(super) fn check(answer: isize) -> Result<usize, Self> {
        if (-4095..0).contains(&answer) { Err(Self(-answer as i32)) } else { Ok(answer as usize) }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            1 => "EPERM",
            2 => "ENOENT",
            4 => "EINTR",
            9 => "EBADF",
            11 => "EAGAIN",
            12 => "ENOMEM",
            13 => "EACCES",
            14 => "EFAULT",
            16 => "EBUSY",
            19 => "ENODEV",
            20 => "ENOTDIR",
            21 => "EISDIR",
            22 => "EINVAL",
            23 => "ENFILE",
            24 => "EMFILE",
            26 => "ETXTBSY",
            27 => "EFBIG",
            28 => "ENOSPC",
            38 => "ENOSYS",
            75 => "EOVERFLOW",
            95 => "EOPNOTSUPP",
            133 => "EHWPOISON",
            other => return write!(formatter, "error {other}"),
        };
        formatter.write_str(name)
    }
}
