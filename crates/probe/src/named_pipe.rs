//! Named pipes that are written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;

/// Opens one that somebody reads. The kernel would wait for a reader, and no signal could end that, since we hold them back.
///
/// # Errors
/// The kernel's; one that says so where nobody reads it.
pub fn open(path: &Path) -> io::Result<File> {
    let opened = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => io::Error::other("nobody reads this pipe; start its reader first"),
        _ => error,
    })?;
    // A slow reader is waited for.
    let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
    fcntl(&file, FcntlArg::F_SETFL(flags - OFlag::O_NONBLOCK))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn a_pipe_without_a_reader_is_refused_and_a_slow_reader_is_waited_for() {
        let directory = crate::place::PrivateDirectory::create().unwrap();
        let path = directory.path().join("pipe");
        nix::unistd::mkfifo(&path, Mode::from_bits_truncate(0o600)).unwrap();
        assert!(open(&path).unwrap_err().to_string().contains("nobody reads"));
        let mut reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let mut writer = open(&path).unwrap();
        let all = 1 << 20;
        let writing = std::thread::spawn(move || writer.write_all(&vec![1; all]));
        let mut taken = 0;
        while taken < all {
            match reader.read(&mut [0; 4096]) {
                Ok(length) => taken += length,
                Err(_) => std::thread::yield_now(),
            }
        }
        writing.join().unwrap().unwrap();
    }
}
