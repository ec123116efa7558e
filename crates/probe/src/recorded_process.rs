//! Which process in `/proc` writes a recorder's file: in a container it knows only the number that it has there.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use faultless_records::malloc_event::RecorderHead;
use faultless_records::thread::Thread;

use crate::process::Process;
use crate::process_list;

/// Its number in `/proc`. None where it cannot be told, and nothing there may be taken for it then.
///
/// The number that it told is right in our own PID namespace; otherwise it is the process that has this number in the
/// innermost of its namespaces, and has mapped the file at `path`.
#[must_use]
pub fn number(head: &RecorderHead, path: &Path) -> Option<i32> {
    if head.namespace != 0 && Some(head.namespace) == own_namespace() {
        return Some(head.pid);
    }
    process_list::numbers().ok()?.into_iter().find(|number| {
        Process::open(*number)
            .is_ok_and(|process| inner_number(&process) == Some(head.pid) && has_mapped(&process, path))
    })
}

fn own_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|metadata| metadata.ino())
}

fn inner_number(process: &Process) -> Option<i32> {
    Thread::parse(&process.text("status").ok()?, None).map(|thread| thread.number)
}

/// By inode and name: the device is another one above a file system of layers, and the name holds the time.
fn has_mapped(process: &Process, path: &Path) -> bool {
    let (Ok(metadata), Some(name)) = (fs::metadata(path), path.file_name()) else { return false };
    let maps = process.mappings("maps").ok().and_then(Result::ok).unwrap_or_default();
    maps.iter().any(|mapping| mapping.inode == metadata.ino() && mapping.name.ends_with(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::libc;
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_number_of_ours_is_believed_and_one_of_elsewhere_only_with_the_file_mapped() {
        let pid = std::process::id().cast_signed();
        let path = std::env::temp_dir().join(format!("faultless-recorded-{pid}.rings"));
        fs::write(&path, [0; 4096]).unwrap();
        let head = |namespace, pid| RecorderHead { namespace, pid, ..RecorderHead::default() };
        assert_eq!(number(&head(own_namespace().unwrap(), 77), &path), Some(77));
        assert_eq!([number(&head(0, pid), &path), number(&head(1, pid), &path)], [None, None]);

        let file = OpenOptions::new().read(true).open(&path).unwrap();
        // SAFETY: the kernel chooses a place where nothing is, and nobody reads or writes there.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(memory, libc::MAP_FAILED);
        assert_eq!([number(&head(0, pid), &path), number(&head(1, pid), &path)], [Some(pid), Some(pid)]);
        assert_eq!(number(&head(1, pid + 1), &path), None);
        // SAFETY: it is ours, and nobody has it.
        unsafe { libc::munmap(memory, 4096) };
        fs::remove_file(&path).unwrap();
    }
}
