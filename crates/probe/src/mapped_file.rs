//! The file behind a mapping that was recorded a moment ago, of a process that may have ended since.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use faultless_records::mappings::DELETED;
use faultless_records::perf_record::{FileIdentity, NewMapping};
use nix::libc;

use crate::machine;
use crate::process::Process;

/// How far the times of processes and of files may be apart.
const CLOCK_SLACK: Duration = Duration::from_secs(1);

/// Opens a regular file at a path that another process named: a pipe that lies there now is not waited for.
///
/// # Errors
/// Those of opening; anything but a regular file is one.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_with(path, 0)
}

fn open_regular_with(path: &Path, flags: i32) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Opens the very file that process `pid` mapped: by the mapping itself where that is permitted, else by its path in the
/// process's file system, else in ours.
///
/// # Errors
/// One line: it is gone, was replaced, or cannot be opened.
pub fn open(pid: i32, mapping: &NewMapping) -> Result<File, String> {
    let (path, is_deleted) = path_of(&mapping.name);
    let exact =
        format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.start + mapping.length_bytes);
    let file =
        open_regular(Path::new(&exact)).ok().filter(|file| is_same(file, &mapping.file) != Some(false));
    if let Some(file) = file {
        return Ok(file);
    }
    let mut trouble = None;
    for root in roots(pid) {
        match open_regular(&root.join(path.strip_prefix("/").unwrap_or(path))) {
            Ok(file) if is_same(&file, &mapping.file) != Some(false) && !is_deleted => return Ok(file),
            Ok(_) => trouble = Some("the file was replaced since it was mapped".to_owned()),
            Err(error) => trouble = trouble.or_else(|| Some(error.to_string())),
        }
    }
    Err(match is_deleted {
        true => "the file was deleted or replaced since it was mapped".to_owned(),
        false => trouble.unwrap_or_default(),
    })
}

/// Where the paths of a process lead: its own file system, then ours.
#[must_use]
pub fn roots(pid: i32) -> Vec<PathBuf> {
    vec![PathBuf::from(format!("/proc/{pid}/root")), PathBuf::from("/")]
}

/// The text in which the just-in-time compilers of a process name their code, if it has written one: `perf-PID.map` in its
/// `/tmp`, with the number that the process has in its own container. One from before a process that lives is of another, which had
/// the number before.
#[must_use]
pub fn perf_map(pid: i32) -> Option<String> {
    /// Longer ones are a mistake, or meant to fill our memory.
    const LONGEST_BYTES: u64 = 512 << 20;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inner = faultless_records::status::innermost_number(&status).unwrap_or(pid);
    let names = [inner, pid].map(|pid| format!("tmp/perf-{pid}.map"));
    let mut paths = roots(pid).into_iter().flat_map(|root| names.iter().map(move |name| root.join(name)));
    let earliest = began(pid).and_then(|began| began.checked_sub(CLOCK_SLACK));
    paths.find_map(|path| text_of(&path, LONGEST_BYTES, earliest))
}

/// When a process began, by the clock that files have; none where it has ended.
fn began(pid: i32) -> Option<SystemTime> {
    let process = Process::open(pid).ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime = Duration::try_from_secs_f64(uptime.split_whitespace().next()?.parse().ok()?).ok()?;
    let age = uptime.saturating_sub(machine::duration_of_ticks(process.start_ticks()));
    SystemTime::now().checked_sub(age)
}

/// The text of a file, unless it is longer, or was last written before; one that is a link is none.
fn text_of(path: &Path, longest_bytes: u64, earliest: Option<SystemTime>) -> Option<String> {
    let file = open_regular_with(path, libc::O_NOFOLLOW).ok()?;
    let written = file.metadata().and_then(|metadata| metadata.modified()).ok();
    if written.zip(earliest).is_some_and(|(written, earliest)| written < earliest) {
        return None;
    }
    let mut bytes = Vec::new();
    // Whoever writes it may go on while we read.
    let length = file.take(longest_bytes.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    (length as u64 <= longest_bytes).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// The path, and whether the kernel says that it is no longer there.
fn path_of(name: &str) -> (&Path, bool) {
    match name.strip_suffix(DELETED) {
        Some(path) => (Path::new(path), true),
        None => (Path::new(name), false),
    }
}

/// Whether it is the file that was mapped; none when device and inode are not known (a build id is compared by whoever
/// reads the file), or belong to a layer below (overlayfs shows another device, btrfs too).
fn is_same(file: &File, identity: &FileIdentity) -> Option<bool> {
    let FileIdentity::Inode { device: (major, minor), inode } = identity else { return None };
    let metadata = file.metadata().ok()?;
    let device = metadata.st_dev();
    let has_device = (libc::major(device), libc::minor(device)) == (*major, *minor);
    match metadata.st_ino() == *inode {
        true => Some(true),
        false if has_device => Some(false),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(path: &Path, file: FileIdentity) -> NewMapping {
        NewMapping {
            start: 0x1000,
            length_bytes: 0x1000,
            file_offset: 0,
            file,
            protection: 5,
            flags: 2,
            name: path.to_string_lossy().into_owned(),
        }
    }

    fn identity(path: &Path) -> FileIdentity {
        let metadata = std::fs::metadata(path).unwrap();
        let device = (libc::major(metadata.st_dev()), libc::minor(metadata.st_dev()));
        FileIdentity::Inode { device, inode: metadata.st_ino() }
    }

    #[test]
    fn a_file_is_opened_unless_it_was_replaced_or_deleted() {
        let pid = std::process::id().cast_signed();
        let path = std::env::temp_dir().join(format!("faultless-mapped-{pid}"));
        std::fs::write(&path, "old").unwrap();
        let mapped = mapping(&path, identity(&path));
        assert!(open(pid, &mapped).is_ok());
        // Another file moves in while the old one still has its inode.
        let (aside, new) = (path.with_extension("aside"), path.with_extension("new"));
        std::fs::rename(&path, &aside).unwrap();
        std::fs::write(&new, "new").unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert!(open(pid, &mapped).unwrap_err().contains("replaced"));
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&aside).unwrap();
        assert!(open(pid, &mapped).unwrap_err().contains("No such file"));
        let deleted = NewMapping { name: format!("{}{DELETED}", path.display()), ..mapped };
        assert!(open(pid, &deleted).unwrap_err().contains("deleted or replaced"));
    }

    #[test]
    fn a_pipe_is_not_waited_for_and_text_is_read_of_short_files_alone() {
        let place = crate::place::PrivateDirectory::create().unwrap();
        let [pipe, text, link] = ["pipe", "text", "link"].map(|name| place.path().join(name));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(open_regular(&pipe).unwrap_err().to_string().contains("no regular file"));
        std::fs::write(&text, "four").unwrap();
        std::os::unix::fs::symlink(&text, &link).unwrap();
        assert_eq!(text_of(&text, 4, None).as_deref(), Some("four"));
        assert_eq!(
            [(&text, 3), (&link, 4), (&pipe, 4)].map(|(path, most)| text_of(path, most, None)),
            [const { None }; 3]
        );
    }

    #[test]
    fn names_of_code_from_before_a_process_began_are_of_another() {
        let pid = std::process::id().cast_signed();
        let path = Path::new("/tmp").join(format!("perf-{pid}.map"));
        std::fs::write(&path, "1000 10 f\n").unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        let names_of = |age_s| {
            file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).unwrap();
            perf_map(pid)
        };
        let (own, of_another) = (names_of(0), names_of(24 * 60 * 60));
        std::fs::remove_file(&path).unwrap();
        assert_eq!((own.as_deref(), of_another), (Some("1000 10 f\n"), None));
    }

    #[test]
    fn a_process_that_has_ended_leaves_our_own_file_system() {
        let path = std::env::current_exe().unwrap();
        assert!(open(i32::MAX, &mapping(&path, identity(&path))).is_ok());
        assert!(open(i32::MAX, &mapping(&path, FileIdentity::BuildId(vec![1]))).is_ok());
    }
}
